"""The fleet: hosts and their GPUs as they are now. Readings and live figures change rows, never the cursor or the marks."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import ClassVar

from textual import events, getters, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Input, Static

from gpuplan.present.document import EMPTY, Line, Role, Span, line, width_of
from gpuplan.present.fleet_rows import legend, markable
from gpuplan.present.fleet_status import fleet_words, progress_words, source_words
from gpuplan.present.numbers import count
from gpuplan.tui import commands
from gpuplan.tui.fleet_filter import Filter, parse_filter
from gpuplan.tui.fleet_rows import FleetRows, RowKey, View
from gpuplan.tui.reading import ReadingApp
from gpuplan.tui.rendering import content_of, safe
from gpuplan.tui.screens.host_detail import HostDetailScreen
from gpuplan.tui.state import NOTHING_READ, FleetState, GpuKey
from gpuplan.tui.widgets.key_bar import KeyBar
from gpuplan.tui.widgets.rows import Rows
from gpuplan.units import plural

TICK_SECONDS = 1.0
FOLD_CELLS = 2
MOST_PROBLEMS = 5
"""Lines of an inventory that cannot be read: the way out must have room below them."""


class FleetList(Rows, inherit_bindings=False):
    """The rows; left and right fold instead of scrolling."""

    HELP: ClassVar[str] = (
        "Hosts with their GPUs beneath: what is free, who has the rest, load, temperature, and what is wrong. "
        "free>40 in the filter asks for GPUs with more than 40 GiB free."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        binding
        for binding in Rows.BINDINGS
        if not isinstance(binding, tuple) and not binding.action.startswith("sideways")
    ]

    @dataclass
    class Turned(Message):
        """A host's fold was clicked."""

        key: Hashable

    def on_click(self, event: events.Click) -> None:
        """Left of the name it folds; elsewhere it is a click as on any row."""
        index = event.y + self.scroll_offset.y - 1
        if event.x < FOLD_CELLS and event.y > 0 and index < len(self.source):
            event.prevent_default()
            self.cursor = index
            self.post_message(self.Turned(self.source.key(index)))

    def render_line(self, y: int) -> Strip:
        """The header has other columns at another width."""
        width = self.scrollable_content_region.width
        if y == 0 and isinstance(self.source, FleetRows) and width != self._header_width:
            self._header_width = width
            self._header = self.source.header(width)
        return super().render_line(y)

    _header_width = 0


