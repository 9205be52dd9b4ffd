"""`gpuplan tui --demo`: the operations on a recorded fleet, the planner and every figure real, the hosts pretended.

Nothing is dialled, nothing is written to disk, no secret of this machine is read. What is deployed lives in memory and
is gone with the app.
"""

import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuplan.deploying.compile import default_name
from gpuplan.deploying.secrets import secrets_of
from gpuplan.deploying.timestamps import seconds, stamp_of
from gpuplan.domain import labels
from gpuplan.domain.deployment import DeploymentSpec, Member
from gpuplan.domain.events import (
    Event,
)
from gpuplan.domain.fleet import Fleet, Gpu, Host, HostStatus
from gpuplan.domain.plan import Candidate, Plan, Verdict
from gpuplan.domain.repository import Repository
from gpuplan.domain.workload import EngineArguments
from gpuplan.errors import ModelError, UsageError
from gpuplan.operations.catalogues import find_models
from gpuplan.operations.deploy_hosts import require_ready
from gpuplan.operations.deploy_prepare import Prepared, look_on
from gpuplan.operations.deploy_request import Wanted, named_model, narrowed
from gpuplan.operations.fleet import require_usable
from gpuplan.operations.logs import LogChoice, Printed, since_seconds
from gpuplan.operations.models import with_revision
from gpuplan.operations.plan import Asked, engine_version, workload_of
from gpuplan.operations.question import Planner
from gpuplan.operations.status import StatusReport
from gpuplan.operations.stop import DRAIN_SECONDS, Intended, Stopped
from gpuplan.sources import model_files
from gpuplan.sources.catalogue import models as catalogue
from gpuplan.sources.catalogue.models import CatalogueModel
from gpuplan.tui import demo_end
from gpuplan.tui.background import BrokenOff
from gpuplan.tui.demo_run import DemoRun
from gpuplan.tui.demo_script import LOAD_SECONDS, LogLine, request_lines
from gpuplan.tui.demo_world import Clock, DemoWorld, RealClock
from gpuplan.tui.services import (
    OnGpus,
    OnHost,
    Proposal,
    Question,
    Run,
    Source,
    SourceKind,
    StatusLooks,
)

NAME = "recorded fleet"
ANSWER_SECONDS = (0.08, 0.35)
"""A host takes so long to answer, at least and at most."""
SILENT_SECONDS = 1.5
"""For the host that does not answer; a real one is waited for longer."""
FOLLOW_SECONDS = 0.5
KEPT_SECONDS = 3600.0
"""Of the lines printed while it serves, those of so long are kept."""
KEPT_QUESTIONS = 64


