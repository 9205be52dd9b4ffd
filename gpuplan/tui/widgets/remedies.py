"""What would make the chosen strategy fit, numbered, and the dialog in which one of several is chosen."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from gpuplan.domain.plan import Remedy
from gpuplan.present.document import Line, Role, Span, line, padded, visible
from gpuplan.present.remedies import word_remedy
from gpuplan.tui.rendering import content_of
from gpuplan.tui.widgets.rows import FixedRows, Rows

MOST_LINES = 3


def remedy_words(remedy: Remedy) -> str:
    """What to change and what it costs, in a line."""
    headline, cost = word_remedy(remedy)
    return visible(f"{headline} ({cost})")


class RemedyStrip(Static):
    """The first few, a line each, with their keys."""

    DEFAULT_CSS = """
    RemedyStrip { height: auto; max-height: 4; display: none; text-wrap: nowrap; text-overflow: ellipsis; }
    RemedyStrip.-some { display: block; }
    """

    def show_remedies(self, remedies: Sequence[Remedy], applicable: Sequence[Remedy], key: str) -> None:
        """`key` applies; with several a number follows. Those no knob can say stand without a key."""
        self.set_class(bool(remedies), "-some")
        numbers = {id(remedy): number for number, remedy in enumerate(applicable, 1)}
        lines: list[Line] = []
        for remedy in remedies[:MOST_LINES]:
            number = numbers.get(id(remedy))
            several = f" {number}" if len(applicable) > 1 else ""
            keys = " " * (len(key) + 2) if number is None else f"{key}{several}"
            lines.append(
                line(
                    " ", Span(f"{keys:<{len(key) + 3}}", Role.COMMAND), Span(remedy_words(remedy), Role.HINT)
                )
            )
        if len(remedies) > MOST_LINES:
            more = len(remedies) - MOST_LINES
            lines.append(line(Span(f" {'':<{len(key) + 3}}… {more} more: {key}", Role.DIM)))
        self.update(content_of(tuple(lines)))


class RemedyRows(FixedRows):
    """Numbers and what to change, cut at the width; the row under the cursor is told in full elsewhere."""

    def __init__(self, remedies: Sequence[Remedy]) -> None:
        super().__init__([line(visible(word_remedy(remedy)[0])) for remedy in remedies])

    def line(self, index: int, width: int) -> Line:
        words = "".join(span.text for span in super().line(index, width))
        number = f"{index + 1:>2}  "
        return line(Span(number, Role.COMMAND), padded(words, width - len(number)))


class ChooseRemedy(ModalScreen[int | None]):
    """Gives the index of the remedy that was chosen, by its number or with Enter."""

    DEFAULT_CSS = """
    ChooseRemedy { align: center middle; background: $background 60%; }
    ChooseRemedy #remedy-cost { height: auto; max-height: 4; padding: 1 0; }
    ChooseRemedy .keys { color: $text-muted; height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back", show=False)]

    def __init__(self, remedies: Sequence[Remedy], strategy: str) -> None:
        super().__init__()
        self._remedies = tuple(remedies)
        self._strategy = strategy

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            title = f"What would make it fit: {self._strategy}"
            yield Static(content_of((line(Span(title, Role.TITLE)),)), markup=False)
            yield Rows(id="remedy-rows")
            yield Static(id="remedy-cost", markup=False)
            yield Static("its number or Enter: apply · Escape: back", classes="keys", markup=False)

    def on_mount(self) -> None:
        rows = self.query_one(Rows)
        rows.show(RemedyRows(self._remedies))
        rows.styles.height = min(10, len(self._remedies))

    @on(Rows.Highlighted)
    def _moved(self, event: Rows.Highlighted) -> None:
        if isinstance(event.key, int):
            chosen = line(Span(remedy_words(self._remedies[event.key]), Role.HINT))
            self.query_one("#remedy-cost", Static).update(content_of((chosen,)))

    @on(Rows.Selected)
    def _selected(self, event: Rows.Selected) -> None:
        if isinstance(event.key, int):
            self.dismiss(event.key)

    def on_key(self, event: events.Key) -> None:
        if event.character is not None and event.character in "123456789":
            event.stop()
            number = int(event.character)
            if number <= len(self._remedies):
                self.dismiss(number - 1)
