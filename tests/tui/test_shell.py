"""What is the same on every screen: header, themes, help, what is refused, leaving."""

import pytest
from textual.app import App
from textual.color import Color
from textual.theme import Theme
from textual.widgets import Input

from gpuplan.tui import commands, themes
from gpuplan.tui.commands import Command, Place
from gpuplan.tui.keymap import keys_of, read_keymap
from gpuplan.tui.offers import places_of, shown_keys
from gpuplan.tui.rendering import safe
from gpuplan.tui.screens.help import HelpScreen
from gpuplan.tui.services import Source, SourceKind
from gpuplan.tui.widgets.header import Header
from gpuplan.tui.widgets.key_bar import KeyBar
from gpuplan.tui.widgets.rows import Rows
from tests.tui.fakes import FakeServices
from tests.tui.screen import shown
from tests.tui.shells import Dialog, PlainScreen, Shell


class Unreached(FakeServices):
    """A snapshot: nothing can be started on it."""

    @property
    def source(self) -> Source:
        return Source(kind=SourceKind.SNAPSHOT, name="[/]fleet\x1b.json", acts=False)


def toasts(app: App[None]) -> list[str]:
    return [toast.message for toast in app._notifications]


async def test_the_header_is_on_every_screen() -> None:
    app = Shell(FakeServices())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert shown(app).split("\n")[0].split() == [
            "gpuplan", "▸1", "Fleet", "2", "Plan", "3", "Deployments", "live:", "inventory.yaml",
        ]  # fmt: skip
        await pilot.press("2")
        assert "▸2 Plan" in shown(app).split("\n")[0]
        await app.push_screen(PlainScreen())
        await pilot.pause()
        assert "▸2 Plan" in shown(app).split("\n")[0]
        await app.push_screen(Dialog())
        assert not app.screen.query(Header)


async def test_a_mode_can_be_clicked() -> None:
    app = Shell(FakeServices())
    async with app.run_test(size=(80, 24)) as pilot:
        at = shown(app).split("\n")[0].index("Deployments")
        await pilot.click(Header, offset=(at + 2, 0))
        assert app.current_mode == "deployments"
        await pilot.click(Header, offset=(at + 30, 0))
        assert app.current_mode == "deployments"


async def test_a_run_under_way_and_read_only_are_always_told() -> None:
    app = Shell(FakeServices(), read_only=True)
    async with app.run_test(size=(80, 24)) as pilot:
        app.running = "deploying qwen3-32b: load"
        await pilot.pause()
        first = shown(app).split("\n")[0]
        assert "deploying qwen3-32b: load  READ ONLY  live: inventory.yaml" in first


async def test_a_name_of_a_source_is_never_markup() -> None:
    app = Shell(Unreached())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        assert "snapshot: [/]fleet�.json" in shown(app).split("\n")[0]


@pytest.mark.parametrize("size", [(59, 24), (80, 14), (20, 5), (1, 1)])
async def test_a_small_terminal_is_told_instead_of_shown(size: tuple[int, int]) -> None:
    app = Shell(FakeServices())
    async with app.run_test(size=size) as pilot:
        text = " ".join(shown(app).split())
        assert "this is" not in text
        if size[0] > 20:
            assert f"{size[0]}×{size[1]} is too small a terminal" in text
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert "this is fleet" in shown(app)


@pytest.mark.parametrize(("width", "name"), [(80, "-compact"), (100, "-roomy"), (150, "-wide")])
async def test_screens_know_how_much_room_there_is(width: int, name: str) -> None:
    app = Shell(FakeServices())
    async with app.run_test(size=(width, 24)):
        assert app.screen.has_class(name)


# ---------------------------------------------------------------------- themes


async def test_our_themes_take_turns() -> None:
    app = Shell(FakeServices())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        seen = [app.theme]
        for _ in range(3):
            await pilot.press("ctrl+t")
            seen.append(app.theme)
        assert seen == [*themes.NAMES, themes.NAMES[0]]


@pytest.mark.parametrize(
    ("named", "theme"),
    [
        ("", "gpuplan-dark"),
        ("nord", "nord"),
        ("none, gpuplan-contrast", "gpuplan-contrast"),
        ("none", "gpuplan-dark"),
    ],
)
async def test_the_environment_names_the_theme(named: str, theme: str) -> None:
    app = Shell(FakeServices(), environ={"TEXTUAL_THEME": named})
    async with app.run_test(size=(80, 24)):
        assert app.theme == theme


