"""F1: what the focused part of a screen shows, and every key that works there."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from gpuplan.present.app_text import KeyGroup, help_lines
from gpuplan.present.document import Lines
from gpuplan.tui.widgets.document import Document
from gpuplan.tui.widgets.key_bar import KeyBar


class HelpScreen(ModalScreen[None]):
    """A page of help over the screen it is about."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "close", "Close", key_display="esc"),
    ]

    def __init__(self, title: str, about: Sequence[str], groups: Sequence[KeyGroup]) -> None:
        super().__init__()
        self.about = tuple(about)
        self._page = title, self.about, tuple(groups)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog page"):
            yield Document(self._lines, id="help-page")
        yield KeyBar(palette=False)

    def _lines(self, width: int) -> Lines:
        title, about, groups = self._page
        return help_lines(title, about, groups, width)

    def action_close(self) -> None:
        self.dismiss(None)
