"""The app with services of our own, brought to where a deploy test begins."""

from collections.abc import Callable
from datetime import UTC, datetime

from textual.pilot import Pilot
from textual.widgets import Button

from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.screens.confirm import ConfirmScreen
from gpuplan.tui.screens.deploy import DeployScreen
from tests.tui.deploys import DeployServices, chosen, plan_of

NOW = datetime.fromtimestamp(1_794_621_660, UTC)


def app_of(services: DeployServices, *, read_only: bool = False) -> GpuplanApp:
    return GpuplanApp(services, read_only=read_only, now=lambda: NOW)


async def until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    """Messages and timers run until it is so."""
    for _ in range(400):
        if true():
            await pilot.pause()
            return
        await pilot.pause(0.01)
    raise AssertionError("it never came to that")


async def propose(pilot: Pilot[None], app: GpuplanApp) -> None:
    plan = plan_of()
    app.begin_deploy(plan, chosen(plan))
    await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))


async def deployed(pilot: Pilot[None], app: GpuplanApp) -> DeployScreen:
    await propose(pilot, app)
    app.screen.query_one("#deploy", Button).press()
    await until(pilot, lambda: isinstance(app.screen, DeployScreen))
    assert isinstance(app.screen, DeployScreen)
    return app.screen
