"""The form of knobs: a line each, reached with the arrow keys; what is wrong with a value stands under its line."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from gpuplan.present.document import visible
from gpuplan.tui.knobs import BY_FIELD, DEFAULTS, KNOBS, Kind, Knob, Knobs
from gpuplan.tui.rendering import safe

SET = "▪"
SWITCHED = {True: "yes", False: "no"}


@dataclass
class Turned(Message):
    """A person changed one knob."""

    field: str
    value: str | bool


class TextKnob(Input):
    """A knob that is written."""

    def __init__(self, knob: Knob, value: str) -> None:
        super().__init__(
            value, placeholder=knob.default, compact=True, select_on_focus=False, id=f"knob-{knob.field}"
        )
        self.knob = knob
        self.tooltip = knob.option or None

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(Turned(self.knob.field, event.value))

    @property
    def written(self) -> str:
        """What it shows now."""
        return self.value

    def put(self, value: str | bool) -> None:
        """Another value that nobody typed."""
        if self.value != value:
            with self.prevent(Input.Changed):
                self.value = str(value)


class ChoiceKnob(Static, can_focus=True):
    """A knob with a few values, switched through; a switch has two."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,space,l", "turn(1)", "Next value", show=False),
        Binding("left,h", "turn(-1)", "Value before", show=False),
    ]

    def __init__(self, knob: Knob, value: str | bool) -> None:
        super().__init__(id=f"knob-{knob.field}")
        self.knob = knob
        self.tooltip = knob.option
        self._value = value

    def on_mount(self) -> None:
        self.put(self._value)

    @property
    def written(self) -> str | bool:
        """What it shows now."""
        return self._value

    def put(self, value: str | bool) -> None:
        """Another value that nobody chose."""
        self._value = value
        switch = self.knob.kind is Kind.SWITCH
        word = SWITCHED[bool(value)] if switch else visible(str(value)) or self.knob.default
        self.update(Content.assemble("◂ ", (word, "" if value else "$text-muted"), " ▸"))

    def action_turn(self, by: int) -> None:
        values: list[str | bool] = [False, True] if self.knob.kind is Kind.SWITCH else list(self.knob.choices)
        at = values.index(self._value) if self._value in values else 0
        self.put(values[(at + by) % len(values)])
        self.post_message(Turned(self.knob.field, self._value))

    def on_click(self) -> None:
        self.action_turn(1)


class KnobError(Static):
    """A sentence over both columns. A grid asks for its height at the width of the first one."""

    INDENT: ClassVar[int] = 2

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        form = self.parent
        whole = form.content_size.width - self.INDENT if isinstance(form, Widget) else width
        return super().get_content_height(container, viewport, max(width, whole))


Control = TextKnob | ChoiceKnob


