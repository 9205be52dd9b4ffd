"""The plan screen: a question is changed with a few keys, the newest one is answered, the last answer stays meanwhile."""

import threading
from dataclasses import replace
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Plan, StrategyName, Verdict
from gpuplan.errors import InventoryError, ModelError, UsageError
from gpuplan.operations.plan import ServingOptions
from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.messages import DeployAsked
from gpuplan.tui.planning import Planning
from gpuplan.tui.screens.pick_model import PickModel, ranked
from gpuplan.tui.screens.plan import PlanScreen
from gpuplan.tui.services import OnHost, Question
from gpuplan.tui.state import FleetState
from gpuplan.tui.widgets.knobs import KnobForm
from gpuplan.tui.widgets.remedies import ChooseRemedy
from gpuplan.tui.widgets.strategies import Strategies
from tests.tui.fakes import FakeServices
from tests.tui.screen import shown

QWEN = "Qwen/Qwen3-32B"
BIG = "Qwen/Qwen3-235B-A22B"
SIZES = [(80, 24), (120, 40)]
both_sizes = pytest.mark.parametrize("size", SIZES)


class Counting(FakeServices):
    """Keeps what was asked; questions about `held` models wait for `release`."""

    def __init__(self, fleet: Fleet | None = None) -> None:
        super().__init__(fleet)
        self.asked: list[Question] = []
        self.held: frozenset[str] = frozenset()
        self.release = threading.Event()
        self.began = threading.Event()

    def plan(self, question: Question, fleet: Fleet) -> Plan:
        self.asked.append(question)
        if question.reference in self.held:
            self.began.set()
            assert self.release.wait(20)
        return super().plan(question, fleet)


def app_with(
    services: FakeServices | None = None, reference: str = QWEN, read_only: bool = False, **options: Any
) -> GpuplanApp:
    question = Question(reference=reference, serving=replace(ServingOptions(), **options))
    return GpuplanApp(services or Counting(), question=question, read_only=read_only)


async def settle(pilot: Pilot[None]) -> None:
    """Until everything that was asked is answered."""
    await pilot.pause()
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()


async def opened(pilot: Pilot[None]) -> PlanScreen:
    await settle(pilot)
    await pilot.press("2")
    await settle(pilot)
    screen = pilot.app.screen
    assert isinstance(screen, PlanScreen)
    return screen


def judged(screen: PlanScreen, strategy: StrategyName) -> Verdict:
    assert screen.plan is not None
    return next(item.verdict for item in screen.plan.strategies if item.strategy is strategy)


# ---------------------------------------------------------------------- opening


@both_sizes
async def test_the_recommended_strategy_is_marked_and_under_the_cursor(size: tuple[int, int]) -> None:
    app = app_with()
    async with app.run_test(size=size) as pilot:
        screen = await opened(pilot)
        assert screen.plan is not None
        assert screen.strategies.chosen == screen.plan.recommended == (StrategyName.SINGLE_GPU, 0)
        text = shown(app)
        assert "● Recommended: single GPU on h100-a:0 (TP1)" in text
        assert next(line for line in text.splitlines() if "single GPU    ✓ fits" in line).count("●") == 1
        assert app.focused is screen.strategies
        assert QWEN in text
        assert app.remembered.models == (QWEN,)


@both_sizes
async def test_without_a_model_the_screen_says_how_to_choose_one(size: tuple[int, int]) -> None:
    services = Counting()
    app = app_with(services, "")
    async with app.run_test(size=size) as pilot:
        await opened(pilot)
        assert "No model is chosen  o: choose one" in shown(app)
        assert services.asked == []


@both_sizes
async def test_a_fleet_that_is_still_read_is_planned_on_when_it_is_there(size: tuple[int, int]) -> None:
    class Slowly(Counting):
        def read_fleet(self, on_host: OnHost, only: object = ()) -> Fleet:
            on_host(self.answer.hosts[0])
            assert self.release.wait(20)
            return super().read_fleet(on_host)

    services = Slowly()
    app = app_with(services)
    async with app.run_test(size=size) as pilot:
        await pilot.press("2")
        while not app.state.total:
            await pilot.pause()
        await pilot.pause()
        assert "the fleet is being read" in shown(app)
        assert services.asked == []
        services.release.set()
        await settle(pilot)
        await settle(pilot)
        assert "● Recommended" in shown(app)
        assert len(services.asked) == 1


