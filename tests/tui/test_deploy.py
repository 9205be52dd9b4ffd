"""Deploying: asked again, confirmed, followed, left, taken back; a deploy is never harmed by the app."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from textual.widgets import Button, Input

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Verdict
from gpuplan.errors import UsageError
from gpuplan.operations.stopped import FleetChanged
from gpuplan.tui.messages import RunAdvanced
from gpuplan.tui.screens.confirm import ConfirmScreen, ShowScreen, WaitScreen
from gpuplan.tui.screens.deploy import DeployScreen
from gpuplan.tui.screens.logs import LogsScreen
from gpuplan.tui.widgets.rows import Rows
from tests.tui.deploy_apps import app_of, deployed, propose, until
from tests.tui.deploys import (
    BEGIN,
    DID_NOT_START,
    FAILING,
    LEADER,
    PULLING,
    SERVES,
    SERVING,
    STARTED,
    WAS_TAKEN_BACK,
    DeployServices,
    chosen,
    overcommitted,
    plan_of,
)
from tests.tui.screen import shown

WARNING = Fact(
    code="GP815", severity=Severity.WARNING, subject={}, figures={"silent": ("h9: it [does] not answer",)}
)
GONE = Fact(
    code="GP801",
    severity=Severity.ERROR,
    subject={"host": "h100-a"},
    figures={"stage": "connect", "detail": "no [route] to host"},
)


@pytest.fixture
def services() -> Iterator[DeployServices]:
    made = DeployServices()
    yield made
    made.logs_hold.set()
    if made.run.alive:
        made.run.end(SERVES)


# ---------------------------------------------------------------------- before


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_what_is_agreed_to_is_on_the_screen(services: DeployServices, size: tuple[int, int]) -> None:
    services.remarks = (WARNING,)
    app = app_of(services)
    async with app.run_test(size=size) as pilot:
        await propose(pilot, app)
        text = shown(app)
        assert "Deploy qwen3" in text
        assert "h100-a" in text
        assert "h9: it [does] not" in text
        assert "Cancel" in text
        assert "Keep alive" in text
        assert app.focused is app.screen.query_one("#cancel")
        await pilot.press("pagedown", "pagedown", "pagedown")
        assert "create gpuplan-qwen3" in shown(app) or "start gpuplan-qwen3" in shown(app)


async def test_enter_on_the_default_cancels(services: DeployServices) -> None:
    app = app_of(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await propose(pilot, app)
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        assert not isinstance(app.screen, ConfirmScreen)
        assert services.deployed == []


async def test_escape_cancels(services: DeployServices) -> None:
    app = app_of(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await propose(pilot, app)
        await pilot.press("escape")
        await app.workers.wait_for_complete()
        assert services.deployed == []


async def test_deploy_is_reached_with_the_arrow(services: DeployServices) -> None:
    app = app_of(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await propose(pilot, app)
        await pilot.press("right", "enter")
        await until(pilot, lambda: isinstance(app.screen, DeployScreen))
        assert len(services.deployed) == 1
        assert services.asked == [(chosen(plan_of()), None, None)]


async def test_another_name_asks_the_hosts_again(services: DeployServices) -> None:
    app = app_of(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await propose(pilot, app)
        app.screen.query_one("#name", Input).value = "mine"
        app.screen.query_one("#keep-alive", Input).value = "600"
        await until(pilot, lambda: "Look again" in shown(app))
        app.screen.query_one("#deploy", Button).press()
        await until(pilot, lambda: len(services.asked) == 2 and isinstance(app.screen, ConfirmScreen))
        assert services.asked[1][1:] == ("mine", 600)
        assert services.deployed == []
        assert "Deploy mine" in shown(app)
        assert app.screen.query_one("#keep-alive", Input).value == "600"
        app.screen.query_one("#deploy", Button).press()
        await until(pilot, lambda: bool(services.deployed))
        assert services.deployed[0].spec.name == "mine"


async def test_overcommit_has_to_be_typed(services: DeployServices) -> None:
    app = app_of(services)
    plan = overcommitted(plan_of())
    async with app.run_test(size=(80, 24)) as pilot:
        app.begin_deploy(plan, chosen(plan, Verdict.OVERCOMMIT))
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        button = app.screen.query_one("#deploy", Button)
        assert button.disabled
        assert "type overcommit" in shown(app)
        app.screen.query_one("#typed", Input).value = "overcommi"
        await pilot.pause()
        assert button.disabled
        app.screen.query_one("#typed", Input).value = "overcommit"
        await pilot.pause()
        assert not button.disabled
        button.press()
        await until(pilot, lambda: bool(services.deployed))


async def test_what_stops_for_it_stands_beside_the_button(services: DeployServices) -> None:
    services.replaces = (LEADER,)
    app = app_of(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await propose(pilot, app)
        assert "stops 1 container that runs now" in shown(app)
        assert "Replace and deploy" in shown(app)


async def test_findings_are_shown_and_nothing_starts(services: DeployServices) -> None:
    services.refusal = FleetChanged([GONE])
    app = app_of(services)
    async with app.run_test(size=(80, 24)) as pilot:
        plan = plan_of()
        app.begin_deploy(plan, chosen(plan))
        await until(pilot, lambda: isinstance(app.screen, ShowScreen))
        text = shown(app)
        assert "the fleet changed since the plan" in text
        assert "[GP801]" in text
        assert "hint:" in text
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        assert services.deployed == []


async def test_a_message_is_shown_with_its_hint(services: DeployServices) -> None:
    services.refusal = UsageError("--api-key: [secret]", hint="set VLLM_API_KEY")
    app = app_of(services)
    async with app.run_test(size=(80, 24)) as pilot:
        plan = plan_of()
        app.begin_deploy(plan, chosen(plan))
        await until(pilot, lambda: isinstance(app.screen, ShowScreen))
        assert "--api-key: [secret]" in shown(app)
        assert "hint: set VLLM_API_KEY" in shown(app)


async def test_looking_can_be_broken_off(services: DeployServices) -> None:
    app = app_of(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: bool(app.state.fleet.hosts) and not app.state.reading)
        services.hold = threading.Event()
        plan = plan_of()
        before = services.cancelled
        app.begin_deploy(plan, chosen(plan))
        await until(pilot, lambda: isinstance(app.screen, WaitScreen))
        app.begin_deploy(plan, chosen(plan))
        assert "Looking at the hosts again" in shown(app)
        await pilot.press("escape")
        await app.workers.wait_for_complete()
        assert services.cancelled > before
        assert len(services.asked) == 1
        assert not isinstance(app.screen, ConfirmScreen | WaitScreen)


async def test_read_only_refuses_with_the_reason(services: DeployServices) -> None:
    app = app_of(services, read_only=True)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        plan = plan_of()
        app.begin_deploy(plan, chosen(plan))
        await pilot.pause()
        assert services.asked == []
        assert "--read-only" in next(iter(app._notifications)).message


# ---------------------------------------------------------------------- under way


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_deploy_is_shown_as_it_goes(services: DeployServices, size: tuple[int, int]) -> None:
    app = app_of(services)
    async with app.run_test(size=size) as pilot:
        screen = await deployed(pilot, app)
        services.run.tell(*BEGIN)
        await until(pilot, lambda: "3.0 of 10.0 GiB" in shown(app))
        text = shown(app)
        assert "image: waits for every host to have the image" in text
        assert "left" in text
        assert "■ lock" in text
        assert "▶ image" in text
        services.run.tell(*STARTED)
        await until(pilot, lambda: "Loading [weights] took 3 s" in shown(app))
        assert "the engine to load [0/2]" in shown(app)
        assert "gpuplan-qwen3-n1 (follower): running" in shown(app)
        services.run.end(SERVES, *SERVING)
        await until(pilot, lambda: screen.feed.over)
        text = shown(app)
        assert "qwen3 serves Qwen/Qwen3-32B at http://10.0.0.11:40000" in text
        assert "running" in text
        assert services.run.acknowledged
        await pilot.press("enter")
        await pilot.pause()
        assert app.current_mode == "deployments"


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_failure_is_told_in_full(services: DeployServices, size: tuple[int, int]) -> None:
    app = app_of(services)
    async with app.run_test(size=size) as pilot:
        screen = await deployed(pilot, app)
        services.run.end(replace(WAS_TAKEN_BACK, exit_code=5), *BEGIN, *STARTED, *FAILING)
        await until(pilot, lambda: screen.feed.over)
        text = shown(app)
        assert "not deployed" in text
        assert "[GP818]" in text
        assert "removed gpuplan-qwen3-n0" in text
        assert "left behind: gpuplan-qwen3-n1 (the host is silent)" in text
        assert services.run.acknowledged


async def test_who_cannot_ask_says_what_to_do(services: DeployServices) -> None:
    app = app_of(services)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await deployed(pilot, app)
        services.run.end(DID_NOT_START)
        await until(pilot, lambda: screen.feed.over)
        assert "accept the host's key" in shown(app)
        assert "Nothing was started." in shown(app)


async def test_a_flood_of_events_is_a_few_repaints(services: DeployServices) -> None:
    seen: list[RunAdvanced] = []
    app = app_of(services)
    flood = [replace(PULLING, done_bytes=number) for number in range(5000)]
    async with app.run_test(size=(80, 24), message_hook=lambda message: _keep(seen, message)) as pilot:
        screen = await deployed(pilot, app)
        seen.clear()
        services.run.end(SERVES, *BEGIN, *flood, *SERVING)
        await until(pilot, lambda: screen.feed.over)
        assert len({id(message) for message in seen}) <= 5
        assert len(screen.feed.rows) < 20


def _keep(seen: list[RunAdvanced], message: object) -> None:
    if isinstance(message, RunAdvanced):
        seen.append(message)


async def test_logs_are_a_key_away(services: DeployServices) -> None:
    app = app_of(services)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await deployed(pilot, app)
        assert isinstance(app.focused, Rows)
        await pilot.press("l")
        await until(pilot, lambda: isinstance(app.screen, LogsScreen))
        await pilot.press("escape")
        assert app.screen is screen
