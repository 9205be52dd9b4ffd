"""Rows that grow stay at their end while a person looks at it, and where the person has gone otherwise."""

from textual.app import App, ComposeResult

from gpuplan.present.document import line
from gpuplan.tui.widgets.rows import FixedRows, Rows


class Growing(App[None]):
    """A list on top of what takes its room."""

    CSS = "#below { height: 0; } #below.-high { height: 8; }"

    def __init__(self) -> None:
        super().__init__()
        self.lines = [line(f"row {number}") for number in range(30)]

    def compose(self) -> ComposeResult:
        yield Rows(id="rows", has_cursor=False)
        yield Rows(id="below", has_cursor=False)

    def on_mount(self) -> None:
        for rows in self.query(Rows):
            rows.show(FixedRows(self.lines))


async def test_the_end_stays_seen_with_less_room() -> None:
    app = Growing()
    async with app.run_test(size=(40, 20)) as pilot:
        rows, below = app.query_one("#rows", Rows), app.query_one("#below", Rows)
        rows.scroll_end(animate=False, immediate=True)
        app.lines.append(line("one more"))
        rows.grown()
        await pilot.pause()
        assert rows.is_vertical_scroll_end
        below.add_class("-high")
        await pilot.pause()
        assert rows.size.height == 12
        assert rows.is_vertical_scroll_end
        assert below.scroll_y == 0


async def test_who_has_scrolled_up_stays_there() -> None:
    app = Growing()
    async with app.run_test(size=(40, 20)) as pilot:
        rows = app.query_one("#rows", Rows)
        rows.scroll_to(y=3, animate=False, immediate=True)
        app.lines.append(line("one more"))
        rows.grown()
        app.query_one("#below").add_class("-high")
        await pilot.pause()
        assert rows.scroll_y == 3