async def test_a_fleet_that_cannot_be_read_is_told_with_a_way_out() -> None:
    class Broken(Counting):
        def expected(self) -> tuple[str, ...]:
            raise InventoryError("inventory.yaml:3: hosts[a]: wrong", hint="mend line 3")

    app = app_with(Broken())
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        text = shown(app)
        assert "the fleet could not be read: inventory.yaml:3: hosts[a]: wrong" in text
        assert "mend line 3" in text


@both_sizes
async def test_when_nothing_fits_refusals_and_remedies_are_there(size: tuple[int, int]) -> None:
    app = app_with(reference=BIG, context="131072", concurrency=500)
    async with app.run_test(size=size) as pilot:
        screen = await opened(pilot)
        assert screen.plan is not None
        assert screen.plan.recommended is None
        assert "Nothing fits" in shown(app)
        assert screen.choice is None
        await pilot.press("d")
        await pilot.pause()
        assert "✗ no fit" in shown(app)


# ---------------------------------------------------------------------- the model


@both_sizes
async def test_a_model_is_picked_by_letters_of_its_name(size: tuple[int, int]) -> None:
    app = app_with(reference="")
    async with app.run_test(size=size) as pilot:
        screen = await opened(pilot)
        await pilot.press("o")
        await settle(pilot)
        assert isinstance(app.screen, PickModel)
        assert "200 of 200 models" in shown(app)
        await pilot.press(*"gptoss120")
        await pilot.pause()
        assert "openai/gpt-oss-120b" in shown(app)
        await pilot.press("enter")
        await settle(pilot)
        assert screen.asking.reference == "openai/gpt-oss-120b"
        assert screen.plan is not None
        assert screen.plan.model["name"] == "openai/gpt-oss-120b"


@pytest.mark.parametrize(
    ("typed", "best"),
    [
        ("qwen3 32b", "Qwen/Qwen3-32B"),
        ("qwen332bfp8", "Qwen/Qwen3-32B-FP8"),
        ("gptoss20", "openai/gpt-oss-20b"),
        ("llam4scout", "meta-llama/Llama-4-Scout"),
    ],
)
def test_the_plainest_name_with_these_letters_is_first(typed: str, best: str) -> None:
    names = [model.name for model in FakeServices().models()]
    assert ranked(typed, names)[0].startswith(best)


def test_every_name_is_there_without_letters_and_none_with_foreign_ones() -> None:
    assert ranked("", ["b", "a"]) == ["b", "a"]
    assert ranked("zzzqqq", ["b", "a"]) == []


async def test_a_hub_id_is_taken_as_it_is_typed_never_for_another_model() -> None:
    app = app_with(reference="")
    async with app.run_test(size=(80, 24)) as pilot:
        await opened(pilot)
        await pilot.press("o")
        await settle(pilot)
        await pilot.press(*"Qwen/Qwen3-32")
        await pilot.pause()
        assert "as typed: a hub id" in shown(app)
        picked: list[str | None] = []
        app.screen.dismiss = picked.append  # type: ignore[assignment,method-assign]
        await pilot.press("enter")
        assert picked == ["Qwen/Qwen3-32"]


async def test_recently_used_models_come_first_and_escape_changes_nothing() -> None:
    app = app_with(reference="openai/gpt-oss-20b")
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await pilot.press("o")
        await settle(pilot)
        lines = shown(app).splitlines()
        header = next(number for number, line in enumerate(lines) if "parameters" in line)
        assert "openai/gpt-oss-20b" in lines[header + 1]
        await pilot.press("escape")
        await settle(pilot)
        assert screen.asking.reference == "openai/gpt-oss-20b"


