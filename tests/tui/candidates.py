"""A screen with the candidate alone, and the plans that are shown on it."""

from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.pilot import Pilot

from gpuplan.domain.deployment import DeploymentSpec
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Plan
from gpuplan.operations.plan import ServingOptions
from gpuplan.tui.reading import ReadingApp
from gpuplan.tui.services import Question
from gpuplan.tui.state import FleetState
from gpuplan.tui.widgets.candidate import CandidateDetail
from gpuplan.tui.widgets.key_bar import KeyBar
from tests.tui.fakes import FakeServices

MODEL = "Qwen/Qwen3-32B"


class Looked(FakeServices):
    """Counts the looks at what would run, and fails them when told."""

    def __init__(self, fleet: Fleet | None = None) -> None:
        super().__init__(fleet)
        self.looks: list[tuple[int, int]] = []
        self.failure: Exception | None = None

    def dry_run(self, plan: Plan, choice: tuple[int, int], fleet: Fleet) -> DeploymentSpec:
        self.looks.append(choice)
        if self.failure is not None:
            raise self.failure
        return super().dry_run(plan, choice, fleet)

    def ask(self, reference: str = MODEL, **serving: Any) -> Plan:
        return self.plan(Question(reference=reference, serving=ServingOptions(**serving)), self.answer)


class CandidateApp(ReadingApp):
    """The keys the plan screen has for its candidate."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("equals_sign", "compare"),
        Binding("y", "copy"),
        Binding("w", "save"),
    ]

    def __init__(self, services: Looked | None = None) -> None:
        self.looked = services or Looked()
        super().__init__(self.looked)
        self.remedies: list[tuple[int, int]] = []

    def compose(self) -> ComposeResult:
        yield CandidateDetail()
        yield KeyBar()

    def on_mount(self) -> None:
        self.state = FleetState(fleet=self.looked.answer, source=self.looked.source)
        self.detail.focus()

    @property
    def detail(self) -> CandidateDetail:
        return self.query_one(CandidateDetail)

    @on(CandidateDetail.RemedyChosen)
    def _chosen(self, message: CandidateDetail.RemedyChosen) -> None:
        self.remedies.append((message.strategy, message.remedy))

    def action_compare(self) -> None:
        self.detail.compare()

    def action_copy(self) -> None:
        self.detail.copy()

    def action_save(self) -> None:
        self.detail.save()

    @property
    def toasts(self) -> list[str]:
        return [note.message for note in self._notifications]


async def settled(app: CandidateApp, pilot: Pilot[None]) -> None:
    """Everything that was begun has ended and is on the screen."""
    await pilot.pause()
    live = [worker for worker in app.workers if not worker.is_cancelled]
    if live:
        await app.workers.wait_for_complete(live)
    await pilot.pause()


def lines_of(app: CandidateApp) -> list[str]:
    """All rows of the detail, seen or not."""
    source = app.detail.source
    return ["".join(span.text for span in source.line(index, 80)) for index in range(len(source))]
