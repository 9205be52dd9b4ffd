"""The candidate in full: sections that fold and stay as they were folded over every new plan; copied, saved, compared."""

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual import getters, work
from textual.binding import BindingType
from textual.message import Message

from gpuplan.domain.deployment import DeploymentSpec
from gpuplan.domain.plan import Candidate, Plan
from gpuplan.errors import GpuplanError
from gpuplan.operations.stopped import StoppedByFacts
from gpuplan.present.candidate_detail import CONTAINERS, NOT_LOOKED, REMEDY, Containers, detail
from gpuplan.present.comparison import Compared
from gpuplan.present.document import Line, visible
from gpuplan.present.findings import word
from gpuplan.present.folding import Key, Part, Row, rows_of
from gpuplan.present.numbers import count, listed
from gpuplan.present.placement_text import shape_words
from gpuplan.present.strategy_table import NAMES, where
from gpuplan.tui import commands
from gpuplan.tui.background import BrokenOff, in_thread
from gpuplan.tui.exports import MOST_COPIED, Export, Kind, export_of
from gpuplan.tui.reading import ReadingApp
from gpuplan.tui.screens.compare import CompareScreen
from gpuplan.tui.screens.export import ChooseExport, SaveAs
from gpuplan.tui.services import SourceKind
from gpuplan.tui.widgets.rows import NO_ROWS, Rows

NARROWEST = 40
SETTLE_SECONDS = 0.3
"""Plans that follow each other faster are not looked into for their containers."""
NO_INVENTORY = "this machine"
"""What a source is called that rests on no file."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Shown:
    """What the detail is about."""

    plan: Plan
    choice: tuple[int, int] | None
    strategy: int
    previous: Plan | None

    def is_about(
        self, plan: Plan, choice: tuple[int, int] | None, strategy: int, previous: Plan | None
    ) -> bool:
        return (
            self.plan is plan
            and self.previous is previous
            and (self.choice, self.strategy) == (choice, strategy)
        )

    @property
    def candidate(self) -> Candidate | None:
        if self.choice is None:
            return None
        return self.plan.strategies[self.choice[0]].candidates[self.choice[1]]

    @property
    def title(self) -> str:
        """What a comparison calls it."""
        candidate = self.candidate
        name = NAMES[self.plan.strategies[self.strategy].strategy]
        place = "" if candidate is None else f" on {where(candidate)} ({shape_words(candidate)})"
        return f"{self.plan.model['name']}: {name}{place}"


class DetailRows:
    """The lines of what is open."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self._index = {row.key: index for index, row in enumerate(rows)}

    def __len__(self) -> int:
        return len(self.rows)

    def key(self, index: int) -> Key:
        return self.rows[index].key

    def index(self, key: Hashable) -> int | None:
        return self._index.get(key) if isinstance(key, tuple) else None

    def line(self, index: int, width: int) -> Line:
        return self.rows[index].line


