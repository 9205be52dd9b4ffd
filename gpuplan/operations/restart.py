"""A restart: the containers of a deployment that are there are ended and started again, as they are, until they serve.

Nothing is made and nothing is removed. Containers end as a stop ends them and start in the order a deploy starts them
in, under the locks of their hosts. A deployment with a member missing or a host silent is refused before it is touched.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

from gpuplan.deploying.observed import MISSING, UNKNOWN, Container, Group
from gpuplan.deploying.state_rules import deployment_of, place
from gpuplan.domain.deployment import ContainerRole, Deployment, Load, Member, State
from gpuplan.domain.events import Event, MemberSeen, Phase, PhaseDone, PhaseStarted, Remark, StateChanged
from gpuplan.domain.fact import Fact, Severity
from gpuplan.errors import ExitCode
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.causes import causes
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.host_locks import hold, this_run
from gpuplan.operations.memory_back import MOST_SECONDS, await_memory, owed, read_gpus
from gpuplan.operations.observation import Observation, ask_servers, observe
from gpuplan.operations.ray_again import RayServer, nodes_missing, ray_servers
from gpuplan.operations.reached import ReachedFleet
from gpuplan.operations.status import find, reached
from gpuplan.operations.stop import (
    DRAIN_SECONDS,
    LOCK_LOST,
    MARGIN,
    RUNS,
    drained,
    left,
    order,
    patience,
)
from gpuplan.operations.stopped import StoppedByFacts
from gpuplan.units import plural

START_SECONDS = 120.0
CALL_SECONDS = 20.0
NOT_WHOLE, NOT_BACK = "GP858", "GP859"
_ENDED = frozenset({State.ERROR, State.STOPPED})

OnEvent = Callable[[Event], None]
Confirmed = Callable[[Deployment], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartChoice:
    """How a deployment is restarted; all in seconds."""

    drain: int = DRAIN_SECONDS
    """How long requests in flight are waited for; 0: not at all."""
    lock: float = 0
    """How long another run on its hosts is waited for."""
    register: float = 600.0
    """Until every node is in its Ray cluster."""
    ready: float = 7200.0
    """From the start to the answer."""
    host_lost: float = 60.0
    """A host may be silent so long."""
    gather: float = 4.0
    """After the first member ended: the others' last words are waited for."""
    poll: float = 2.0


class NotRestarted(StoppedByFacts):
    """It cannot be restarted as it is; nothing was touched."""

    exit_code = ExitCode.DEPLOYMENT_FAILED
    about = "nothing was touched"


class RestartFailed(StoppedByFacts):
    """It did not come back; nothing was removed."""

    exit_code = ExitCode.DEPLOYMENT_FAILED

    def __init__(self, facts: Sequence[Fact], deployment: Deployment) -> None:
        super().__init__(facts)
        self.deployment = deployment
        """As it was left."""
        self.about = f"{deployment.name} was not restarted"


def restart(
    options: FleetOptions,
    name: str,
    choice: RestartChoice,
    on_event: OnEvent,
    *,
    confirmed: Confirmed | None = None,
) -> Deployment | None:
    """End its containers, start them again, wait until every server answers; None when `confirmed` says no to it.

    `confirmed` is asked with the deployment as it is, its load included, before anything is locked.

    Raises UsageError for a name that no host knows, Locked when another run works on one of its hosts, NotRestarted,
    RestartFailed.
    """
    with reached(options) as fleet:
        return restart_over(fleet, name, choice, on_event, confirmed)


def restart_over(
    fleet: ReachedFleet, name: str, choice: RestartChoice, on_event: OnEvent, confirmed: Confirmed | None
) -> Deployment | None:
    """The same over connections that are open."""
    seen = observe(fleet)
    group = find(seen, name)
    _require_whole(group, seen.why)
    if confirmed is not None and not confirmed(_as_it_is(fleet, seen, group)):
        return None
    asked = {one.id for one in group.current}
    hosts = tuple(dict.fromkeys(one.host for one in group.current))
    run = this_run(deployment=name, purpose="restart")
    with hold(fleet, hosts, run, wait=choice.lock, on_event=on_event) as locks:
        seen = observe(fleet, only=hosts)
        group = find(seen, name)
        _require_whole(group, seen.why)
        if {one.id for one in group.current} != asked:
            raise NotRestarted([_not_whole(group, "its containers became others meanwhile", changed=True)])
        return Restart(fleet, group, choice, locks.lost, on_event).run()


