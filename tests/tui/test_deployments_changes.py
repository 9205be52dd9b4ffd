"""Stopping and restarting from the app: asked first, Cancel first, told to the end, nothing but what was shown."""

import threading
from dataclasses import replace

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input

from gpuplan.domain.deployment import ContainerRole, Member
from gpuplan.domain.events import MemberSeen, Phase, PhaseStarted, Remark, Undone
from gpuplan.domain.fact import Fact, Severity
from gpuplan.errors import UsageError
from gpuplan.operations.restart import RestartFailed
from gpuplan.operations.stop import Stopped
from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.deployments_state import CHANGES, changes_under_way
from gpuplan.tui.screens.stop import ChangeScreen, RestartScreen, Stage, StopScreen
from tests.tui.deployed import (
    HOSTILE,
    LEADER,
    LEFTOVER,
    RUNNING,
    DeploymentsApp,
    Scripted,
    container,
    intended,
    report,
)
from tests.tui.screen import shown
from tests.tui.test_deployments import said, settled, until

LEFT = Fact(
    code="GP856",
    severity=Severity.ERROR,
    subject={"deployment": RUNNING.name, "host": "h100-b", "container": "gpuplan-qwen3-32b-n1"},
    figures={"why": "no [answer] within 60 s"},
)
COURSE = (
    PhaseStarted(phase=Phase.STOP, awaits="3 requests to end", deadline_seconds=30.0),
    MemberSeen(member=replace(LEADER, state="exited", health=None)),
    Remark(fact=LEFTOVER),
    Undone(host="h100-a", container="[x]", what="removed"),
)


def change(pilot: Pilot[None]) -> ChangeScreen:
    screen = pilot.app.screen
    assert isinstance(screen, ChangeScreen)
    return screen


async def confirm(pilot: Pilot[None]) -> None:
    await pilot.press("tab")
    focused = pilot.app.focused
    assert isinstance(focused, Button)
    assert focused.id == "change-go"
    await pilot.press("enter")


@pytest.mark.parametrize("key", ["enter", "escape"])
@pytest.mark.parametrize("what", ["x", "b"])
async def test_nothing_is_done_by_default(key: str, what: str) -> None:
    services = Scripted(report(RUNNING))
    app = DeploymentsApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press(what)
        text = await settled(pilot)
        assert "h100-b: gpuplan-qwen3-32b-n1 (healthy)" in text
        assert "they have 30 s to end" in text
        await pilot.press(key)
        await settled(pilot)
        assert not isinstance(app.screen, ChangeScreen)
    assert services.done == []


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_stop_is_told_to_its_end(size: tuple[int, int]) -> None:
    services = Scripted(report(RUNNING))
    services.events = COURSE
    services.gate = threading.Event()
    services.gate.set()
    app = DeploymentsApp(services)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        await pilot.press("x")
        await settled(pilot)
        await pilot.press("shift+tab")
        field = app.screen.query_one("#change-drain", Input)
        assert field.has_focus
        field.value = "90"
        assert "they have 90 s to end" in await settled(pilot)
        await pilot.press("tab")
        services.gate.clear()
        await confirm(pilot)
        await until(pilot, lambda: len(change(pilot).course) == 4)
        text = shown(app)
        assert "stop, waiting for 3 requests to end (at most 30 s)" in text
        assert "h100-a: removed [x]" in text
        assert "GP851" in text
        assert "Close, the stop goes on" in text
        app.later(180)
        change(pilot).tell_age()
        await pilot.pause()
        assert "for 3 min" in shown(app)
        services.gate.set()
        text = await settled(pilot)
        assert "qwen3-32b: 2 containers on 2 hosts stopped and removed" in text
        looks = services.looks
        await pilot.press("enter")
        await settled(pilot)
        assert services.looks > looks, "what is left is looked at"
    assert services.drained == [90]
    assert services.done == ["stop qwen3-32b"]


async def test_what_is_left_is_told() -> None:
    services = Scripted(report(RUNNING))
    services.stopped = Stopped(name=RUNNING.name, removed=(("h100-a", LEADER.container),), facts=(LEFT,))
    app = DeploymentsApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("x")
        await settled(pilot)
        await confirm(pilot)
        text = await settled(pilot)
        assert "gpuplan-qwen3-32b-n1 on h100-b was not stopped: no [answer] within 60 s [GP856]" in text
        assert "hint: gpuplan status shows it" in text


@pytest.mark.parametrize("key", ["x", "b"])
async def test_names_from_elsewhere_are_harmless_in_the_question(key: str) -> None:
    services = Scripted(report(HOSTILE))
    services.intends = [intended(HOSTILE)]
    app = DeploymentsApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press(key)
        text = await settled(pilot)
        assert text.count("[red]x[/foo]") >= 2, "in the title and in the text"
        assert "[bold]evil[/]" in text
        assert "\x1b" not in text


@pytest.mark.parametrize("typed", ["-1", "", "999999", "٣"])
async def test_seconds_must_make_sense(typed: str) -> None:
    services = Scripted(report(RUNNING))
    app = DeploymentsApp(services)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("x")
        await settled(pilot)
        app.screen.query_one("#change-drain", Input).value = typed
        await confirm(pilot)
        await settled(pilot)
        assert "a whole number from 0" in said(pilot)
        assert change(pilot).stage is Stage.ASKING
    assert services.done == []


