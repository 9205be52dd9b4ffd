"""Stopping and restarting a deployment: what is going to happen is shown and asked, Cancel is what Enter does.

What was begun goes on when its window is closed: it belongs to the app, and its end is told wherever the person is.
Nothing but what was shown is stopped.
"""

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label

from gpuplan.domain.deployment import Deployment
from gpuplan.domain.events import Event, MemberSeen, PhaseStarted, Remark, Undone
from gpuplan.domain.fact import Severity
from gpuplan.errors import GpuplanError
from gpuplan.operations.stop import DRAIN_SECONDS, Intended, Stopped
from gpuplan.operations.stopped import StoppedByFacts
from gpuplan.present.document import EMPTY, Lines, Role, visible, wrapped
from gpuplan.present.event_words import event_line
from gpuplan.present.findings import word
from gpuplan.present.refusal_text import finding_lines
from gpuplan.present.status_rows import restart_text, restarted_words
from gpuplan.present.status_text import duration
from gpuplan.present.stop_text import intent_text, outcome_text
from gpuplan.tui.background import BrokenOff, in_thread
from gpuplan.tui.deployments_state import CHANGES, ChangeTold, posting
from gpuplan.tui.rendering import safe
from gpuplan.tui.screens.confirm import BETWEEN
from gpuplan.tui.services import Services
from gpuplan.tui.widgets.document import Document

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.tui.app import GpuplanApp

MOST_SECONDS = 24 * 3600
"""That requests in flight may be waited for."""
TOAST_SECONDS = 20.0


class Stage(Enum):
    """How far it is."""

    READING = "reading"
    ASKING = "asking"
    WORKING = "working"
    ENDED = "ended"


