"""A deploy under way, or how it ended; leaving the screen leaves it alone."""

from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import Label

from gpuplan.present.document import EMPTY, Lines, Role, Span, line, visible, wrapped
from gpuplan.present.run_progress import end_text, phase_lines, progress_text, state_words
from gpuplan.present.run_texts import needs_person
from gpuplan.tui import commands
from gpuplan.tui.rendering import content_of
from gpuplan.tui.run_feed import RunFeed
from gpuplan.tui.widgets.document import Document
from gpuplan.tui.widgets.key_bar import KeyBar
from gpuplan.tui.widgets.rows import Rows

if TYPE_CHECKING:
    from gpuplan.tui.deploying import DeployingApp

TICK_SECONDS = 1.0


class DeployScreen(Screen[None]):
    """What each phase and host has come to, and every event as it comes."""

    CSS_PATH = "deploy.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*commands.bindings(commands.Place.DEPLOY)]
    HELP: ClassVar[str] = (
        "What is done where. The deploy is a process of its own: it goes on when this screen or the app is left, and "
        "the next gpuplan shows it again."
    )

    def __init__(self, feed: RunFeed) -> None:
        super().__init__()
        self.feed = feed
        self._ended = False

    def compose(self) -> ComposeResult:
        with Vertical(id="deploy-head"):
            yield Label("", id="deploy-title", classes="bar")
            yield Label("", id="deploy-phase")
        yield Document(self._lines, id="deploy-hosts")
        events = Rows(id="deploy-events", has_cursor=False)
        events.border_title = "Events"
        yield events
        yield KeyBar()

    def on_mount(self) -> None:
        events = self.query_one("#deploy-events", Rows)
        events.show(self.feed.rows)
        self.call_after_refresh(events.scroll_end, animate=False)
        self.set_interval(TICK_SECONDS, self._tick)
        self.show_progress()

    def on_screen_resume(self) -> None:
        self.show_progress()

    def on_resize(self) -> None:
        self._show_head()

    # ------------------------------------------------------------------ what is shown

    def show_progress(self) -> None:
        """The feed has taken something."""
        if not self.is_mounted:
            return
        events = self.query_one("#deploy-events", Rows)
        events.changed(tuple(self.feed.changed_rows))
        events.grown()
        self._show_head()
        first_time = self.feed.over and not self._ended
        self._ended = self.feed.over
        self.query_one(Document).show_document(self._lines, top=first_time)
        if first_time:
            self.set_class(True, "-ended")
            self.refresh_bindings()
            self.call_after_refresh(events.scroll_end, animate=False)
        if self.feed.over and self.is_current:
            self.feed.run.acknowledge()

    def _tick(self) -> None:
        if self.is_current and not self.feed.over:
            self._show_head()

    def _show_head(self) -> None:
        width = max(20, self.size.width - 2)
        feed, now = self.feed, self._app.now().timestamp()
        words, role = state_words(feed.progress, now, ended=feed.over)
        if feed.over and feed.badly:
            words, role = f"not deployed, {words}", Role.BAD
        title = line(Span(f"Deploy {visible(feed.run.name)}  ", Role.TITLE), Span(words, role))
        self.query_one("#deploy-title", Label).update(content_of((title,)))
        self.query_one("#deploy-phase", Label).update(content_of(self._phase(width, now)))

    def _phase(self, width: int, now: float) -> Lines:
        if self.feed.over:
            return wrapped("It has ended. Enter shows the deployments.", width, role=Role.DIM)
        lines = phase_lines(self.feed.progress, width, now)
        return lines[:2]

    def _lines(self, width: int) -> Lines:
        feed = self.feed
        shown = progress_text(feed.progress, width)
        outcome = feed.outcome
        if outcome is None:
            return shown
        ended = end_text(feed.progress, outcome.exit_code, outcome.deployment, outcome.message, width)
        helps = needs_person(outcome.message) if feed.badly else None
        hint = wrapped(helps, width, first="hint: ", role=Role.HINT) if helps else ()
        return (*ended, *hint, EMPTY, *shown)

    # ------------------------------------------------------------------ commands

    @property
    def _app(self) -> "DeployingApp":
        return cast("DeployingApp", self.app)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Taking back is for what is under way, the deployments are for afterwards."""
        if action == "take_back":
            return not self.feed.over
        return self.feed.over if action == "see_deployments" else True

    def action_deploy_logs(self) -> None:
        self._app.open_logs(self.feed.run.name)

    def action_take_back(self) -> None:
        self._app.ask_take_back(self.feed)

    def action_leave_deploy(self) -> None:
        if not self.feed.over:
            text = f"{self.feed.run.name} is still being deployed; {self._key_of_runs} shows it again"
            self.notify(text, markup=False)
        self.dismiss(None)

    @property
    def _key_of_runs(self) -> str:
        return self._app.keys(commands.BY_ID["app.runs"])

    def action_see_deployments(self) -> None:
        app = self.app
        self.dismiss(None)
        app.call_later(app.run_action, "app.switch_mode('deployments')")

    @on(Rows.Selected)
    def _entered(self) -> None:
        if self.feed.over:
            self.action_see_deployments()