class DemoServices:
    """Services over the recording. `seed` decides everything that wobbles."""

    def __init__(self, *, clock: Clock | None = None, seed: int = 0) -> None:
        self.clock = clock or RealClock()
        self.world = DemoWorld(self.clock)
        self._seed = seed
        self._planner = Planner(_without_hub)
        self._lock = threading.RLock()
        self._reading = threading.Event()
        self._asked: deque[tuple[Mapping[str, Any], Question]] = deque(maxlen=KEPT_QUESTIONS)
        """What plans were made for, secrets included: a plan masks them."""
        self._runs: list[DemoRun] = []

    # ------------------------------------------------------------------ the fleet

    @property
    def source(self) -> Source:
        return Source(kind=SourceKind.DEMO, name=NAME, acts=True)

    def expected(self) -> tuple[str, ...]:
        return self.world.names

    def read_fleet(self, on_host: OnHost, only: Sequence[str] = ()) -> Fleet:
        stop = threading.Event()
        with self._lock:
            self._reading = stop
        waits = [(self._answer_seconds(name), name) for name in self.world.names if not only or name in only]
        passed = 0.0
        for after, name in sorted(waits):
            if self.clock.wait(after - passed, stop):
                raise BrokenOff("the reading was broken off")
            passed = after
            on_host(self.world.host(name))
        return self.world.fleet()

    def _answer_seconds(self, name: str) -> float:
        if self.world.host(name).status is HostStatus.UNREACHABLE:
            return SILENT_SECONDS
        return random.Random(f"{self._seed}/{name}").uniform(*ANSWER_SECONDS)

    def cancel_reading(self) -> None:
        with self._lock:
            self._reading.set()

    def watch(self, every_seconds: float, stop: threading.Event, on_gpus: OnGpus) -> None:
        tick = 0
        while not self.clock.wait(every_seconds, stop):
            tick += 1
            answering = [
                host for host in self.world.fleet().hosts if host.status is HostStatus.OK and host.gpus
            ]
            on_gpus({host.name: self._now(host, tick) for host in answering})

    def _now(self, host: Host, tick: int) -> tuple[Gpu, ...]:
        return tuple(_wobbled(gpu, f"{self._seed}/{tick}/{host.name}/{gpu.index}") for gpu in host.gpus)

    # ------------------------------------------------------------------ plans

    def models(self) -> tuple[CatalogueModel, ...]:
        return find_models(())

    def plan(self, question: Question, fleet: Fleet) -> Plan:
        meant = question.narrowed(fleet)
        require_usable(meant)
        plan = self._planner.plan(
            meant, question.serving, question.asked, image=self.world.inventory.vllm.image
        )
        with self._lock:
            self._asked.append((plan.request, question))
        return plan

    def propose(
        self, plan: Plan, choice: tuple[int, int], name: str | None, keep_alive_seconds: int | None
    ) -> Proposal:
        wanted = self._wanted(plan, choice, name, keep_alive_seconds)
        if name is None:
            wanted = replace(wanted, name=self._free_name(wanted))
        fleet, candidate = self.world.fleet(), _candidate(plan, choice)
        require_ready(fleet, [placed.host for placed in candidate.placement])
        prepared = self._prepared(fleet, wanted, candidate)
        replaces = tuple(one.observed.member for one in self.world.containers(prepared.name))
        stopped = [one for each in prepared.evicts for one in self.world.containers(each.deployment)]
        return Proposal(
            spec=prepared.spec,
            replaces=replaces,
            evicts=prepared.evicts,
            evicted=tuple(one.observed.member for one in stopped),
            remarks=prepared.remarks,
            token=prepared,
        )

    def dry_run(self, plan: Plan, choice: tuple[int, int], fleet: Fleet) -> DeploymentSpec:
        return self._prepared(fleet, self._wanted(plan, choice, None, None), _candidate(plan, choice)).spec

    def _prepared(self, fleet: Fleet, wanted: Wanted, candidate: Candidate) -> Prepared:
        """Compiled without a secret of this machine: those of the question alone count."""
        secrets = secrets_of(wanted.workload.engine.user_args, self.world.inventory.vllm.env)
        return look_on(narrowed(fleet, wanted), wanted, candidate, secrets=secrets)

    def _wanted(
        self, plan: Plan, choice: tuple[int, int], name: str | None, keep_alive_seconds: int | None
    ) -> Wanted:
        """The question behind a plan, read again."""
        with self._lock:
            question = next(
                (asked for request, asked in reversed(self._asked) if request == plan.request), None
            )
        if question is None:
            raise UsageError("the demo has forgotten what this plan was made for", hint="plan again")
        serving = question.serving
        if _candidate(plan, choice).verdict is Verdict.OVERCOMMIT:
            serving = replace(serving, allow_overcommit=True)
        version = engine_version(serving, self.world.inventory.vllm.image)
        workload = workload_of(serving, version)
        return Wanted(
            inventory=self.world.inventory,
            model=self._planner.model(question.reference, workload),
            workload=workload,
            version=version,
            saved=None,
            asked=Asked(reference=question.reference, hosts=question.hosts, labels=question.labels),
            name=name,
            keep_alive_seconds=keep_alive_seconds,
            environ={},
        )

    def _free_name(self, wanted: Wanted) -> str:
        named = named_model(wanted)
        base, number = default_name(named.name), 1
        while True:
            name = base if number == 1 else f"{base}-{number}"
            there = self.world.containers(name)
            if not there or there[0].labels.get(labels.MODEL) in {named.id, f"/models/{named.name}"}:
                return name
            number += 1

    # ------------------------------------------------------------------ deploys

    def deploy(self, proposal: Proposal) -> Run:
        prepared: Any = proposal.token
        with self._lock:
            run = DemoRun(self.world, prepared, len(self._runs) + 1, self._seed)
            self._runs.append(run)
        threading.Thread(target=run.play, daemon=True, name=run.id).start()
        return run

    def runs(self) -> tuple[Run, ...]:
        with self._lock:
            return tuple(run for run in reversed(self._runs) if not run.acknowledged)

    def deployments(self, name: str | None = None) -> StatusReport:
        return self.world.status(name)

    def watch_deployments(self) -> StatusLooks:
        return _Looks(self.world)

    def logs(
        self,
        name: str,
        choice: LogChoice,
        begin: Callable[[Sequence[Member]], Callable[[Printed], None]],
        talk: Callable[[str], None],
        stop: threading.Event,
    ) -> None:
        now = self.clock.now()
        since = since_seconds(choice.since, now)
        members = _meant(self.world.deployment(self.world.group(name)).members, choice.members)
        sink = begin(members)
        first = now - KEPT_SECONDS
        kept: list[tuple[LogLine, Member]] = []
        for member in members:
            lines = [line for line in self._lines(member, first, now) if since is None or line.at >= since]
            last = len(lines) if choice.tail is None else min(choice.tail, len(lines))
            kept += [(line, member) for line in lines[len(lines) - last :]]
        self._give(kept, sink, stop)
        while choice.follow and not self.clock.wait(FOLLOW_SECONDS, stop):
            until = self.clock.now()
            there = [member for member in members if self.world.container((member.host, member.container))]
            fresh = [(line, one) for one in there for line in self._lines(one, now, until) if line.at > now]
            self._give(fresh, sink, stop)
            now = until
            if not there:
                return

    def _lines(self, member: Member, first: float, last: float) -> list[LogLine]:
        """Printed by a member: all of its start, and what came after `first` while it served."""
        container = self.world.container((member.host, member.container))
        if container is None:
            return []
        lines = [line for line in self.world.lines(container.id) if line.at <= last]
        if container.port is not None:
            began = seconds(container.started_at or "") or first
            lines += request_lines(container, began, max(first, began + LOAD_SECONDS), last)
        return sorted(lines, key=lambda line: line.at)

    def _give(
        self, lines: list[tuple[LogLine, Member]], sink: Callable[[Printed], None], stop: threading.Event
    ) -> None:
        for line, member in sorted(lines, key=lambda entry: entry[0].at):
            if stop.is_set():
                return
            at = stamp_of(round(line.at * 10**9))
            sink(Printed(member=member, at=at, text=line.text, error=line.error))

    # ------------------------------------------------------------------ the end of a deployment

    def stop(
        self,
        name: str,
        confirm: Callable[[Intended], bool],
        on_event: Callable[[Event], None],
        *,
        drain_seconds: int = DRAIN_SECONDS,
    ) -> Stopped:
        return demo_end.stop(self.world, name, confirm, on_event, drain_seconds)

    def restart(
        self, name: str, on_event: Callable[[Event], None], *, drain_seconds: int = DRAIN_SECONDS
    ) -> None:
        demo_end.restart(self.world, name, on_event, drain_seconds)


