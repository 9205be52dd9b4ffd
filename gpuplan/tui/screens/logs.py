"""Logs of a deployment: read in a thread of its own, shown in batches, searched, filtered, saved."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import Input, Label

from gpuplan.domain.deployment import Member
from gpuplan.errors import GpuplanError, NoDeployment
from gpuplan.operations.logs import LogChoice, Printed
from gpuplan.operations.text_files import write_texts
from gpuplan.present.document import Line, Role, Span, line, visible
from gpuplan.present.log_text import member_label
from gpuplan.present.numbers import count
from gpuplan.tui import commands
from gpuplan.tui.background import BrokenOff, in_thread
from gpuplan.tui.rendering import content_of
from gpuplan.tui.screens.confirm import PromptScreen
from gpuplan.tui.services import Services
from gpuplan.tui.widgets.key_bar import KeyBar
from gpuplan.tui.widgets.log_rows import MOST_LINES, Entry, LogLines, LogRows
from gpuplan.units import plural

if TYPE_CHECKING:
    from textual.timer import Timer

BATCH_SECONDS = 0.1
AGAIN_SECONDS = 1.0
"""Until logs that are not there yet are asked for again."""
TAIL = MOST_LINES // 4
"""Of each member: older lines are not read."""
MOST_AT_ONCE = 20_000
"""Lines of a batch: more wait for the next one."""
MOST_WAITING = 100_000
"""Lines that were read and are not shown yet: who reads waits, as a pipe's writer does."""


