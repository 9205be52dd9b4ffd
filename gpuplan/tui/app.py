"""The app: modes, the state they share, and the workers that change it."""

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import ClassVar

from textual import on
from textual.binding import BindingType

from gpuplan.tui import commands
from gpuplan.tui.deploying import DeployingApp
from gpuplan.tui.messages import DeployAsked
from gpuplan.tui.reading import utc_now
from gpuplan.tui.screens.deployments import DeploymentsScreen
from gpuplan.tui.screens.fleet import FleetScreen
from gpuplan.tui.screens.plan import PlanScreen
from gpuplan.tui.services import Question, Services
from gpuplan.tui.settings import Preferences


class GpuplanApp(DeployingApp):
    """Fleet, plan, deployments."""

    BINDINGS: ClassVar[list[BindingType]] = [*commands.bindings(commands.Place.APP)]
    DEFAULT_MODE = "fleet"

    def __init__(
        self,
        services: Services,
        *,
        question: Question | None = None,
        read_only: bool = False,
        preferences: Preferences | None = None,
        environ: Mapping[str, str] = os.environ,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__(services, read_only=read_only, preferences=preferences, environ=environ, now=now)
        self.question = question or Question()
        self.add_mode(
            "fleet", lambda: self.framed(FleetScreen().data_bind(GpuplanApp.state, GpuplanApp.marked))
        )
        self.add_mode(
            "plan", lambda: self.framed(PlanScreen().data_bind(GpuplanApp.state, GpuplanApp.marked))
        )
        self.add_mode("deployments", lambda: self.framed(DeploymentsScreen()))

    @on(DeployAsked)
    def _deploy_asked(self, asked: DeployAsked) -> None:
        self.begin_deploy(asked.plan, asked.choice)