@both_sizes
async def test_an_unknown_model_is_told_in_place_and_what_was_typed_is_kept(size: tuple[int, int]) -> None:
    app = app_with()
    async with app.run_test(size=size) as pilot:
        screen = await opened(pilot)
        await pilot.press("o")
        await settle(pilot)
        await pilot.press(*"./no[red]/where", "enter")
        await settle(pilot)
        text = shown(app)
        assert isinstance(screen.error, ModelError)
        assert "✗ ./no[red]/where: no such file or directory" in text
        assert "hint: a hub id has the form org/name" in text
        assert f"! old: the plan below answers the question before about {QWEN}" in text
        assert screen.is_old
        assert "single GPU    ✓ fits" in text
        await pilot.press("o")
        await settle(pilot)
        assert app.screen.query_one("#pick-text", Input).value == "./no[red]/where"


@both_sizes
async def test_a_slow_plan_is_overtaken_by_a_newer_question(size: tuple[int, int]) -> None:
    services = Counting()
    app = app_with(services)
    seen: list[object] = []
    async with app.run_test(size=size, message_hook=seen.append) as pilot:
        screen = await opened(pilot)
        services.held = frozenset({BIG})
        screen.planning.PATIENCE_SECONDS = 0.0  # type: ignore[misc]
        screen._picked(BIG)
        while not services.began.is_set():
            await pilot.pause()
        while "reading" not in shown(app):
            await pilot.pause()
        assert f"reading {BIG}…" in shown(app)
        assert "single GPU    ✓ fits" in shown(app)
        await pilot.press("down")
        assert screen.strategies.chosen == (StrategyName.SINGLE_HOST, 0)
        screen._picked("Qwen/Qwen3-8B")
        await settle(pilot)
        assert screen.plan is not None
        assert screen.plan.model["name"] == "Qwen/Qwen3-8B"
        services.release.set()
        await settle(pilot)
        await pilot.pause()
        assert screen.plan.model["name"] == "Qwen/Qwen3-8B"
        answers = [item.question.reference for item in seen if isinstance(item, Planning.Planned)]
        assert BIG not in answers


# ---------------------------------------------------------------------- knobs


@both_sizes
async def test_knobs_replan_as_one_types_and_one_undo_takes_them_back(size: tuple[int, int]) -> None:
    services = Counting()
    app = app_with(services)
    async with app.run_test(size=size) as pilot:
        screen = await opened(pilot)
        first = screen.plan
        await pilot.press("e")
        await pilot.pause()
        assert screen.query_one(KnobForm).region.height > 0
        await pilot.press(*"8192")
        await settle(pilot)
        assert screen.plan is not None
        assert screen.plan.request["context"] == 8192
        assert screen.previous is first
        assert app.question.serving.context == "8192"
        await pilot.press("down", "2", "escape")
        await settle(pilot)
        assert screen.plan.request["concurrency"] == 2
        assert app.focused is screen.strategies
        await pilot.press("u")
        await settle(pilot)
        assert (screen.asking.knobs.context, screen.asking.knobs.concurrency) == ("8192", "")
        await pilot.press("u")
        await settle(pilot)
        assert screen.asking.knobs.context == ""
        assert screen.plan == first
        assert not screen.history


async def test_letters_typed_faster_than_they_are_taken_stay_in_order() -> None:
    app = app_with()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        await pilot.press("e")
        field = screen.query_one("#knob-context", Input)
        for letter in "16384":
            field.insert_text_at_cursor(letter)
        await settle(pilot)
        assert (field.value, field.cursor_position) == ("16384", 5)
        assert screen.asking.knobs.context == "16384"


async def test_of_questions_in_a_row_the_last_alone_is_asked() -> None:
    services = Counting()
    app = app_with(services)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        services.asked.clear()
        for context in ("8", "81", "819", "8192"):
            screen.planning.ask(
                Question(reference=QWEN, serving=ServingOptions(context=context)), services.answer
            )
        await settle(pilot)
        assert [question.serving.context for question in services.asked] == ["8192"]


async def test_at_80_columns_the_knobs_are_one_line_until_they_are_edited() -> None:
    app = app_with(context="8192")
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        assert "e: knobs  context 8192" in shown(app)
        assert not screen.knobs.display
        await pilot.press("e")
        await settle(pilot)
        text = shown(app)
        assert "▪ context" in text
        assert "single GPU    ✓ fits" in text
        await pilot.press("escape")
        await settle(pilot)
        assert not screen.knobs.display


