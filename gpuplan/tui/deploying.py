"""Deploying from the app: ask the hosts again, ask the person, begin, follow; leaving the app leaves a deploy alone.

Runs are followed here and not on a screen, so that a screen can be left.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from textual import events, on, work

from gpuplan.domain.plan import Candidate, Plan, Verdict
from gpuplan.errors import GpuplanError
from gpuplan.operations.stopped import NothingFits
from gpuplan.present.run_texts import (
    agreement_text,
    leaving_text,
    refused_text,
    running_words,
    runs_text,
    stops_words,
    take_back_text,
    worth_repeating,
)
from gpuplan.present.stop_text import leaving_changes_text
from gpuplan.tui import commands
from gpuplan.tui.background import BrokenOff, in_thread
from gpuplan.tui.deployments_state import changes_under_way
from gpuplan.tui.live_deploy import candidate_at
from gpuplan.tui.messages import PersonAsked, RunAdvanced
from gpuplan.tui.run_feed import RunFeed
from gpuplan.tui.screens.confirm import (
    Agreement,
    AskScreen,
    Choice,
    ConfirmScreen,
    ShowScreen,
    WaitScreen,
)
from gpuplan.tui.screens.deploy import DeployScreen
from gpuplan.tui.screens.logs import LogsScreen
from gpuplan.tui.services import Proposal, Run, Services
from gpuplan.tui.shell import ShellApp

if TYPE_CHECKING:
    from gpuplan.tui.questions import AppQuestions

PACE_SECONDS = 0.2
"""Between two looks at what a run has told: five repaints a second at most."""
OVERCOMMIT = "overcommit"
OVERCOMMIT_WHY = "It takes more memory than is free"
MOST_CHOICES = 6
Answer = TypeVar("Answer")


class DeployingApp(ShellApp):
    """An app that can deploy, and knows the deploys under way."""

    def __init__(self, services: Services, **options: Any) -> None:
        super().__init__(services, **options)
        self.feeds: dict[str, RunFeed] = {}
        """By the run's id, in the order they were met."""
        self.questions: AppQuestions | None = None
        """Who asks the person on behalf of SSH; set before the app runs."""
        self._proposing = False

    # ------------------------------------------------------------------ what is under way

    @on(events.Mount)
    def _meet_runs(self) -> None:
        if self.questions is not None:
            self.questions.attach(self)
        self._find_runs()

    @on(PersonAsked)
    def _ask_person(self, message: PersonAsked) -> None:
        self.run_worker(message.ask(), group="questions")

    @work(group="runs")
    async def _find_runs(self) -> None:
        """What an earlier app began is followed again, and offered."""
        for run in reversed(await in_thread(self.services.runs)):
            alive = run.alive
            feed = self.follow(run)
            feed.found_ended = not alive
            if alive:
                text = f"{run.name} is being deployed; {self._key_of_runs} shows it"
                self.notify(text, title="picked up", markup=False)

    @property
    def _key_of_runs(self) -> str:
        return self.keys(commands.BY_ID["app.runs"])

    def follow(self, run: Run) -> RunFeed:
        """Read what a run tells, from its first event to its end."""
        feed = self.feeds.get(run.id)
        if feed is None:
            feed = self.feeds[run.id] = RunFeed(run, self._arrived)
            feed.start()
            self._tell_running()
        return feed

    def _arrived(self, feed: RunFeed) -> None:
        self.post_message(RunAdvanced(feed.run.id))

    @on(RunAdvanced)
    def _advance_soon(self, message: RunAdvanced) -> None:
        feed = self.feeds[message.run]
        if not feed.due:
            feed.due = True
            self.set_timer(PACE_SECONDS, partial(self._advance, feed))

    def _advance(self, feed: RunFeed) -> None:
        feed.due = False
        was_over = feed.over
        feed.take()
        self._tell_running()
        screens = self._deploy_screens(feed)
        for screen in screens:
            screen.show_progress()
        if feed.over and not was_over and self.screen not in screens:
            self._tell_end(feed)

    def _deploy_screens(self, feed: RunFeed) -> list[DeployScreen]:
        screens = (screen for stack in self._screen_stacks.values() for screen in stack)
        return [screen for screen in screens if isinstance(screen, DeployScreen) and screen.feed is feed]

    def _tell_end(self, feed: RunFeed) -> None:
        """Nobody watches it: a toast."""
        name = feed.run.name
        if not feed.badly:
            feed.run.acknowledge()
            self.notify(f"{name} serves", title="deployed", markup=False)
        elif feed.found_ended:
            self.warn(f"{name} was not deployed, and nobody has seen why; {self._key_of_runs} shows it")
        else:
            self.warn(f"{name} was not deployed; {self._key_of_runs} shows why")

    def _tell_running(self) -> None:
        self.running = running_words([(feed.run.name, feed.progress) for feed in self.under_way])

    @property
    def under_way(self) -> tuple[RunFeed, ...]:
        """Deploys that have not ended."""
        return tuple(feed for feed in self.feeds.values() if not feed.over and not feed.found_ended)

    # ------------------------------------------------------------------ showing one

    def open_run(self, run: Run) -> None:
        """Show a deploy, under way or ended."""
        feed = self.follow(run)
        if not (isinstance(self.screen, DeployScreen) and self.screen.feed is feed):
            self.push_screen(DeployScreen(feed))

    def open_logs(self, name: str) -> None:
        """Show what the members of a deployment print."""

        def coming() -> bool:
            return any(feed.run.name == name and not feed.over for feed in tuple(self.feeds.values()))

        self.push_screen(LogsScreen(name, self.services, coming=coming))

    def action_runs(self) -> None:
        """The deploy under way; of several, or of those that ended badly, one is chosen."""
        shown = [feed for feed in self.feeds.values() if not feed.over or feed.badly]
        if not shown:
            self.notify("no deploy is under way", markup=False)
        elif len(shown) == 1:
            self.open_run(shown[0].run)
        else:
            self._choose_run(shown)

    @work(exclusive=True, group="choose run")
    async def _choose_run(self, feeds: list[RunFeed]) -> None:
        latest = feeds[-MOST_CHOICES:]
        choices = [Choice(id=f"run-{number}", text=feed.run.name) for number, feed in enumerate(latest)]
        told = [(feed.run.name, feed.progress, feed.over) for feed in latest]
        answer = await self.push_screen_wait(AskScreen(partial(runs_text, told), choices))
        if answer is not None:
            self.open_run(latest[int(answer.removeprefix("run-"))].run)

    # ------------------------------------------------------------------ beginning one

    def begin_deploy(self, plan: Plan, choice: tuple[int, int]) -> None:
        """Deploy a candidate (index of the strategy, of the candidate), after everything was asked."""
        why_not = self.why_not_change
        if why_not is not None:
            self.warn(f"Deploy: {why_not}")
        elif not self._proposing:
            self._proposing = True
            self._propose(plan, choice)

    @work(group="deploy")
    async def _propose(self, plan: Plan, choice: tuple[int, int]) -> None:
        try:
            proposal = await self._agreed(plan, choice)
            if proposal is not None:
                await self._start(proposal)
        finally:
            self._proposing = False

    async def _agreed(self, plan: Plan, choice: tuple[int, int]) -> Proposal | None:
        """What was agreed to; after every change of name or keep-alive the hosts are asked again."""
        name: str | None = None
        keep: int | None = None
        while True:
            call = partial(self.services.propose, plan, choice, name, keep)
            proposal = await self._waited(
                f"Looking at the hosts again for {plan.model.get('name', 'it')}", call
            )
            if proposal is None:
                return None
            screen = ConfirmScreen(_agreement(candidate_at(plan, choice), proposal, keep))
            answer = await self.push_screen_wait(screen)
            if answer is None or not answer.again:
                return None if answer is None else proposal
            name, keep = answer.name, answer.keep_alive_seconds

    async def _start(self, proposal: Proposal) -> None:
        try:
            run = await in_thread(partial(self.services.deploy, proposal))
        except GpuplanError as error:
            await self._refused(error)
        else:
            self.open_run(run)

    async def _waited(self, text: str, call: Callable[[], Answer]) -> Answer | None:
        """The result of a call that asks hosts; None when it was broken off, or refused, which is shown."""
        wait = WaitScreen(text)
        left = self.push_screen(wait, wait_for_dismiss=True)
        asked = asyncio.ensure_future(in_thread(call))
        error: GpuplanError | None = None
        result: Answer | None = None
        try:
            either: set[asyncio.Future[Any]] = {left, asked}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                result = asked.result()
            else:
                asked.cancel()
                await in_thread(self.services.cancel_reading)
        except BrokenOff:
            pass
        except GpuplanError as refused:
            error = refused
        if not left.done():
            await wait.dismiss(None)
        if error is not None:
            await self._refused(error)
        return result

    async def _refused(self, error: GpuplanError) -> None:
        plan = error.plan if isinstance(error, NothingFits) else None
        facts, about = getattr(error, "facts", ()), getattr(error, "about", "")
        make = partial(refused_text, about, facts, error.message, error.hint, plan)
        await self.push_screen_wait(ShowScreen(make))

    # ------------------------------------------------------------------ ending one

    @work(exclusive=True, group="take back")
    async def ask_take_back(self, feed: RunFeed) -> None:
        """Ask, then break a deploy off."""
        choices = (
            Choice(id="cancel", text="Let it go on"),
            Choice(id="take-back", text="Leave as is" if feed.taking_back else "Take back", grave=True),
        )
        make = partial(take_back_text, feed.run.name, feed.taking_back)
        if await self.push_screen_wait(AskScreen(make, choices)) == "take-back" and not feed.over:
            await self._take_back(feed)

    async def _take_back(self, feed: RunFeed) -> None:
        feed.taking_back = True
        await in_thread(feed.run.take_back)
        for screen in self._deploy_screens(feed):
            screen.show_progress()

    # ------------------------------------------------------------------ leaving

    async def action_leave(self) -> None:
        """Quit; while a deploy, a stop or a restart is under way that is asked about first."""
        if changes_under_way(self):
            self._ask_leave_changes()
        elif self.under_way:
            self._ask_leave()
        else:
            self.exit()

    @work(exclusive=True, group="leave")
    async def _ask_leave(self) -> None:
        choices = [Choice(id="stay", text="Stay"), Choice(id="leave", text="Leave it running")]
        if not self.read_only:
            choices.append(Choice(id="take-back", text="Take it back and quit", grave=True))
        names = [feed.run.name for feed in self.under_way]
        answer = await self.push_screen_wait(AskScreen(partial(leaving_text, names), choices))
        if answer == "leave":
            self.exit()
        elif answer == "take-back":
            await self._take_back_and_leave()

    @work(exclusive=True, group="leave")
    async def _ask_leave_changes(self) -> None:
        """What the app itself does ends with it."""
        choices = (Choice(id="stay", text="Stay"), Choice(id="leave", text="Leave anyway", grave=True))
        make = partial(leaving_changes_text, changes_under_way(self))
        if await self.push_screen_wait(AskScreen(make, choices)) != "leave":
            return
        if self.under_way:
            self.call_later(self._ask_leave)
        else:
            self.exit()

    async def _take_back_and_leave(self) -> None:
        """Wait until nothing of it is left; to stay meanwhile stops nothing."""
        feeds = self.under_way
        for feed in feeds:
            if not feed.taking_back:
                await self._take_back(feed)
        names = ", ".join(feed.run.name for feed in feeds)
        wait = WaitScreen(f"Taking back {names}, then the app is left. Cancel to stay: it goes on.")
        left = self.push_screen(wait, wait_for_dismiss=True)
        while any(not feed.over for feed in feeds) and not left.done():
            await asyncio.sleep(PACE_SECONDS)
        if not left.done():
            self.exit()


def _agreement(candidate: Candidate, proposal: Proposal, keep_alive_seconds: int | None) -> Agreement:
    overcommitted = candidate.verdict is Verdict.OVERCOMMIT
    facts = worth_repeating((*candidate.facts, *proposal.remarks))
    return Agreement(
        make=partial(
            agreement_text,
            proposal.spec,
            proposal.replaces,
            facts,
            evicts=proposal.evicts,
            evicted=proposal.evicted,
        ),
        name=proposal.spec.name,
        keep_alive_seconds=keep_alive_seconds,
        typed=OVERCOMMIT if overcommitted else None,
        typed_why=OVERCOMMIT_WHY,
        replaces=stops_words(proposal.evicts, proposal.replaces),
        evicts=bool(proposal.evicts),
    )