class _Looks:
    """Looks at the world; there are no connections to keep."""

    def __init__(self, world: DemoWorld) -> None:
        self._world = world

    def look(self, *, dial: bool = False) -> StatusReport:
        return self._world.status()

    def close(self) -> None:
        pass


def _candidate(plan: Plan, choice: tuple[int, int]) -> Candidate:
    return plan.strategies[choice[0]].candidates[choice[1]]


def _without_hub(reference: str, engine: EngineArguments) -> Repository:
    """The files of a model of the catalogue or of this machine. Raises ModelError for every other one."""
    from gpuplan.sources.huggingface import HubAccess

    try:
        return model_files.open_model(
            with_revision(reference, engine),
            catalogue_lookup=catalogue.lookup,
            near_names=catalogue.near,
            hub=HubAccess(offline=True),
        )
    except ModelError as error:
        if "HF_HUB_OFFLINE" not in error.message:
            raise
        near = catalogue.near(reference)
        meant = f"; did you mean {', '.join(near[:3])}?" if near else ""
        raise ModelError(
            f"{reference}: not in the catalogue, and the demo does not ask the hub",
            hint=f"choose a model of the catalogue, or give a directory or a config.json{meant}",
        ) from error


def _meant(members: Sequence[Member], wanted: Sequence[str]) -> tuple[Member, ...]:
    """The members called by container, role, host or HOST/ROLE. Raises UsageError."""
    named = {
        member: {member.container, member.role.value, f"{member.host}/{member.role.value}", member.host}
        for member in members
    }
    for one in wanted:
        if not any(one in names for names in named.values()):
            known = ", ".join(member.container for member in members)
            raise UsageError(f"{one}: the deployment has no member of that name", hint=f"members: {known}")
    return tuple(member for member, names in named.items() if not wanted or names & set(wanted))


def _wobbled(gpu: Gpu, seed: str) -> Gpu:
    """Utilisation and temperature a moment later; who holds nothing does nothing."""
    draw = random.Random(seed)
    busy = bool(gpu.processes) and (gpu.free_bytes or 0) < (gpu.total_bytes or 0) // 2
    base = gpu.utilization_percent
    if base is not None and busy:
        base = max(base, 35)
    warm = (gpu.temperature_celsius or 30) + (18 if busy and (gpu.utilization_percent or 0) < 20 else 0)
    return replace(
        gpu,
        utilization_percent=base
        if base is None or not busy
        else max(0, min(100, base + draw.randint(-12, 12))),
        temperature_celsius=None if gpu.temperature_celsius is None else warm + draw.randint(-1, 2),
    )