@both_sizes
async def test_a_wrong_value_is_told_at_its_knob_and_the_last_plan_stays_marked_as_old(
    size: tuple[int, int],
) -> None:
    app = app_with()
    async with app.run_test(size=size) as pilot:
        screen = await opened(pilot)
        before = screen.plan
        await pilot.press("e", "x")
        await settle(pilot)
        text = shown(app)
        assert isinstance(screen.error, UsageError)
        assert "--context x: not a number of tokens" in text
        assert "! old: the plan below answers the question before" in text
        assert screen.plan is before
        assert screen.query_one("#knob-error").display
        await pilot.press("backspace")
        await settle(pilot)
        assert screen.error is None
        assert not screen.query_one("#knob-error").display
        assert "old" not in shown(app)
        assert screen.plan is not before


async def test_an_argument_of_vllm_is_read_as_a_shell_reads_it() -> None:
    app = app_with()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        screen.knobs.focus_knob("extra")
        await pilot.press(*"--served-model-name 'a b'")
        await settle(pilot)
        assert screen.plan is not None
        assert screen.plan.request["engine_args"] == ["--served-model-name", "a b"]


async def test_reset_and_undo() -> None:
    app = app_with(context="8192", gpus=("h100-a:1",), engine_args=("--max-num-seqs", "8"))
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        asked = screen.asking
        await pilot.press("ctrl+r")
        await settle(pilot)
        assert screen.asking.question().serving == ServingOptions(gpus=("h100-a:1",))
        await pilot.press("u")
        await settle(pilot)
        assert screen.asking == asked
        assert "undone" in shown(app)


# ---------------------------------------------------------------------- the fleet and its marks


async def test_marks_are_the_manual_strategy_and_overcommit_is_shown_live() -> None:
    app = app_with()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        app.marked = frozenset({("h100-b", 1), ("h100-a", 2), ("h100-a", 0)})
        await settle(pilot)
        assert screen.asking.knobs.gpus == ("h100-a:0,2", "h100-b:1")
        app.marked = frozenset({("lab", 0)})
        await settle(pilot)
        assert judged(screen, StrategyName.MANUAL) is Verdict.OVERCOMMIT
        assert "manual        ! overcommit" in shown(app)
        await pilot.press("u")
        await settle(pilot)
        assert app.marked == frozenset()
        assert judged(screen, StrategyName.MANUAL) is Verdict.SKIPPED


async def test_gpus_of_the_command_line_are_marked() -> None:
    app = app_with(gpus=("h100-b:1,0",))
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        assert app.marked == {("h100-b", 0), ("h100-b", 1)}
        assert screen.plan is not None
        assert screen.plan.recommended == (StrategyName.MANUAL, 0)


def with_free(state: FleetState, share: float, **figures: Any) -> FleetState:
    """The state with other live figures."""
    hosts = tuple(
        replace(
            host,
            gpus=tuple(
                replace(gpu, free_bytes=int((gpu.total_bytes or 0) * share), **figures) for gpu in host.gpus
            ),
        )
        for host in state.fleet.hosts
    )
    return replace(state, fleet=replace(state.fleet, hosts=hosts))


async def test_live_figures_are_planned_on_now_and_then_and_only_if_they_matter() -> None:
    services = Counting()
    app = app_with(services)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        asked = len(services.asked)
        app.state = with_free(app.state, 1.0, utilization_percent=50, temperature_celsius=70)
        await settle(pilot)
        screen._ask_live()
        await settle(pilot)
        assert len(services.asked) == asked
        app.state = with_free(app.state, 0.1)
        await settle(pilot)
        assert len(services.asked) == asked
        screen._ask_live()
        await settle(pilot)
        assert len(services.asked) == asked + 1
        assert judged(screen, StrategyName.SINGLE_GPU) is Verdict.NO_FIT
        assert screen.strategies.chosen == (StrategyName.SINGLE_GPU, 0)


