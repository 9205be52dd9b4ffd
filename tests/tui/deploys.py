"""A deploy of our own: scripted events, told when a test says so; and services that begin it."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

from gpuplan.domain.deployment import ContainerRole, Deployment, Member, State
from gpuplan.domain.events import (
    At,
    Event,
    Failed,
    MemberSeen,
    Milestone,
    Phase,
    PhaseDone,
    PhaseStarted,
    SpecDecided,
    StateChanged,
    Transfer,
    Undone,
)
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Plan, Verdict
from gpuplan.operations.logs import LogChoice, Printed
from gpuplan.operations.plan import ServingOptions
from gpuplan.tui.services import Proposal, Question, Run, RunOutcome
from gpuplan.units import GIB
from tests.tui.fakes import ROOT, FakeServices
from tests.unit.deploying.specs import native

SPEC = native()
LEADER = Member(
    host="h100-a",
    container="gpuplan-qwen3-n0",
    role=ContainerRole.LEADER,
    state="running",
    health="starting",
    gpu_indexes=(0, 1),
)
FOLLOWER = replace(
    LEADER, host="h100-b", container="gpuplan-qwen3-n1", role=ContainerRole.FOLLOWER, rank=1, health=None
)
PULLING = Transfer(phase=Phase.IMAGE, host="h100-b", done_bytes=3 * GIB, total_bytes=10 * GIB)
BEGIN: tuple[Event, ...] = (
    StateChanged(state=State.PREPARING),
    PhaseStarted(phase=Phase.LOCK, awaits="h100-a, h100-b to be free of other deploys"),
    PhaseDone(phase=Phase.LOCK, seconds=0.4),
    SpecDecided(spec=SPEC, spec_hash="h", generation="g"),
    PhaseStarted(phase=Phase.IMAGE, awaits="every host to have the image", deadline_seconds=1800),
    PULLING,
)
STARTED: tuple[Event, ...] = (
    PhaseDone(phase=Phase.IMAGE, seconds=90),
    StateChanged(state=State.STARTING),
    MemberSeen(member=LEADER),
    MemberSeen(member=FOLLOWER),
    PhaseStarted(phase=Phase.LOAD, awaits="the engine to load [0/2]", deadline_seconds=7200),
    Milestone(host="h100-a", container=LEADER.container, kind="weights", text="Loading [weights] took 3 s"),
)
SERVING: tuple[Event, ...] = (
    PhaseDone(phase=Phase.LOAD, seconds=60),
    MemberSeen(member=replace(LEADER, health="healthy")),
    StateChanged(state=State.RUNNING),
)
CAUSE = Fact(
    code="GP818",
    severity=Severity.ERROR,
    subject={"deployment": "qwen3"},
    figures={"phase": "load"},
)
FAILING: tuple[Event, ...] = (
    MemberSeen(member=replace(LEADER, state="exited", exit_code=1)),
    PhaseStarted(phase=Phase.UNDO, awaits=""),
    Undone(host="h100-a", container=LEADER.container, what="removed"),
    Undone(host="h100-b", container=FOLLOWER.container, what="left", why="the host is silent"),
    Failed(phase=Phase.LOAD, facts=(CAUSE,), logs=("/state/gpuplan/qwen3/g/h100-a.log",)),
)
SERVES = RunOutcome(
    exit_code=0,
    deployment=Deployment(
        name="qwen3",
        state=State.RUNNING,
        model="Qwen/Qwen3-32B",
        served_name="Qwen/Qwen3-32B",
        endpoint="http://10.0.0.11:40000",
        endpoints=("http://10.0.0.11:40000",),
    ),
)
WAS_TAKEN_BACK = RunOutcome(exit_code=130, deployment=None, message="gpuplan: interrupted")
DID_NOT_START = RunOutcome(
    exit_code=5,
    deployment=None,
    message="error: nothing was started: h100-b: its key is unknown\nhint: connect once",
)


class FakeRun:
    """A deploy whose events come when they are told."""

    def __init__(self, name: str = "qwen3", identity: str = "run-1", begin: float = 1_794_621_600.0) -> None:
        self.id = identity
        self.name = name
        self.taken_back = 0
        self.acknowledged = False
        self._begin = begin
        self._events: list[At] = []
        self._outcome: RunOutcome | None = None
        self._changed = threading.Condition()

    @property
    def alive(self) -> bool:
        return self._outcome is None

    def tell(self, *events: Event) -> None:
        with self._changed:
            for event in events:
                self._events.append(At(at=self._begin + len(self._events), event=event))
            self._changed.notify_all()

    def end(self, outcome: RunOutcome, *events: Event) -> None:
        self.tell(*events)
        with self._changed:
            self._outcome = outcome
            self._changed.notify_all()

    def events(self) -> Iterator[At]:
        at = 0
        while True:
            with self._changed:
                while at == len(self._events) and self._outcome is None:
                    self._changed.wait()
                if at == len(self._events):
                    return
                event = self._events[at]
            at += 1
            yield event

    def outcome(self) -> RunOutcome | None:
        return self._outcome

    def take_back(self) -> None:
        self.taken_back += 1
        self.end(WAS_TAKEN_BACK, *FAILING)

    def acknowledge(self) -> None:
        self.acknowledged = not self.alive


Put = Callable[[Printed], None]


class DeployServices(FakeServices):
    """Proposals and runs as a test gives them; logs that are put by hand."""

    def __init__(self, *known: Run) -> None:
        super().__init__()
        self.run = FakeRun()
        self.asked: list[tuple[tuple[int, int], str | None, int | None]] = []
        self.deployed: list[Proposal] = []
        self.refusal: Exception | None = None
        self.replaces: tuple[Member, ...] = ()
        self.remarks: tuple[Fact, ...] = ()
        self.hold: threading.Event | None = None
        self.cancelled = 0
        self.members: tuple[Member, ...] = (LEADER, FOLLOWER)
        self.printed: Sequence[Printed | str] = ()
        self.logs_hold = threading.Event()
        self.logs_error: Exception | None = None
        self.logs_ended = threading.Event()
        self._known = known

    def propose(
        self, plan: Plan, choice: tuple[int, int], name: str | None, keep_alive_seconds: int | None
    ) -> Proposal:
        self.asked.append((choice, name, keep_alive_seconds))
        if self.hold is not None:
            self.hold.wait()
        if self.refusal is not None:
            raise self.refusal
        spec = SPEC if name is None else replace(SPEC, name=name)
        return Proposal(spec=spec, replaces=self.replaces, remarks=self.remarks)

    def cancel_reading(self) -> None:
        self.cancelled += 1
        if self.hold is not None:
            self.hold.set()

    def deploy(self, proposal: Proposal) -> Run:
        self.deployed.append(proposal)
        return self.run

    def runs(self) -> tuple[Run, ...]:
        return self._known

    def logs(
        self,
        name: str,
        choice: LogChoice,
        begin: Callable[[Sequence[Member]], Put],
        talk: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        put = begin(self.members)
        for one in self.printed:
            if isinstance(one, str):
                talk(one)
            else:
                put(one)
        if self.logs_error is not None:
            raise self.logs_error
        while not stop.wait(0.01) and not self.logs_hold.is_set():
            pass
        self.logs_ended.set()


@cache
def plan_of(
    reference: str = str(ROOT / "tests/data/configs/Qwen__Qwen3-32B.json"), context: str | None = "8192"
) -> Plan:
    """A real plan, on the declared fleet."""
    services = FakeServices()
    question = Question(reference=reference, serving=ServingOptions(context=context))
    return services.plan(question, services.answer)


def chosen(plan: Plan, verdict: Verdict = Verdict.FITS) -> tuple[int, int]:
    """The first candidate of that verdict."""
    return next(
        (number, index)
        for number, result in enumerate(plan.strategies)
        for index, candidate in enumerate(result.candidates)
        if candidate.verdict is verdict
    )


def overcommitted(plan: Plan) -> Plan:
    """The same plan, its first candidate taking more than there is."""
    number, index = chosen(plan)
    result = plan.strategies[number]
    candidates = list(result.candidates)
    candidates[index] = replace(candidates[index], verdict=Verdict.OVERCOMMIT)
    strategies = list(plan.strategies)
    strategies[number] = replace(result, candidates=tuple(candidates))
    return replace(plan, strategies=tuple(strategies))
