"""The candidate on the plan screen: its keys work wherever the focus is, its remedies turn the knobs."""

from textual.pilot import Pilot

from gpuplan.domain.plan import StrategyName, Verdict
from gpuplan.operations.plan import ServingOptions
from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.screens.compare import CompareScreen
from gpuplan.tui.screens.export import ChooseExport
from gpuplan.tui.screens.plan import PlanScreen
from gpuplan.tui.services import Question
from gpuplan.tui.widgets.candidate import CandidateDetail
from tests.tui.fakes import FakeServices

MODEL = "Qwen/Qwen3-32B"


async def _planned(app: GpuplanApp, pilot: Pilot[None]) -> PlanScreen:
    """The plan screen with an answer to what is asked."""
    await pilot.press("2")
    await pilot.pause()
    screen = app.screen
    assert isinstance(screen, PlanScreen)
    while screen.plan is None or screen.planning.waiting:
        await pilot.pause()
    await pilot.pause()
    return screen


async def test_compare_and_copy_from_the_strategies() -> None:
    app = GpuplanApp(FakeServices(), question=Question(reference=MODEL))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await _planned(app, pilot)
        assert app.focused is screen.strategies
        detail = screen.query_one(CandidateDetail)
        first = detail.shown
        assert first is not None
        assert first.choice == (1, 0)
        await pilot.press("equals_sign", "down", "equals_sign")
        await pilot.pause()
        assert isinstance(app.screen, CompareScreen)
        assert "single GPU" in app.screen.a.title
        assert "single host" in app.screen.b.title
        await pilot.press("escape")
        await pilot.pause()
        await pilot.press("y")
        await pilot.pause()
        assert isinstance(app.screen, ChooseExport)


async def test_without_a_candidate_the_keys_are_dimmed() -> None:
    app = GpuplanApp(FakeServices(), question=Question(reference=MODEL))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await _planned(app, pilot)
        await pilot.press("home")
        await pilot.pause()
        assert screen.choice is None
        assert screen.check_action("copy_candidate", ()) is None
        assert screen.why_not("save_candidate") == "there is no candidate under the cursor"
        await pilot.press("y")
        await pilot.pause()
        assert app.screen is screen


async def test_enter_on_a_remedy_applies_it() -> None:
    asked = ServingOptions(engine_args=("--gpu-memory-utilization", "0.8"))
    app = GpuplanApp(FakeServices(), question=Question(reference=MODEL, serving=asked))
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await _planned(app, pilot)
        before = screen.plan
        assert before is not None
        screen.strategies.move_to((StrategyName.SINGLE_GPU, 0))
        await pilot.pause()
        result = before.strategies[1]
        assert result.verdict is Verdict.NO_FIT
        assert result.remedies[0].kind == "gpu_memory_utilization"
        detail = screen.query_one(CandidateDetail)
        detail.focus()
        detail.move_to(("remedies", "1", "#0"))
        await pilot.press("enter")
        await pilot.pause()
        while screen.plan is before or screen.planning.waiting:
            await pilot.pause()
        assert screen.plan is not None
        assert screen.plan.strategies[1].verdict is Verdict.FITS
        assert screen.previous is before
        await pilot.pause()
        shown = detail.shown
        assert shown is not None
        assert shown.previous is before