class ChangeScreen(ModalScreen[None]):
    """Asks, does, and tells how it went."""

    CSS_PATH = "stop.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Cancel", show=False), *BETWEEN]
    HELP: ClassVar[str] = (
        "What is going to happen on the hosts. Nothing does before it is confirmed; Escape leaves."
    )
    title_word: ClassVar[str]
    """What is done: `Stop`."""
    goes_on: ClassVar[str]

    def __init__(self, deployment: Deployment, stage: Stage) -> None:
        super().__init__()
        self.deployment = deployment
        self.stage = stage
        self.course: list[str] = []
        """What happened, a line each."""
        self.ended: Callable[[int], Lines] | None = None
        """How it went."""
        self.note: str | None = None
        """What the person must know before the answer."""
        self.began: datetime | None = None
        """When it was confirmed."""

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Document(self.lines, id="change-text")
            with Horizontal():
                yield Label("Wait for requests (s)", id="change-wait")
                yield Input(str(DRAIN_SECONDS), type="integer", id="change-drain", max_length=5, compact=True)
                yield Button("Cancel", id="change-cancel", compact=True)
                yield Button(self.title_word, id="change-go", variant="error", compact=True)

    def on_mount(self) -> None:
        self.query_one(Vertical).border_title = safe(f"{self.title_word} {self.deployment.name}")
        self.query_one("#change-cancel").focus()
        self.set_interval(1.0, self.tell_age)
        self._changed()

    def tell_age(self) -> None:
        """For how long it has been under way: a model may load for an hour."""
        if self.stage is Stage.WORKING and self.began is not None:
            seconds = max(0, round((self.gpuplan.now() - self.began).total_seconds()))
            self.query_one(Vertical).border_subtitle = f"for {duration(seconds)}"

    @property
    def gpuplan(self) -> "GpuplanApp":
        return cast("GpuplanApp", self.app)

    def on_resize(self) -> None:
        self._changed()

    # ------------------------------------------------------------------ what is shown

    def lines(self, width: int) -> Lines:
        """The whole text."""
        parts: list[Lines] = []
        if self.ended is not None:
            parts += [self.ended(width), (EMPTY,)] if self.course else [self.ended(width)]
        elif self.note is not None:
            parts += [wrapped(self.note, width, role=Role.WARNING), (EMPTY,)]
        if self.stage in {Stage.READING, Stage.ASKING} and self.ended is None:
            parts.append(self.intent(width))
        parts += [wrapped(words, width, rest="  ", role=Role.DIM) for words in self.course]
        return tuple(line for part in parts for line in part)

    def intent(self, width: int) -> Lines:
        """What is going to happen."""
        raise NotImplementedError

    def _changed(self) -> None:
        if not self.is_attached:
            return
        asking = self.stage is Stage.ASKING
        for name in ("#change-wait", "#change-drain", "#change-go"):
            self.query_one(name).display = asking
        cancel = self.query_one("#change-cancel", Button)
        cancel.label = {Stage.WORKING: self.goes_on, Stage.ENDED: "Close"}.get(self.stage, "Cancel")
        if not asking and not cancel.has_focus:
            cancel.focus()
        text = self.query_one("#change-text", Document)
        lines = len(self.lines(max(40, min(110, self.size.width * 9 // 10) - 5)))
        text.styles.height = max(3, min(lines + 1, self.size.height - 6))
        text.show_document(self.lines)
        if self.stage is Stage.WORKING:
            text.scroll_end(animate=False)

    def action_page(self, by: int) -> None:
        """The text scrolls wherever the focus is."""
        self.query_one("#change-text", Document).action_page(by)

    def action_scroll_text(self, by: int) -> None:
        self.query_one("#change-text", Document).action_cursor(by)

    # ------------------------------------------------------------------ answers

    @property
    def drain(self) -> int | None:
        """Seconds that requests in flight are waited for; None: what was typed makes no sense."""
        typed = self.query_one("#change-drain", Input).value
        seconds = int(typed) if typed.isascii() and typed.isdigit() else None
        return seconds if seconds is not None and seconds <= MOST_SECONDS else None

    def action_leave(self) -> None:
        self.dismiss()

    @on(Button.Pressed, "#change-cancel")
    def _cancelled(self) -> None:
        self.dismiss()

    @on(Input.Submitted, "#change-drain")
    def _typed(self) -> None:
        self.query_one("#change-cancel").focus()

    @on(Button.Pressed, "#change-go")
    def _confirmed(self) -> None:
        if self.stage is not Stage.ASKING:
            return
        drain = self.drain
        if drain is None:
            self.notify(
                "seconds: a whole number from 0 (do not wait) to 86400", severity="error", markup=False
            )
            self.query_one("#change-drain").focus()
            return
        self.stage = Stage.WORKING
        self.began = self.gpuplan.now()
        self.note = None
        self._changed()
        services = self.gpuplan.services
        self.app.run_worker(
            self.change(services, drain),
            group=CHANGES,
            name=f"{self.title_word.lower()} {self.deployment.name}",
        )

    async def change(self, services: Services, drain: int) -> None:
        """Do it; a worker of the app."""
        raise NotImplementedError

    # ------------------------------------------------------------------ its course and its end

    def tell_event(self, event: Event) -> None:
        """Told from a thread."""
        if isinstance(event, (PhaseStarted, MemberSeen, Remark, Undone)):
            words = event_line(event)
            if words is not None:
                posting(self.post_message, ChangeTold(words))

    @on(ChangeTold)
    def _told(self, message: ChangeTold) -> None:
        self.course.append(message.words)
        self._changed()

    def end(self, text: Callable[[int], Lines], said: str, *, well: bool) -> None:
        """It has ended; where the window was closed, a message tells it."""
        self.stage = Stage.ENDED
        self.ended = text
        if self.is_attached:
            self._changed()
        else:
            self.app_of_end(said, well=well)

    def app_of_end(self, said: str, *, well: bool) -> None:
        severity = "information" if well else "error"
        self.app.notify(visible(said), severity=severity, timeout=TOAST_SECONDS, markup=False)  # type: ignore[arg-type]  # one of Textual's

    def failed(self, error: GpuplanError) -> None:
        """It ended badly."""
        name = self.deployment.name

        def text(width: int) -> Lines:
            if isinstance(error, StoppedByFacts):
                about = wrapped(f"{name}: {error.about}" if error.about else name, width, role=Role.BAD)
                found = (line for fact in error.facts for line in finding_lines(word(fact), width))
                return (*about, *found)
            hint = wrapped(error.hint, width, first="hint: ", role=Role.HINT) if error.hint else ()
            return (*wrapped(error.message, width, role=Role.BAD), *hint)

        last = (
            [fact for fact in error.facts if fact.severity is Severity.ERROR]
            if isinstance(error, StoppedByFacts)
            else []
        )
        said = word(last[-1]).headline if last else error.message
        self.end(text, f"{self.title_word.lower()} {name}: {said}", well=False)


class StopScreen(ChangeScreen):
    """Stops it: what will be stopped is read from the hosts first."""

    title_word = "Stop"
    goes_on = "Close, the stop goes on"

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment, Stage.READING)
        self.intended: Intended | None = None

    def on_mount(self) -> None:
        super().on_mount()
        self._read()

    @work(exclusive=True, group="change-read")
    async def _read(self) -> None:
        services = self.gpuplan.services
        read: list[Intended] = []

        def see(intended: Intended) -> bool:
            read.append(intended)
            return False

        try:
            await in_thread(lambda: services.stop(self.deployment.name, see, lambda _event: None))
        except BrokenOff:
            self.dismiss()
        except GpuplanError as error:
            self.failed(error)
        else:
            self.intended = read[0]
            self.stage = Stage.ASKING
            self._changed()

    def intent(self, width: int) -> Lines:
        if self.intended is None:
            return wrapped("The hosts are asked what there is of it.", width, role=Role.DIM)
        containers = [
            (one.member.host, one.member.container, one.member.health or one.member.state)
            for one in self.intended.containers
        ]
        drain = self.drain if self.is_attached else None
        return intent_text(
            self.intended.deployment,
            containers,
            self.intended.silent,
            DRAIN_SECONDS if drain is None else drain,
            width,
        )

    @on(Input.Changed, "#change-drain")
    def _retyped(self) -> None:
        self._changed()

    async def change(self, services: Services, drain: int) -> None:
        shown = self.intended
        other: list[Intended] = []

        def same(intended: Intended) -> bool:
            """Whether nothing else would be stopped than what was shown."""
            if shown is not None and _places(intended) <= _places(shown):
                return True
            other.append(intended)
            return False

        try:
            stopped: Stopped = await in_thread(
                lambda: services.stop(self.deployment.name, same, self.tell_event, drain_seconds=drain)
            )
        except BrokenOff:
            return
        except GpuplanError as error:
            self.failed(error)
            return
        if other:
            self._ask_again(other[0])
            return
        left = sum(fact.severity is Severity.ERROR for fact in stopped.facts)
        said = "stopped" if stopped.complete else f"not everything of it was stopped ({left} left)"
        self.end(
            lambda width: outcome_text(stopped.name, stopped.removed, stopped.facts, stopped.logs, width),
            f"{stopped.name}: {said}",
            well=stopped.complete,
        )

    def _ask_again(self, intended: Intended) -> None:
        """Other containers were there than those that were shown: nothing was stopped."""
        if not self.is_attached:
            said = f"{self.deployment.name} was not stopped: it changed after it was shown"
            self.app_of_end(said, well=False)
            return
        self.intended = intended
        self.stage = Stage.ASKING
        self.course.clear()
        self.note = "Nothing was stopped: this is there now, and was not when it was shown. Look again."
        self._changed()
        self.query_one("#change-cancel").focus()


class RestartScreen(ChangeScreen):
    """Restarts it."""

    title_word = "Restart"
    goes_on = "Close, the restart goes on"

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment, Stage.ASKING)

    def intent(self, width: int) -> Lines:
        drain = self.drain if self.is_attached else None
        return restart_text(self.deployment, DRAIN_SECONDS if drain is None else drain, width)

    @on(Input.Changed, "#change-drain")
    def _retyped(self) -> None:
        self._changed()

    async def change(self, services: Services, drain: int) -> None:
        name = self.deployment.name
        try:
            await in_thread(lambda: services.restart(name, self.tell_event, drain_seconds=drain))
        except BrokenOff:
            return
        except GpuplanError as error:
            self.failed(error)
            return
        said = restarted_words(self.deployment)
        self.end(lambda width: wrapped(said, width, role=Role.GOOD), said, well=True)


def _places(intended: Intended) -> set[tuple[str, str]]:
    return {(one.member.host, one.member.id) for one in intended.containers}
