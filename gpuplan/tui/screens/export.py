"""Choosing what to copy or save, and the name of the file. Nothing is written over without being told to."""

from collections.abc import Hashable
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from gpuplan.errors import GpuplanError
from gpuplan.operations.text_files import AlreadyThere, write_texts
from gpuplan.present.document import Line, Role, Span, line, padded
from gpuplan.present.numbers import listed
from gpuplan.tui import commands
from gpuplan.tui.background import BrokenOff, in_thread
from gpuplan.tui.exports import OFFERED, Export, Kind
from gpuplan.tui.rendering import safe
from gpuplan.tui.widgets.key_bar import KeyBar
from gpuplan.tui.widgets.rows import Rows


class _Kinds:
    """A row for each thing there is."""

    def __len__(self) -> int:
        return len(OFFERED)

    def key(self, index: int) -> Kind:
        return OFFERED[index].kind

    def index(self, key: Hashable) -> int | None:
        return next((index for index, one in enumerate(OFFERED) if one.kind == key), None)

    def line(self, index: int, width: int) -> Line:
        one = OFFERED[index]
        return line(f"{index + 1}  {padded(one.title, 16)}", Span(one.about, Role.DIM))


class ChooseExport(ModalScreen[Kind | None]):
    """Gives what was chosen, or None."""

    CSS_PATH = "export.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Back"),
        *(Binding(str(number), f"take({number - 1})", show=False) for number in range(1, len(OFFERED) + 1)),
    ]

    def __init__(self, verb: str, about: str) -> None:
        super().__init__()
        self._verb, self._about = verb, about

    def compose(self) -> ComposeResult:
        with Vertical(id="export-box"):
            yield Static(f"{self._verb} what?", id="export-title", markup=False)
            yield Static(safe(self._about), id="export-about")
            yield Rows(id="export-kinds")
            yield Static("Enter or its number chooses, Esc goes back", id="export-note", markup=False)

    def on_mount(self) -> None:
        rows = self.query_one("#export-kinds", Rows)
        rows.show(_Kinds())
        rows.focus()

    def action_take(self, index: int) -> None:
        self.dismiss(OFFERED[index].kind)

    @on(Rows.Selected)
    def _selected(self, event: Rows.Selected) -> None:
        event.stop()
        assert isinstance(event.key, Kind)
        self.dismiss(event.key)


class SaveAs(ModalScreen[tuple[Path, ...]]):
    """Writes the texts; gives their paths, none when nothing was written."""

    CSS_PATH = "export.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*commands.bindings(commands.Place.SAVE)]

    def __init__(self, made: Export) -> None:
        super().__init__()
        self.made = made
        self._taken: str | None = None
        """The name under which something is there already."""

    def compose(self) -> ComposeResult:
        several = len(self.made.files) > 1
        with Vertical(id="export-box"):
            yield Static(f"Save {self.made.title} as", id="export-title", markup=False)
            if several:
                names = listed(list(self.made.files))
                yield Static(safe(f"{names}; to this directory:"), id="export-about")
            yield Input(self.made.default_name, id="export-name", select_on_focus=False)
            yield Static("Enter saves, readable for you alone; Esc goes back", id="export-note", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "save_replace":
            return True if self._taken is not None else None
        return super().check_action(action, parameters)

    def why_not(self, action: str) -> str | None:
        """Why nothing can be replaced."""
        return "no file of that name is there" if action == "save_replace" and self._taken is None else None

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if self._taken is not None and event.value != self._taken:
            self._taken = None
            self.refresh_bindings()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._write(event.value, replace=False)

    def action_save_replace(self) -> None:
        """Write over what is there; the name is the one that was asked about."""
        if self._taken is not None:
            self._write(self._taken, replace=True)

    def action_save_back(self) -> None:
        self.dismiss(())

    @work(exclusive=True, group="save", description="write")
    async def _write(self, name: str, *, replace: bool) -> None:
        try:
            paths = await in_thread(partial(write_texts, name, self.made.files, replace=replace))
        except AlreadyThere as error:
            self._taken = name
            self.refresh_bindings()
            self._say(f"{error.path} is there already: ctrl+r replaces it, or change the name", bad=True)
        except GpuplanError as error:
            self._say(f"{error.message}: {error.hint}" if error.hint else error.message, bad=True)
        except BrokenOff:
            pass
        else:
            self.dismiss(paths)

    def _say(self, text: str, *, bad: bool) -> None:
        note = self.query_one("#export-note", Static)
        note.update(safe(text))
        note.set_class(bad, "-bad")
