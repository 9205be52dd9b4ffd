"""A walk through every screen and dialog of the app; each stop has a name and is looked at by whoever walks."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Button, Input

from gpuplan.present.document import Role, wrapped
from gpuplan.present.run_texts import trust_text
from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.screens.compare import CompareScreen
from gpuplan.tui.screens.confirm import AskScreen, Choice, ConfirmScreen, PromptScreen, ShowScreen, WaitScreen
from gpuplan.tui.screens.deploy import DeployScreen
from gpuplan.tui.screens.deployment_detail import DeploymentScreen
from gpuplan.tui.screens.deployments import DeploymentsScreen
from gpuplan.tui.screens.export import ChooseExport, SaveAs
from gpuplan.tui.screens.fleet import FleetScreen
from gpuplan.tui.screens.help import HelpScreen
from gpuplan.tui.screens.host_detail import HostDetailScreen
from gpuplan.tui.screens.logs import LogsScreen
from gpuplan.tui.screens.pick_model import PickModel
from gpuplan.tui.screens.plan import PlanScreen
from gpuplan.tui.screens.stop import RestartScreen, Stage, StopScreen
from gpuplan.tui.widgets.remedies import ChooseRemedy
from gpuplan.tui.widgets.rows import Rows
from tests.tui.deploy_apps import until
from tests.tui.screen import shown

Walk = AsyncIterator[str]
Tour = Callable[[Pilot[None], str], Walk]
"""Of an app; the text is typed where something can be."""


async def there(pilot: Pilot[None], kind: type[Screen[Any]]) -> Screen[Any]:
    """The screen of that kind, once it is in front."""
    try:
        await until(pilot, lambda: isinstance(pilot.app.screen, kind))
    except AssertionError:
        raise AssertionError(f"no {kind.__name__} but {pilot.app.screen}\n{shown(pilot.app)}") from None
    await pilot.pause()
    return pilot.app.screen


async def back(pilot: Pilot[None], kind: type[Screen[Any]]) -> None:
    """Escape until that screen is in front."""
    for _ in range(6):
        if isinstance(pilot.app.screen, kind):
            return
        await pilot.press("escape")
        await pilot.pause()
    raise AssertionError(f"Escape does not lead from {pilot.app.screen} to {kind.__name__}")


async def fleet(pilot: Pilot[None], typed: str) -> Walk:
    """The fleet, its filter, hosts and GPUs."""
    app = pilot.app
    assert isinstance(app, GpuplanApp)
    await pilot.press("1")
    screen = await there(pilot, FleetScreen)
    assert isinstance(screen, FleetScreen)
    await until(pilot, lambda: bool(app.state.fleet.hosts) and not app.state.total)
    await pilot.pause()
    yield "fleet"
    await pilot.press("end", "s", "m", "s", "m")
    await pilot.pause()
    yield "fleet, at its end"
    await pilot.press("slash")
    screen.query_one("#fleet-filter", Input).value = typed
    await pilot.pause()
    yield "fleet, filtered"
    await pilot.press("escape")
    await pilot.pause()
    for number, name in enumerate(screen.source.names):
        host = screen.source.host(name)
        assert host is not None
        for gpu in (None, *(gpu.index for gpu in host.gpus[:1])):
            screen.rows.move_to((name, gpu))
            await pilot.press("enter")
            await there(pilot, HostDetailScreen)
            yield f"host {number} {gpu}"
            await pilot.press("end")
            await pilot.pause()
            yield f"host {number} {gpu}, its end"
            await back(pilot, FleetScreen)
    await pilot.press("f1")
    await there(pilot, HelpScreen)
    yield "help"
    await back(pilot, FleetScreen)
    await pilot.press("ctrl+p")
    await until(pilot, lambda: type(app.screen).__name__ == "CommandPalette")
    await pilot.pause()
    yield "palette"
    app.screen.query_one(Input).value = typed[:40]
    await pilot.pause()
    yield "palette, nothing found"
    await back(pilot, FleetScreen)


async def plan(pilot: Pilot[None], typed: str) -> Walk:  # noqa: PLR0915 - a walk is long
    """The plan and what it opens; a model must have been asked about."""
    app = pilot.app
    assert isinstance(app, GpuplanApp)
    await pilot.press("2")
    screen = await there(pilot, PlanScreen)
    assert isinstance(screen, PlanScreen)
    await until(pilot, lambda: screen.plan is not None and not screen.planning.waiting)
    await pilot.pause()
    yield "plan"
    for number in range(3):
        await pilot.press("space", "down", "space")
        await pilot.pause()
        yield f"plan, strategy {number}"
    await pilot.press("home", "down", "equals_sign", "down", "equals_sign")
    await pilot.pause()
    if isinstance(app.screen, CompareScreen):
        yield "compare"
        await back(pilot, PlanScreen)
    await pilot.press("home", "down", "enter", "end")
    await pilot.pause()
    for _ in range(40):
        await pilot.press("space", "up")
    await pilot.pause(0.4)
    yield "candidate, unfolded"
    for key in ("y", "w"):
        await pilot.press(key)
        await there(pilot, ChooseExport)
        yield "export"
        await back(pilot, PlanScreen)
    await pilot.press("w")
    await there(pilot, ChooseExport)
    await pilot.press("4")
    await there(pilot, SaveAs)
    yield "save as"
    app.screen.query_one("#export-name", Input).value = f"/nonexistent/{typed}"
    await pilot.press("enter")
    await pilot.pause(0.1)
    yield "save as, refused"
    await back(pilot, PlanScreen)
    await pilot.press("e")
    await pilot.pause()
    yield "knobs"
    await pilot.press(*"12x")
    await pilot.pause(0.4)
    yield "knobs, a wrong one"
    await pilot.press("escape", "ctrl+r")
    await pilot.pause()
    await pilot.press("o")
    await there(pilot, PickModel)
    await pilot.pause(0.1)
    yield "models"
    app.screen.query_one(Input).value = typed
    await pilot.pause()
    yield "models, typed"
    await back(pilot, PlanScreen)
    remedies = [
        remedy for result in (screen.plan.strategies if screen.plan else ()) for remedy in result.remedies
    ]
    if remedies:
        app.push_screen(ChooseRemedy(remedies * 3, typed))
        await there(pilot, ChooseRemedy)
        yield "remedies"
        await back(pilot, PlanScreen)


async def deploying(pilot: Pilot[None], typed: str) -> Walk:  # noqa: PLR0915 - a walk is long
    """Confirming a deploy, its course, its end, its logs."""
    app = pilot.app
    assert isinstance(app, GpuplanApp)
    await pilot.press("2")
    screen = await there(pilot, PlanScreen)
    assert isinstance(screen, PlanScreen)
    await until(pilot, lambda: screen.choice is not None and not screen.planning.waiting)
    await pilot.press("d")
    await there(pilot, ConfirmScreen)
    yield "confirm"
    await pilot.press("end", "pagedown")
    await pilot.pause()
    yield "confirm, further down"
    app.screen.query_one("#deploy", Button).press()
    await there(pilot, DeployScreen)
    await pilot.pause(0.3)
    yield "deploy"
    await pilot.press("l")
    await there(pilot, LogsScreen)
    rows = app.screen.query_one(Rows)
    await until(pilot, lambda: len(rows.source) > 5)
    await pilot.pause(0.2)
    yield "logs"
    await pilot.press("home", "t", "right", "right")
    for _ in range(4):
        await pilot.press("pagedown", "m")
        await pilot.pause()
        yield "logs, further on"
    await pilot.press("slash")
    app.screen.query_one(Input).value = typed
    await pilot.pause()
    yield "logs, searching"
    await pilot.press("enter", "n")
    await pilot.pause()
    yield "logs, searched"
    await pilot.press("w")
    await there(pilot, PromptScreen)
    yield "save the logs"
    app.screen.query_one(Input).value = f"/nonexistent/\0{typed}"
    await pilot.press("enter")
    await there(pilot, LogsScreen)
    await pilot.pause(0.1)
    yield "save the logs, refused"
    await back(pilot, DeployScreen)
    await pilot.press("x")
    await there(pilot, AskScreen)
    yield "take back?"
    await back(pilot, DeployScreen)
    await pilot.press("q")
    await there(pilot, AskScreen)
    yield "leave?"
    await back(pilot, DeployScreen)
    await back(pilot, PlanScreen)
    await pilot.press("ctrl+d")
    await pilot.pause(0.1)
    yield "runs"
    if isinstance(app.screen, AskScreen):
        await back(pilot, PlanScreen)
    for feed in list(app.feeds.values()):
        app.open_run(feed.run)
        await there(pilot, DeployScreen)
        await pilot.pause(0.3)
        yield f"deploy {feed.run.id}"
        await pilot.press("end", "tab", "end")
        await pilot.pause()
        yield f"deploy {feed.run.id}, its end"
        await back(pilot, PlanScreen)


async def deployments(pilot: Pilot[None], _typed: str) -> Walk:
    """What runs, one of it, stopping and restarting it."""
    app = pilot.app
    assert isinstance(app, GpuplanApp)
    await pilot.press("3")
    screen = await there(pilot, DeploymentsScreen)
    rows = screen.query_one("#deployments-rows", Rows)
    await until(pilot, lambda: len(rows.source) > 1)
    await pilot.pause()
    yield "deployments"
    keys = [rows.source.key(index) for index in range(len(rows.source))]
    for number, key in enumerate(keys):
        rows.move_to(key)
        await pilot.pause()
        await pilot.pause()
        yield f"deployments, row {number}"
        if not isinstance(key, tuple) or key[0] != "deployment":
            continue
        await pilot.press("enter")
        await there(pilot, DeploymentScreen)
        yield f"deployment {number}"
        await back(pilot, DeploymentsScreen)
    rows.move_to(keys[-2])
    for key, kind in (("x", StopScreen), ("b", RestartScreen)):
        await pilot.press(key)
        asked = await there(pilot, kind)
        assert isinstance(asked, (StopScreen, RestartScreen))
        await until(pilot, partial(_is, asked, Stage.ASKING))
        yield f"{kind.title_word}?"
        asked.query_one("#change-go", Button).press()
        await until(pilot, partial(_is, asked, Stage.ENDED))
        await pilot.pause()
        yield f"{kind.title_word}, its end"
        await back(pilot, DeploymentsScreen)


def _is(screen: "StopScreen | RestartScreen", stage: Stage) -> bool:
    return screen.stage is stage


async def dialogs(pilot: Pilot[None], typed: str) -> Walk:
    """What SSH asks, what is waited for, what was refused, what is told in passing."""
    app = pilot.app
    assert isinstance(app, GpuplanApp)
    below = app.screen
    make: list[Callable[[], Screen[Any]]] = [
        lambda: AskScreen(
            partial(trust_text, typed, typed, typed),
            (
                Choice(id="a", text="Do not connect"),
                Choice(id="b", text="Connect and remember it", grave=True),
            ),
        ),
        lambda: PromptScreen(wrapped(f"Passphrase of {typed}", 68, role=Role.TITLE), hidden=True),
        lambda: PromptScreen(wrapped("A name", 68), value=typed),
        lambda: WaitScreen(f"Looking at the hosts again for {typed}"),
        lambda: ShowScreen(lambda width: wrapped(typed * 9, width)),
        lambda: AskScreen(
            lambda width: wrapped(typed, width),
            [Choice(id=f"c-{n}", text=typed[: n * 9]) for n in range(1, 4)],
        ),
    ]
    for number, build in enumerate(make):
        app.push_screen(build())
        await there(pilot, Screen)
        yield f"dialog {number}"
        await back(pilot, type(below))
    app.warn(typed, title=typed)
    await pilot.pause()
    yield "toast"
    app.clear_notifications()
    await pilot.pause()