async def test_a_full_reading_is_planned_on_at_once() -> None:
    services = Counting()
    app = app_with(services)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await opened(pilot)
        services.answer = with_free(app.state, 0.1).fleet
        app.read_again()
        await settle(pilot)
        await settle(pilot)
        assert judged(screen, StrategyName.SINGLE_GPU) is Verdict.NO_FIT


# ---------------------------------------------------------------------- strategies, remedies, deploy


async def test_the_cursor_stays_on_its_strategy_and_further_candidates_unfold() -> None:
    app = app_with(reference=BIG)
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        assert screen.plan is not None
        strategies = screen.query_one(Strategies)
        await pilot.press("end", "up")
        assert strategies.chosen == (StrategyName.MULTI_HOST, 0)
        await pilot.press("space")
        await pilot.pause()
        assert "· 2" in shown(app)
        await pilot.press("down")
        assert strategies.chosen == (StrategyName.MULTI_HOST, 1)
        assert screen.choice == (3, 1)
        await pilot.press("e", *"4096", "escape")
        await settle(pilot)
        assert strategies.chosen in ((StrategyName.MULTI_HOST, 1), (StrategyName.MULTI_HOST, 0))
        await pilot.press("left")
        await pilot.pause()
        assert strategies.chosen == (StrategyName.MULTI_HOST, 0)


@both_sizes
async def test_a_remedy_turns_the_knobs_and_can_be_taken_back(size: tuple[int, int]) -> None:
    app = app_with(reference=BIG, context="131072", concurrency=16)
    async with app.run_test(size=size) as pilot:
        screen = await opened(pilot)
        screen.strategies.move_to((StrategyName.SINGLE_HOST, 0))
        await settle(pilot)
        assert "a 1" in shown(app)
        await pilot.press("a")
        await settle(pilot)
        assert isinstance(app.screen, ChooseRemedy)
        kinds = [remedy.kind for remedy in screen.applicable]
        await pilot.press(str(kinds.index("concurrency") + 1))
        await settle(pilot)
        assert isinstance(app.screen, PlanScreen)
        assert screen.asking.knobs.concurrency == "3"
        assert judged(screen, StrategyName.SINGLE_HOST) is Verdict.FITS
        assert "applied --concurrency 3" in shown(app)
        await pilot.press("u")
        await settle(pilot)
        assert screen.asking.knobs.concurrency == "16"
        assert judged(screen, StrategyName.SINGLE_HOST) is Verdict.NO_FIT


async def test_another_strategy_as_remedy_takes_the_marks_back_and_goes_there() -> None:
    app = app_with(gpus=("lab:0",))
    async with app.run_test(size=(120, 40)) as pilot:
        screen = await opened(pilot)
        screen.strategies.move_to((StrategyName.MANUAL, 0))
        await settle(pilot)
        remedy = next(item for item in screen.applicable if "--strategy" in item.change)
        screen.apply(remedy)
        await settle(pilot)
        assert app.marked == frozenset()
        assert screen.asking.knobs.strategies == remedy.change["--strategy"]
        assert screen.plan is not None
        assert screen.plan.recommended == screen.strategies.chosen
        await pilot.press("u")
        await settle(pilot)
        assert app.marked == {("lab", 0)}


async def test_a_candidate_is_handed_on_to_be_deployed() -> None:
    app = app_with()
    seen: list[object] = []
    async with app.run_test(size=(80, 24), message_hook=seen.append) as pilot:
        screen = await opened(pilot)
        screen.action_deploy_candidate()
        await pilot.pause()
        asked = next(item for item in seen if isinstance(item, DeployAsked))
        assert asked.plan is screen.plan
        assert asked.choice == (1, 0)


async def test_nothing_is_deployed_read_only_or_from_an_old_plan() -> None:
    app = app_with(read_only=True)
    seen: list[object] = []
    async with app.run_test(size=(80, 24), message_hook=seen.append) as pilot:
        screen = await opened(pilot)
        await pilot.press("d")
        await pilot.pause()
        assert not [item for item in seen if isinstance(item, DeployAsked)]
        await pilot.press("e", "x", "escape")
        await settle(pilot)
        assert screen.why_not("deploy_candidate") is not None
