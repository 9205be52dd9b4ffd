"""A screen with a question in hand: what flows down changes it, the newest one is asked, what was done can be undone."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from textual import on, work
from textual.reactive import reactive
from textual.screen import Screen

from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Plan, StrategyName
from gpuplan.errors import GpuplanError, UsageError
from gpuplan.tui.asking import Asking, History, asking_of, gpus_of, marks_of
from gpuplan.tui.background import in_thread
from gpuplan.tui.knobs import defaults_of
from gpuplan.tui.planning import Planning, matters, pause_after
from gpuplan.tui.services import Question
from gpuplan.tui.state import NOTHING_READ, FleetState, GpuKey
from gpuplan.tui.widgets.knobs import KnobForm
from gpuplan.tui.widgets.strategies import CandidateKey, Strategies

if TYPE_CHECKING:
    from textual.timer import Timer

    from gpuplan.tui.app import GpuplanApp


class AskingScreen(Screen[None]):
    """The question and its answer; how they are shown is the plan screen's."""

    state: reactive[FleetState] = reactive(NOTHING_READ)
    marked: reactive[frozenset[GpuKey]] = reactive(frozenset())

    def __init__(self) -> None:
        super().__init__()
        self.asking = Asking()
        self.history = History()
        self.plan: Plan | None = None
        """The last one that was made."""
        self.planned: Question | None = None
        """What it answers."""
        self.previous: Plan | None = None
        """The one before the last step."""
        self.error: GpuplanError | None = None
        """Why the present question has no plan."""
        self.before_step: Plan | None = None
        """The one on the screen when the step under way began."""
        self.note = ""
        """What was done last."""
        self.fleet: Fleet | None = None
        """Read in full."""
        self._planned_on: Fleet | None = None
        self._seconds = 0.0
        """What the last plan took."""
        self.busy: int | None = None
        """Seconds the present question takes; None: it is answered or no moment old."""
        self._tick: Timer | None = None
        self.select: StrategyName | None = None
        """Where the cursor goes with the next plan."""

    @property
    def gpuplan(self) -> "GpuplanApp":
        return cast("GpuplanApp", self.app)

    @property
    def strategies(self) -> Strategies:
        return self.query_one(Strategies)

    @property
    def knobs(self) -> KnobForm:
        return self.query_one(KnobForm)

    @property
    def planning(self) -> Planning:
        return self.query_one(Planning)

    def say(self) -> None:
        """Show the question and what becomes of it."""
        raise NotImplementedError

    def show_all(self) -> None:
        """Show everything anew but the table."""
        raise NotImplementedError

    def on_mount(self) -> None:
        self.asking = asking_of(self.gpuplan.question)
        self.knobs.show_knobs(self.asking.knobs)
        self._tick = self.set_interval(1.0, self._another_second, pause=True)
        self._take_fleet(self.state, whole=True)
        if self.marked:
            self.watch_marked(frozenset(), self.marked)
        self.show_all()

    # ------------------------------------------------------------------ what flows down

    def watch_state(self, before: FleetState, after: FleetState) -> None:
        if self.is_mounted:
            self._take_fleet(after, whole=before.total > 0)

    def _take_fleet(self, state: FleetState, *, whole: bool) -> None:
        """A fleet that was read is planned on at once, live figures now and then."""
        if state.total or not any(host.gpus or host.failure for host in state.fleet.hosts):
            if not state.fleet.hosts:
                self.fleet = None
            self.say()
            return
        first, self.fleet = self.fleet is None, state.fleet
        if first and self.asking.knobs.gpus and not self.gpuplan.marked:
            self._mark_as_asked()
        if whole or first:
            self.ask(at_once=True)
        else:
            self.planning.later(self._ask_live, pause_after(self._seconds))

    @work(exclusive=True, group="live")
    async def _ask_live(self) -> None:
        """Plan on the live figures, when this screen is seen and they tell anything new."""
        fleet, before = self.fleet, self._planned_on
        if fleet is None or before is None or fleet is before or self.planning.waiting:
            return
        if self.app.screen_stack[0] is not self:
            return
        differs = await in_thread(partial(matters, before, fleet))
        if differs and before is self._planned_on:
            self.ask(at_once=True)

    def on_screen_resume(self) -> None:
        if self.is_mounted:
            self._ask_live()

    def watch_marked(self, _before: frozenset[GpuKey], after: frozenset[GpuKey]) -> None:
        if not self.is_mounted or after == self._marks_asked():
            return
        gpus = gpus_of(after, self.fleet or self.state.fleet)
        self.change(replace(self.asking, knobs=replace(self.asking.knobs, gpus=gpus)), "gpus")

    def _marks_asked(self) -> frozenset[GpuKey] | None:
        return marks_of(self.asking.knobs.gpus, self.fleet or self.state.fleet)

    def _mark_as_asked(self) -> None:
        marks = self._marks_asked()
        if marks is not None:
            self.gpuplan.marked = marks

    # ------------------------------------------------------------------ asking

    def change(self, asking: Asking, subject: str | None, *, at_once: bool = True, note: str = "") -> None:
        """Another question, which can be taken back."""
        if asking != self.asking:
            if self.history.changing(self.asking, subject):
                self.before_step = self.plan
            self.put(asking, at_once=at_once, note=note)

    def put(self, asking: Asking, *, at_once: bool, note: str = "") -> None:
        """Take a question in hand."""
        marks = asking.knobs.gpus != self.asking.knobs.gpus
        self.asking = asking
        self.note = note
        self.knobs.show_knobs(asking.knobs)
        if marks:
            self._mark_as_asked()
        self.ask(at_once=at_once)

    def ask(self, *, at_once: bool) -> None:
        """Ask what is in hand; `at_once`: nobody is typing."""
        self._rest()
        try:
            question = self.asking.question()
        except UsageError as error:
            self.planning.drop()
            self._refuse(error)
            return
        self.gpuplan.question = question
        if question.reference and self.fleet is not None:
            self._planned_on = self.fleet
            self.planning.ask(question, self.fleet, at_once=at_once)
            self.say()
        else:
            self.planning.drop()
            self.error = None
            self.show_all()

    def _plan(self, question: Question, fleet: Fleet) -> Plan:
        return self.gpuplan.services.plan(question, fleet)

    @on(Planning.Slow)
    def _slow(self, message: Planning.Slow) -> None:
        if message.serial == self.planning.serial and self._tick is not None:
            self.busy = 0
            self._tick.reset()
            self._tick.resume()
            self.say()

    def _another_second(self) -> None:
        if self.busy is not None:
            self.busy += 1
            self.say()

    def _rest(self) -> None:
        self.busy = None
        if self._tick is not None:
            self._tick.pause()

    @on(Planning.Planned)
    def _answered(self, message: Planning.Planned) -> None:
        if message.serial != self.planning.serial:
            return
        self._rest()
        another = self.planned is None or self.planned.reference != message.question.reference
        if message.question != self.planned:
            self.previous = self.before_step
        self.plan, self.planned, self.error = message.plan, message.question, None
        self._seconds = message.seconds
        if another:
            self.gpuplan.remember(self.gpuplan.remembered.with_model(message.question.reference))
        select: CandidateKey | None = message.plan.recommended if another else None
        if self.select is not None:
            select = (self.select, 0)
        self.select = None
        self.strategies.show_plan(message.plan, select)
        self.knobs.show_defaults(defaults_of(message.plan.request))
        self.show_all()

    @on(Planning.Refused)
    def _unanswered(self, message: Planning.Refused) -> None:
        if message.serial == self.planning.serial:
            self._rest()
            self._refuse(message.error)

    def _refuse(self, error: GpuplanError) -> None:
        self.error = error
        self.show_all()

    @property
    def is_old(self) -> bool:
        """Whether what is shown answers an earlier question, and the present one has no answer."""
        return self.plan is not None and (self.error is not None or not self.asking.reference)

    @property
    def about_this(self) -> bool:
        """Whether the plan on the screen is about the model that is asked about."""
        return self.planned is not None and self.planned.reference == self.asking.reference

    def action_undo(self) -> None:
        before = self.history.back()
        if before is not None:
            self.before_step = self.plan
            self.put(before, at_once=True, note="undone")
