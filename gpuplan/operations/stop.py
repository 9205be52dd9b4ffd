"""`gpuplan stop`: all containers of a deployment, its leaders first, drained, logged and gone; its memory back.

Nothing is stopped that does not carry the deployment's label. A host that does not answer keeps what it has: it is
told, and the rest is stopped all the same.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from gpuplan.deploying.observed import UNKNOWN, Container, Group
from gpuplan.deploying.state_rules import added, deployment_of
from gpuplan.domain.deployment import ContainerRole, Deployment, Load
from gpuplan.domain.events import Event, Phase, PhaseDone, PhaseStarted, Undone
from gpuplan.domain.fact import Fact, Severity
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.host_locks import Locks, Reached, hold, this_run
from gpuplan.operations.memory_back import MOST_SECONDS, await_memory, owed, read_gpus
from gpuplan.operations.observation import Observation, ask_servers, observe
from gpuplan.operations.reached import ReachedFleet
from gpuplan.operations.saved_logs import file_name, read_log, write_log
from gpuplan.operations.status import find, reached
from gpuplan.sources.state import state_directory
from gpuplan.units import plural

DRAIN_SECONDS = 30
STOP_SECONDS = 30
"""For a container that names no time of its own."""
RAY_SECONDS = 45
"""`ray start --block` drains for up to 30 s (Ray 2.60, measured)."""
MARGIN = 30.0
_POLL_SECONDS = 1.0
STILL_RUNNING, LEFT, LOCK_LOST = "GP855", "GP856", "GP857"
RUNS = frozenset({"running", "paused", "restarting"})

OnEvent = Callable[[Event], None]
Still = Callable[[Observation, Group], bool]
"""Whether what is there once the hosts are locked is to be stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopChoice:
    """How a deployment is stopped."""

    drain_seconds: int = DRAIN_SECONDS
    """How long requests in flight are waited for; 0: not at all."""
    wait_seconds: float = 0
    """How long another run on its hosts is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intended:
    """What is going to be stopped, for whoever is asked."""

    deployment: Deployment
    """As it is, with its load."""
    containers: tuple[Container, ...]
    silent: tuple[str, ...]
    """Its hosts that do not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """What became of it."""

    name: str
    removed: tuple[tuple[str, str], ...] = ()
    """Host and container."""
    facts: tuple[Fact, ...] = ()
    """What did not go well; GP856 for what is left."""
    logs: tuple[str, ...] = ()
    """Files that were saved."""
    asked: bool = True
    """False: it was not confirmed, and nothing was done."""

    @property
    def complete(self) -> bool:
        return not any(fact.code in {LEFT, LOCK_LOST} for fact in self.facts)


def stop(
    options: FleetOptions,
    name: str,
    choice: StopChoice,
    confirmed: Callable[[Intended], bool],
    on_event: OnEvent,
) -> Stopped:
    """Stop and remove every container of a deployment, when `confirmed` says so.

    Raises UsageError for a name that no host knows, Locked when another run works on one of its hosts.
    """
    with reached(options) as fleet:
        seen = observe(fleet)
        group = find(seen, name)
        loads = loads_of(fleet, group)
        if not confirmed(intended_of(seen, group, loads)):
            return Stopped(name=name, asked=False)
        return stop_group(fleet, seen, group, choice, options, on_event)


def stop_group(
    fleet: ReachedFleet,
    seen: Observation,
    group: Group,
    choice: StopChoice,
    options: FleetOptions,
    on_event: OnEvent,
    still: Still | None = None,
) -> Stopped:
    """Lock the hosts of a deployment that was seen, look again, and stop what is there if `still` agrees.

    Raises Locked when another run works on one of its hosts, LockFailed when one cannot be locked.
    """
    hosts = [host for host in group.hosts if host in fleet.connections and host not in seen.silent]
    run = this_run(deployment=group.name, purpose="stop")
    with hold(fleet, hosts, run, wait=choice.wait_seconds, on_event=on_event) as locks:
        seen = observe(fleet)
        group = seen.group(group.name) or Group(name=group.name, current=())
        if still is not None and not still(seen, group):
            return Stopped(name=group.name, asked=False)
        return _stopped(fleet, seen, group, choice, locks, options, on_event)


def intended_of(seen: Observation, group: Group, loads: Sequence[Load]) -> Intended:
    """What a stop of this group would end."""
    return Intended(
        deployment=deployment_of(group, silent=seen.why, loads=loads),
        containers=group.containers,
        silent=tuple(dict.fromkeys(one.host for one in group.members if one.state == UNKNOWN)),
    )


