"""A document of `present`, fitted to the widget's width and scrolled."""

from collections.abc import Callable

from gpuplan.present.document import Lines
from gpuplan.tui.widgets.rows import FixedRows, Rows

NARROWEST = 40
MakeLines = Callable[[int], Lines]


def _nothing(_width: int) -> Lines:
    return ()


class Document(Rows):
    """Lines made anew for every width; without a cursor, the keys scroll."""

    def __init__(
        self, make: MakeLines = _nothing, *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes, has_cursor=False)
        self._make = make

    def show_document(self, make: MakeLines, *, top: bool = False) -> None:
        """Show what `make` gives for a width in cells; `top`: from its beginning."""
        self._make = make
        self._made()
        if top:
            self.scroll_home(animate=False)

    def on_resize(self) -> None:
        self._made()

    def _made(self) -> None:
        width = self._room.width
        if width:
            self.show(FixedRows(self._make(max(NARROWEST, width))))
