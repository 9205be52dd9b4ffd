"""Questions over a screen: nothing happens by Enter alone, the way back always has the focus."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label

from gpuplan.present.document import Lines, Span, line, visible, width_of
from gpuplan.tui.rendering import content_of, safe
from gpuplan.tui.widgets.document import Document, MakeLines

BETWEEN = [
    Binding("left", "app.focus_previous", "Before", show=False),
    Binding("right", "app.focus_next", "Next", show=False),
    Binding("up", "scroll_text(-1)", "Up", show=False),
    Binding("down", "scroll_text(1)", "Down", show=False),
    Binding("pageup", "page(-1)", "Page up", show=False),
    Binding("pagedown", "page(1)", "Page down", show=False),
]


LEAST_BUTTON, AROUND_TEXT, MOST_SMALL = 12, 6, 76
"""Cells of a button with the gap after it, at least and beside its text; of a small dialog, at most."""


class Dialog(ModalScreen[str | None]):
    """A document and a row of choices; Escape is None."""

    CSS_PATH = "confirm.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss_it", "Cancel", show=False), *BETWEEN]

    def action_dismiss_it(self) -> None:
        self.dismiss(None)

    def action_page(self, by: int) -> None:
        """The document scrolls wherever the focus is."""
        for document in self.query(Document):
            document.action_page(by)

    def action_scroll_text(self, by: int) -> None:
        """By a line."""
        for document in self.query(Document):
            document.action_cursor(by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of the answers."""

    id: str
    text: str
    grave: bool = False
    """It cannot be undone by looking away."""


