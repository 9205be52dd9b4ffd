"""One host, or one of its GPUs: everything that is known, kept as fresh as the fleet."""

from typing import ClassVar

from textual import getters
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.reactive import reactive
from textual.screen import Screen

from gpuplan.domain.fleet import Host
from gpuplan.present.document import Lines, Role, Span, line
from gpuplan.present.fleet_rows import HostLook
from gpuplan.present.host_detail import Seen, gpu_detail, host_detail
from gpuplan.tui import commands
from gpuplan.tui.reading import ReadingApp
from gpuplan.tui.state import NOTHING_READ, FleetState
from gpuplan.tui.widgets.document import Document
from gpuplan.tui.widgets.key_bar import KeyBar

TICK_SECONDS = 1.0


class HostDetailScreen(Screen[None]):
    """A document on a host; escape leads back."""

    HELP: ClassVar[str] = (
        "Everything that is known of a host or a GPU, what is wrong first, and when it was read."
    )
    BINDINGS: ClassVar[list[BindingType]] = [*commands.bindings(commands.Place.HOST)]
    app = getters.app(ReadingApp)
    state: reactive[FleetState] = reactive(NOTHING_READ)

    def __init__(self, name: str, gpu: int | None = None) -> None:
        super().__init__()
        self.host_name = name
        self.gpu = gpu

    def compose(self) -> ComposeResult:
        yield Document(self._lines, id="host-document")
        yield KeyBar()

    def on_mount(self) -> None:
        self.set_interval(TICK_SECONDS, self._again)

    def watch_state(self, before: FleetState, after: FleetState) -> None:
        if self._host(before) is not self._host(after) or before.waiting != after.waiting:
            self._again()

    def _again(self) -> None:
        if self.is_mounted and self.is_current:
            self.query_one(Document).show_document(self._lines)

    def _host(self, state: FleetState) -> Host | None:
        return next((host for host in state.fleet.hosts if host.name == self.host_name), None)

    def _lines(self, width: int) -> Lines:
        state = self.state
        host = self._host(state)
        if host is None:
            return (line(Span("this host is no longer in the fleet", Role.WARNING)),)
        seen = Seen(
            now=self.app.now(),
            read_at=state.read_at.get(host.name),
            live_at=state.live_at.get(host.name),
            kind=state.source.kind.value if state.source is not None else "",
        )
        look = HostLook(waiting=host.name in state.waiting)
        if self.gpu is not None:
            return gpu_detail(host, self.gpu, width, seen, look)
        return host_detail(host, width, seen, look)

    def action_back(self) -> None:
        self.dismiss()

    def action_read_host(self) -> None:
        self.app.read_again((self.host_name,))
