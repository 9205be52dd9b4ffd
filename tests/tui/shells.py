"""The shell with screens of its own, so that its tests depend on no real screen."""

from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, Label

from gpuplan.present.document import line
from gpuplan.tui import commands
from gpuplan.tui.commands import Place
from gpuplan.tui.services import Services
from gpuplan.tui.settings import Preferences
from gpuplan.tui.shell import ShellApp
from gpuplan.tui.widgets.key_bar import KeyBar
from gpuplan.tui.widgets.rows import FixedRows, Rows


class Board(Screen[None]):
    """A list of three rows under the name of a mode."""

    HELP = "A board of [three] rows."

    def __init__(self, name: str) -> None:
        super().__init__()
        self.label = name

    def compose(self) -> ComposeResult:
        yield Label(f"this is {self.label}", markup=False)
        yield Rows(id="board-rows")
        yield Input(id="board-input")
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(Rows).show(FixedRows([line(f"row {number}") for number in range(3)]))
        self.query_one(Rows).focus()


class PlainScreen(Screen[None]):
    """A full screen on top of a mode."""

    def compose(self) -> ComposeResult:
        yield Label("on top")


class Dialog(ModalScreen[None]):
    """Something in the way."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Close")]

    def compose(self) -> ComposeResult:
        yield Label("in the way")


class Shell(ShellApp):
    """Three boards."""

    BINDINGS: ClassVar[list[BindingType]] = [*commands.bindings(Place.APP)]
    DEFAULT_MODE = "fleet"

    def __init__(
        self,
        services: Services,
        *,
        read_only: bool = False,
        preferences: Preferences | None = None,
        environ: dict[str, str] | None = None,
    ) -> None:
        super().__init__(services, read_only=read_only, preferences=preferences, environ=environ or {})
        self.left = 0
        for mode in ("fleet", "plan", "deployments"):
            self.add_mode(mode, partial(self._board, mode))

    def _board(self, mode: str) -> Screen[None]:
        return self.framed(Board(mode))

    async def action_leave(self) -> None:
        self.left += 1
