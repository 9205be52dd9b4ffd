"""Every key in every state, and keys at random: the app says what it cannot do and never falls over."""

import random
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Button

from gpuplan.domain.deployment import State
from gpuplan.domain.fleet import Fleet, HostStatus
from gpuplan.domain.plan import Verdict
from gpuplan.operations.plan import ServingOptions
from gpuplan.present import status_rows
from gpuplan.present.fleet_rows import HostLook, status_of
from gpuplan.present.strategy_table import VERDICTS
from gpuplan.tui import commands
from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.commands import Place
from gpuplan.tui.demo import DemoServices
from gpuplan.tui.offers import places_of
from gpuplan.tui.screens.confirm import AskScreen, Choice
from gpuplan.tui.services import Question, Services
from gpuplan.tui.widgets.rows import Rows
from tests.fleets import host
from tests.tui.demo_clock import FastClock
from tests.tui.deployed import RUNNING
from tests.tui.fleet_apps import SlowServices
from tests.tui.hostile import HostileServices, ended_run, going_run

QWEN = "Qwen/Qwen3-32B"
MOVES = (
    *(
        "up",
        "down",
        "left",
        "right",
        "pageup",
        "pagedown",
        "home",
        "end",
        "enter",
        "escape",
        "tab",
        "shift+tab",
    ),
    *(
        "space",
        "backspace",
        "delete",
        "j",
        "k",
        "g",
        "G",
        "h",
        "l",
        "1",
        "2",
        "3",
        "4",
        "5",
        "9",
        "a",
        "z",
        "at",
    ),
    *("ctrl+a", "ctrl+u", "ctrl+v", "ctrl+c", "f5", "f12", "left_square_bracket", "shift+end", "ctrl+home"),
)
LEAVES = frozenset({"q", "ctrl+q"})
SEEDS = range(1)
STROKES = 100


def keys_of_commands(places: Iterable[Place]) -> list[str]:
    wanted = set(places)
    keys = [
        key for command in commands.ALL if command.place in wanted for key in command.key.split(",") if key
    ]
    return [key for key in keys if key not in LEAVES]


# ---------------------------------------------------------------------- states


class Named(HostileServices):
    """Tame names."""

    def __init__(self, *failing: str, runs: bool = False) -> None:
        met = (going_run("qwen3", "run-a"), ended_run("phi-4", "run-b")) if runs else ()
        super().__init__(runs=met, texts=("plain", "h100-c"), mixed="mixed")
        self.failing = frozenset(failing)


