"""The plan screen: a question on top, every strategy's answer below it, the candidate under the cursor in full.

The last plan stays on the screen until the next one is there; when it no longer answers what is asked, it says so.
"""

from dataclasses import replace
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container, Vertical
from textual.widgets import Static

from gpuplan.domain.plan import Remedy, StrategyName, StrategyResult
from gpuplan.errors import UsageError
from gpuplan.present import asking_text as words
from gpuplan.present.document import Lines
from gpuplan.present.fleet_status import progress_words
from gpuplan.present.strategy_table import NAMES
from gpuplan.tui import commands
from gpuplan.tui.asking import Asking
from gpuplan.tui.knobs import DEFAULTS, knob_named, set_words
from gpuplan.tui.messages import DeployAsked
from gpuplan.tui.planning import Planning
from gpuplan.tui.rendering import content_of
from gpuplan.tui.screens.asking import AskingScreen
from gpuplan.tui.screens.pick_model import PickModel
from gpuplan.tui.widgets.candidate import CandidateDetail
from gpuplan.tui.widgets.key_bar import KeyBar
from gpuplan.tui.widgets.knobs import KnobForm
from gpuplan.tui.widgets.remedies import ChooseRemedy, RemedyStrip, remedy_words
from gpuplan.tui.widgets.rows import Rows
from gpuplan.tui.widgets.strategies import Strategies


