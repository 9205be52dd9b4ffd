"""The app with its real screens: each has its header, its help, and every command of its place."""

import pytest
from textual import actions

from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.commands import Place
from gpuplan.tui.screens.help import HelpScreen
from gpuplan.tui.widgets.header import Header
from tests.tui.fakes import FakeServices
from tests.tui.screen import shown

MODES = (("1", Place.FLEET), ("2", Place.PLAN), ("3", Place.DEPLOYMENTS))


@pytest.mark.parametrize(("key", "place"), MODES)
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (300, 100)])
async def test_each_screen_has_header_footer_and_help(key: str, place: Place, size: tuple[int, int]) -> None:
    app = GpuplanApp(FakeServices(), environ={})
    async with app.run_test(size=size) as pilot:
        await pilot.press(key)
        await pilot.pause()
        lines = shown(app).split("\n")
        assert f"▸{key} {place.value}" in lines[0]
        assert "live: inventory.yaml" in lines[0]
        assert lines[-1].endswith("^p More")
        assert len(app.screen.query(Header)) == 1
        await pilot.press("f1")
        assert isinstance(app.screen, HelpScreen)
        assert app.screen.about
        text = shown(app)
        assert place.value in text


@pytest.mark.parametrize(("key", "place"), MODES)
async def test_each_screen_does_the_commands_of_its_place(key: str, place: Place) -> None:
    app = GpuplanApp(FakeServices(), environ={})
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press(key)
        await pilot.pause()
        offers = app.offers(app.screen)
        assert {place, Place.APP} <= {offer.command.place for offer in offers}
        for offer in offers:
            namespace, name, _ = actions.parse(offer.command.action)
            does = {"app": app, "screen": app.screen}.get(namespace, offer.node)
            assert hasattr(does, f"action_{name}"), offer.command.id


async def test_leaving_ends_it() -> None:
    app = GpuplanApp(FakeServices(), environ={})
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("q")
        await pilot.pause()
        assert app.return_code == 0
        assert not app.is_running or app._exit
