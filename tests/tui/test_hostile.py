"""Hostile text is shown, harmless, and leaves the columns where they are."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App
from textual.filter import LineFilter
from textual.pilot import Pilot
from textual.widgets import Input

from gpuplan.errors import UsageError
from gpuplan.operations.plan import ServingOptions
from gpuplan.present.app_text import source_label
from gpuplan.present.document import Line, Role, Span, padded, visible, width_of, wrapped
from gpuplan.present.steady import steady
from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.rendering import strip_of, styles_of
from gpuplan.tui.services import Question
from gpuplan.tui.settings import Preferences
from gpuplan.tui.widgets.rows import Rows
from tests.tui import tours
from tests.tui.deploy_apps import until
from tests.tui.hostile import MIXED, TEXTS, HostileServices, ended_run, going_run, harms
from tests.tui.screen import shown

SIZES = [(80, 24), (120, 40)]
both_sizes = pytest.mark.parametrize("size", SIZES)
TYPED = MIXED.replace("\n", " ")
ANY = st.text(st.characters(), max_size=40)
STYLES = styles_of({})


@asynccontextmanager
async def walked(
    size: tuple[int, int], kind: type[GpuplanApp] = GpuplanApp, failing: Sequence[str] = ()
) -> AsyncIterator[Pilot[None]]:
    services = HostileServices(
        runs=(
            going_run(MIXED, "run-a"),
            ended_run(MIXED, "run-b"),
            *(ended_run(text, name) for name, text in TEXTS.items()),
        )
    )
    services.failing = frozenset(failing)
    question = Question(reference="Qwen/Qwen3-32B", serving=ServingOptions(context="8192"))
    preferences = Preferences(problem=UsageError(MIXED, hint=MIXED))
    app = kind(services, question=question, preferences=preferences, environ={})
    async with app.run_test(size=size) as pilot:
        try:
            yield pilot
        finally:
            services.closing.set()


# ---------------------------------------------------------------------- characters


@given(ANY)
def test_what_is_visible_cannot_move_the_cursor(text: str) -> None:
    assert all(char.isprintable() for char in visible(text))
    assert visible(visible(text)) == visible(text)
    visible(text).encode()


@given(ANY)
def test_cells_are_counted_as_the_terminal_is_written(text: str) -> None:
    shown_text = visible(text)
    assert width_of(shown_text) == cell_len(shown_text)
    assert width_of(steady(text)) == cell_len(steady(text))


def test_every_character_is_as_wide_as_the_terminal_is_told() -> None:
    other = [
        hex(point)
        for point in range(0x110000)
        if (char := visible(chr(point))) and width_of(char) != cell_len(char)
    ]
    assert other == []


@given(st.lists(ANY, max_size=5))
def test_a_strip_is_as_wide_as_its_line(texts: list[str]) -> None:
    line = tuple(Span(visible(text), Role.BAD) for text in texts)
    strip = strip_of(line, STYLES)
    assert strip.cell_length == sum(width_of(span.text) for span in line)
    assert strip.crop_extend(3, 23, None).cell_length == 20


@given(ANY, st.integers(0, 30), st.booleans())
def test_a_padded_text_has_its_width(text: str, width: int, right: bool) -> None:
    assert width_of(padded(visible(text), width, right=right)) == width


@given(st.text(st.characters(), max_size=200), st.integers(20, 60), st.sampled_from(["", "hint: ", "一二"]))
def test_wrapped_lines_stay_within_the_width(text: str, width: int, first: str) -> None:
    rows = wrapped(text, width, first=first)
    assert all(width_of(span.text) <= width for row in rows for span in row)
    kept = "".join(span.text for row in rows for span in row)
    assert kept.replace(" ", "") == (first + visible(text)).replace(" ", "")


# ---------------------------------------------------------------------- screens


class Unfiltered(GpuplanApp):
    """Without the last of the safeguards."""

    def get_line_filters(self) -> Sequence[LineFilter]:
        return App.get_line_filters(self)


TOURS = pytest.mark.parametrize("tour", [tours.plan, tours.deploying, tours.dialogs])
"""The lists of hosts and of deployments have hostile tests of their own."""


@pytest.mark.parametrize("tour", [tours.plan, tours.dialogs])
async def test_hostile_text_that_is_typed_is_harmless(tour: tours.Tour) -> None:
    async with walked((80, 24)) as pilot:
        await pilot.pause()
        found = [harm async for stop in tour(pilot, TYPED) for harm in harms(pilot.app, stop)]
        assert found == []


@TOURS
async def test_hostile_text_is_made_harmless_where_it_is_worded(tour: tours.Tour) -> None:
    async with walked((120, 40), Unfiltered) as pilot:
        await pilot.pause()
        found = [harm async for stop in tour(pilot, "typed") for harm in harms(pilot.app, stop, but=Input)]
        assert found == []


FAILING = [
    ("fleet",),
    ("reading",),
    ("watch", "models", "plan", "look", "deployments"),
    ("propose", "logs", "stop", "restart"),
]


@pytest.mark.parametrize("failing", FAILING, ids="-".join)
@both_sizes
async def test_a_hostile_refusal_is_told_harmlessly(failing: tuple[str, ...], size: tuple[int, int]) -> None:
    async with walked(size, failing=failing) as pilot:
        app = pilot.app
        found: list[str] = []
        for keys in (
            "1",
            "R",
            "2",
            "o",
            "escape",
            "d",
            "escape",
            "escape",
            "3",
            "end",
            "enter",
            "escape",
            "x",
            "escape",
            "l",
        ):
            await pilot.press(keys)
            await pilot.pause(0.1)
            found += harms(app, f"after {keys}")
        assert found == []


async def test_a_refusal_is_shown_as_it_is() -> None:
    async with walked((120, 40), failing=("plan", "reading")) as pilot:
        await pilot.pause(0.2)
        text = shown(pilot.app)
        assert "[red]x[/red][/foo]a[b]c[@click=app.bell]x[/][$error]x[/] $HOME $text ${x}" in text


@both_sizes
async def test_rows_of_hostile_hosts_have_the_columns_of_tame_ones(size: tuple[int, int]) -> None:
    async with walked(size) as pilot:
        app = pilot.app
        assert isinstance(app, GpuplanApp)
        await until(pilot, lambda: bool(app.state.fleet.hosts) and not app.state.total)
        await pilot.pause()
        source = app.screen.query_one("#fleet-rows", Rows).source
        rows = [source.line(index, size[0] - 2) for index in range(len(source))]
        keys = [source.key(index) for index in range(len(source))]
        hosts = [
            row for row, key in zip(rows, keys, strict=True) if isinstance(key, tuple) and key[1] is None
        ]
        failed = [
            row for row in hosts if any("failed" in span.text or "unreachable" in span.text for span in row)
        ]
        assert len({starts(row) for row in hosts if row not in failed}) == 1
        assert len({starts(row) for row in failed}) == 1
        await pilot.press("3")
        await until(
            pilot, lambda: len(app.screen.query(Rows)) > 1 and len(app.screen.query(Rows).first().source) > 3
        )
        await pilot.pause()
        listed = app.screen.query(Rows).first().source
        first = next(index for index in range(len(listed)) if listed.key(index) == ("deployment", "tame-a"))
        shapes = {starts(listed.line(index, size[0] - 4)) for index in range(first, len(listed))}
        assert len({shape[:4] for shape in shapes}) == 1


def starts(line: Line) -> tuple[int, ...]:
    """Cells at which the parts of a row begin, as a terminal is told to count them."""
    return tuple(accumulate((cell_len(span.text) for span in line), initial=0))


def test_names_that_are_templates_stay_as_they_are() -> None:
    assert source_label("live", "{0} %s {}") == "live: {0} %s {}"


async def test_half_a_character_can_be_copied() -> None:
    async with walked((80, 24)) as pilot:
        pilot.app.copy_to_clipboard(MIXED)
        assert "[red]x[/red]" in pilot.app.clipboard