class Tiny(Named):
    """Nothing fits on it."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = Fleet(hosts=(host("small", "T4", 1, free={0: 0.2}),))


class Reading(SlowServices):
    """No host has answered yet."""

    def cancel_reading(self) -> None:
        super().cancel_reading()
        self.let_all()


EVERYTHING = ("fleet", "reading", "watch", "models", "plan", "propose", "look", "deployments", "logs", "stop")
STATES = {
    "ready": lambda: GpuplanApp(Named(), question=Question(reference=QWEN), environ={}),
    "a run under way": lambda: GpuplanApp(Named(runs=True), question=Question(reference=QWEN), environ={}),
    "read-only": lambda: GpuplanApp(
        Named(runs=True), question=Question(reference=QWEN), read_only=True, environ={}
    ),
    "no fleet": lambda: GpuplanApp(Named("fleet"), question=Question(reference=QWEN), environ={}),
    "everything fails": lambda: GpuplanApp(Named(*EVERYTHING), question=Question(reference=QWEN), environ={}),
    "the rest fails": lambda: GpuplanApp(
        Named(*EVERYTHING[2:]), question=Question(reference=QWEN), environ={}
    ),
    "reading": lambda: GpuplanApp(Reading(), question=Question(reference=QWEN), environ={}),
    "no model": lambda: GpuplanApp(Named(), environ={}),
    "nothing fits": lambda: GpuplanApp(
        Tiny(), question=Question(reference=QWEN, serving=ServingOptions(context="max")), environ={}
    ),
}

DEEPLY = frozenset({"a run under way", "read-only", "everything fails"})
"""States in which the keys of what a key opens are pressed, too."""


@asynccontextmanager
async def running(
    app: GpuplanApp, size: tuple[int, int] = (80, 24), done: Iterable[str] = ()
) -> AsyncIterator[Pilot[None]]:
    """The app; what it falls over is told with the keys that were pressed."""
    pressed = done if isinstance(done, list) else []
    try:
        async with app.run_test(size=size) as pilot:
            await pilot.pause(0.1)
            try:
                yield pilot
            finally:
                closing = getattr(app.services, "closing", None)
                if isinstance(closing, threading.Event):
                    closing.set()
    except Exception as error:
        error.add_note(f"keys: {' '.join(pressed)}")
        raise


@pytest.mark.parametrize("mode", ["1", "2", "3"])
@pytest.mark.parametrize("state", list(STATES))
async def test_every_key_of_a_screen_in_every_state(
    state: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pressed: list[str] = []
    app = STATES[state]()
    async with running(app, done=pressed) as pilot:
        await _press(pilot, pressed, mode)
        below = app.screen
        await pilot.pause(0.2)
        for key in keys_of_commands([*places_of(below), Place.CANDIDATE, Place.APP]):
            await _press(pilot, pressed, key)
            if state in DEEPLY:
                await _beneath(pilot, pressed)
            for _ in range(8):
                if app.screen is below:
                    break
                await _press(pilot, pressed, mode if len(app.screen_stack) == 1 else "escape")
            assert app.screen is below, f"{pressed}: {app.screen}"


async def _beneath(pilot: Pilot[None], pressed: list[str]) -> None:
    """The keys of what a key has opened."""
    opened = pilot.app.screen
    for key in keys_of_commands(set(places_of(opened)) - {Place.APP}):
        if pilot.app.screen is opened and len(pilot.app.screen_stack) > 1:
            await _press(pilot, pressed, key)


async def _press(pilot: Pilot[None], pressed: list[str], key: str) -> None:
    pressed.append(key)
    await pilot.press(key)
    await pilot.pause()


@pytest.mark.parametrize("seed", SEEDS)
async def test_keys_at_random_on_the_demo(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await _monkey(seed, DemoServices(clock=FastClock(speed=20)))


async def test_keys_at_random_on_hostile_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    await _monkey(99, HostileServices(runs=(going_run("a", "run-a"), ended_run("[/b]", "run-b"))))


async def _monkey(seed: int, services: Services) -> None:
    chance = random.Random(seed)
    every = keys_of_commands(Place)
    pressed: list[str] = []
    app = GpuplanApp(services, question=Question(reference=QWEN), environ={})
    async with running(app, chance.choice([(80, 24), (120, 40)]), pressed) as pilot:
        for _ in range(STROKES):
            key = chance.choice(every if chance.random() < 0.55 else MOVES)
            await _press(pilot, pressed, key)
            assert app.is_running, " ".join(pressed)


# ---------------------------------------------------------------------- one key, one meaning


def test_a_key_has_one_meaning_in_a_place() -> None:
    for place in Place:
        keys = keys_of_commands([place])
        twice = {key for key in keys if keys.count(key) > 1}
        assert not twice, f"{place.value}: {twice}"


def test_no_screen_takes_a_key_that_works_everywhere() -> None:
    everywhere = set(keys_of_commands([Place.APP]))
    for place in Place:
        if place is not Place.APP:
            assert not everywhere & set(keys_of_commands([place])), place.value


def test_no_command_is_hidden_behind_the_keys_of_rows() -> None:
    """A list has the focus on these screens: its own keys come first."""
    rows = {key for binding in Rows.BINDINGS for key in getattr(binding, "key", "").split(",")}
    for place in (Place.PLAN, Place.LOGS, Place.HOST, Place.COMPARE):
        hidden = rows & set(keys_of_commands([place]))
        assert not hidden, f"{place.value}: {hidden}"


# ---------------------------------------------------------------------- without colours


async def test_without_colours_the_cursor_and_the_focus_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = GpuplanApp(Named(), question=Question(reference=QWEN), environ={})
    async with running(app) as pilot:
        assert app.no_color
        await pilot.pause(0.2)
        rows = app.screen.query(Rows).first()
        head = 1 if rows.header else 0
        looks = [_look(pilot, rows.region.y + head + line) for line in (0, 1)]
        assert looks[0] != looks[1]
        app.push_screen(
            AskScreen(lambda _width: (), (Choice(id="a", text="Stay"), Choice(id="b", text="Leave")))
        )
        await pilot.pause()
        first, second = app.screen.query(Button)
        before = _looks(pilot, first), _looks(pilot, second)
        await pilot.press("right")
        await pilot.pause()
        after = _looks(pilot, first), _looks(pilot, second)
        assert before[0] != after[0]
        assert before[1] != after[1]


def _look(pilot: Pilot[None], line: int) -> set[object]:
    """Styles on a line of the screen."""
    strip = pilot.app.screen._compositor.render_strips()[line]
    return {
        (segment.style.bgcolor, segment.style.bold, segment.style.reverse)
        for segment in strip
        if segment.style
    }


def _looks(pilot: Pilot[None], widget: Widget) -> object:
    region = widget.region
    strip = pilot.app.screen._compositor.render_strips()[region.y].crop(region.x, region.right)
    return [(one.style.bgcolor, one.style.bold, one.style.reverse) for one in strip if one.style]


def test_states_differ_in_words() -> None:
    shape = status_rows.columns(["one"], ["here"], 100)
    states = {
        "".join(span.text for span in status_rows.deployment_line(replace(RUNNING, state=state), shape))
        for state in State
    }
    assert len(states) == len(State)
    one = host("one", "H100", 1)
    looks = [HostLook(), HostLook(waiting=True), HostLook(unread=True), HostLook(old="34 s old")]
    told = [status_of(one, look).text for look in looks]
    told += [
        status_of(replace(one, status=status), HostLook()).text for status in HostStatus if status != "ok"
    ]
    assert len(set(told)) == len(told)
    assert len({word for word, _ in VERDICTS.values()}) == len(Verdict)