def _require_whole(group: Group, why: Mapping[str, str]) -> None:
    """Raises NotRestarted where a member is not there, or nobody knows."""
    for member in group.members:
        if member.state not in {MISSING, UNKNOWN, "dead", "removing"}:
            continue
        said = "is missing" if member.state == MISSING else f"is {member.state}"
        if member.state == UNKNOWN:
            said = f"is not known: {why.get(member.host, 'its host was not asked')}"
        raise NotRestarted([_not_whole(group, f"{place(member)} {said}", silent=member.state == UNKNOWN)])
    if not group.current:
        raise NotRestarted([_not_whole(group, "it has no container but what was left of a deploy")])


def _as_it_is(fleet: ReachedFleet, seen: Observation, group: Group) -> Deployment:
    """Its state now, with what its servers say of their health and load."""
    answers = ask_servers(fleet, group)
    loads: list[Load] = [answer.load for answer in answers.values() if answer.load is not None]
    health = {server: answer.health for server, answer in answers.items()}
    return deployment_of(group, health=health, silent=seen.why, loads=loads)


def _not_whole(group: Group, why: str, *, silent: bool = False, changed: bool = False) -> Fact:
    return Fact(
        code=NOT_WHOLE,
        severity=Severity.ERROR,
        subject={"deployment": group.name},
        figures={"why": why, "silent": silent, "changed": changed},
    )


