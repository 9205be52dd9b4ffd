"""The deployments screen."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.reactive import reactive
from textual.screen import Screen
from textual.widgets import Footer

from gpuplan.tui import commands
from gpuplan.tui.state import NOTHING_READ, FleetState, GpuKey
from gpuplan.tui.widgets.rows import Rows


class DeploymentsScreen(Screen[None]):
    """Deployments."""

    BINDINGS: ClassVar[list[BindingType]] = [*commands.bindings(commands.Place.DEPLOYMENTS)]
    state: reactive[FleetState] = reactive(NOTHING_READ)
    marked: reactive[frozenset[GpuKey]] = reactive(frozenset())

    def compose(self) -> ComposeResult:
        yield Rows(id="deployments-rows")
        yield Footer()