class ModelLine(Static, can_focus=True):
    """The model; Enter chooses another."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "screen.pick_model", "Choose a model")]

    async def on_click(self) -> None:
        await self.run_action("screen.pick_model")


class PlanScreen(AskingScreen):
    """Model, knobs, strategies, candidate."""

    CSS_PATH = "plan.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*commands.bindings(commands.Place.PLAN)]
    AUTO_FOCUS = "#plan-strategies"
    HELP: ClassVar[str] = (
        "Every strategy for the model, side by side: ● is recommended, ▸ has further candidates (space). "
        "GPUs marked on the fleet screen are the manual strategy's."
    )

    # ------------------------------------------------------------------ parts

    def compose(self) -> ComposeResult:
        yield ModelLine(id="plan-model", markup=False)
        yield Static(id="plan-summary", markup=False)
        with Container(id="plan-body"):
            with Vertical(id="plan-answer"):
                yield Static(id="plan-status", markup=False)
                yield Strategies(id="plan-strategies")
                yield RemedyStrip(id="plan-remedies", markup=False)
                yield CandidateDetail(id="plan-detail")
            yield KnobForm(id="plan-knobs")
        yield Planning(self._plan, id="plan-planning")
        yield KeyBar()

    # ------------------------------------------------------------------ showing

    def show_all(self) -> None:
        """Everything but the table, which only another plan changes."""
        self.say()
        error = self.error
        if isinstance(error, UsageError):
            field = knob_named(error.message, self.asking.knobs)
            self.knobs.show_error(field, error.message, error.hint)
        else:
            self.knobs.show_error(None)
        for part in (Strategies, RemedyStrip, CandidateDetail):
            self.query_one(part).set_class(self.is_old, "-old")
        self.strategies.set_class(self.plan is None, "-empty")
        self._show_candidate()

    def say(self) -> None:
        model = self.plan.model if self.plan is not None and self.about_this else None
        line = words.model_line(self.asking.reference, model, "o")
        self.query_one("#plan-model", Static).update(content_of((line,)))
        self.query_one("#plan-status", Static).update(content_of(self._status()))
        summary = words.summary_line(set_words(self.asking.knobs), "e")
        self.query_one("#plan-summary", Static).update(content_of((summary,)))
        if not self.knobs.has_keys:
            self.refresh_bindings()

    def _status(self) -> Lines:
        old: Lines = ()
        if self.is_old and self.planned is not None:
            old = (words.old_line(None if self.about_this else self.planned.reference),)
        if not self.asking.reference:
            return old
        if self.busy is not None:
            reading = self.planned is None or not self.about_this
            return (words.busy_line(self.asking.reference, self.busy, reading=reading),)
        if self.error is not None:
            return (*words.error_lines(self.error.message, self.error.hint), *old)
        if self.fleet is None:
            state = self.state
            waiting = progress_words(state.total, len(state.waiting), state.failed) if state.total else ""
            return words.unread_line(waiting, state.error, state.hint)
        return words.result_lines(self.plan, self.note) if self.plan is not None else ()

    @on(Rows.Highlighted, "#plan-strategies")
    def _moved(self) -> None:
        self._show_candidate()

    @on(Rows.Selected, "#plan-strategies")
    def _opened(self) -> None:
        self.query_one(CandidateDetail).focus()

    def _show_candidate(self) -> None:
        detail, strip = self.query_one(CandidateDetail), self.query_one(RemedyStrip)
        result, at = self.chosen_result, self._strategy_index()
        detail.set_class(result is None, "-empty")
        if self.plan is None or result is None or at is None:
            strip.show_remedies((), (), "a")
        else:
            detail.show_candidate(self.plan, self.choice, at, self.previous)
            strip.show_remedies(result.remedies, self.applicable, "a")
        self.refresh_bindings()

    # ------------------------------------------------------------------ what is chosen

    @property
    def chosen_result(self) -> StrategyResult | None:
        """The strategy under the cursor."""
        at = self._strategy_index()
        return None if at is None or self.plan is None else self.plan.strategies[at]

    def _strategy_index(self) -> int | None:
        key = self.strategies.chosen
        if key is None or self.plan is None:
            return None
        return next((i for i, item in enumerate(self.plan.strategies) if item.strategy is key[0]), None)

    @property
    def choice(self) -> tuple[int, int] | None:
        """Strategy and candidate under the cursor, by index; None where there is no candidate."""
        key, at, result = self.strategies.chosen, self._strategy_index(), self.chosen_result
        if key is None or at is None or result is None or key[1] >= len(result.candidates):
            return None
        return at, key[1]

    @property
    def applicable(self) -> tuple[Remedy, ...]:
        """Remedies of the strategy under the cursor that the knobs can say."""
        result = self.chosen_result
        if result is None or self.is_old or self._remedied(None) is None:
            return ()
        return tuple(remedy for remedy in result.remedies if self._remedied(remedy) is not None)

    def _remedied(self, remedy: Remedy | None) -> Asking | None:
        try:
            return self.asking if remedy is None else self.asking.remedied(remedy)
        except UsageError:
            return None

    # ------------------------------------------------------------------ actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if not self.is_mounted:
            return super().check_action(action, parameters)
        return None if self.why_not(action) is not None else super().check_action(action, parameters)

    def why_not(self, action: str) -> str | None:
        """Why an action cannot be done now."""
        match action:
            case "apply_remedy" if not self.applicable:
                return "the strategy under the cursor has no remedy that the knobs can say"
            case "undo" if not self.history:
                return "nothing was changed"
            case "deploy_candidate" | "compare_candidate" | "copy_candidate" | "save_candidate" if (
                self.choice is None
            ):
                return "there is no candidate under the cursor"
            case "deploy_candidate" if self.is_old or self.planning.waiting:
                return "the plan shown does not answer what is asked"
            case _:
                return None

    def action_pick_model(self) -> None:
        dialog = PickModel(
            self.gpuplan.services.models,
            typed=self.asking.reference if self.error is not None else "",
            recent=self.gpuplan.remembered.models,
        )
        self.app.push_screen(dialog, self._picked)

    def _picked(self, reference: str | None) -> None:
        if reference is None:
            return
        if reference == self.asking.reference:
            self.ask(at_once=True)
        self.change(replace(self.asking, reference=reference), None)

    def action_compare_candidate(self) -> None:
        self.query_one(CandidateDetail).compare()

    def action_copy_candidate(self) -> None:
        self.query_one(CandidateDetail).copy()

    def action_save_candidate(self) -> None:
        self.query_one(CandidateDetail).save()

    def action_edit_knobs(self) -> None:
        self.add_class("-editing")
        self.knobs.focus_knob()

    @on(KnobForm.Changed)
    def _turned(self, message: KnobForm.Changed) -> None:
        if message.knobs != self.knobs.knobs:
            return  # more was typed since
        self.change(replace(self.asking, knobs=message.knobs), message.field, at_once=False)

    @on(KnobForm.Committed)
    def _committed(self) -> None:
        self.history.close()

    @on(KnobForm.Left)
    def _left(self) -> None:
        self.remove_class("-editing")
        self.strategies.focus()

    def action_reset_knobs(self) -> None:
        knobs = replace(DEFAULTS, gpus=self.asking.knobs.gpus)
        self.change(replace(self.asking, knobs=knobs), None, note="knobs reset; u: undo")

    def action_plan_again(self) -> None:
        self.ask(at_once=True)

    def action_apply_remedy(self) -> None:
        remedies, result = self.applicable, self.chosen_result
        if not remedies or result is None:
            return

        def chosen(number: int | None) -> None:
            if number is not None:
                self.apply(remedies[number])

        if len(remedies) > 1:
            self.app.push_screen(ChooseRemedy(remedies, NAMES[result.strategy]), chosen)
        else:
            chosen(0)

    @on(CandidateDetail.RemedyChosen)
    def _remedy_chosen(self, message: CandidateDetail.RemedyChosen) -> None:
        if self.plan is None:
            return
        remedy = self.plan.strategies[message.strategy].remedies[message.remedy]
        if remedy in self.applicable:
            self.apply(remedy)
        else:
            self.notify("the knobs cannot say this remedy", severity="warning", markup=False)

    def apply(self, remedy: Remedy) -> None:
        """Turn the knobs as a remedy says."""
        after = self._remedied(remedy)
        if after is None:
            return
        named: Any = remedy.change.get("--strategy")
        self.select = StrategyName(named) if named is not None else None
        self.change(after, None, note=f"applied {remedy_words(remedy)}; u: undo")

    def action_deploy_candidate(self) -> None:
        if self.plan is not None and self.choice is not None:
            self.post_message(DeployAsked(self.plan, self.choice))
