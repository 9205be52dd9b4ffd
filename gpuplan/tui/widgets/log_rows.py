"""What members print, as rows: lines come at the end, the oldest go; only what is on screen is ever rendered."""

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.message import Message

from gpuplan.domain.deployment import Member
from gpuplan.operations.logs import Printed
from gpuplan.present.document import Line
from gpuplan.present.log_text import label_column, log_line, member_label, said_line
from gpuplan.tui.widgets.rows import Rows

MOST_LINES = 200_000
DROPPED_AT_ONCE = 10_000
"""Of the oldest, when there are too many."""
AT_A_TIME = 20_000
"""Lines searched before anything else has its turn."""

Entry = Printed | str
"""A line of a member, or a remark of ours."""


class LogLines:
    """A RowSource: lines by their number since the first, which filtering and dropping does not change."""

    def __init__(self, most: int = MOST_LINES) -> None:
        self.dropped = 0
        self.members: tuple[Member, ...] = ()
        self.only: Member | None = None
        self.times = False
        self.found = ""
        self._most = most
        self._all: list[Entry] = []
        self._view: list[int] | None = None
        """Numbers of the lines of `only`; None: all are shown."""
        self._labels: dict[Member, str] = {}
        self._column = 0

    def __len__(self) -> int:
        return len(self._all) if self._view is None else len(self._view)

    @property
    def total(self) -> int:
        """Lines kept, shown or not."""
        return len(self._all)

    def key(self, index: int) -> Hashable:
        return self.number(index)

    def number(self, index: int) -> int:
        """Of the row, since the first line."""
        return self.dropped + index if self._view is None else self._view[index]

    def index(self, key: Hashable) -> int | None:
        if not isinstance(key, int):
            return None
        if self._view is None:
            return key - self.dropped if self.dropped <= key < self.dropped + len(self._all) else None
        at = bisect_left(self._view, key)
        return at if at < len(self._view) and self._view[at] == key else None

    def entry(self, index: int) -> Entry:
        return self._all[self.number(index) - self.dropped]

    def line(self, index: int, width: int) -> Line:
        entry = self.entry(index)
        if isinstance(entry, str):
            return said_line(entry)
        return log_line(
            self.label(entry.member),
            entry.at,
            entry.text,
            column=self._column if self.only is None and len(self.members) > 1 else 0,
            times=self.times,
            found=self.found,
            sensitive=is_sensitive(self.found),
        )

    def text(self, index: int) -> str:
        """The row as it is saved and copied."""
        return "".join(span.text for span in self.line(index, 0))

    def copied(self) -> "LogLines":
        """As it is now: lines that come or go change nothing in it, so that a thread can read it."""
        same = copy(self)
        same._all = list(self._all)
        same._view = None if self._view is None else list(self._view)
        same._labels = dict(self._labels)
        return same

    def whole_text(self) -> str:
        """All rows as they are saved."""
        return "".join(f"{self.text(index)}\n" for index in range(len(self)))

    def label(self, member: Member) -> str:
        label = self._labels.get(member)
        if label is None:
            label = self._labels[member] = member_label(member)
        return label

    def meet(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)
        self._column = label_column(members)

    def show_only(self, member: Member | None) -> None:
        """Filter; None: every line."""
        self.only = member
        self._view = None
        if member is not None:
            shown = enumerate(self._all, self.dropped)
            self._view = [number for number, entry in shown if self._is_shown(entry)]

    def add(self, entries: Sequence[Entry]) -> bool:
        """Lines at the end; whether old ones had to go for them."""
        first = self.dropped + len(self._all)
        self._all.extend(entries)
        if self._view is not None:
            self._view += [number for number, entry in enumerate(entries, first) if self._is_shown(entry)]
        excess = len(self._all) - self._most
        if excess <= 0:
            return False
        gone = min(len(self._all), max(excess, min(DROPPED_AT_ONCE, self._most // 2)))
        del self._all[:gone]
        self.dropped += gone
        if self._view is not None:
            del self._view[: bisect_left(self._view, self.dropped)]
        return True

    def _is_shown(self, entry: Entry) -> bool:
        return isinstance(entry, str) or entry.member == self.only

    def next_hit(self, start: int, by: int, most: int = AT_A_TIME) -> tuple[int | None, int | None]:
        """The next row with `found` from `start` on, looking at `most` rows; else where to go on, None at the end."""
        sensitive, sought = is_sensitive(self.found), self.found.lower()
        end = min(len(self), start + most) if by > 0 else max(-1, start - most)
        for index in range(start, end, by):
            entry = self.entry(index)
            text = entry if isinstance(entry, str) else entry.text
            if self.found in text if sensitive else sought in text.lower():
                return index, None
        return None, end if 0 <= end < len(self) else None


def is_sensitive(found: str) -> bool:
    """Whether capitals matter: they do where somebody typed one."""
    return found != found.lower()


class LogRows(Rows):
    """Follows the end until the cursor or the wheel goes up."""

    BINDINGS: ClassVar = []

    @dataclass
    class Moved(Message):
        """Following began or ended."""

        following: bool

    def __init__(self, *, id: str | None = None, most: int = MOST_LINES) -> None:
        super().__init__(id=id)
        self.lines = LogLines(most)
        self.following = True
        self._moving = False

    def on_mount(self) -> None:
        self.show(self.lines)

    def append(self, entries: Sequence[Entry]) -> None:
        """Take lines; those that were dropped for them leave the cursor where it was, or on the oldest."""
        if self.lines.add(entries):
            above = self.cursor - round(self.scroll_target_y)
            self._settle()
            if not self.following:
                self.scroll_to(y=self.cursor - above, animate=False, immediate=True)
        else:
            self.grown()
        if self.following:
            self._to_end()

    def changed_look(self, change: Callable[[LogLines], None]) -> None:
        """Filter, times or what is searched for."""
        change(self.lines)
        self.show(self.lines)
        if self.following:
            self._to_end()

    def follow(self) -> None:
        """To the end, and stay there."""
        self._follows(True)
        self._to_end()

    def _to_end(self) -> None:
        self._moving = True
        self.cursor = len(self.lines) - 1
        self._moving = False

    def watch_cursor(self, before: int, after: int) -> None:
        super().watch_cursor(before, after)
        if not self._moving and len(self.lines):
            self._follows(after >= len(self.lines) - 1)

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        self._follows(False)

    def _follows(self, following: bool) -> None:
        if following != self.following:
            self.following = following
            self.post_message(self.Moved(following))
