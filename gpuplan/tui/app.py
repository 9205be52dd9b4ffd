"""The app: modes, the state they share, and the workers that change it."""

from typing import ClassVar

from textual.app import App
from textual.binding import BindingType
from textual.reactive import reactive

from gpuplan.tui import commands
from gpuplan.tui.screens.deployments import DeploymentsScreen
from gpuplan.tui.screens.fleet import FleetScreen
from gpuplan.tui.screens.plan import PlanScreen
from gpuplan.tui.services import Question, Services
from gpuplan.tui.state import NOTHING_READ, FleetState, GpuKey


class GpuplanApp(App[None]):
    """Fleet, plan, deployments."""

    TITLE = "gpuplan"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*commands.bindings(commands.Place.APP)]
    DEFAULT_MODE = "fleet"

    state: reactive[FleetState] = reactive(NOTHING_READ)
    """The fleet; screens are bound to it."""
    marked: reactive[frozenset[GpuKey]] = reactive(frozenset())
    """GPUs chosen by hand."""

    def __init__(
        self, services: Services, *, question: Question | None = None, read_only: bool = False
    ) -> None:
        super().__init__()
        self.services = services
        self.question = question or Question()
        self.read_only = read_only
        self.add_mode("fleet", lambda: FleetScreen().data_bind(GpuplanApp.state, GpuplanApp.marked))
        self.add_mode("plan", lambda: PlanScreen().data_bind(GpuplanApp.state, GpuplanApp.marked))
        self.add_mode("deployments", DeploymentsScreen)

    async def action_leave(self) -> None:
        self.exit()