class FleetScreen(Screen[None]):
    """Rows, a line on the state of reading, a line on what is shown."""

    CSS_PATH = "fleet.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*commands.bindings(commands.Place.FLEET)]
    AUTO_FOCUS = "#fleet-rows"
    app = getters.app(ReadingApp)
    state: reactive[FleetState] = reactive(NOTHING_READ)
    marked: reactive[frozenset[GpuKey]] = reactive(frozenset())

    def __init__(self) -> None:
        super().__init__()
        self.source = FleetRows()
        self.view = View()
        self._texts: dict[str, Line] = {}

    def compose(self) -> ComposeResult:
        yield Static(id="fleet-state")
        yield FleetList(id="fleet-rows")
        yield Static(id="fleet-error")
        yield Input(
            id="fleet-filter", placeholder="words of a host, label, GPU, deployment or owner; free>40"
        )
        yield Static(id="fleet-note")
        yield KeyBar()

    @property
    def rows(self) -> FleetList:
        return self.query_one(FleetList)

    def on_mount(self) -> None:
        self.source.marked = self.marked
        self.source.arrange(self.state, self.view)
        self.rows.show(self.source, header=self.source.header(self.size.width))
        self._say()
        self.set_interval(TICK_SECONDS, self._tick)

    def on_resize(self) -> None:
        self._say()

    # ------------------------------------------------------------------ state

    def watch_state(self, state: FleetState) -> None:
        if not self.is_mounted:
            return
        changed = self.source.changed(state)
        if self.source.rearranges(state):
            self.source.arrange(state, self.view)
            self.rows.rearranged(self.source.keys_of(changed))
            self._columns()
        else:
            self.source.refresh(state)
            self.rows.changed(self.source.keys_of(changed))
        self._tick()

    def watch_marked(self, before: frozenset[GpuKey], after: frozenset[GpuKey]) -> None:
        self.source.marked = after
        if self.is_mounted:
            differing = before ^ after
            self.rows.changed([*differing, *((name, None) for name in {host for host, _ in differing})])
            self._say()

    def _columns(self) -> None:
        """Names may have become longer: then every row changes."""
        rows = self.rows
        head = self.source.header(rows.scrollable_content_region.width)
        if head != rows.header:
            rows.show(self.source, header=head)

    def _rearrange(self, view: View) -> None:
        """Other rows, for a person who asked for them."""
        self.view = view
        self.source.arrange(self.state, view)
        self.rows.rearranged(self.source.keys_of(self.source.names))
        self._say()

    def _tick(self) -> None:
        """What is said of time."""
        if self.is_mounted and self.is_current:
            old = self.source.aged(self.app.now())
            if old:
                self.rows.changed([(name, None) for name in old])
            self._say()

    # ------------------------------------------------------------------ words

    def _say(self) -> None:
        state = self.state
        failed = state.error is not None and not state.fleet.hosts
        self.set_class(failed, "-failed")
        if failed:
            problems = (state.error or "").splitlines()
            rows = [*problems[:MOST_PROBLEMS], "…"] if len(problems) > MOST_PROBLEMS else problems
            self._put("fleet-error", *(line(Span(row, Role.BAD)) for row in rows), self._way_out())
        self._put("fleet-state", self._state_line())
        self._put("fleet-note", self._note_line())

    def _put(self, id: str, *lines: Line) -> None:
        """Text that is there already is not laid out again."""
        whole = tuple(span for row in lines for span in (*row, Span("\n")))
        if self._texts.get(id) != whole:
            self._texts[id] = whole
            cleaned = tuple(tuple(Span(safe(span.text).plain, span.role) for span in row) for row in lines)
            self.query_one(f"#{id}", Static).update(content_of(cleaned))

    def _way_out(self) -> Line:
        again = "R tries again"
        return line(Span(f"{self.state.hint}; {again}" if self.state.hint else again, Role.HINT))

    def _state_line(self) -> Line:
        state = self.state
        if state.total:
            read = Span(progress_words(state.total, len(state.waiting), state.failed), Role.WARNING)
        elif state.error is not None and state.fleet.hosts:
            read = Span(f"not read: {state.error}", Role.BAD)
        elif state.error is not None:
            return line(Span("the fleet cannot be read", Role.BAD))
        elif state.source is None:
            return line(Span("looking for the hosts", Role.DIM))
        else:
            read = Span(fleet_words(state.fleet.hosts))
        if state.source is None:
            return line(read)
        rests = source_words(
            state.source.kind.value,
            state.source.name,
            self.app.now(),
            read_at=state.read_at,
            live_at=state.live_at,
            paused=state.paused,
        )
        pieces = [read, Span(" · ", Role.DIM), Span(rests)]
        if self.source.old:
            pieces += [
                Span(" · ", Role.DIM),
                Span(f"{plural(len(self.source.old), 'host')} silent", Role.WARNING),
            ]
        return line(*pieces)

    def _note_line(self) -> Line:
        parts: list[Line] = []
        if self.marked:
            parts.append(line(Span(f"● {plural(len(self.marked), 'GPU')} marked", Role.HINT)))
        if self.view.filter:
            shown, every = len(self.source.names), len(self.state.fleet.hosts)
            parts.append(line(Span(f"filtered: {count(shown)} of {count(every)} hosts", Role.WARNING)))
        parts.append(line(f"sorted: {self.view.order.value}"))
        parts.append(legend())
        room = self.size.width - 2
        said: Line = EMPTY
        for part in parts:
            more = (*said, Span(" · ", Role.DIM), *part) if said else part
            if sum(width_of(span.text) for span in more) <= room:
                said = more
        return said

    # ------------------------------------------------------------------ what a person does

    @property
    def _row(self) -> RowKey | None:
        key = self.rows.key
        return (key[0], key[1]) if isinstance(key, tuple) else None

    def action_read_host(self) -> None:
        if self._row is not None:
            self.app.read_again((self._row[0],))

    def action_read_all(self) -> None:
        self.app.read_again()

    def action_pause(self) -> None:
        self.app.pause_watch()

    def action_open(self) -> None:
        self.rows.action_select()

    @on(Rows.Selected)
    def _opened(self, message: Rows.Selected) -> None:
        if isinstance(message.key, tuple):
            name, gpu = message.key
            self.app.push_screen(HostDetailScreen(name, gpu).data_bind(FleetScreen.state))

    def action_fold(self, opened: bool | None = None) -> None:
        if self._row is None:
            return
        name, gpu = self._row
        if opened is False and gpu is not None:
            self.rows.move_to((name, None))
            return
        wanted = not self.source.opened(name) if opened is None else opened
        if wanted is not self.source.opened(name):
            if not wanted:
                self.rows.move_to((name, None))
            self._rearrange(self.view.folded([name], opened=wanted))

    @on(FleetList.Turned)
    def _turned(self) -> None:
        self.action_fold()

    def action_fold_all(self) -> None:
        if self._row is not None:
            self.rows.move_to((self._row[0], None))
        anything = any(self.source.opened(name) for name in self.source.names)
        self._rearrange(replace(self.view, opened=not anything, folds={}))

    def action_sort(self) -> None:
        self._rearrange(replace(self.view, order=self.view.order.next))

    def action_mark(self) -> None:
        if self._row is None:
            return
        name, gpu = self._row
        host = self.source.host(name)
        if gpu is not None:
            self.app.marked = self.app.marked ^ {(name, gpu)}
        elif host is not None:
            shown = set(self.source.gpus_shown(name))
            meant = frozenset((name, index) for index in markable(host) if index in shown)
            known = self.app.marked
            self.app.marked = known - meant if meant <= known else known | meant

    def action_clear_marks(self) -> None:
        self.app.marked = frozenset()

    def action_filter(self) -> None:
        self.add_class("-filtering")
        self.query_one("#fleet-filter", Input).focus()

    def action_clear_filter(self) -> None:
        field = self.query_one("#fleet-filter", Input)
        self.remove_class("-filtering")
        self.rows.focus()
        if field.value:
            field.clear()
        elif self.view.filter:
            self._rearrange(replace(self.view, filter=Filter.EMPTY))

    @on(Input.Changed, "#fleet-filter")
    def _filter_typed(self, message: Input.Changed) -> None:
        message.stop()
        self._rearrange(replace(self.view, filter=parse_filter(message.value)))

    @on(Input.Submitted, "#fleet-filter")
    def _filter_kept(self, message: Input.Submitted) -> None:
        message.stop()
        if not message.value.strip():
            self.remove_class("-filtering")
        self.rows.focus()
