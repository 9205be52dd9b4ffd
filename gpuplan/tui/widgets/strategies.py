"""The strategies of a plan, a row each, the further candidates of one below it where it is opened."""

from collections.abc import Hashable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.strip import Strip

from gpuplan.domain.plan import Plan, StrategyName
from gpuplan.present.document import EMPTY, Line, Span, line, padded, width_of
from gpuplan.present.strategy_table import RECOMMENDED, candidate_line, rows_of, strategy_lines, table_header
from gpuplan.tui.widgets.rows import NO_ROWS, Rows

CLOSED, OPEN = "▸", "▾"
MARKS = 2
"""Cells in front of the table."""
MOST_ROWS = 14

CandidateKey = tuple[StrategyName, int]


class CandidateRows:
    """A row per strategy, and per further candidate of the opened ones."""

    def __init__(self, plan: Plan, opened: frozenset[StrategyName]) -> None:
        self._plan = plan
        self._opened = opened
        self._results = {result.strategy: result for result in plan.strategies}
        self._keys: list[CandidateKey] = []
        for result in rows_of(plan):
            shown = len(result.candidates) if result.strategy in opened else 1
            self._keys += [(result.strategy, index) for index in range(max(1, shown))]
        self._index = {key: index for index, key in enumerate(self._keys)}

    def __len__(self) -> int:
        return len(self._keys)

    def key(self, index: int) -> CandidateKey:
        return self._keys[index]

    def index(self, key: Hashable) -> int | None:
        return self._index.get(key)  # type: ignore[call-overload,no-any-return]  # any key may be asked for

    def line(self, index: int, width: int) -> Line:
        strategy, candidate = self._keys[index]
        result = self._results[strategy]
        width -= MARKS
        if candidate:
            row = candidate_line(result, candidate, width, name=f"  · {candidate + 1}")
        else:
            first, *more = strategy_lines(result, width)
            row = _continued(first, width) if more else first
        mark = RECOMMENDED if self._plan.recommended == (strategy, candidate) else " "
        several = len(result.candidates) > 1 and not candidate
        fold = (OPEN if strategy in self._opened else CLOSED) if several else " "
        return line(mark, fold, *row)


def _continued(row: Line, width: int) -> Line:
    """A row that goes on elsewhere, within the width."""
    *before, last = row
    room = width - sum(width_of(span.text) for span in before) - 1
    text = last.text if width_of(last.text) < room else padded(last.text, room - 1).rstrip(" …")
    return (*before, Span(f"{text} …", last.role))


class Strategies(Rows):
    """The table; `Rows.Highlighted` carries (strategy, candidate)."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("space", "fold", "Further candidates", show=False)]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._plan: Plan | None = None
        self._opened: frozenset[StrategyName] = frozenset()
        self._columns_for = 0
        """Cells of width the header was made for."""

    def show_plan(self, plan: Plan | None, select: CandidateKey | None = None) -> None:
        """Another plan; the cursor goes to `select`, else it stays with its strategy."""
        before = self.key
        self._plan = plan
        if plan is None:
            self.show(NO_ROWS, header=EMPTY)
            return
        rows = CandidateRows(plan, self._opened)
        if select is None and isinstance(before, tuple):
            select = before if rows.index(before) is not None else (before[0], 0)
        if select is not None and rows.index(select) is not None:
            self._key = select
        self.show(rows, header=self._columns())
        self.styles.height = min(MOST_ROWS, len(rows) + 1)

    @property
    def chosen(self) -> CandidateKey | None:
        """What the cursor is on."""
        key = self.key
        return key if isinstance(key, tuple) else None

    def on_resize(self) -> None:
        if self._plan is not None:
            self.show(self.source, header=self._columns())

    def render_line(self, y: int) -> Strip:
        """A scrollbar that came or went leaves the rows another width, and so the header."""
        if y == 0 and self._plan is not None and self._room.width != self._columns_for:
            self._header = self._columns()
        return super().render_line(y)

    def _columns(self) -> Line:
        self._columns_for = self._room.width
        return line(" " * MARKS, *table_header(max(40, self._room.width - MARKS)))

    def action_sideways(self, by: int) -> None:
        chosen = self.chosen
        if chosen is not None and self._several(chosen[0]) and (by > 0) != (chosen[0] in self._opened):
            self.action_fold()
        else:
            super().action_sideways(by)

    def action_fold(self) -> None:
        """Show the further candidates of the strategy under the cursor, or hide them."""
        chosen = self.chosen
        if chosen is None or not self._several(chosen[0]):
            return
        self._opened = self._opened ^ {chosen[0]}
        self.show_plan(self._plan)

    def _several(self, strategy: StrategyName) -> bool:
        results = self._plan.strategies if self._plan is not None else ()
        return any(result.strategy is strategy and len(result.candidates) > 1 for result in results)
