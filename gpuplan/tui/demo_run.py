"""A deploy of the demo, played: the events of a real one in their order, told as a real one tells them.

What it starts is in the world while it runs; a failure, or `take_back`, removes it again and restores what it replaced.
"""

import hashlib
import random
from collections.abc import Callable
from dataclasses import replace

from gpuplan.deploying.diagnose import diagnose
from gpuplan.deploying.diagnosis import MemberEvidence
from gpuplan.deploying.host_lock import Holder
from gpuplan.deploying.spec_hash import secrets_digest, spec_hash
from gpuplan.domain.deployment import ContainerRole, ContainerSpec, Launch, Member, State
from gpuplan.domain.events import (
    Failed,
    MemberSeen,
    Milestone,
    Phase,
    Remark,
    SpecDecided,
    StateChanged,
    Transfer,
    Undone,
)
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.host_facts import Image
from gpuplan.engine.startup_log import milestone
from gpuplan.errors import ExitCode
from gpuplan.operations.deploy_prepare import Prepared
from gpuplan.operations.deploy_remedy import replanned
from gpuplan.operations.host_locks import Locked
from gpuplan.present.findings import word
from gpuplan.sources.catalogue import models as catalogue
from gpuplan.tui.demo_containers import DemoContainer, made
from gpuplan.tui.demo_script import LOAD_SECONDS, LogLine, failed_lines, start_lines
from gpuplan.tui.demo_told import PlayedRun, TakenBack
from gpuplan.tui.demo_world import DemoWorld, Place, iso
from gpuplan.tui.services import RunOutcome
from gpuplan.units import plural

IMAGE_BYTES = 11_800_000_000
"""Compressed, as a registry sends it."""
STEPS = 12
"""Between the begin and the end of a transfer."""
TRANSFER_SECONDS = 5.0
FAILED_SECONDS = 4.0
OLD = "-old-"
WHO = "you@demo"
RECORDED = (
    "This is the demo: the hosts are recordings and nothing was started. The figures are the plan's own."
)


