"""Hostile text is shown, harmless, and leaves the columns where they are."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

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
from gpuplan.present.document import Role, Span, padded, visible, width_of, wrapped
from gpuplan.present.steady import steady
from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.rendering import strip_of, styles_of
from gpuplan.tui.services import Question
from gpuplan.tui.settings import Preferences
from tests.tui import tours
from tests.tui.hostile import MIXED, TEXTS, HostileServices, ended_run, going_run, harms

SIZES = [(80, 24), (120, 40)]
both_sizes = pytest.mark.parametrize("size", SIZES)
TYPED = MIXED.replace("\n", " ")
ANY = st.text(st.characters(), max_size=40)
STYLES = styles_of({})


@asynccontextmanager
async def walked(size: tuple[int, int], kind: type[GpuplanApp] = GpuplanApp) -> AsyncIterator[Pilot[None]]:
    services = HostileServices(
        runs=(
            going_run(MIXED, "run-a"),
            ended_run(MIXED, "run-b"),
            *(ended_run(text, name) for name, text in TEXTS.items()),
        )
    )
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


TOURS = pytest.mark.parametrize(
    "tour", [tours.fleet, tours.plan, tours.deploying, tours.deployments, tours.dialogs]
)


@TOURS
@both_sizes
async def test_hostile_text_is_harmless_everywhere(tour: tours.Tour, size: tuple[int, int]) -> None:
    async with walked(size) as pilot:
        await pilot.pause()
        found = [harm async for stop in tour(pilot, TYPED) for harm in harms(pilot.app, stop)]
        assert found == []


@TOURS
async def test_hostile_text_is_made_harmless_where_it_is_worded(tour: tours.Tour) -> None:
    async with walked((120, 40), Unfiltered) as pilot:
        await pilot.pause()
        found = [harm async for stop in tour(pilot, "typed") for harm in harms(pilot.app, stop, but=Input)]
        assert found == []
