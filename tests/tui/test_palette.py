"""The palette and the keys: everything a key does, and why what is refused is refused."""

from typing import ClassVar

import pytest
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.widgets import OptionList

from gpuplan.tui import commands
from gpuplan.tui.commands import Command, Place
from gpuplan.tui.services import Source, SourceKind
from tests.tui.fakes import FakeServices
from tests.tui.screen import shown
from tests.tui.shells import Board, Dialog, Shell

STOP = Command(
    id="board.stop",
    key="x",
    action="end",
    title="Stop it",
    help="End it.",
    place=Place.LOGS,
    footer="Stop",
    mutates=True,
)
NEVER = Command(
    id="board.never", key="n", action="never", title="Never", help="Not possible.", place=Place.LOGS
)
HIDDEN = Command(
    id="board.hidden", key="z", action="hidden", title="Hidden", help="Hidden.", place=Place.LOGS
)
OWN = (STOP, NEVER, HIDDEN)


class Commanded(Board):
    """A board with commands of its own."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(command.key, command.action, command.title, id=command.id) for command in OWN
    ]

    def __init__(self) -> None:
        super().__init__("commanded")
        self.ended = 0

    def action_end(self) -> None:
        self.ended += 1

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return {"never": None, "hidden": False}.get(action, True)

    def why_not(self, action: str) -> str | None:
        return "there is [nothing] to do" if action == "never" else None


class Commandable(Shell):
    """A shell with a board that has commands."""

    DEFAULT_MODE = "board"

    def __init__(self, services: FakeServices, *, read_only: bool = False) -> None:
        super().__init__(services, read_only=read_only)
        self.board = Commanded()
        self.add_mode("board", lambda: self.framed(self.board))


class Declared(FakeServices):
    @property
    def source(self) -> Source:
        return Source(kind=SourceKind.DECLARED, name="inventory.yaml", acts=False)


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [command for command in commands.ALL if command.place is not Place.LOGS]
    everything = (*OWN, *others)
    monkeypatch.setattr(commands, "ALL", everything)
    monkeypatch.setattr(commands, "BY_ID", {command.id: command for command in everything})
    monkeypatch.setattr(commands, "MUTATING", {STOP.action: STOP})


def _toasts(app: Shell) -> list[str]:
    return [toast.message for toast in app._notifications]


async def _palette(app: Shell) -> list[str]:
    """What the palette lists, the first line of each."""
    assert isinstance(app.screen, CommandPalette)
    await app.workers.wait_for_complete()
    options = app.screen.query_one(OptionList)
    return [
        str(options.get_option_at_index(index).prompt).split("\n")[0] for index in range(options.option_count)
    ]


async def test_commands_of_the_screen_come_first() -> None:
    app = Commandable(FakeServices())
    async with app.run_test(size=(80, 40)) as pilot:
        await pilot.press("ctrl+p")
        await pilot.pause(0.2)
        listed = await _palette(app)
        assert listed[:3] == ["Stop it  x", "Never  n", "Fleet  1 f2"]
        assert "Choose a theme" in listed
        assert not any(text.startswith("Hidden") for text in listed)
        assert "🔎" not in shown(app)


async def test_a_command_is_found_and_done() -> None:
    app = Commandable(FakeServices())
    async with app.run_test(size=(80, 40)) as pilot:
        await pilot.press("ctrl+p", *"stop")
        await pilot.pause(0.2)
        assert (await _palette(app))[0] == "Stop it  x"
        await pilot.press("enter")
        await pilot.pause()
        assert app.board.ended == 1


async def test_a_key_does_what_the_palette_does() -> None:
    app = Commandable(FakeServices())
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("x")
        assert app.board.ended == 1


@pytest.mark.parametrize(
    ("services", "read_only", "why"),
    [
        (FakeServices, True, "the app was opened with --read-only"),
        (Declared, False, "the hardware is declared, no host is reached"),
    ],
)
async def test_what_would_change_a_host_is_refused_with_the_reason(
    services: type[FakeServices], read_only: bool, why: str
) -> None:
    app = Commandable(services(), read_only=read_only)
    async with app.run_test(size=(80, 40), notifications=True) as pilot:
        await app.workers.wait_for_complete()
        await pilot.pause()
        assert not app.screen.active_bindings["x"].enabled
        await pilot.press("x")
        assert app.board.ended == 0
        assert _toasts(app)[-1].startswith(f"Stop it: {why}")
        await pilot.press("ctrl+p", *"stop")
        await pilot.pause(0.2)
        assert f"Not now: {why}"[:60] in shown(app)
        await pilot.press("enter")
        await pilot.pause()
        assert app.board.ended == 0
        await pilot.press("f1")
        assert f"not now: {why}"[:40] in shown(app)


async def test_a_screen_says_why_it_refuses() -> None:
    app = Commandable(FakeServices())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("n")
        assert _toasts(app) == ["Never: there is [nothing] to do"]


async def test_behind_a_dialog_nothing_is_offered() -> None:
    app = Commandable(FakeServices())
    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(Dialog())
        await pilot.press("x")
        assert app.board.ended == 0
        assert app.offers(app.screen) == ()