class DemoRun(PlayedRun):
    """One deploy; `play` is run by a thread of its own."""

    def __init__(self, world: DemoWorld, prepared: Prepared, number: int, seed: int) -> None:
        super().__init__(world.clock, f"demo-{number}", prepared.name)
        self.prepared = prepared
        draw = random.Random(f"{seed}/{number}/{prepared.name}")
        self.generation = f"{int(world.clock.now()):x}-{draw.randrange(16**6):06x}"
        self._world = world
        self._locked: tuple[str, ...] = ()
        self._made: list[Place] = []
        self._aside: list[tuple[Place, str]] = []

    # ------------------------------------------------------------------ the play

    def play(self) -> None:
        """From the lock to the answer, or back."""
        outcome = RunOutcome(exit_code=ExitCode.UNEXPECTED, deployment=None)
        try:
            try:
                outcome = self._played()
            except TakenBack:
                outcome = self._interrupted()
        finally:
            self._world.unlock(self._locked)
            self.end(outcome)

    def _played(self) -> RunOutcome:
        spec, hosts = self.prepared.spec, ", ".join(self.prepared.spec.hosts)
        self.tell(StateChanged(state=State.PREPARING))
        self.begin(Phase.LOCK, f"{hosts} to be free of other deploys")
        holder = Holder(who=WHO, since=iso(self._world.clock.now()), deployment=self.name)
        there = [one.host for one in (*self._world.containers(self.name), *self._evicted)]
        wanted = tuple(dict.fromkeys((*spec.hosts, *there)))
        held = self._world.lock(wanted, holder)
        if held is not None:
            return self._refused(Locked(*held))
        self._locked = wanted
        self.pause(0.4)
        self.begin(Phase.COMPARE, "the hosts to be as they were planned on")
        self.pause(1.2)
        if len(spec.hosts) > 1:
            self.begin(Phase.PREFLIGHT, "the members to reach each other on their data addresses")
            self.pause(1.0)
        self._bring()
        digest = spec_hash(
            spec,
            image_ids=dict.fromkeys(spec.hosts, _identity(spec.image)),
            secrets_digest=secrets_digest(spec.name, self.prepared.secrets),
        )
        self.tell(SpecDecided(spec=spec, spec_hash=digest, generation=self.generation))
        if self._runs_already(digest):
            return self._nothing_to_do()
        self._make_room()
        self._set_aside()
        self._create(digest)
        self.tell(StateChanged(state=State.STARTING))
        began = self._start()
        if self._world.fails(spec.hosts):
            return self._failing(began)
        self._load(began)
        self.begin(Phase.ANSWER, "one real request to be answered", 120.0)
        self.pause(0.8)
        return self._served()

    def _runs_already(self, digest: str) -> bool:
        there = self._world.containers(self.name)
        wanted = {(one.host, one.name) for one in self.prepared.spec.containers}
        same = {
            (one.host, one.name) for one in there if one.loaded and one.observed.member.spec_hash == digest
        }
        return len(there) == len(wanted) and same == wanted

    def _nothing_to_do(self) -> RunOutcome:
        self.committed = True
        for one in self.prepared.spec.containers:
            self.tell(MemberSeen(member=self._member(one)))
        figures = {"endpoint": self.prepared.endpoints}
        fact = Fact(code="GP811", severity=Severity.INFO, subject={"deployment": self.name}, figures=figures)
        self.tell(Remark(fact=fact))
        return self._served()

    def _served(self) -> RunOutcome:
        self.committed = True
        if self._aside:
            self.begin(Phase.CLEAN, f"{plural(len(self._aside), 'replaced container')} to be removed", 90.0)
            for place, _ in self._aside:
                self._world.remove(place)
        self.done()
        self.tell(StateChanged(state=State.RUNNING))
        actual = self._world.actual(self.deployment.members)
        return RunOutcome(
            exit_code=ExitCode.DONE, deployment=replace(self.deployment, actual=actual), message=RECORDED
        )

    def _bring(self) -> None:
        """Image and weights, where a host lacks them."""
        spec, world = self.prepared.spec, self._world
        self.begin(Phase.IMAGE, f"{spec.image} on {', '.join(spec.hosts)}")
        without = [host for host in spec.hosts if not world.has_image(host, spec.image)]
        self._transfer(Phase.IMAGE, without, IMAGE_BYTES, ("downloading", "unpacking"))
        for host in without:
            image = Image(
                id=_identity(spec.image),
                tags=(spec.image,),
                architecture=world.host(host).facts.architecture,
                size_bytes=2 * IMAGE_BYTES,
                vllm_version=spec.vllm_version,
            )
            world.bring_image(host, image)
        self.pause(0.5)
        missing = [host for host in spec.hosts if not world.has_weights(host, spec.model)]
        if missing:
            self.begin(Phase.WEIGHTS, f"{spec.model} on {', '.join(missing)}")
            size = self._checkpoint_bytes()
            self._transfer(Phase.WEIGHTS, missing, size, ("downloading",))
            for host in missing:
                world.bring_weights(host, spec.model)

    def _checkpoint_bytes(self) -> int:
        """Of the whole model: as its files say, else as the catalogue knows it, else of the fullest rank."""
        known = catalogue.find(self.prepared.spec.model) if "/" in self.prepared.spec.model else None
        listed = known.weights_bytes if known is not None else self.prepared.spec.predicted.weights_bytes
        return self.prepared.wanted.model.profile.checkpoint_bytes or listed or IMAGE_BYTES

    def _transfer(self, phase: Phase, hosts: list[str], total: int, words: tuple[str, ...]) -> None:
        for step in range(STEPS + 1) if hosts else ():
            about = words[-1] if step == STEPS else words[0]
            for host in hosts:
                done = total * step // STEPS
                self.tell(Transfer(phase=phase, host=host, done_bytes=done, total_bytes=total, about=about))
            self.pause(TRANSFER_SECONDS / STEPS)

    @property
    def _evicted(self) -> list[DemoContainer]:
        """Of the deployments that the plan stops."""
        return [one for each in self.prepared.evicts for one in self._world.containers(each.deployment)]

    def _make_room(self) -> None:
        """Others stop, under their own names, and are kept until the new one serves."""
        for each in self.prepared.evicts:
            self.begin(Phase.REPLACE, f"{each.deployment} to stop, to make room", 90.0)
            self.pause(1.0)
            for one in self._world.containers(each.deployment):
                self._world.change((one.host, one.name), state="exited", exit_code=0, health=None)
                self._aside.append(((one.host, one.name), one.name))
            self.pause(0.6)

    def _set_aside(self) -> None:
        """What runs under the name stops, and its memory comes back; it is kept until the new one serves."""
        there = self._world.containers(self.name)
        if not there:
            return
        self.begin(Phase.REPLACE, f"{self.name} as it was to stop and give its memory back", 90.0)
        self.pause(1.0)
        for one in there:
            aside = f"{one.name}{OLD}{one.observed.generation[:8]}"
            self._world.change((one.host, one.name), state="exited", exit_code=0, health=None)
            self._world.rename((one.host, one.name), aside)
            self._aside.append(((one.host, aside), one.name))
        self.pause(0.6)

    def _create(self, digest: str) -> None:
        spec = self.prepared.spec
        self.begin(Phase.CREATE, f"{plural(len(spec.containers), 'container')} to be created", 120.0)
        for one in spec.containers:
            identity = hashlib.sha256(f"{self.generation}/{one.host}/{one.name}".encode()).hexdigest()
            created = made(
                one,
                identity=identity,
                generation=self.generation,
                spec_hash=digest,
                created=iso(self._world.clock.now()),
            )
            self._world.put(created)
            self._made.append((one.host, one.name))
            self.tell(MemberSeen(member=self._member(one)))
            self.pause(0.3)

    def _start(self) -> float:
        """Leaders first; of a Ray server the head, then followers, then, all nodes registered, the server."""
        spec = self.prepared.spec
        self.begin(Phase.START, f"{plural(len(spec.containers), 'container')} to start", 60.0)
        clusters = {server.number for server in spec.servers if server.launch is Launch.RAY}
        late = [one for one in spec.containers if one.server in clusters and one.role is ContainerRole.LEADER]
        early = [one for one in spec.containers if one not in late]
        began = self._world.clock.now()
        self._start_these(sorted(early, key=lambda one: one.rank > 0))
        if late:
            gpus = sum(len(one.gpus) for one in early)
            self.begin(Phase.REGISTER, f"{len(early)} Ray nodes with {gpus} GPUs to register", 600.0)
            self.pause(2.0)
            began = self._world.clock.now()
            self._start_these(late)
        return began

    def _start_these(self, containers: list[ContainerSpec]) -> None:
        for one in containers:
            health = "starting" if one.health is not None else None
            started = iso(self._world.clock.now())
            self._world.change((one.host, one.name), state="running", health=health, started_at=started)
            self.tell(MemberSeen(member=self._member(one)))
            self.pause(0.2)

    def _load(self, began: float) -> None:
        """Every engine's milestones as they come; from the loaded weights on the memory is taken."""
        spec = self.prepared.spec
        endpoints = ", ".join(server.endpoint for server in spec.servers)
        self.begin(Phase.LOAD, f"{spec.served_name} to answer at {endpoints}", 7200.0)
        self._milestones(start_lines, began, LOAD_SECONDS)
        for one in spec.containers:
            health = "healthy" if one.health is not None else None
            self._world.change((one.host, one.name), loaded=True, health=health)
            if health is not None:
                self.tell(MemberSeen(member=self._member(one)))

    def _milestones(
        self, lines_of: Callable[[DemoContainer, float], tuple[LogLine, ...]], began: float, until: float
    ) -> None:
        said: list[tuple[float, ContainerSpec, LogLine]] = []
        for one in self.prepared.spec.containers:
            container = self._world.container((one.host, one.name))
            assert container is not None
            lines = lines_of(container, began)
            self._world.prints(container, lines)
            said += [(line.at, one, line) for line in lines]
        for at, one, line in sorted(said, key=lambda entry: entry[0]):
            self.pause(at - self._world.clock.now())
            reached = milestone(line.text)
            if reached is None:
                continue
            kind = reached.kind.value
            self.tell(Milestone(host=one.host, container=one.name, kind=kind, text=reached.text))
            if "Model loading took" in line.text:
                self._world.change((one.host, one.name), loaded=True)
        self.pause(began + until - self._world.clock.now())

    # ------------------------------------------------------------------ bad ends

    def _refused(self, locked: Locked) -> RunOutcome:
        self.tell(StateChanged(state=State.ERROR, message=locked.message))
        return RunOutcome(
            exit_code=locked.exit_code,
            deployment=replace(self.deployment, name=self.name),
            message=f"{locked.message}\nhint: wait until that one is done, then deploy again",
        )

    def _failing(self, began: float) -> RunOutcome:
        """Somebody else has taken the memory: every engine says so and ends, and the diagnosis reads it."""
        spec = self.prepared.spec
        self.begin(Phase.LOAD, f"{spec.served_name} to answer at {spec.servers[0].endpoint}", 7200.0)

        def lines_of(container: DemoContainer, at: float) -> tuple[LogLine, ...]:
            host = self._world.host(container.host)
            total = next(gpu.total_bytes for gpu in host.gpus if gpu.uuid in container.observed.member.gpus)
            return failed_lines(container, at, total or 0)

        self._milestones(lines_of, began, FAILED_SECONDS)
        for one in spec.containers:
            self._world.change((one.host, one.name), state="exited", exit_code=1, health=None)
            self.tell(MemberSeen(member=self._member(one)))
        found = diagnose(
            tuple(map(self._evidence, spec.containers)), spec.predicted, now=self._world.clock.now()
        )
        remedy = replanned(self.prepared, found)
        told = found.facts()
        return self._ended(Phase.LOAD, (*told[:1], *((remedy,) if remedy is not None else ()), *told[1:]))

    def _evidence(self, one: ContainerSpec) -> MemberEvidence:
        container = self._world.container((one.host, one.name))
        assert container is not None
        lines = self._world.lines(container.id)
        return MemberEvidence(
            host=one.host,
            container=one.name,
            role=one.role,
            rank=one.rank,
            server=one.server,
            state=container.state,
            exit_code=container.exit_code,
            finished_at=self._world.clock.now(),
            lines=tuple((line.at, line.text) for line in lines),
        )

    def _interrupted(self) -> RunOutcome:
        phase = self.phase[0] if self.phase is not None else Phase.CONNECT
        fact = Fact(code="GP818", severity=Severity.ERROR, subject={}, figures={"phase": phase})
        return replace(self._ended(phase, (fact,)), exit_code=ExitCode.INTERRUPTED)

    def _ended(self, phase: Phase, facts: tuple[Fact, ...]) -> RunOutcome:
        """Everything is taken back, then it is told why."""
        facts = tuple(replace(fact, subject={"deployment": self.name, **fact.subject}) for fact in facts)
        self.committed = True  # nothing breaks this off
        self.phase = None
        if self._made or self._aside:
            self.begin(Phase.UNDO, "every container of this deploy to be gone", 90.0)
            for host, name in self._made:
                self._world.remove((host, name))
                self.pause(0.3)
                self.tell(Undone(host=host, container=name, what="removed"))
            for (host, aside), before in self._aside:
                if aside != before:
                    self._world.rename((host, aside), before)
                self._world.change((host, before), state="running", health="healthy", exit_code=None)
                self.tell(Undone(host=host, container=before, what="restored"))
            self.done()
        self.tell(Failed(phase=phase, facts=facts))
        told = [word(fact) for fact in facts]
        lines = [
            f"{self.name} was not deployed: {told[0].headline}",
            *(f"  {why}" for why in told[0].because),
        ]
        lines += [f"also: {one.headline}" for one in told[1:]]
        lines += [f"hint: {one.hint}" for one in told if one.hint][:1]
        return RunOutcome(
            exit_code=ExitCode.DEPLOYMENT_FAILED,
            deployment=replace(self.deployment, name=self.name),
            message="\n".join((*lines, RECORDED)),
        )

    def _member(self, one: ContainerSpec) -> Member:
        container = self._world.container((one.host, one.name))
        assert container is not None
        return replace(container.observed.member, gpus=one.gpus, gpu_indexes=one.gpu_indexes)


def _identity(reference: str) -> str:
    return f"sha256:{hashlib.sha256(reference.encode()).hexdigest()}"
