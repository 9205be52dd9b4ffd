"""The list of what runs and the screen of one deployment: looks, ages, errors, hostile names, what is copied."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from gpuplan.errors import UsageError
from gpuplan.operations.status import StatusReport
from gpuplan.tui.deployments_state import DEPLOYMENT, IDLE_SECONDS, RUN
from gpuplan.tui.screens.deployment_detail import DeploymentScreen
from gpuplan.tui.screens.deployments import DeploymentsScreen
from gpuplan.tui.widgets.rows import Rows
from tests.tui.deployed import (
    CAUSE,
    FAILED,
    HOSTILE,
    LEFTOVER,
    LOADING,
    REPLICAS,
    RUNNING,
    SILENT,
    UNHEALTHY,
    DeploymentsApp,
    Scripted,
    report,
)
from tests.tui.screen import shown

SIZES = [(80, 24), (120, 40)]


async def settled(pilot: Pilot[None]) -> str:
    """What is shown when nothing is under way any more."""
    for _ in range(3):  # what has ended may begin something else
        await pilot.pause()
        await pilot.app.workers.wait_for_complete()
    await pilot.pause()
    return shown(pilot.app)


async def until(pilot: Pilot[None], true: Callable[[], bool]) -> None:
    for _ in range(200):
        if true():
            return
        await pilot.pause()
    raise AssertionError("it did not come to that")


def said(pilot: Pilot[None]) -> str:
    """All toasts of an app that shows them."""
    return "\n".join(toast.message for toast in pilot.app._notifications)


def rows(pilot: Pilot[None]) -> Rows:
    return pilot.app.query_one("#deployments-rows", Rows)


def list_screen(pilot: Pilot[None]) -> DeploymentsScreen:
    screen = pilot.app.screen_stack[0]
    assert isinstance(screen, DeploymentsScreen)
    return screen


# ---------------------------------------------------------------------- the list


@pytest.mark.parametrize("size", SIZES)
async def test_a_row_says_what_runs_and_the_rest_stands_below(size: tuple[int, int]) -> None:
    services = Scripted(report(RUNNING, LOADING, UNHEALTHY, FAILED, silent=[SILENT], facts=[LEFTOVER, CAUSE]))
    app = DeploymentsApp(services)
    async with app.run_test(size=size) as pilot:
        text = await settled(pilot)
        for words in (
            "● running",
            "◐ starting",
            "▲ unhealthy",
            "✗ error",
            "10.10.100.11:40000",
            "3 + 2 wait",
            "██░░  41 %",
            "2.5 h",
            "Qwen/Qwen3-32B on h100-a:0-1, h100-b:0-1",
            "GP851",
            "4 deployments on 3 hosts; 1 host did not answer: what runs there is not known",
            "h2 – connect: no route to the host",
            "hint: is the machine on",
            "read 0 s ago",
        ):
            assert words in text, words
        assert max(len(line) for line in text.splitlines()) <= size[0]
        await pilot.press("end")
        text = await settled(pilot)
        assert "error: the lock of h100-a was lost" in text, "what the row under the cursor has no room for"
        assert "GP851" not in text


async def test_wide_screens_have_room_for_model_and_hosts() -> None:
    app = DeploymentsApp(Scripted(report(RUNNING)))
    async with app.run_test(size=(160, 40)) as pilot:
        text = await settled(pilot)
        assert "model on hosts" in text
        assert text.count("Qwen/Qwen3-32B on h100-a:0-1, h100-b:0-1") == 2


async def test_names_from_elsewhere_are_shown_and_harmless() -> None:
    app = DeploymentsApp(Scripted(report(HOSTILE, silent=[replace(SILENT, name="[/red]h\x1b[2J")])))
    async with app.run_test(size=(120, 40)) as pilot:
        text = await settled(pilot)
        assert "[red]x[/foo]" in text
        assert "[bold]evil[/]" in text
        assert "[/red]h" in text
        await pilot.press("enter")
        text = await settled(pilot)
        assert "[red]x[/foo]" in text
        await pilot.press("y", "w")
        text = await settled(pilot)
        assert "http://[b]:1" in text
        for char in ("\x1b", "\x07", "\u202e"):
            assert char not in text
            assert char not in app.clipboard


async def test_nothing_is_deployed() -> None:
    app = DeploymentsApp(Scripted(report()))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        text = await settled(pilot)
        assert "nothing is deployed on 3 hosts" in text
        await pilot.press("x", "enter")
        await settled(pilot)
        assert "no deployment is chosen" in said(pilot)


async def test_the_cursor_stays_on_its_deployment() -> None:
    services = Scripted(report(RUNNING, UNHEALTHY))
    app = DeploymentsApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("down")
        assert rows(pilot).key == (DEPLOYMENT, UNHEALTHY.name)
        services.report = report(LOADING, FAILED, RUNNING, UNHEALTHY)
        await pilot.press("r")
        await settled(pilot)
        assert rows(pilot).key == (DEPLOYMENT, UNHEALTHY.name)
        assert rows(pilot).cursor == 3
        services.report = report(LOADING)
        await pilot.press("r")
        await settled(pilot)
        assert rows(pilot).key == (DEPLOYMENT, LOADING.name)


# ---------------------------------------------------------------------- looks


async def test_one_look_at_a_time_and_none_that_nobody_sees() -> None:
    services = Scripted(report(RUNNING))
    services.gate = threading.Event()
    app = DeploymentsApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = list_screen(pilot)
        await until(pilot, lambda: services.looks == 1)
        assert "asking the hosts what runs" in shown(app)
        screen.due()
        screen.due()
        await pilot.press("r", "r")
        assert services.looks == 1
        services.gate.set()
        await settled(pilot)
        assert (services.looks, services.dialled) == (2, 1), "asked for during a look: once more, after it"
        services.gate = None
        await pilot.press("1")
        await pilot.pause()
        assert app.current_mode == "fleet"
        screen.due()
        await settled(pilot)
        assert services.looks == 2, "the list is not seen"
        app.later(IDLE_SECONDS - 1)
        screen.due()
        assert services.closed == 0
        app.later(2)
        screen.due()
        assert services.closed == 1, "nobody needs the connections"
        await pilot.press("3")
        await settled(pilot)
        assert services.looks == 3
    assert services.closed == 2, "left"


async def test_it_is_looked_at_under_the_screen_of_one_deployment() -> None:
    services = Scripted(report(RUNNING))
    app = DeploymentsApp(services)
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("enter")
        assert "3 requests running" in await settled(pilot)
        load = RUNNING.load
        assert load is not None
        services.report = report(replace(RUNNING, load=replace(load, running=17)))
        list_screen(pilot).due()
        assert "17 requests running" in await settled(pilot)
        services.report = report()
        list_screen(pilot).due()
        assert "qwen3-32b is gone" in await settled(pilot)


async def test_that_it_is_gone_is_seen_wherever_it_was_scrolled_to() -> None:
    services = Scripted(report(RUNNING))
    app = DeploymentsApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("enter")
        await settled(pilot)
        await pilot.press("end")
        services.report = report()
        list_screen(pilot).due()
        assert "qwen3-32b is gone" in await settled(pilot)
        await pilot.press("escape")
        assert app.screen is list_screen(pilot)


async def test_a_look_that_fails_leaves_what_was_known_and_its_age() -> None:
    services = Scripted(report(RUNNING))
    app = DeploymentsApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.later(65)
        services.error = UsageError("inventory.yaml: line 3: [bad] key", hint="correct it")
        await pilot.press("r")
        text = await settled(pilot)
        assert "qwen3-32b" in text
        assert "inventory.yaml: line 3: [bad] key" in text
        assert "hint: correct it" in text
        assert "read 65 s ago, and not since" in text
        services.error = None
        await pilot.press("r")
        text = await settled(pilot)
        assert "correct it" not in text
        assert "read 0 s ago" in text


async def test_a_snapshot_runs_nothing() -> None:
    services = Scripted(report())
    services.error = UsageError(
        "what runs: the hosts are not reached, the fleet is snapshot",
        hint="open the app with the inventory alone: gpuplan tui -i FILE",
    )
    app = DeploymentsApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        text = await settled(pilot)
        assert "the hosts are not reached, the fleet is snapshot" in text
        assert "gpuplan tui -i FILE" in text
        assert "nothing is deployed" not in text


async def test_ages_go_on() -> None:
    app = DeploymentsApp(Scripted(report(RUNNING)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        app.later(7)
        list_screen(pilot)._tick()
        age = app.screen.query_one("#deployments-age", Static)
        assert "read 7 s ago" in str(age.content)


# ---------------------------------------------------------------------- deploys under way


class Run:
    """A deploy that stands still."""

    id, name, alive = "r1", "new-one", True


class Feed:
    """What is known of it."""

    def __init__(self) -> None:
        from gpuplan.domain.events import Phase, PhaseStarted
        from gpuplan.present.run_progress import NOTHING_YET

        awaits = "every host to have [the] image"
        self.run = Run()
        self.progress = replace(NOTHING_YET, phase=PhaseStarted(phase=Phase.IMAGE, awaits=awaits))
        self.over = False
        self.badly = False


async def test_a_deploy_under_way_is_on_top_and_opens() -> None:
    app = DeploymentsApp(Scripted(report(RUNNING)))
    feed = Feed()
    app.feeds["r1"] = feed  # type: ignore[assignment]  # stands in for a RunFeed
    async with app.run_test(size=(120, 40)) as pilot:
        text = await settled(pilot)
        assert "▶ deploying: image, waiting for every host to have [the] image" in text
        assert rows(pilot).source.key(0) == (RUN, "r1")
        await pilot.press("home", "enter")
        await pilot.pause()
        assert app.opened == ["run new-one"]
        assert app.screen.active_bindings["x"].enabled is False
        feed.over = feed.badly = True
        list_screen(pilot)._tick()
        assert "was not deployed; Enter shows why" in await settled(pilot)
        feed.badly = False
        list_screen(pilot)._tick()
        assert "new-one" not in await settled(pilot)


# ---------------------------------------------------------------------- one deployment


@pytest.mark.parametrize("size", SIZES)
async def test_all_of_one_deployment(size: tuple[int, int]) -> None:
    app = DeploymentsApp(Scripted(report(RUNNING, facts=[LEFTOVER])))
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        await pilot.press("enter")
        text = await settled(pilot)
        assert isinstance(app.screen, DeploymentScreen)
        assert "logs and devices 0 s ago" in text
        if size[1] < 40:
            await pilot.press("end")
            text += await settled(pilot)
        for words in (
            "h100-b  follower 1",
            "61.00 GiB     61.25 GiB      +0.25 GiB (+0.4 %)",
            "h100-a GPU 0: 72.00 GiB in use now of 73.00 GiB booked",
            "GP851",
            "gpuplan logs qwen3-32b -f",
            "curl http://10.10.100.11:40000/v1/completions",
            "keep-alive: gpuplan sweep stops it after 2.0 h without requests",
            "another keep-alive needs a new deploy",
        ):
            assert words in text, words


async def test_what_the_engine_measured_may_not_be_known() -> None:
    class Mute(Scripted):
        def deployments(self, name: str | None = None) -> StatusReport:
            raise UsageError("the hosts are [gone]")

    app = DeploymentsApp(Mute(report(RUNNING)))
    async with app.run_test(size=(120, 40)) as pilot:
        await settled(pilot)
        await pilot.press("enter")
        text = await settled(pilot)
        assert "what the engine measured is not known: the hosts are [gone]" in text
        assert "3 requests running" in text


async def test_logs_and_copies() -> None:
    app = DeploymentsApp(Scripted(report(REPLICAS)))
    async with app.run_test(size=(80, 24)) as pilot:
        await settled(pilot)
        await pilot.press("l")
        await pilot.pause()
        assert app.opened == ["logs two-of-them"]
        await pilot.press("y")
        assert app.clipboard == "http://10.10.100.11:40000\nhttp://10.10.100.12:40000"
        await pilot.press("w")
        assert app.clipboard.startswith("curl http://10.10.100.11:40000/v1/completions -H ")
        assert '"model": "qwen3-32b"' in app.clipboard


async def test_what_has_no_address_is_not_copied() -> None:
    app = DeploymentsApp(Scripted(report(replace(FAILED, endpoint=None, endpoints=()))))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await settled(pilot)
        await pilot.press("y")
        await settled(pilot)
        assert "mistral-7b has no address" in said(pilot)
        assert not app.clipboard
