"""Deployments as hosts would tell them, services that answer from a script, and an app with the deployments alone."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType

from gpuplan.deploying.observed import Container
from gpuplan.domain.deployment import Actual, ContainerRole, Deployment, Load, Member, Prediction, State
from gpuplan.domain.events import Event
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Host, HostFailure, HostStatus
from gpuplan.operations.status import DeploymentSeen, StatusReport
from gpuplan.operations.stop import DRAIN_SECONDS, Intended, Stopped
from gpuplan.tui import commands
from gpuplan.tui.commands import Place
from gpuplan.tui.screens.deployments import DeploymentsScreen
from gpuplan.tui.services import Run, Services
from gpuplan.tui.shell import ShellApp
from gpuplan.units import GIB
from tests.tui.fakes import FakeServices
from tests.tui.shells import Board

if TYPE_CHECKING:
    import threading

    from gpuplan.tui.run_feed import RunFeed

LEADER = Member(
    host="h100-a",
    container="gpuplan-qwen3-32b-n0",
    id="a0",
    role=ContainerRole.LEADER,
    state="running",
    health="healthy",
    gpus=("GPU-1", "GPU-2"),
    gpu_indexes=(0, 1),
)
FOLLOWER = replace(
    LEADER, host="h100-b", container="gpuplan-qwen3-32b-n1", id="b1", role=ContainerRole.FOLLOWER, rank=1
)
RUNNING = Deployment(
    name="qwen3-32b",
    state=State.RUNNING,
    model="Qwen/Qwen3-32B",
    served_name="qwen3-32b",
    endpoint="http://10.10.100.11:40000",
    endpoints=("http://10.10.100.11:40000",),
    image="vllm/vllm-openai:v0.33.0",
    vllm_version="0.33.0",
    members=(LEADER, FOLLOWER),
    predicted=Prediction(
        weights_bytes=61 * GIB, kv_cache_bytes=8 * GIB, kv_cache_tokens=60000, per_gpu_bytes=73 * GIB
    ),
    load=Load(running=3, waiting=2, kv_cache_share=0.41, requests=1234),
    uptime_seconds=9000,
    keep_alive_seconds=7200,
)
ACTUAL = Actual(
    weights_bytes=round(61.25 * GIB), kv_cache_tokens=56250, used_bytes=(("h100-a", 0, 72 * GIB),)
)
LOADING = replace(
    RUNNING,
    name="llama-70b",
    state=State.STARTING,
    model="meta-llama/Llama-3.3-70B",
    load=None,
    uptime_seconds=None,
)
UNHEALTHY = replace(
    RUNNING,
    name="phi-4",
    state=State.UNHEALTHY,
    message="the server on h100-a was ready and is not now",
    load=None,
)
FAILED = replace(
    RUNNING,
    name="mistral-7b",
    state=State.ERROR,
    message="leader on h100-a ended with exit code 1",
    members=(replace(LEADER, state="exited", health=None, exit_code=1),),
    load=None,
    uptime_seconds=None,
)
REPLICAS = replace(
    RUNNING,
    name="two-of-them",
    endpoints=("http://10.10.100.11:40000", "http://10.10.100.12:40000"),
    members=(LEADER, replace(FOLLOWER, role=ContainerRole.REPLICA, rank=0, server=1)),
)
HOSTILE = replace(
    RUNNING,
    name="[red]x[/foo]\x1b[31m\u202e宽",
    model="[bold]evil[/]\x07",
    endpoint="http://[b]:1",
    endpoints=("http://[b]:1",),
)
LEFTOVER = Fact(
    code="GP851",
    severity=Severity.WARNING,
    subject={"deployment": "qwen3-32b"},
    figures={"containers": ["gpuplan-qwen3-32b-n0-old on h100-a"]},
)
CAUSE = Fact(
    code="GP857", severity=Severity.ERROR, subject={"host": "h100-a", "deployment": "mistral-7b"}, figures={}
)
SILENT = Host(
    name="h2",
    address="10.0.0.2",
    status=HostStatus.UNREACHABLE,
    failure=HostFailure(stage="connect", detail="no route to the host"),
)
T0 = datetime(2026, 11, 22, 4, 0, tzinfo=UTC)


def report(*deployments: Deployment, silent: Sequence[Host] = (), facts: Sequence[Fact] = ()) -> StatusReport:
    """A report of these, each with the facts that are about it."""
    seen = tuple(
        DeploymentSeen(
            deployment=one, facts=tuple(fact for fact in facts if fact.subject.get("deployment") == one.name)
        )
        for one in deployments
    )
    return StatusReport(deployments=seen, silent=tuple(silent), hosts=3)


def container(member: Member) -> Container:
    return Container(member=member, created="2026-11-22T01:00:00Z", labels={})


def intended(deployment: Deployment, *silent: str) -> Intended:
    return Intended(
        deployment=deployment, containers=tuple(container(one) for one in deployment.members), silent=silent
    )


class Scripted(FakeServices):
    """Answers, and what was asked."""

    def __init__(self, first: StatusReport) -> None:
        super().__init__()
        self.report = first
        self.looks = 0
        self.dialled = 0
        self.closed = 0
        self.error: Exception | None = None
        self.gate: threading.Event | None = None
        """A look waits for it."""
        self.intends: list[Intended] = [intended(RUNNING)]
        """One for each call of `stop`; the last one stays."""
        self.stopped = Stopped(
            name=RUNNING.name, removed=(("h100-a", LEADER.container), ("h100-b", FOLLOWER.container))
        )
        self.drained: list[int] = []
        self.events: Sequence[Event] = ()
        self.done: list[str] = []
        """What was really changed."""
        self.actual: Actual | None = ACTUAL

    def watch_deployments(self) -> "Scripted":
        return self

    def look(self, *, dial: bool = False) -> StatusReport:
        self.looks += 1
        self.dialled += dial
        if self.gate is not None:
            assert self.gate.wait(20)
        if self.error is not None:
            raise self.error
        return self.report

    def close(self) -> None:
        self.closed += 1

    def deployments(self, name: str | None = None) -> StatusReport:
        seen = tuple(
            replace(one, deployment=replace(one.deployment, actual=self.actual))
            for one in self.report.deployments
            if name in {None, one.deployment.name}
        )
        return replace(self.report, deployments=seen)

    def stop(
        self,
        name: str,
        confirm: Callable[[Intended], bool],
        on_event: Callable[[Event], None],
        *,
        drain_seconds: int = DRAIN_SECONDS,
    ) -> Stopped:
        meant = self.intends.pop(0) if len(self.intends) > 1 else self.intends[0]
        if not confirm(meant):
            return Stopped(name=name, asked=False)
        self._act(f"stop {name}", on_event, drain_seconds)
        return self.stopped

    def restart(
        self, name: str, on_event: Callable[[Event], None], *, drain_seconds: int = DRAIN_SECONDS
    ) -> None:
        self._act(f"restart {name}", on_event, drain_seconds)

    def _act(self, what: str, on_event: Callable[[Event], None], drain: int) -> None:
        self.drained.append(drain)
        for event in self.events:
            on_event(event)
        if self.gate is not None:
            assert self.gate.wait(20)
        self.done.append(what)
        if self.error is not None:
            raise self.error


class DeploymentsApp(ShellApp):
    """The deployments, and a board beside them."""

    BINDINGS: ClassVar[list[BindingType]] = [*commands.bindings(Place.APP)]
    DEFAULT_MODE = "deployments"

    def __init__(self, services: Services, *, read_only: bool = False) -> None:
        self.clock = T0
        super().__init__(services, read_only=read_only, environ={}, now=lambda: self.clock)
        self.feeds: dict[str, RunFeed] = {}
        self.opened: list[str] = []
        """Runs and logs that were to be shown."""
        self.add_mode("deployments", lambda: self.framed(DeploymentsScreen()))
        self.add_mode("fleet", lambda: self.framed(Board("fleet")))
        self.add_mode("plan", lambda: self.framed(Board("plan")))

    def later(self, seconds: float) -> None:
        """Time goes on."""
        self.clock += timedelta(seconds=seconds)

    def open_run(self, run: Run) -> None:
        self.opened.append(f"run {run.name}")

    def open_logs(self, name: str) -> None:
        self.opened.append(f"logs {name}")