class CandidateDetail(Rows):
    """One candidate, or why a strategy has none."""

    DEFAULT_CSS = "CandidateDetail { overflow-y: scroll; }"
    HELP = "The candidate: Enter opens and folds what has ▸ or ▾; on a remedy it applies that remedy."
    BINDINGS: ClassVar[list[BindingType]] = [*commands.bindings(commands.Place.CANDIDATE)]
    app = getters.app(ReadingApp)

    @dataclass
    class RemedyChosen(Message):
        """Enter on a remedy of the strategy that is shown."""

        detail: "CandidateDetail"
        strategy: int
        """Its index in `Plan.strategies`."""
        remedy: int
        """Index in the strategy's remedies."""

        @property
        def control(self) -> "CandidateDetail":
            return self.detail

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._shown: Shown | None = None
        self._opened: dict[Key, bool] = {}
        """What was opened (True) or folded by hand; it outlives plans and candidates."""
        self._parts: tuple[Part, ...] = ()
        self._containers: Containers = NOT_LOOKED
        self._a: tuple[Shown, Compared] | None = None

    # ------------------------------------------------------------------ what is shown

    def show_candidate(
        self, plan: Plan, choice: tuple[int, int] | None, strategy: int, previous: Plan | None
    ) -> None:
        """Show a candidate (`choice`: strategy and candidate); None: the strategy at that index has none."""
        before = self._shown
        if before is not None and before.is_about(plan, choice, strategy, previous):
            return
        self._shown = Shown(plan=plan, choice=choice, strategy=strategy, previous=previous)
        if before is None or before.plan is not plan or before.choice != choice:
            self._containers = NOT_LOOKED
            self.workers.cancel_group(self, "containers")
        self._made()

    def show_nothing(self) -> None:
        """There is no plan."""
        self._shown, self._parts, self._containers = None, (), NOT_LOOKED
        self.workers.cancel_group(self, "containers")
        self.show(NO_ROWS)

    @property
    def shown(self) -> Shown | None:
        return self._shown

    @property
    def marked(self) -> Compared | None:
        """A of a comparison."""
        return None if self._a is None else self._a[1]

    def on_resize(self) -> None:
        self._made()

    def _made(self) -> None:
        """The sections anew, for this width."""
        shown, width = self._shown, self._room.width
        if shown is None or not width:
            return
        self._parts = detail(
            shown.plan,
            shown.choice,
            shown.strategy,
            shown.previous,
            max(NARROWEST, width),
            containers=self._containers,
            mark="A" if self._is_a(shown) else "",
            inventory=self._inventory,
        )
        self._arrange()
        if self._containers is NOT_LOOKED and self._opened.get(CONTAINERS) and shown.choice is not None:
            self._look(shown)

    def _arrange(self) -> None:
        self.show(DetailRows(tuple(rows_of(self._parts, self._opened))))

    def _is_a(self, shown: Shown) -> bool:
        return self._a is not None and shown.candidate is not None and shown.candidate == self._a[1].candidate

    @property
    def _inventory(self) -> str | None:
        """The file a command on this fleet names."""
        source = self.app.state.source
        if source is None or source.kind is not SourceKind.LIVE or source.name == NO_INVENTORY:
            return None
        return source.name

    # ------------------------------------------------------------------ folding

    def action_select(self) -> None:
        row = self._row
        if row is None:
            return
        if row.can_fold:
            self._toggle(row.part)
        elif row.part[0] == REMEDY and self._shown is not None:
            self.post_message(self.RemedyChosen(self, self._shown.strategy, int(row.part[1]) - 1))
        else:
            super().action_select()

    def action_candidate_fold(self) -> None:
        """Fold or open what the cursor is on, or is inside of."""
        row = self._row
        if row is None:
            return
        if row.can_fold:
            self._toggle(row.part)
            return
        around = self._around(row.part)
        if around is not None:
            self._toggle(around)

    @property
    def _row(self) -> Row | None:
        source = self.source
        if not isinstance(source, DetailRows) or not source.rows:
            return None
        return source.rows[self.cursor]

    def _around(self, key: Key) -> Key | None:
        """The innermost part that folds and has this one inside."""
        assert isinstance(self.source, DetailRows)
        folding = {row.part for row in self.source.rows if row.can_fold}
        return next((key[:size] for size in range(len(key) - 1, 0, -1) if key[:size] in folding), None)

    def _toggle(self, key: Key) -> None:
        part = _part(self._parts, key)
        if part is None:
            return
        opens = not self._opened.get(key, part.is_open)
        self._opened[key] = opens
        self._arrange()
        self.move_to((*key, "#0"))
        self._reveal(key)
        shown = self._shown
        if opens and key == CONTAINERS and self._containers is NOT_LOOKED and shown is not None:
            self._look(shown)

    def _reveal(self, key: Key) -> None:
        """Scroll so that what is inside of the part under the cursor is seen, as far as it has room."""
        assert isinstance(self.source, DetailRows)
        last = self.cursor + sum(1 for row in self.source.rows if row.part[: len(key)] == key) - 1
        page = self._room.height
        if last >= round(self.scroll_target_y) + page:
            self.scroll_to(y=min(self.cursor, last - page + 1), animate=False, immediate=True)

    # ------------------------------------------------------------------ the containers that would run

    @work(exclusive=True, group="containers", description="what would run")
    async def _look(self, shown: Shown) -> None:
        await asyncio.sleep(SETTLE_SECONDS)
        try:
            found = Containers(spec=await self._spec(shown))
        except BrokenOff:
            return
        except GpuplanError as error:
            found = _failed(error)
        if self._shown is not None and self._shown.plan is shown.plan and self._shown.choice == shown.choice:
            self._containers = found
            self._made()
            if self.key == (*CONTAINERS, "#0"):
                self._reveal(CONTAINERS)

    async def _spec(self, shown: Shown) -> DeploymentSpec:
        """What would run; as it was told before, if it was. Raises GpuplanError."""
        if shown.plan is getattr(self._shown, "plan", None) and self._containers.spec is not None:
            return self._containers.spec
        assert shown.choice is not None
        call = partial(self.app.services.dry_run, shown.plan, shown.choice, self.app.state.fleet)
        return await in_thread(call)

    # ------------------------------------------------------------------ copying, saving, comparing

    @work(exclusive=True, group="export", description="copy or save")
    async def copy(self) -> None:
        """Choose what, and put it on the clipboard."""
        made = await self._chosen("Copy")
        if made is None:
            return
        text = made.text
        self.app.copy_to_clipboard(text)
        size = len(text.encode(errors="surrogateescape"))
        words = f"{made.title}: {count(size)} bytes sent to the terminal's clipboard (OSC 52)"
        if size > MOST_COPIED:
            words += f"; many terminals take {count(MOST_COPIED)} at most: save it instead"
        self._tell(made, words, warning=size > MOST_COPIED)

    @work(exclusive=True, group="export", description="copy or save")
    async def save(self) -> None:
        """Choose what, and write it to a file."""
        made = await self._chosen("Save")
        if made is None:
            return
        paths = await self.app.push_screen_wait(SaveAs(made))
        if paths:
            self._tell(made, f"saved {listed([str(path) for path in paths])}, readable for you alone")

    async def _chosen(self, verb: str) -> Export | None:
        shown = self._shown
        if shown is None or shown.choice is None:
            return None
        kind = await self.app.push_screen_wait(ChooseExport(verb, shown.title))
        if kind is None:
            return None
        try:
            spec = await self._spec(shown) if kind is Kind.COMPOSE else None
            call = partial(export_of, kind, shown.plan, shown.choice, spec=spec, inventory=self._inventory)
            return await in_thread(call)
        except BrokenOff:
            return None
        except GpuplanError as error:
            failed = _failed(error)
            told = f"{failed.failure}\n{failed.hint}" if failed.hint else f"{failed.failure}"
            self._toast(told, warning=True)
            return None

    def compare(self) -> None:
        """Mark the candidate as A; with another one marked, show both; the marked one again: unmark it."""
        shown = self._shown
        if shown is None or shown.candidate is None:
            return
        if self._a is None:
            self._a = (shown, Compared(title=shown.title, candidate=shown.candidate))
            self._toast("marked as A: show another candidate, then = compares the two")
        elif self._is_a(shown):
            self._a = None
            self._toast("A is no longer marked")
        else:
            b = Compared(title=shown.title, candidate=shown.candidate)
            self.app.push_screen(CompareScreen(self._a[1], b))
            return
        self._made()

    def _tell(self, made: Export, words: str, *, warning: bool = False) -> None:
        if made.masked:
            words += "; secrets stand there as ***"
        self._toast(words, warning=warning)

    def _toast(self, text: str, *, warning: bool = False) -> None:
        told = "\n".join(visible(row) for row in text.split("\n"))
        self.notify(told, severity="warning" if warning else "information", markup=False)


def _part(parts: Sequence[Part], key: Key) -> Part | None:
    for part in parts:
        if part.key == key:
            return part
        found = _part(part.below, key)
        if found is not None:
            return found
    return None


def _failed(error: GpuplanError) -> Containers:
    """An expected failure in words."""
    if isinstance(error, StoppedByFacts) and error.facts:
        finding = word(error.facts[0])
        return Containers(failure=f"{error.about}: {finding.headline}", hint=finding.hint)
    return Containers(failure=error.message, hint=error.hint)
