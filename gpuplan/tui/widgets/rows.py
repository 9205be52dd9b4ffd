"""Any number of rows, of which only those on screen are ever rendered; the cursor stays on its row by key."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from gpuplan.present.document import Line
from gpuplan.tui.rendering import Styles, strip_of, styles_of

KEPT_STRIPS = 4096
"""Rendered rows that are remembered."""


class RowSource(Protocol):
    """What is shown. `line` is asked for rows on screen alone."""

    def __len__(self) -> int: ...
    def key(self, index: int) -> Hashable:
        """What a row is about: it survives sorting and updates."""
        ...

    def index(self, key: Hashable) -> int | None:
        """Where that row is now; None: it is gone."""
        ...

    def line(self, index: int, width: int) -> Line:
        """The row as it is shown; longer than `width`: it can be scrolled sideways."""
        ...


class FixedRows:
    """Lines that were made before, each its own key by number."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    def key(self, index: int) -> Hashable:
        return index

    def index(self, key: Hashable) -> int | None:
        return key if isinstance(key, int) and 0 <= key < len(self._lines) else None

    def line(self, index: int, width: int) -> Line:
        return self._lines[index]


NO_ROWS = FixedRows(())


class Rows(ScrollView, can_focus=True):
    """A list of rows with a cursor.

    Update it with `show` (another list, or the same with other rows) and `changed` (these rows look different): the
    cursor and the scroll position stay.
    """

    DEFAULT_CSS = """
    Rows { height: 1fr; scrollbar-size-vertical: 1; background: $surface; }
    Rows:focus { background-tint: $foreground 3%; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--cursor", "rows--header"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "cursor(-1)", "Up", show=False),
        Binding("down,j", "cursor(1)", "Down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("home,g", "edge(0)", "First", show=False),
        Binding("end,G", "edge(1)", "Last", show=False),
        Binding("enter", "select", "Open", show=False),
        Binding("left,h", "sideways(-8)", "Left", show=False),
        Binding("right,l", "sideways(8)", "Right", show=False),
    ]

    cursor: reactive[int] = reactive(0, repaint=False)
    """Index of the row under the cursor; 0 where there is none."""

    @dataclass
    class Highlighted(Message):
        """The cursor came to another row."""

        rows: "Rows"
        key: Hashable

        @property
        def control(self) -> "Rows":
            return self.rows

    @dataclass
    class Selected(Message):
        """Enter, or a second click, on a row."""

        rows: "Rows"
        key: Hashable

        @property
        def control(self) -> "Rows":
            return self.rows

    def __init__(
        self, *, id: str | None = None, classes: str | None = None, header: Line = (), has_cursor: bool = True
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.source: RowSource = NO_ROWS
        self._header = header
        self._has_cursor = has_cursor
        self._strips: dict[Hashable, Strip] = {}
        self._styles: Styles | None = None
        self._key: Hashable | None = None
        self._widest = 0
        self._grows = False
        """Rows are added at the end as they come."""
        self._at_end = True
        """Of rows that grow, without a cursor: the last one is seen, and stays so with more of them and with less room."""
        self._made_for = 0
        """Cells of width the strips were made for."""

    # ------------------------------------------------------------------ what is shown

    def show(self, source: RowSource, *, header: Line | None = None) -> None:
        """Show these rows; every one may look different from before."""
        self.source = source
        if header is not None:
            self._header = header
        self._strips.clear()
        self._widest = 0
        self._settle()

    def changed(self, keys: Sequence[Hashable]) -> None:
        """These rows look different, nothing else does."""
        for key in keys:
            self._strips.pop(key, None)
        self.refresh()

    def rearranged(self, keys: Sequence[Hashable]) -> None:
        """Rows came, went or moved, and these look different; the one under the cursor stays where it is on screen."""
        for key in keys:
            self._strips.pop(key, None)
        above = self.cursor - round(self.scroll_target_y)
        self._settle()
        if self.source.index(self._key) is not None and above >= 0:
            self.scroll_to(y=self.cursor - above, animate=False, immediate=True)

    def grown(self) -> None:
        """Rows were added at the end; those before are as they were."""
        self._grows = True
        self._fit()
        self._stay_at_end()
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._at_end = self.is_vertical_scroll_end

    def watch_show_vertical_scrollbar(self, shown: bool) -> None:
        """One that appears after rows were scrolled does not know where they are."""
        if shown:
            self.vertical_scrollbar.position = self.scroll_y

    def _stay_at_end(self) -> None:
        if self._grows and self._at_end and not self._has_cursor:
            self.scroll_end(animate=False, immediate=True, force=True)

    @property
    def header(self) -> Line:
        """The line above the rows; empty: there is none."""
        return self._header

    @property
    def key(self) -> Hashable | None:
        """Of the row under the cursor."""
        return self._key if len(self.source) else None

    def move_to(self, key: Hashable) -> None:
        """Put the cursor on a row, if it is there."""
        index = self.source.index(key)
        if index is not None:
            self.cursor = index

    def _settle(self) -> None:
        """The cursor back on its row, or as near as can be."""
        index = self.source.index(self._key) if self._key is not None else None
        count = len(self.source)
        self._fit()
        if index is None:
            index = max(0, min(self.cursor, count - 1))
        self.cursor = index
        self._arrived()
        self.refresh()

    def _fit(self) -> None:
        lines = len(self.source) + (1 if self._header else 0)
        room = self._room.width
        if lines > self._room.height and not self.show_vertical_scrollbar:
            room -= self.styles.scrollbar_size_vertical
        self.virtual_size = Size(max(room, self._widest), lines)

    @property
    def _room(self) -> Size:
        return self.scrollable_content_region.size

    # ------------------------------------------------------------------ rendering

    def notify_style_update(self) -> None:
        self._styles = None
        self._strips.clear()
        super().notify_style_update()

    def on_resize(self) -> None:
        self._strips.clear()
        self._fit()
        self._into_view()
        self._stay_at_end()

    def watch_show_horizontal_scrollbar(self) -> None:
        """It takes the last line, on which the cursor may be."""
        self.call_after_refresh(self._into_view)

    def render_line(self, y: int) -> Strip:
        scroll_x, scroll_y = self.scroll_offset
        width = self._room.width
        if width != self._made_for:
            self._made_for = width
            self._strips.clear()
        base = self.rich_style
        if self._header and y == 0:
            style = base + self.get_component_rich_style("rows--header", partial=True)
            strip = strip_of(self._header, self._role_styles())
            return strip.crop_extend(scroll_x, scroll_x + width, style).apply_style(style)
        index = y + scroll_y - (1 if self._header else 0)
        if not 0 <= index < len(self.source):
            return Strip.blank(width, base)
        strip = self._strip(index, width).crop_extend(scroll_x, scroll_x + width, base)
        if self._has_cursor and index == self.cursor:
            return self._under_cursor(strip)
        return strip.apply_style(base)

    def _under_cursor(self, strip: Strip) -> Strip:
        style = self.get_component_rich_style("rows--cursor", partial=True)
        plain = Style(bgcolor=style.bgcolor, color=style.color, bold=style.bold, reverse=style.reverse)
        return Strip(
            [Segment(text, (own or Style()) + plain, control) for text, own, control in strip],
            strip.cell_length,
        )

    def _strip(self, index: int, width: int) -> Strip:
        key = self.source.key(index)
        strip = self._strips.get(key)
        if strip is None:
            if len(self._strips) >= KEPT_STRIPS:
                self._strips.clear()
            strip = self._strips[key] = strip_of(self.source.line(index, width), self._role_styles())
            if strip.cell_length > max(self._widest, width):
                self._widest = strip.cell_length
                self.call_after_refresh(self._fit)
        return strip

    def _role_styles(self) -> Styles:
        if self._styles is None:
            self._styles = styles_of(self.app.theme_variables)
        return self._styles

    # ------------------------------------------------------------------ the cursor

    def validate_cursor(self, value: int) -> int:
        return max(0, min(value, len(self.source) - 1))

    def watch_cursor(self, before: int, after: int) -> None:
        top = 1 if self._header else 0
        width = self.size.width
        offset = self.scroll_offset.y
        for index in (before, after):
            self.refresh(Region(0, index + top - offset, width, 1))
        self._into_view()
        self._arrived()

    def _into_view(self) -> None:
        if not self._has_cursor or not len(self.source):
            return
        page = self._room.height - (1 if self._header else 0)
        top = round(self.scroll_target_y)
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, immediate=True, force=True)
        elif page > 0 and self.cursor >= top + page:
            self.scroll_to(y=self.cursor - page + 1, animate=False, immediate=True, force=True)

    def _arrived(self) -> None:
        key = self.source.key(self.cursor) if self.cursor < len(self.source) else None
        if key != self._key:
            self._key = key
            if key is not None and self._has_cursor:
                self.post_message(self.Highlighted(self, key))

    def action_cursor(self, by: int) -> None:
        if self._has_cursor:
            self.cursor += by
        else:
            self.scroll_relative(y=by, animate=False)

    def action_page(self, by: int) -> None:
        step = max(1, self._room.height - 1 - (1 if self._header else 0))
        self.action_cursor(by * step)

    def action_edge(self, last: int) -> None:
        if self._has_cursor:
            self.cursor = len(self.source) - 1 if last else 0
        elif last:
            self.scroll_end(animate=False)
        else:
            self.scroll_home(animate=False)

    def action_sideways(self, by: int) -> None:
        self.scroll_relative(x=by, animate=False)

    def action_select(self) -> None:
        if self.key is not None:
            self.post_message(self.Selected(self, self.key))

    def on_click(self, event: events.Click) -> None:
        index = event.y + self.scroll_offset.y - (1 if self._header else 0)
        if event.y < (1 if self._header else 0) or not 0 <= index < len(self.source):
            return
        again = index == self.cursor
        self.cursor = index
        if again or event.chain > 1:
            self.action_select()