@pytest.mark.parametrize("theme", themes.OURS, ids=lambda theme: theme.name)
async def test_text_can_be_read_in_our_themes(theme: Theme) -> None:
    """WCAG: at least 4.5 to 1, 7 to 1 in high contrast."""
    least = 7.0 if theme is themes.CONTRAST else 4.5
    colours = theme.to_color_system().generate()
    surface = colours["surface"]
    for name in ("foreground", "primary", "secondary", "accent", "success", "warning", "error"):
        assert contrast(colours[name], surface) >= least, name
    assert contrast(colours["block-cursor-foreground"], colours["block-cursor-background"]) >= least


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, relative luminance."""
    dark, light = sorted(_luminance(Color.parse(text)) for text in (one, other))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Color) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


async def test_no_color_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = Shell(FakeServices(), read_only=True)
    async with app.run_test(size=(80, 24)):
        assert app.no_color
        assert "▸1 Fleet" in shown(app)
        assert "READ ONLY" in shown(app)


async def test_nothing_moves_by_itself() -> None:
    async with Shell(FakeServices()).run_test(size=(80, 24)) as pilot:
        assert pilot.app.animation_level == "none"


# ---------------------------------------------------------------------- help


async def test_help_tells_the_keys_of_here_and_everywhere() -> None:
    app = Shell(FakeServices())
    async with app.run_test(size=(100, 50)) as pilot:
        await pilot.press("f1")
        assert isinstance(app.screen, HelpScreen)
        text = shown(app)
        assert "A board of [three] rows." in text
        assert "Here" in text
        assert "Next theme" in text
        await pilot.press("f1")
        assert not isinstance(app.screen, HelpScreen)
        await pilot.press("question_mark", "escape")
        assert not isinstance(app.screen, HelpScreen)


async def test_typing_is_never_taken_for_a_command() -> None:
    app = Shell(FakeServices())
    async with app.run_test(size=(80, 24)) as pilot:
        app.screen.query_one(Input).focus()
        await pilot.press("q", "question_mark", "2")
        assert app.screen.query_one(Input).value == "q?2"
        assert app.current_mode == "fleet"
        assert app.left == 0
        await pilot.press("f1")
        assert isinstance(app.screen, HelpScreen)


async def test_a_picture_is_saved(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    app = Shell(FakeServices())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await app.run_action("app.picture")
        await pilot.pause()
        assert toasts(app)[-1].endswith(".svg")


# ---------------------------------------------------------------------- leaving


@pytest.mark.parametrize("key", ["q", "ctrl+q"])
async def test_both_keys_ask_to_leave(key: str) -> None:
    app = Shell(FakeServices())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(key)
        assert app.left == 1


async def test_ctrl_c_tells_how_to_leave() -> None:
    app = Shell(FakeServices())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("ctrl+c")
        assert toasts(app) == ["Press q to leave."]
        assert app.left == 0


async def test_a_bug_ends_the_app_and_is_handed_on() -> None:
    app = Shell(FakeServices())

    async def run() -> None:
        async with app.run_test(size=(80, 24)) as pilot:
            app.call_later(lambda: 1 // 0)
            await pilot.pause()

    with pytest.raises(ZeroDivisionError):
        await run()
    assert isinstance(app.failure, ZeroDivisionError)
    assert app.return_code == 1


# ---------------------------------------------------------------------- the registry


def test_every_command_has_its_own_id_and_words() -> None:
    assert len(commands.BY_ID) == len(commands.ALL)
    for command in commands.ALL:
        assert command.id.partition(".")[2]
        assert command.title[0].isupper()
        assert not command.title.endswith(".")
        assert command.help.endswith("."), command.id


def test_an_action_that_changes_hosts_is_never_one_that_does_not() -> None:
    for command in commands.ALL:
        assert command.mutates or command.action not in commands.MUTATING


def test_no_key_has_two_meanings_at_one_place() -> None:
    chosen = [(command.id, command.key) for command in commands.ALL if command.key]
    clashes = [text for text in read_keymap(chosen, commands.ALL).complaints if "is the key of" in text]
    assert clashes == []


@pytest.mark.parametrize("place", [place for place in Place if place is not Place.APP])
def test_the_footer_has_room(place: Place) -> None:
    """At 80 columns for a screen's own commands and Help; the palette's entry stands at its right end."""
    told = [
        command for command in (*commands.of(place), commands.BY_ID["app.help"]) if command.footer is not None
    ]
    widths = [len(f" {shown_keys(command, {}, most=1)} {command.footer} ") for command in told]
    assert sum(widths) + len("▏^p More ") <= 80, [command.footer for command in told]


async def test_the_app_offers_its_own_commands() -> None:
    app = Shell(FakeServices())
    async with app.run_test(size=(80, 24)):
        assert places_of(app) == [Place.APP]
        offered = {offer.command.id for offer in app.offers(app.screen)}
        assert offered == {command.id for command in commands.of(Place.APP)}
        assert "q Quit" in shown(app).split("\n")[-1]
        assert app.screen.query(KeyBar)
        assert app.screen.focused is app.screen.query_one(Rows)


def test_keys_of_a_command() -> None:
    command = Command(id="a.b", key="?,f1", action="x", title="X", help="X.", place=Place.APP)
    assert keys_of(command, {}) == ("question_mark", "f1")
    assert keys_of(command, {"a.b": "f9"}) == ("f9",)
    assert str(safe("[/]")) == "[/]"
