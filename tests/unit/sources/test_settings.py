"""`config.toml`: what is read, how a mistake is told, what a change leaves as it was."""

import stat
from pathlib import Path

import pytest

from gpuplan.errors import GpuplanError, InventoryError
from gpuplan.sources.remembered import NOTHING, Remembered, load_remembered, save_remembered
from gpuplan.sources.settings import DEFAULTS, Settings, load_settings, save_theme, settings_path

WHOLE = """\
# mine
[ui]
theme = "gpuplan-light"  # in the office
refresh_seconds = 5
mouse = false

[ui.keymap]
"fleet.filter" = "f, f5"
plan.run = "ctrl+r"

[plan]
context = 32768
concurrency = 4
kv-cache-dtype = "fp8"
strategies = ["single_host"]
"""
COMMANDS = ("fleet.filter", "plan.run", "app.quit")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gpuplan" / "config.toml"


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_everything_that_can_be_set(path: Path) -> None:
    assert load_settings(_write(path, WHOLE), COMMANDS) == Settings(
        theme="gpuplan-light",
        refresh_seconds=5.0,
        mouse=False,
        keymap=(("fleet.filter", "f,f5"), ("plan.run", "ctrl+r")),
        plan=(
            ("context", "32768"),
            ("concurrency", 4),
            ("kv_cache_dtype", "fp8"),
            ("strategies", ("single_host",)),
        ),
    )


@pytest.mark.parametrize("text", ["", "[ui]\n", "# nothing\n"])
def test_what_is_left_out_has_its_default(path: Path, text: str) -> None:
    assert load_settings(_write(path, text)) == DEFAULTS


def test_no_file_is_the_defaults(path: Path) -> None:
    assert load_settings(path) == DEFAULTS


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[ui]\nthem = "x"\n', ":2: ui.them: unknown key; did you mean 'theme'?"),
        ("[ui]\n\nmouse = 1\n", ":3: ui.mouse: must be true or false"),
        ("[ui]\nrefresh_seconds = 0\n", ":2: ui.refresh_seconds: must lie between 0.5 and 3600 seconds"),
        ("[plan]\nconcurrency = 0\n", ":2: plan.concurrency: must be at least 1"),
        ("[plans]\n", ":1: plans: unknown key; did you mean 'plan'?"),
        ("ui = 3\n", ":1: ui: must be a mapping of keys to values"),
        (
            '[ui.keymap]\n"fleet.filtr" = "f"\n',
            ":2: ui.keymap.fleet.filtr: there is no command 'fleet.filtr'; did you mean 'fleet.filter'?",
        ),
        ('[ui.keymap]\n"fleet.filter" = 3\n', ":2: ui.keymap.fleet.filter: must be keys"),
        ('[ui]\nkeymap.fleet.filter = ""\n', ":2: ui.keymap.fleet.filter: must be keys"),
        ('[ui\ntheme = "x"\n', ":1:4: is not TOML: "),
        ("[ui]\ntheme = \n", ":2:9: is not TOML: "),
    ],
)
def test_a_mistake_is_told_with_file_line_and_key(path: Path, text: str, told: str) -> None:
    with pytest.raises(InventoryError) as caught:
        load_settings(_write(path, text), COMMANDS)
    assert caught.value.message.startswith(f"{path}{told}")


def test_every_mistake_is_told_at_once(path: Path) -> None:
    with pytest.raises(InventoryError) as caught:
        load_settings(_write(path, "[ui]\nmous = true\ntheme = 3\n[plan]\ncontext = []\n"))
    assert [line.split(": ")[1] for line in caught.value.message.split("\n")] == [
        "ui.mous",
        "ui.theme",
        "plan.context",
    ]


def test_a_new_theme_changes_nothing_else(path: Path) -> None:
    _write(path, WHOLE)
    save_theme(path, "gpuplan-contrast")
    assert path.read_text(encoding="utf-8") == WHOLE.replace("gpuplan-light", "gpuplan-contrast")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [other.name for other in path.parent.iterdir()] == [path.name]


def test_the_first_theme_makes_the_file(path: Path) -> None:
    save_theme(path, "gpuplan-light")
    assert load_settings(path).theme == "gpuplan-light"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_same_theme_touches_nothing(path: Path) -> None:
    _write(path, WHOLE)
    before = path.stat()
    save_theme(path, "gpuplan-light")
    assert path.stat() == before


@pytest.mark.parametrize("text", ["[ui\n", "ui = 3\n"])
def test_a_broken_file_is_left_alone(path: Path, text: str) -> None:
    _write(path, text)
    with pytest.raises(GpuplanError):
        save_theme(path, "gpuplan-light")
    assert path.read_text(encoding="utf-8") == text


def test_a_linked_file_stays_a_link(path: Path, tmp_path: Path) -> None:
    kept = _write(tmp_path / "dotfiles" / "config.toml", WHOLE)
    path.parent.mkdir()
    path.symlink_to(kept)
    save_theme(path, "gpuplan-contrast")
    assert path.is_symlink()
    assert "gpuplan-contrast" in kept.read_text(encoding="utf-8")


def test_where_it_is() -> None:
    assert settings_path({"XDG_CONFIG_HOME": "/etc/x"}) == Path("/etc/x/gpuplan/config.toml")
    assert settings_path({"HOME": "/home/u"}) == Path("/home/u/.config/gpuplan/config.toml")
    assert settings_path({}) is None


def test_what_is_remembered_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "state" / "app.json"
    kept = NOTHING.with_model("a/b").with_model("c").with_model("a/b").with_sort("fleet", "name")
    assert kept == Remembered(models=("a/b", "c"), sorts=(("fleet", "name"),))
    assert save_remembered(path, kept) is None
    assert load_remembered(path) == kept


@pytest.mark.parametrize("text", ["", "[]", "{", '{"models": [1], "sorts": [["a"]]}', '{"models": 3}'])
def test_a_spoiled_memory_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "app.json"
    path.write_text(text, encoding="utf-8")
    assert load_remembered(path) == NOTHING


def test_a_memory_that_cannot_be_kept_says_why(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("", encoding="utf-8")
    assert "cannot be written" in str(save_remembered(tmp_path / "state" / "app.json", NOTHING))