class KnobForm(VerticalScroll, can_focus=False):
    """All knobs. `Changed` goes up with every key, `Committed` with Enter, `Left` with Escape."""

    DEFAULT_CSS = """
    KnobForm {
        padding: 0 1 0 0;
        layout: grid;
        grid-size: 2;
        grid-columns: 18 1fr;
        grid-rows: auto;
    }
    KnobForm Label { color: $text-muted; }
    KnobForm ChoiceKnob { height: 1; }
    KnobForm ChoiceKnob:focus { text-style: reverse; }
    KnobForm #knob-error { column-span: 2; color: $text-error; display: none; padding: 0 0 0 2; }
    KnobForm #knob-error.-shown { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Knob above", show=False),
        Binding("down", "move(1)", "Knob below", show=False),
        Binding("escape", "leave", "Back to the strategies"),
    ]

    @dataclass
    class Changed(Message):
        """One knob was changed by a person."""

        knobs: Knobs
        field: str

    @dataclass
    class Committed(Message):
        """Enter: plan at once; what comes next is another change."""

    @dataclass
    class Left(Message):
        """Escape."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._knobs = DEFAULTS
        self._wrong: str | None = None
        self._waiting: list[Callable[[], None]] = []
        """What is to be done once the controls are there."""
        self._is_filled = False

    def on_mount(self) -> None:
        """The controls come after the screen's first paint: dozens of widgets at once would hold it up."""
        self.call_after_refresh(self._fill)

    async def _fill(self) -> None:
        shown = self._knobs
        await self.mount_all(self._controls())
        self._is_filled = True
        now, self._knobs = self._knobs, shown
        self.show_knobs(now)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def _controls(self) -> Iterator[Widget]:
        for knob in KNOBS:
            value = getattr(self._knobs, knob.field)
            yield Label(_label(knob, value), id=f"label-{knob.field}", markup=False)
            yield TextKnob(knob, value) if knob.kind is Kind.TEXT else ChoiceKnob(knob, value)
        yield KnobError("", id="knob-error", markup=False)

    def show_knobs(self, knobs: Knobs) -> None:
        """Other values that nobody typed here."""
        before, self._knobs = self._knobs, knobs
        if not self._is_filled:
            return
        for knob in KNOBS:
            value = getattr(knobs, knob.field)
            if value != getattr(before, knob.field):
                self._control(knob.field).put(value)
                self._mark(knob.field)

    @property
    def knobs(self) -> Knobs:
        """As they stand now; a `Changed` with other ones is out of date."""
        return self._knobs

    def show_defaults(self, words: dict[str, str]) -> None:
        """What an empty field stands for, by field, as the last plan has it."""
        if not self._is_filled:
            self._waiting.append(partial(self.show_defaults, words))
            return
        for field, word in words.items():
            control = self._control(field)
            if isinstance(control, TextKnob):
                control.placeholder = word

    def show_error(self, field: str | None, message: str = "", hint: str | None = None) -> None:
        """What is wrong with a knob, under its line; with None nothing is."""
        self._wrong = field = field if field in BY_FIELD else None
        if not self._is_filled:
            self._waiting.append(partial(self.show_error, field, message, hint))
            return
        words = self.query_one("#knob-error", Static)
        words.set_class(field is not None, "-shown")
        if field is not None:
            words.update(safe(f"{message}; {hint}" if hint else message))
            self.move_child(words, after=self._control(field))

    def focus_knob(self, field: str | None = None) -> None:
        """Put the keys on a knob: that one, else the one that is wrong, else the first."""
        if self._is_filled:
            self._control(field or self._wrong or KNOBS[0].field).focus()
        else:
            self._waiting.append(partial(self.focus_knob, field))

    @property
    def has_keys(self) -> bool:
        """Whether a knob has the focus."""
        return self.has_focus_within

    def _control(self, field: str) -> Control:
        widget = self.query_one(f"#knob-{field}")
        assert isinstance(widget, TextKnob | ChoiceKnob)
        return widget

    def _mark(self, field: str) -> None:
        knob = next(item for item in KNOBS if item.field == field)
        self.query_one(f"#label-{field}", Label).update(_label(knob, getattr(self._knobs, field)))

    @on(Turned)
    def _turned(self, event: Turned) -> None:
        event.stop()
        control = self._control(event.field)
        if getattr(self._knobs, event.field) == event.value or control.written != event.value:
            return
        self._knobs = replace(self._knobs, **{event.field: event.value})  # type: ignore[arg-type]  # of the knob's kind
        self._mark(event.field)
        self.post_message(self.Changed(self._knobs, event.field))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Committed())

    def action_move(self, by: int) -> None:
        controls = [self._control(knob.field) for knob in KNOBS]
        at = next((index for index, control in enumerate(controls) if control.has_focus), 0)
        self.screen.set_focus(controls[max(0, min(len(controls) - 1, at + by))])

    def action_leave(self) -> None:
        self.post_message(self.Left())

    def on_descendant_blur(self, _event: events.DescendantBlur) -> None:
        self.post_message(self.Committed())


def _label(knob: Knob, value: str | bool) -> str:
    return f"{SET if value else ' '} {knob.label}"