class Restart:
    """One restart under way, its hosts locked."""

    def __init__(
        self,
        fleet: ReachedFleet,
        group: Group,
        choice: RestartChoice,
        lost: Callable[[], tuple[str, ...]],
        on_event: OnEvent,
    ) -> None:
        self._fleet = fleet
        self._group = group
        self._choice = choice
        self._lost = lost
        self._tell = on_event
        self._hosts = tuple(dict.fromkeys(one.host for one in group.current))
        self._identities = {one.id for one in group.current}
        self._states: dict[str, tuple[str, str | None]] = {}
        self._phase: tuple[Phase, float] | None = None

    def run(self) -> Deployment:
        """From its end to its answer. Raises RestartFailed."""
        self._stop()
        self._start()
        deployment = self._until_served()
        self._done()
        self._tell(StateChanged(state=deployment.state))
        return deployment

    # ------------------------------------------------------------------ its end

    def _stop(self) -> None:
        for fact in drained(self._fleet, self._group, self._choice.drain, self._tell):
            self._tell(Remark(fact=fact))
        self._require_locks(Phase.STOP)
        mine = sorted(self._group.current, key=order)
        due = owed(mine, read_gpus(self._fleet, self._hosts))
        running = [one for one in mine if one.state in RUNS]
        seconds = max((patience(one) for one in running), default=0) + MARGIN
        self._begin(Phase.STOP, f"{plural(len(running), 'container')} to end", seconds)
        self._each(Phase.STOP, running, self._end, seconds)
        if due:
            self._begin(Phase.STOP, "the memory of its GPUs to come back", MOST_SECONDS)
            for fact in await_memory(partial(read_gpus, self._fleet), due):
                self._tell(Remark(fact=fact))

    def _end(self, one: Container) -> None:
        from gpuplan.remote import containers as remote

        remote.stop(self._fleet.engine_of(one.host), one.id, patience(one))
        self._see(replace(one.member, state="exited", health=None))

    # ------------------------------------------------------------------ its start

    def _start(self) -> None:
        containers = self._group.current
        clusters = ray_servers(containers)
        rayed = {server.number for server in clusters}
        self._begin(Phase.START, f"{plural(len(containers), 'container')} to start", START_SECONDS)
        for wave in waves(containers, rayed):
            if (
                wave
                and clusters
                and wave[0].member.role is ContainerRole.LEADER
                and wave[0].member.server in rayed
            ):
                self._await_nodes(clusters)
            self._require_locks(Phase.START)
            self._each(Phase.START, wave, self._begin_container, START_SECONDS)

    def _begin_container(self, one: Container) -> None:
        from gpuplan.remote import containers as remote

        remote.start(self._fleet.engine_of(one.host), one.id)
        self._see(replace(one.member, state="running", health=None, exit_code=None))

    def _await_nodes(self, clusters: Sequence[RayServer]) -> None:
        """Returns when every node of every cluster has registered."""
        nodes = sum(len(server.nodes) for server in clusters)
        self._begin(Phase.REGISTER, f"{plural(nodes, 'Ray node')} to register", self._choice.register)
        deadline = time.monotonic() + self._choice.register
        for server in clusters:
            while absent := nodes_missing(self._fleet, server):
                group = self._look(Phase.REGISTER)[1]
                if any(one.state in {"exited", "dead"} and one.id in server.started for one in group.current):
                    self._fail(
                        Phase.REGISTER, f"a node of its Ray cluster has ended; missing: {', '.join(absent)}"
                    )
                if time.monotonic() > deadline:
                    waited = f"after {self._choice.register:.0f} s these Ray nodes were missing: {', '.join(absent)}"
                    self._fail(Phase.REGISTER, waited)
                time.sleep(self._choice.poll)

    # ------------------------------------------------------------------ until it serves

    def _until_served(self) -> Deployment:
        endpoints = ", ".join(endpoint.url for endpoint in self._group.endpoints) or "it"
        self._begin(Phase.LOAD, f"{endpoints} to answer", self._choice.ready)
        deadline = time.monotonic() + self._choice.ready
        ended: float | None = None
        while True:
            seen, group = self._look(Phase.LOAD)
            deployment = _as_it_is(self._fleet, seen, group)
            if deployment.state is State.RUNNING:
                return deployment
            now = time.monotonic()
            if deployment.state in _ENDED:
                ended = ended if ended is not None else now
                if now - ended >= self._choice.gather:
                    self._fail(Phase.LOAD, deployment.message or "its members have ended")
            if now > deadline:
                why = f"no answer after {self._choice.ready:.0f} s"
                self._fail(Phase.LOAD, f"{why}: {deployment.message}" if deployment.message else why)
            time.sleep(self._choice.poll)

    def _look(self, phase: Phase) -> tuple[Observation, Group]:
        """Its containers as they are now, changes told; a host that falls silent is called again for a while."""
        since = time.monotonic()
        while True:
            seen = observe(self._fleet, only=self._hosts)
            silent = [
                host for host in self._hosts if host in seen.silent or host not in self._fleet.connections
            ]
            if not silent:
                break
            if time.monotonic() - since >= self._choice.host_lost:
                reasons = seen.why
                told = "; ".join(f"{host}: {reasons.get(host, 'the connection was lost')}" for host in silent)
                self._fail(phase, f"no answer for {self._choice.host_lost:.0f} s from {told}")
            on_each({host: partial(self._fleet.reach, host) for host in silent}, CALL_SECONDS)
            time.sleep(self._choice.poll)
        group = seen.group(self._group.name) or Group(name=self._group.name, current=())
        if {one.id for one in group.current} != self._identities:
            self._fail(phase, "its containers are others now: somebody else deploys, stops or removes them")
        for one in group.current:
            self._see(one.member)
        return seen, group

    # ------------------------------------------------------------------ telling

    def _see(self, member: Member) -> None:
        state = member.state, member.health
        if self._states.get(member.id) != state:
            self._states[member.id] = state
            self._tell(MemberSeen(member=member))

    def _begin(self, phase: Phase, awaits: str, seconds: float) -> None:
        if self._phase is not None and self._phase[0] is not phase:
            self._done()
        if self._phase is None:
            self._phase = phase, time.monotonic()
        self._tell(PhaseStarted(phase=phase, awaits=awaits, deadline_seconds=seconds))

    def _done(self) -> None:
        if self._phase is not None:
            phase, since = self._phase
            self._phase = None
            self._tell(PhaseDone(phase=phase, seconds=round(time.monotonic() - since, 1)))

    # ------------------------------------------------------------------ what can go wrong

    def _each(
        self, phase: Phase, containers: Sequence[Container], work: Callable[[Container], None], seconds: float
    ) -> None:
        """The same for each container, hosts at once, those of a host in order; once more where a connection was lost."""
        by_host: dict[str, list[Container]] = {}
        for one in containers:
            by_host.setdefault(one.host, []).append(one)

        def on_host(host: str) -> None:
            for one in by_host[host]:
                work(one)

        outcomes = on_each(
            {host: partial(on_host, host) for host in by_host},
            seconds * max(map(len, by_host.values()), default=1),
        )
        lost = [host for host, one in outcomes.items() if isinstance(one, Outcome) and one.unheard]
        if lost:
            on_each({host: partial(self._fleet.reach, host) for host in lost}, CALL_SECONDS)
            outcomes |= on_each({host: partial(on_host, host) for host in lost}, seconds)
        failed = {host: one.why for host, one in outcomes.items() if isinstance(one, Outcome)}
        if not failed:
            return
        why = "; ".join(f"{host}: {reason}" for host, reason in failed.items())
        if phase is Phase.STOP:
            facts = [
                left(self._group, one.host, one.name, failed[one.host])
                for one in containers
                if one.host in failed
            ]
            self._fail(phase, f"not all of its containers ended: {why}", *facts)
        self._fail(phase, f"not all of its containers were started: {why}")

    def _require_locks(self, phase: Phase) -> None:
        lost = self._lost()
        if lost:
            facts = [
                Fact(code=LOCK_LOST, severity=Severity.ERROR, subject={"host": host}, figures={})
                for host in lost
            ]
            self._fail(phase, f"the lock of {', '.join(lost)} was lost", *facts)

    def _fail(self, phase: Phase, why: str, *facts: Fact) -> NoReturn:
        """Tell the state it is left in, and the causes its logs tell."""
        seen = observe(self._fleet, only=self._hosts)
        group = seen.group(self._group.name) or Group(name=self._group.name, current=())
        deployment = deployment_of(group, silent=seen.why)
        found = facts or (
            causes(self._fleet, group, deployment.predicted) if deployment.state is State.ERROR else ()
        )
        states = tuple(f"{place(one)}: {one.state}" for one in deployment.members)
        last = Fact(
            code=NOT_BACK,
            severity=Severity.ERROR,
            subject={"deployment": self._group.name},
            figures={"why": why, "phase": phase.value, "state": deployment.state.value, "members": states},
        )
        raise RestartFailed((*found, last), deployment)


def waves(containers: Sequence[Container], rayed: set[int]) -> tuple[tuple[Container, ...], ...]:
    """What starts together, in order: leaders, their followers; of Ray servers the head, followers, then the server."""
    servers: dict[int, list[Container]] = {}
    for one in containers:
        servers.setdefault(one.member.server, []).append(one)
    direct = [
        sorted(members, key=_rank) for number, members in sorted(servers.items()) if number not in rayed
    ]
    mixed = [one for number, members in sorted(servers.items()) if number in rayed for one in members]
    return (
        tuple(members[0] for members in direct),
        tuple(one for members in direct for one in members[1:]),
        tuple(one for one in mixed if one.member.role is ContainerRole.RAY_HEAD),
        tuple(one for one in mixed if one.member.role is ContainerRole.FOLLOWER),
        tuple(
            one for one in mixed if one.member.role not in {ContainerRole.RAY_HEAD, ContainerRole.FOLLOWER}
        ),
    )


def _rank(container: Container) -> tuple[bool, int]:
    return container.member.role is ContainerRole.FOLLOWER, container.member.rank
