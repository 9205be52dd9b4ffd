"""From 60×15 to 300×100, and from one to the other while something is open: everything is there and nothing is cut."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.app import App
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widget import Widget

from gpuplan.operations.plan import ServingOptions
from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.services import Question
from gpuplan.tui.widgets.document import Document
from gpuplan.tui.widgets.rows import Rows
from tests.tui import tours
from tests.tui.hostile import HostileServices, ended_run, going_run, harms
from tests.tui.screen import shown

SIZES = [(60, 15), (300, 100)]
"""The least and the largest; the pictures show the usual ones."""
TOURS = [tours.fleet, tours.plan, tours.deploying, tours.deployments, tours.dialogs]


@asynccontextmanager
async def opened(size: tuple[int, int]) -> AsyncIterator[Pilot[None]]:
    services = HostileServices(
        runs=(going_run("qwen3", "run-a"), ended_run("phi-4", "run-b")),
        texts=("plain", "x" * 60, "h100-c"),
        mixed="mixed",
    )
    question = Question(reference="Qwen/Qwen3-32B", serving=ServingOptions(context="8192"))
    app = GpuplanApp(services, question=question, environ={})
    async with app.run_test(size=size) as pilot:
        try:
            await pilot.pause()
            yield pilot
        finally:
            services.closing.set()


def misfits(app: App[None], about: str) -> list[str]:
    """What is cut, beside the screen or out of sight."""
    screen = app.screen
    found = harms(app, about)
    for rows in screen.query(Rows):
        if rows.display and rows.region.height and not isinstance(rows, Document):
            found += _cursor(rows, about)
    if isinstance(screen, ModalScreen):
        found += [
            f"{about}: {widget} is cut: {widget.region}" for widget in screen.query(Widget) if _cut(widget)
        ]
    return found


def _cut(widget: Widget) -> bool:
    """Whether it reaches over what is around it, where nothing scrolls."""
    around = widget.parent
    if isinstance(widget.screen, CommandPalette):  # its list hangs below it
        around = widget.screen
    if not isinstance(around, Widget) or not widget.region.area or around.allow_vertical_scroll:
        return False
    return widget.display and not around.region.contains_region(widget.region)


def _cursor(rows: Rows, about: str) -> list[str]:
    head = 1 if rows.header else 0
    line = rows.cursor + head - rows.scroll_offset.y
    room = rows.scrollable_content_region.height
    if len(rows.source) and room > head and rows._has_cursor and not head <= line < room:
        return [f"{about}: the cursor of {rows} is on line {line} of {room}"]
    return []


@pytest.mark.parametrize("tour", TOURS)
@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
async def test_everything_fits(tour: tours.Tour, size: tuple[int, int]) -> None:
    async with opened(size) as pilot:
        found = [misfit async for stop in tour(pilot, "typed") for misfit in misfits(pilot.app, stop)]
        assert found == []


@pytest.mark.parametrize("tour", [tours.plan, tours.deployments])
async def test_the_terminal_is_resized_while_something_is_open(tour: tours.Tour) -> None:
    sizes = random.Random(5)
    async with opened((80, 24)) as pilot:
        found = []
        async for stop in tour(pilot, "typed"):
            for size in (sizes.choice(SIZES), (40, 8), (80, 24)):
                await pilot.resize_terminal(*size)
                await pilot.pause()
                await pilot.pause()  # a part that came into another size may change that of the next one
                if size != (40, 8):
                    found += misfits(pilot.app, f"{stop}, resized to {size}")
        assert found == []


@pytest.mark.parametrize("mode", ["1", "2", "3"])
async def test_a_terminal_too_small_says_so_and_gives_the_keys_back(mode: str) -> None:
    async with opened((80, 24)) as pilot:
        app = pilot.app
        await pilot.press(mode)
        await pilot.pause(0.2)
        before = app.focused
        assert before is not None
        for size in ((59, 24), (80, 14), (30, 3)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert "too small" in " ".join(shown(app).split())
            assert harms(app, "tiny") == []
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert app.focused is before
        assert "too small" not in shown(app)


async def test_a_screen_below_a_dialog_fits_after_a_resize() -> None:
    async with opened((80, 24)) as pilot:
        await pilot.press("f1")
        await pilot.resize_terminal(160, 50)
        await pilot.press("escape")
        await pilot.pause()
        assert pilot.app.screen.has_class("-wide")
        assert misfits(pilot.app, "below") == []