class LogReader:
    """The thread that reads, and what it has read and nobody has taken."""

    def __init__(
        self, services: Services, name: str, choice: LogChoice, coming: Callable[[], bool] = lambda: False
    ) -> None:
        """`coming`, asked from the thread: whether it is being deployed, so that it may not be there yet."""
        self.members: tuple[Member, ...] | None = None
        """None until they are found."""
        self.ended = False
        self.is_early = False
        """There was nothing to read yet."""
        self.error: BaseException | None = None
        self._lines: deque[Entry] = deque()
        self._stop = threading.Event()
        self._coming = coming
        call = partial(self._read, services, name, choice)
        self._thread = threading.Thread(target=call, daemon=True, name=f"logs {name}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def take(self, most: int) -> list[Entry]:
        """The oldest lines that were not taken."""
        return [self._lines.popleft() for _ in range(min(most, len(self._lines)))]

    @property
    def all_taken(self) -> bool:
        return self.ended and not self._lines

    def _read(self, services: Services, name: str, choice: LogChoice) -> None:
        try:
            while not self._read_once(services, name, choice):
                pass
        except BaseException as error:  # noqa: BLE001 - told by the screen, which raises what nobody expected
            self.error = error
        self.ended = True

    def _read_once(self, services: Services, name: str, choice: LogChoice) -> bool:
        """To the end; False where it is too early."""
        try:
            services.logs(name, choice, self._begin, self._lines.append, self._stop)
        except NoDeployment:
            self.is_early = self._coming() and not self._stop.wait(AGAIN_SECONDS)
            if not self.is_early:
                raise
            return False
        return True

    def _begin(self, members: Sequence[Member]) -> Callable[[Printed], None]:
        self.members, self.is_early = tuple(members), False
        return self._put

    def _put(self, printed: Printed) -> None:
        while len(self._lines) >= MOST_WAITING and not self._stop.wait(BATCH_SECONDS):
            pass
        self._lines.append(printed)


class LogsScreen(Screen[None]):
    """Everything the members print, merged by time."""

    CSS_PATH = "logs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*commands.bindings(commands.Place.LOGS)]
    HELP: ClassVar[str] = (
        "What the members print, merged by time, secrets masked. At the end it follows; going up pauses that, f goes on. "
        f"The latest {MOST_LINES:,} lines are kept. Long lines: left and right."
    )

    def __init__(
        self,
        name: str,
        services: Services,
        *,
        members: Sequence[str] = (),
        coming: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__()
        self.deployment = name
        choice = LogChoice(follow=True, tail=TAIL, members=tuple(members))
        self._reader = LogReader(services, name, choice, coming)
        self._known: tuple[Member, ...] = ()
        self._batches: Timer | None = None
        self._told = False

    def compose(self) -> ComposeResult:
        yield Label("", id="logs-title", classes="bar")
        yield LogRows(id="logs-rows")
        yield Input(
            placeholder="search: Enter finds the latest before the cursor, n and N go on",
            compact=True,
            id="logs-search",
        )
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(Input).display = False
        self.rows.focus()
        self._show_title()
        self._reader.start()
        self._batches = self.set_interval(BATCH_SECONDS, self._take)

    def on_unmount(self) -> None:
        self._reader.stop()

    @property
    def rows(self) -> LogRows:
        return self.query_one(LogRows)

    # ------------------------------------------------------------------ lines come

    def _take(self) -> None:
        reader = self._reader
        if reader.members is not None and reader.members != self._known:
            self._known = reader.members
            self.rows.changed_look(self._meet)
        entries = reader.take(MOST_AT_ONCE)
        if entries:
            self.rows.append(entries)
        if reader.all_taken and not self._told:
            self._told = True
            self._end(reader.error)
            if self._batches is not None:
                self._batches.stop()
        if entries or self._told or reader.is_early:
            self._show_title()

    def _meet(self, lines: LogLines) -> None:
        lines.meet(self._known)

    def _end(self, error: BaseException | None) -> None:
        match error:
            case None:
                self.rows.append(["every member has ended, or there is nothing more to read"])
            case GpuplanError():
                hint = [f"hint: {error.hint}"] if error.hint else []
                self.rows.append([f"the logs cannot be read: {error.message}", *hint])
            case _:
                raise error

    def _show_title(self) -> None:
        self.query_one("#logs-title", Label).update(content_of((self._title(),)))

    def _title(self) -> Line:
        lines = self.rows.lines
        if lines.only is not None:
            words = [
                f"{count(len(lines))} of {plural(lines.total, 'line')}, {member_label(lines.only)} alone"
            ]
        else:
            words = [plural(lines.total, "line")]
        if lines.dropped:
            words.append(f"{count(lines.dropped)} older ones dropped")
        reader = self._reader
        if reader.error is not None and reader.all_taken:
            state, role = "not read", Role.BAD
        elif reader.all_taken:
            state, role = "ended", Role.DIM
        elif reader.members is None:
            state, role = ("no container yet" if reader.is_early else "connecting"), Role.DIM
        else:
            state, role = (
                ("following", Role.GOOD) if self.rows.following else ("paused: f follows", Role.WARNING)
            )
        return line(
            Span(f"Logs of {visible(self.deployment)}  ", Role.TITLE),
            visible(", ".join(words)) + "  ",
            Span(state, role),
        )

    @on(LogRows.Moved)
    def _moved(self) -> None:
        self._show_title()

    # ------------------------------------------------------------------ search

    def action_search_logs(self) -> None:
        search = self.query_one(Input)
        search.display = True
        search.focus()

    @on(Input.Submitted)
    def _searched(self, event: Input.Submitted) -> None:
        self._look_for(event.value)
        event.input.display = False
        self.rows.focus()
        if event.value:
            self._find(self.rows.cursor, -1)

    def _look_for(self, text: str) -> None:
        def change(lines: LogLines) -> None:
            lines.found = text

        self.rows.changed_look(change)

    def action_next_hit(self, by: int) -> None:
        if not self.rows.lines.found:
            self.action_search_logs()
        else:
            self._find(self.rows.cursor + by, by)

    @work(exclusive=True, group="search")
    async def _find(self, start: int, by: int) -> None:
        """In pieces, so that nothing waits for it; round the end, once."""
        lines = self.rows.lines
        goals = ((start, ""), (0 if by > 0 else len(lines) - 1, "from the other end"))
        for begin, note in goals:
            at: int | None = begin if 0 <= begin < len(lines) else None
            while at is not None:
                hit, at = lines.next_hit(at, by)
                if hit is not None:
                    self.rows.cursor = hit
                    if note:
                        self.notify(note, timeout=2, markup=False)
                    return
                await asyncio.sleep(0)
        self.notify(f"no line has {visible(lines.found)}", severity="warning", markup=False)

    # ------------------------------------------------------------------ other commands

    def action_follow_logs(self) -> None:
        self.rows.follow()

    def action_next_member(self) -> None:
        members = self._known
        only = self.rows.lines.only
        if len(members) < 2:
            self.notify("there is one member" if members else "no member is known yet", markup=False)
            return
        at = members.index(only) + 1 if only in members else 0
        after = members[at] if at < len(members) else None
        self.rows.changed_look(lambda lines: lines.show_only(after))
        self._show_title()

    def action_toggle_times(self) -> None:
        def change(lines: LogLines) -> None:
            lines.times = not lines.times

        self.rows.changed_look(change)

    def action_copy_line(self) -> None:
        rows = self.rows
        if len(rows.lines):
            self.app.copy_to_clipboard(rows.lines.text(rows.cursor))
            self.notify("the line is on the clipboard", timeout=2, markup=False)

    @work(exclusive=True, group="save")
    async def action_save_logs(self) -> None:
        """Where to is asked; a file that is there is not written over."""
        lines = (line(Span("Save the lines that are shown to", Role.TITLE)),)
        default = str(Path.cwd() / f"{_file_name(self.deployment)}.log")
        name = await self.app.push_screen_wait(PromptScreen(lines, value=default, action="Save"))
        if name is None:
            return
        shown = self.rows.lines.copied()
        try:
            await in_thread(lambda: write_texts(name, {default: shown.whole_text()}))
        except GpuplanError as error:
            self.notify(visible(error.message), title="not saved", severity="error", markup=False)
        except BrokenOff:
            pass
        else:
            self.notify(f"{plural(len(shown), 'line')} in {visible(name)}", title="saved", markup=False)

    def action_leave_logs(self) -> None:
        search = self.query_one(Input)
        if search.display:
            search.display = False
            self.rows.focus()
        elif self.rows.lines.found:
            self._look_for("")
        else:
            self.dismiss(None)


def _file_name(name: str) -> str:
    """A name that is no path and no trouble in a shell."""
    return (
        "".join(char if char.isalnum() or char in "-_." else "_" for char in name)[:80].strip(".") or "logs"
    )