def _stopped(
    fleet: ReachedFleet,
    seen: Observation,
    group: Group,
    choice: StopChoice,
    locks: Locks,
    options: FleetOptions,
    on_event: OnEvent,
) -> Stopped:
    facts = [
        left(group, one.host, one.container, seen.why.get(one.host, "the host was not asked"))
        for one in group.members
        if one.state == UNKNOWN
    ]
    facts += drained(fleet, group, choice.drain_seconds, on_event)
    lost = locks.lost()
    facts += [
        Fact(code=LOCK_LOST, severity=Severity.ERROR, subject={"host": host}, figures={}) for host in lost
    ]
    mine = [one for one in sorted(group.containers, key=order) if one.member.host not in lost]
    due = owed(mine, read_gpus(fleet, sorted({one.member.host for one in mine})))
    directory = _directory(options, group.name)
    seconds = max((patience(one) for one in mine), default=0) + MARGIN
    began = begun(on_event, f"{plural(len(mine), 'container')} to end", seconds)
    outcomes = on_each({one.member.id: partial(_end, fleet, one, directory) for one in mine}, seconds)
    on_event(PhaseDone(phase=Phase.STOP, seconds=time.monotonic() - began))
    removed, logs = [], []
    for one in mine:
        host, container = one.member.host, one.member.container
        match outcomes[one.member.id]:
            case Outcome(why=why):
                facts.append(left(group, host, container, why))
                on_event(Undone(host=host, container=container, what="left", why=why))
            case saved:
                removed.append((host, container))
                logs += [saved] if saved is not None else []
                on_event(Undone(host=host, container=container, what="removed"))
    waited = [one for one in due if one.host in {host for host, _ in removed}]
    if waited:
        begun(on_event, "the memory of its GPUs to come back", MOST_SECONDS)
        facts += await_memory(partial(read_gpus, fleet), waited)
    return Stopped(name=group.name, removed=tuple(removed), facts=tuple(facts), logs=tuple(logs))


def drained(fleet: Reached, group: Group, seconds: int, on_event: OnEvent) -> list[Fact]:
    """Wait until no request runs; GP855 when some still do at the end."""
    running = _running(fleet, group)
    if not running or seconds <= 0:
        return [_cut_off(group, running, 0)] if running else []
    begun(on_event, f"{plural(running, 'request')} to end", float(seconds))
    deadline = time.monotonic() + seconds
    while running and time.monotonic() < deadline:
        time.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))
        running = _running(fleet, group)
    return [_cut_off(group, running, seconds)] if running else []


def _cut_off(group: Group, running: int, seconds: int) -> Fact:
    return Fact(
        code=STILL_RUNNING,
        severity=Severity.WARNING,
        subject={"deployment": group.name},
        figures={"running": running, "seconds": seconds},
    )


def _running(fleet: Reached, group: Group) -> int:
    """Requests in flight, as far as the servers tell."""
    return added(loads_of(fleet, group)).running or 0


def loads_of(fleet: Reached, group: Group) -> list[Load]:
    """What its servers tell of their load."""
    return [answer.load for answer in ask_servers(fleet, group).values() if answer.load is not None]


def order(container: Container) -> tuple[bool, int, int]:
    """Sorts servers before what they run on: in this order they end."""
    member = container.member
    first = {ContainerRole.SINGLE, ContainerRole.LEADER, ContainerRole.REPLICA}
    return member.role not in first, member.server, member.rank


def patience(container: Container) -> int:
    """Seconds it may take to end before it is killed."""
    if container.stop_seconds is not None:
        return container.stop_seconds
    ray = container.member.role in {ContainerRole.RAY_HEAD, ContainerRole.FOLLOWER}
    return RAY_SECONDS if ray else STOP_SECONDS


def _end(fleet: ReachedFleet, container: Container, directory: Path) -> str | None:
    """Stop one container, save its log, remove it; the file that was saved."""
    from gpuplan.remote import containers as remote

    member = container.member
    engine = fleet.engine_of(member.host)
    if member.state in RUNS:
        remote.stop(engine, member.id, patience(container))
    saved = _saved(fleet, container, directory) if member.role is not ContainerRole.HELPER else None
    remote.remove(engine, member.id)
    return saved


def _saved(fleet: ReachedFleet, container: Container, directory: Path) -> str | None:
    """Write its first and last lines, secrets masked; None where that cannot be done."""
    member = container.member
    log = read_log(partial(fleet.engine_of, member.host), member.id)
    path = directory / file_name(f"{member.host}-{member.container}.log")
    try:
        write_log(path, log.lines, cut=log.cut)
    except OSError:
        return None
    return str(path)


def _directory(options: FleetOptions, name: str) -> Path:
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    return state_directory(options.environ) / file_name(name) / f"stop-{moment}"


def begun(on_event: OnEvent, awaits: str, seconds: float) -> float:
    """Tell that a part of the stop begins; when that was, on the monotonic clock."""
    on_event(PhaseStarted(phase=Phase.STOP, awaits=awaits, deadline_seconds=seconds))
    return time.monotonic()


def left(group: Group, host: str, container: str, why: str) -> Fact:
    """GP856: a container was not stopped."""
    return Fact(
        code=LEFT,
        severity=Severity.ERROR,
        subject={"deployment": group.name, "host": host, "container": container},
        figures={"why": why},
    )