async def test_nothing_but_what_was_shown_is_stopped() -> None:
    services = Scripted(report(RUNNING))
    new = Member(host="h100-b", container="gpuplan-new", id="c9", role=ContainerRole.LEADER, state="running")
    before = intended(RUNNING)
    after = replace(before, containers=(*before.containers, container(new)))
    services.intends = [before, after]
    app = DeploymentsApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("x")
        await settled(pilot)
        await confirm(pilot)
        text = await settled(pilot)
        assert "Nothing was stopped" in text
        assert "h100-b: gpuplan-new (running)" in text
        assert services.done == []
        assert app.focused is app.screen.query_one("#change-cancel")
        await confirm(pilot)
        assert "stopped and removed" in await settled(pilot)
    assert services.done == ["stop qwen3-32b"]


async def test_silent_hosts_are_told_before() -> None:
    services = Scripted(report(RUNNING))
    services.intends = [intended(RUNNING, "h2")]
    app = DeploymentsApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("x")
        assert "h2 does not answer: what runs there goes on" in await settled(pilot)


async def test_a_stop_whose_window_is_closed_goes_on_and_tells_its_end() -> None:
    services = Scripted(report(RUNNING))
    app = DeploymentsApp(services)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("x")
        await settled(pilot)
        services.gate = threading.Event()
        await confirm(pilot)
        await until(pilot, lambda: services.drained == [30])
        await pilot.press("escape")
        await pilot.pause()
        assert not isinstance(app.screen, ChangeScreen)
        assert [worker.name for worker in app.workers if worker.group == CHANGES] == ["stop qwen3-32b"]
        services.gate.set()
        await settled(pilot)
        assert said(pilot) == "qwen3-32b: stopped"
    assert services.done == ["stop qwen3-32b"]


async def test_a_stop_that_fails_says_why() -> None:
    services = Scripted(report(RUNNING))
    app = DeploymentsApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("x")
        await settled(pilot)
        services.error = UsageError("h100-a is locked by [bob]", hint="wait for it")
        await confirm(pilot)
        text = await settled(pilot)
        assert "h100-a is locked by [bob]" in text
        assert "hint: wait for it" in text


async def test_a_restart_is_told_to_its_end() -> None:
    services = Scripted(report(RUNNING))
    services.events = COURSE
    app = DeploymentsApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("enter")
        await settled(pilot)
        await pilot.press("b")
        await settled(pilot)
        assert isinstance(app.screen, RestartScreen)
        await confirm(pilot)
        text = await settled(pilot)
        assert "qwen3-32b serves again at http://10.10.100.11:40000" in text
        assert "stop, waiting for 3 requests to end" in text
    assert services.done == ["restart qwen3-32b"]


async def test_a_restart_that_fails_says_what_is_left() -> None:
    services = Scripted(report(RUNNING))
    figures = {"why": "no answer after 7200 s", "state": "error", "members": ["leader on h100-a: exited"]}
    fact = Fact(code="GP859", severity=Severity.ERROR, subject={"deployment": RUNNING.name}, figures=figures)
    app = DeploymentsApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("b")
        await settled(pilot)
        services.error = RestartFailed([fact], RUNNING)
        await confirm(pilot)
        text = await settled(pilot)
        assert "qwen3-32b did not come back: no answer after 7200 s [GP859]" in text
        assert "leader on h100-a: exited" in text
        assert "gpuplan logs qwen3-32b" in text


@pytest.mark.parametrize("key", ["x", "b"])
async def test_read_only_dims_what_changes_hosts(key: str) -> None:
    services = Scripted(report(RUNNING))
    app = DeploymentsApp(services, read_only=True)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        bindings = app.screen.active_bindings
        assert not bindings[key].enabled
        assert bindings["l"].enabled
        await pilot.press(key)
        assert not isinstance(app.screen, StopScreen)
        app.screen.action_stop_deployment()  # type: ignore[attr-defined]
        await settled(pilot)
        assert "--read-only" in said(pilot)
        assert not isinstance(app.screen, ChangeScreen)
    assert services.done == []


async def test_leaving_asks_while_something_is_restarted() -> None:
    services = Scripted(report(RUNNING))
    app = GpuplanApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("3")
        await until(pilot, lambda: "qwen3-32b" in shown(app))
        await pilot.press("b")
        await pilot.pause()
        services.gate = threading.Event()
        await confirm(pilot)
        await until(pilot, lambda: services.drained == [30])
        await pilot.press("escape")
        await pilot.pause()
        assert changes_under_way(app) == ("restart qwen3-32b",)
        await pilot.press("q")
        await until(pilot, lambda: "Under way: restart qwen3-32b." in shown(app))
        await pilot.press("enter")
        await pilot.pause()
        assert app.is_running, "Stay is the default"
        services.gate.set()
        await until(pilot, lambda: changes_under_way(app) == ())
        await pilot.press("q")
        await pilot.pause()
    assert services.done == ["restart qwen3-32b"]
