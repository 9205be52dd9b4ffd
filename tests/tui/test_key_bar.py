"""The line of keys: what works now, as much of it as there is room for."""

from typing import ClassVar

import pytest
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType

from gpuplan.tui.widgets.key_bar import KeyBar
from tests.tui.screen import shown


class Keyed(App[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "one", "Alpha"),
        Binding("b", "two", "Bravo[x]"),
        Binding("c", "three", "Charlie", show=False),
        Binding("d,e", "four", "Delta"),
        Binding("f1", "help", "Help"),
        Binding("q", "leave", "Quit"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self.allowed = True

    def compose(self) -> ComposeResult:
        yield KeyBar()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return None if action == "two" and not self.allowed else True

    def action_one(self) -> None:
        self.done.append("one")

    def action_two(self) -> None:
        self.done.append("two")


async def test_one_entry_an_action_and_the_palette_at_the_end() -> None:
    app = Keyed()
    async with app.run_test(size=(80, 5)) as pilot:
        await pilot.pause()
        line = shown(app).split("\n")[-1]
        assert " ".join(line.split()) == "a Alpha b Bravo[x] d Delta f1 Help q Quit ^p palette"


@pytest.mark.parametrize("width", range(24, 60, 3))
async def test_where_there_is_little_room_help_and_quitting_stay(width: int) -> None:
    app = Keyed()
    async with app.run_test(size=(width, 5)) as pilot:
        await pilot.pause()
        line = shown(app).split("\n")[-1]
        assert line.rstrip().endswith("^p palette")
        assert len(line) <= width
        if width >= 36:
            assert "f1 Help" in line
            assert "q Quit" in line


async def test_a_click_does_what_the_key_does_unless_it_is_refused() -> None:
    app = Keyed()
    async with app.run_test(size=(80, 5)) as pilot:
        await pilot.pause()
        at = shown(app).split("\n")[-1].index("Alpha")
        await pilot.click(KeyBar, offset=(at, 0))
        app.allowed = False
        app.refresh_bindings()
        await pilot.pause()
        refused = shown(app).split("\n")[-1].index("Bravo")
        await pilot.click(KeyBar, offset=(refused, 0))
        assert app.done == ["one"]
