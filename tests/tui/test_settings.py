"""What a person has set, and what is kept of what they choose."""

from pathlib import Path

import pytest

from gpuplan.errors import InventoryError
from gpuplan.sources.settings import Settings, load_settings
from gpuplan.tui import commands
from gpuplan.tui.commands import Command, Place
from gpuplan.tui.keymap import read_keymap
from gpuplan.tui.settings import Preferences
from tests.tui.fakes import FakeServices
from tests.tui.screen import shown
from tests.tui.shells import Shell


def _command(name: str, key: str, place: Place) -> Command:
    return Command(id=name, key=key, action=name, title="Title", help="Help.", place=place)


SOME = (
    _command("fleet.filter", "slash", Place.FLEET),
    _command("fleet.sort", "s", Place.FLEET),
    _command("plan.run", "s", Place.PLAN),
    _command("app.quit", "q", Place.APP),
)


@pytest.mark.parametrize(
    ("chosen", "keys", "complaints"),
    [
        ({"fleet.filter": "?"}, {"fleet.filter": "question_mark"}, ()),
        ({"fleet.filter": "ctrl+f,f5"}, {"fleet.filter": "ctrl+f,f5"}, ()),
        ({"plan.run": "/"}, {"plan.run": "slash"}, ()),
        ({"fleet.filter": "s", "fleet.sort": "/"}, {"fleet.filter": "s", "fleet.sort": "slash"}, ()),
        ({"fleet.filter": "s"}, {}, ("fleet.filter: s is the key of fleet.sort",)),
        ({"plan.run": "q"}, {}, ("plan.run: q is the key of app.quit",)),
        ({"app.quit": "s"}, {}, ("app.quit: s is the key of fleet.sort",)),
        ({"fleet.filtr": "f"}, {}, ("fleet.filtr: there is no such command; did you mean 'fleet.filter'?",)),
        ({"fleet.filter": "ctlr+f"}, {}, ("fleet.filter: 'ctlr+f' is not a key",)),
        ({"fleet.filter": "j"}, {}, ("fleet.filter: j moves the cursor",)),
        ({"\x1b[2J": "x"}, {}, ("�[2J: there is no such command",)),
    ],
)
def test_keys_that_make_sense_are_used_and_others_told(
    chosen: dict[str, str], keys: dict[str, str], complaints: tuple[str, ...]
) -> None:
    read = read_keymap(chosen.items(), SOME)
    assert (read.keys, read.complaints) == (keys, complaints)


async def test_a_key_of_ones_own() -> None:
    preferences = Preferences(
        Settings(keymap=(("app.quit", "f21"), ("app.palette", "f22"), ("app.plan", "f23")))
    )
    app = Shell(FakeServices(), preferences=preferences)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("q", "2")
        assert (app.left, app.current_mode) == (0, "fleet")
        assert "f23 Plan" in shown(app).split("\n")[0]
        assert "f21 Quit" in shown(app).split("\n")[-1]
        assert "f22 More" in shown(app).split("\n")[-1]
        await pilot.press("f21", "f23")
        assert (app.left, app.current_mode) == (1, "plan")


async def test_mistakes_are_told_and_do_not_keep_the_app_from_opening(tmp_path: Path) -> None:
    path = tmp_path / "gpuplan" / "config.toml"
    path.parent.mkdir()
    path.write_text('[ui]\nthem = "x"\n', encoding="utf-8")
    preferences = Preferences.read({"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)})
    assert isinstance(preferences.problem, InventoryError)
    app = Shell(FakeServices(), preferences=preferences)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        (toast,) = app._notifications
        assert f"{path}:2: ui.them: unknown key; did you mean 'theme'?" in toast.message
        assert not toast.markup
        assert app.theme == "gpuplan-dark"
        await pilot.press("ctrl+t")
        await app.workers.wait_for_complete()
        assert path.read_text(encoding="utf-8") == '[ui]\nthem = "x"\n'


async def test_an_unknown_theme_and_a_clashing_key_are_told() -> None:
    preferences = Preferences(Settings(theme="gpuplan-drak", keymap=(("app.quit", "2"),)))
    app = Shell(FakeServices(), preferences=preferences)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        (toast,) = app._notifications
        assert "app.quit: 2 is the key of app.plan" in toast.message
        assert "theme 'gpuplan-drak': there is none of that name; ours: gpuplan-dark" in toast.message
        await pilot.press("q")
        assert app.left == 1


async def test_a_chosen_theme_is_kept_and_used_the_next_time(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    path = tmp_path / "gpuplan" / "config.toml"
    app = Shell(FakeServices(), preferences=Preferences.read(environ))
    async with app.run_test(size=(80, 24)) as pilot:
        assert not path.exists()
        await pilot.press("ctrl+t")
        await app.workers.wait_for_complete()
        assert load_settings(path).theme == "gpuplan-light"
    again = Shell(FakeServices(), preferences=Preferences.read(environ))
    async with again.run_test(size=(80, 24)):
        assert again.theme == "gpuplan-light"


async def test_what_was_chosen_last_is_there_the_next_time(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    app = Shell(FakeServices(), preferences=Preferences.read(environ))
    async with app.run_test(size=(80, 24)):
        app.remember(app.remembered.with_model("Qwen/Qwen3-32B").with_sort("fleet", "name"))
        await app.workers.wait_for_complete()
    kept = Preferences.read(environ).remembered
    assert kept.models == ("Qwen/Qwen3-32B",)
    assert dict(kept.sorts) == {"fleet": "name"}


async def test_without_files_nothing_is_written() -> None:
    app = Shell(FakeServices())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+t")
        app.remember(app.remembered.with_model("a"))
        await app.workers.wait_for_complete()
        assert app.remembered.models == ("a",)


def test_a_keymap_of_the_commands_own_keys_is_in_order() -> None:
    chosen = [(command.id, command.key) for command in commands.of(Place.APP) if command.key]
    assert read_keymap(chosen, commands.ALL).complaints == ()
