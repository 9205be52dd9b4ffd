"""Comparing: one is marked as A, another one is B; both side by side, stacked where it is narrow."""

import pytest
from textual.pilot import Pilot

from gpuplan.tui.screens.compare import CompareScreen
from tests.tui.candidates import CandidateApp, lines_of
from tests.tui.screen import shown


async def _both(app: CandidateApp, pilot: Pilot[None]) -> None:
    plan = app.looked.ask()
    app.detail.show_candidate(plan, (1, 0), 1, None)
    await pilot.press("equals_sign")
    app.detail.show_candidate(plan, (2, 0), 2, None)
    await pilot.press("equals_sign")
    await pilot.pause()


async def test_the_first_is_marked_and_the_second_compared_with_it() -> None:
    app = CandidateApp()
    async with app.run_test(size=(120, 40)) as pilot:
        plan = app.looked.ask()
        app.detail.show_candidate(plan, (1, 0), 1, None)
        await pilot.press("equals_sign")
        assert lines_of(app)[0].startswith("[A] ✓ fits")
        assert app.detail.marked is not None
        assert "marked as A" in app.toasts[-1]
        app.detail.show_candidate(plan, (2, 0), 2, None)
        await pilot.pause()
        assert not lines_of(app)[0].startswith("[A]")
        await pilot.press("equals_sign")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, CompareScreen)
        assert "single GPU on h100-a:0" in screen.a.title
        assert "single host" in screen.b.title
        await pilot.press("escape")
        await pilot.pause()
        assert app.detail.marked is not None


async def test_the_marked_one_again_is_unmarked() -> None:
    app = CandidateApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.detail.show_candidate(app.looked.ask(), (1, 0), 1, None)
        await pilot.press("equals_sign", "equals_sign")
        assert app.detail.marked is None
        assert not lines_of(app)[0].startswith("[A]")


async def test_a_stays_marked_over_plans() -> None:
    app = CandidateApp()
    async with app.run_test(size=(80, 24)) as pilot:
        app.detail.show_candidate(app.looked.ask(), (1, 0), 1, None)
        await pilot.press("equals_sign")
        app.detail.show_candidate(app.looked.ask(context="4k"), (1, 0), 1, None)
        await pilot.press("equals_sign")
        await pilot.pause()
        assert isinstance(app.screen, CompareScreen)
        assert "context" in shown(app) or app.screen.query("#compare-lines")


@pytest.mark.parametrize(("size", "beside"), [((80, 24), False), ((120, 40), True)])
async def test_side_by_side_or_stacked(size: tuple[int, int], beside: bool) -> None:
    app = CandidateApp()
    async with app.run_test(size=size) as pilot:
        await _both(app, pilot)
        rows = shown(app).split("\n")
        assert all(len(row) <= size[0] for row in rows)
        assert any("TP1" in row and "TP2" in row for row in rows[3:]) is beside


async def test_swapping_turns_a_and_b() -> None:
    app = CandidateApp()
    async with app.run_test(size=(120, 40)) as pilot:
        await _both(app, pilot)
        screen = app.screen
        assert isinstance(screen, CompareScreen)
        before = (screen.a, screen.b)
        assert "A  Qwen/Qwen3-32B: single GPU" in shown(app)
        await pilot.press("x")
        await pilot.pause()
        assert (screen.b, screen.a) == before
        assert "A  Qwen/Qwen3-32B: single host" in shown(app)
