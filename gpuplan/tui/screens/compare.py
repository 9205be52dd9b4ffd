"""Two candidates beside each other, or below each other where the terminal is narrow."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from gpuplan.present.comparison import Compared, comparison_lines
from gpuplan.present.document import Lines
from gpuplan.tui import commands
from gpuplan.tui.widgets.document import Document
from gpuplan.tui.widgets.key_bar import KeyBar


class CompareScreen(ModalScreen[None]):
    """A and B."""

    CSS_PATH = "compare.tcss"
    HELP = "Two candidates: sizes, capacity and score of both, and what B has more (+) or less (−) than A."
    BINDINGS: ClassVar[list[BindingType]] = [*commands.bindings(commands.Place.COMPARE)]

    def __init__(self, a: Compared, b: Compared) -> None:
        super().__init__()
        self.a, self.b = a, b

    def compose(self) -> ComposeResult:
        with Vertical(id="compare-box"):
            yield Static("Two candidates; differences are B less A", id="compare-title", markup=False)
            yield Document(self._lines, id="compare-lines")
        yield KeyBar()

    def _lines(self, width: int) -> Lines:
        return comparison_lines(self.a, self.b, width)

    def action_compare_swap(self) -> None:
        """The differences the other way round."""
        self.a, self.b = self.b, self.a
        self.query_one(Document).show_document(self._lines)

    def action_compare_back(self) -> None:
        self.dismiss()