class AskScreen(Dialog):
    """A question with a few answers; the first one is the default. The answer is the id of a choice."""

    def __init__(self, make: MakeLines, choices: Sequence[Choice], *, small: bool = True) -> None:
        super().__init__(classes="-small" if small else None)
        self._make = make
        self._choices = tuple(choices)

    def compose(self) -> ComposeResult:
        with Vertical(classes="question"):
            yield Document(self._make, id="question-text")
            with Horizontal(classes="answers"):
                for choice in self._choices:
                    yield answer_button(choice)

    def on_mount(self) -> None:
        self.query_one(f"#{self._choices[0].id}", Button).focus()
        self._stack()

    def on_resize(self) -> None:
        self._stack()

    def _stack(self) -> None:
        """Answers that have no room beside each other stand below each other."""
        wanted = sum(max(LEAST_BUTTON, width_of(visible(one.text)) + AROUND_TEXT) for one in self._choices)
        answers = self.query_one(".answers")
        box = min(MOST_SMALL, self.size.width * 9 // 10) if self.has_class("-small") else self.size.width
        answers.set_class(wanted > box - AROUND_TEXT, "-stacked")

    @on(Button.Pressed)
    def _chosen(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id)


def answer_button(choice: Choice) -> Button:
    """A button of one line: it has room in 24 of them."""
    return Button(
        content_of((line(visible(choice.text)),)),
        id=choice.id,
        variant="error" if choice.grave else "default",
        compact=True,
    )


class ShowScreen(AskScreen):
    """Something to read, and one way out."""

    def __init__(self, make: MakeLines) -> None:
        super().__init__(make, (Choice(id="close", text="Close"),), small=False)


class PromptScreen(Dialog):
    """One line of text; empty, or Escape, is None."""

    def __init__(self, lines: Lines, *, value: str = "", hidden: bool = False, action: str = "OK") -> None:
        super().__init__(classes="-small")
        self._lines = lines
        self._value = value
        self._hidden = hidden
        self._action = action

    def compose(self) -> ComposeResult:
        with Vertical(classes="question"):
            yield Document(lambda _width: self._lines, id="question-text")
            yield Input(self._value, password=self._hidden, compact=True, id="answer")
            with Horizontal(classes="answers"):
                yield answer_button(Choice(id="cancel", text="Cancel"))
                yield answer_button(Choice(id="ok", text=self._action))

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        self.dismiss(event.value or None)

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        value = self.query_one(Input).value if event.button.id == "ok" else None
        self.dismiss(value or None)


class WaitScreen(Dialog):
    """Something that takes a while and can be broken off: it is dismissed by who opened it, None breaks off."""

    def __init__(self, text: str) -> None:
        super().__init__(classes="-small")
        self._text = text
        self._seconds = 0

    def compose(self) -> ComposeResult:
        with Vertical(classes="question"):
            yield Label(safe(self._text), id="wait-text")
            yield Label("", id="wait-seconds")
            with Horizontal(classes="answers"):
                yield answer_button(Choice(id="cancel", text="Cancel"))

    def on_mount(self) -> None:
        self.query_one("#cancel", Button).focus()
        self.set_interval(1.0, self._tick)

    def _tick(self) -> None:
        self._seconds += 1
        self.query_one("#wait-seconds", Label).update(content_of((line(f"{self._seconds} s"),)))

    @on(Button.Pressed)
    def _pressed(self) -> None:
        self.dismiss(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """What was agreed to. `again`: name or keep-alive were changed, so the hosts have to be asked once more."""

    name: str
    keep_alive_seconds: int | None
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What somebody is asked to agree to."""

    make: MakeLines
    name: str
    keep_alive_seconds: int | None = None
    typed: str | None = None
    """A word that has to be typed; None: none."""
    typed_why: str = ""
    replaces: str = ""
    """What stops for it, in words; empty: nothing."""
    evicts: bool = False
    """Whether other deployments are among that."""


class ConfirmScreen(ModalScreen[Confirmed | None]):
    """The exact actions, then Cancel (the default) or Deploy."""

    CSS_PATH = "confirm.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss_it", "Cancel", show=False), *BETWEEN]

    def __init__(self, agreement: Agreement) -> None:
        super().__init__()
        self._agreement = agreement

    def compose(self) -> ComposeResult:
        agreement = self._agreement
        keep = agreement.keep_alive_seconds
        with Vertical(classes="question"):
            yield Document(agreement.make, id="question-text")
            with Horizontal(classes="fields"):
                yield Label("Name ")
                yield Input(agreement.name, compact=True, id="name", max_length=63)
                yield Label("  Keep alive, idle seconds ")
                yield Input(
                    "" if keep is None else str(keep),
                    placeholder="for ever",
                    compact=True,
                    id="keep-alive",
                    restrict=r"[0-9]*",
                    max_length=9,
                )
            if agreement.typed is not None:
                with Horizontal(classes="fields"):
                    yield Label(safe(f"{agreement.typed_why}: type {agreement.typed} "), id="typed-why")
                    yield Input(compact=True, id="typed", max_length=20)
            with Horizontal(classes="answers"):
                yield answer_button(Choice(id="cancel", text="Cancel"))
                yield answer_button(Choice(id="deploy", text="Deploy", grave=True))
                yield Label(safe(agreement.replaces), id="answers-note")

    def on_mount(self) -> None:
        self.query_one("#cancel", Button).focus()
        self._judge()

    @property
    def _entered(self) -> Confirmed:
        agreement = self._agreement
        name = self.query_one("#name", Input).value.strip() or agreement.name
        keep = self.query_one("#keep-alive", Input).value
        seconds = int(keep) if keep else None
        changed = (name, seconds) != (agreement.name, agreement.keep_alive_seconds)
        return Confirmed(name=name, keep_alive_seconds=seconds, again=changed)

    @property
    def agreed(self) -> bool:
        """Whether the word was typed, where one is asked for."""
        typed = self._agreement.typed
        return typed is None or self.query_one("#typed", Input).value.strip() == typed

    @on(Input.Changed)
    def _judge(self) -> None:
        again = self._entered.again
        button = self.query_one("#deploy", Button)
        agreement = self._agreement
        does = (
            "Stop and deploy"
            if agreement.evicts
            else "Replace and deploy"
            if agreement.replaces
            else "Deploy"
        )
        words = "Look again" if again else does
        button.label = content_of((line(Span(words)),))
        button.disabled = not (again or self.agreed)

    @on(Input.Submitted)
    def _next(self) -> None:
        self.focus_next()

    @on(Button.Pressed, "#cancel")
    def action_dismiss_it(self) -> None:
        self.dismiss(None)

    @on(Button.Pressed, "#deploy")
    def _deploy(self) -> None:
        entered = self._entered
        if entered.again or self.agreed:
            self.dismiss(entered)

    def action_page(self, by: int) -> None:
        """The document scrolls wherever the focus is."""
        self.query_one(Document).action_page(by)

    def action_scroll_text(self, by: int) -> None:
        """By a line."""
        self.query_one(Document).action_cursor(by)
