"""Leaving a deploy, taking it back, picking it up: the app never harms one, and never ends one silently."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from textual.widgets import Button

from gpuplan.tui.screens.confirm import AskScreen
from gpuplan.tui.screens.deploy import DeployScreen
from tests.tui.deploy_apps import app_of, deployed, until
from tests.tui.deploys import (
    BEGIN,
    FAILING,
    SERVES,
    SERVING,
    STARTED,
    WAS_TAKEN_BACK,
    DeployServices,
    FakeRun,
)
from tests.tui.screen import shown


@pytest.fixture
def services() -> Iterator[DeployServices]:
    made = DeployServices()
    yield made
    made.logs_hold.set()
    if made.run.alive:
        made.run.end(SERVES)


async def test_leaving_the_screen_leaves_the_deploy_alone(services: DeployServices) -> None:
    app = app_of(services)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await deployed(pilot, app)
        services.run.tell(*BEGIN)
        await until(pilot, lambda: "image" in app.running)
        await pilot.press("escape")
        assert not isinstance(app.screen, DeployScreen)
        assert app.running == "deploying qwen3: image"
        assert services.run.taken_back == 0
        assert "still being deployed" in next(iter(app._notifications)).message
        await pilot.press("ctrl+d")
        await until(pilot, lambda: isinstance(app.screen, DeployScreen))
        await pilot.press("escape")
        services.run.end(SERVES, *STARTED, *SERVING)
        await until(pilot, lambda: app.running == "")
        assert any(one.message == "qwen3 serves" for one in app._notifications)


async def test_taking_back_asks_and_cancel_is_the_default(services: DeployServices) -> None:
    app = app_of(services)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await deployed(pilot, app)
        services.run.tell(*BEGIN)
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        assert "Take back the deploy of qwen3?" in shown(app)
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        assert services.run.taken_back == 0
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        await pilot.press("right", "enter")
        await until(pilot, lambda: screen.feed.over)
        assert services.run.taken_back == 1
        assert "Taken back" in shown(app)


async def test_read_only_does_not_take_back() -> None:
    run = FakeRun()
    run.tell(*BEGIN)
    app = app_of(DeployServices(run), read_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: run.id in app.feeds)
        app.open_run(run)
        await pilot.press("x")
        await pilot.pause()
        assert isinstance(app.screen, DeployScreen)
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        assert not app.screen.query("#take-back")
    run.end(SERVES)


async def test_quitting_asks_while_a_deploy_is_under_way(services: DeployServices) -> None:
    app = app_of(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await deployed(pilot, app)
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        text = shown(app)
        assert "qwen3 is being deployed" in text
        await pilot.press("enter")
        await app.workers.wait_for_complete()
        assert app.is_running
        assert isinstance(app.screen, DeployScreen)
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        await pilot.press("right", "enter")
        await until(pilot, lambda: not app.is_running or app._exit)
    assert services.run.taken_back == 0
    assert services.run.alive


async def test_take_it_back_and_quit(services: DeployServices) -> None:
    app = app_of(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await deployed(pilot, app)
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        app.screen.query_one("#take-back", Button).press()
        await until(pilot, lambda: app._exit)
    assert services.run.taken_back == 1


async def test_quitting_without_a_deploy_asks_nothing(services: DeployServices) -> None:
    app = app_of(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("q")
        await until(pilot, lambda: app._exit)


async def test_a_deploy_of_an_earlier_app_is_picked_up() -> None:
    run = FakeRun()
    run.tell(*BEGIN)
    app = app_of(DeployServices(run))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: app.running == "deploying qwen3: image")
        assert "is being deployed" in next(iter(app._notifications)).message
        await pilot.press("ctrl+d")
        await until(pilot, lambda: "▶ image" in shown(app))
        run.end(SERVES, *STARTED, *SERVING)
        await until(pilot, lambda: "qwen3 serves" in shown(app))


async def test_one_that_ended_badly_meanwhile_is_offered() -> None:
    run = FakeRun()
    run.end(replace(WAS_TAKEN_BACK, exit_code=5), *BEGIN, *FAILING)
    good = FakeRun("other", "run-2")
    good.end(SERVES, *BEGIN)
    app = app_of(DeployServices(run, good))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: len(app._notifications) == 2)
        messages = {one.message for one in app._notifications}
        assert any("was not deployed" in message for message in messages)
        assert good.acknowledged
        assert not run.acknowledged
        assert app.running == ""
        await pilot.press("ctrl+d")
        await until(pilot, lambda: "[GP818]" in shown(app))
        assert run.acknowledged


async def test_of_several_one_is_chosen() -> None:
    runs = (FakeRun("one", "run-1"), FakeRun("two", "run-2"))
    app = app_of(DeployServices(*runs))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.feeds) == 2)
        await pilot.press("ctrl+d")
        await until(pilot, lambda: isinstance(app.screen, AskScreen))
        assert "one: under way" in shown(app)
        app.screen.query_one("#run-1", Button).press()
        await until(pilot, lambda: isinstance(app.screen, DeployScreen))
        assert isinstance(app.screen, DeployScreen)
        assert app.screen.feed.run.name in {"one", "two"}
    for run in runs:
        run.end(SERVES)
