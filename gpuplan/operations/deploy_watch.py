"""Watching members until they serve: their own milestones, their containers' states, the answer of each server.

Nobody is waited for in vain: a member that ends, a host that falls silent and a milestone that does not come each have
a limit, and are told by name.
"""

import queue
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self

from gpuplan.deploying.observed import Container
from gpuplan.domain.deployment import GONE, ContainerRole, ContainerSpec, Server
from gpuplan.domain.events import MemberSeen, Milestone, Phase, Remark
from gpuplan.domain.fact import Fact, Severity
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.deploy_ready import Readiness, ask_ready
from gpuplan.operations.deploy_run import Halted, Run, halted, host_lost
from gpuplan.operations.deploy_start import member_of
from gpuplan.operations.deployed import list_containers
from gpuplan.operations.ears import Ear

if TYPE_CHECKING:
    from gpuplan.engine.startup_log import Milestone as LogMilestone
    from gpuplan.remote.container_logs import LogLine

LOOK_SECONDS = 15.0
RECONNECT_SECONDS = 20.0
GATHER_SECONDS = 4.0
"""After the first member ended: the others' last words are waited for."""
SLOWEST_BYTES_PER_SECOND = 50_000_000
"""Weights from a slow disk or network storage: they are given this long."""


@dataclass(frozen=True, slots=True)
class Heard:
    spec: ContainerSpec
    line: "LogLine"


@dataclass(frozen=True, slots=True)
class Looked:
    host: str
    found: tuple[Container, ...] | None
    """None: the host did not answer."""
    why: str = ""
    asked: float = 0.0
    """When it was asked, on the monotonic clock."""


@dataclass(frozen=True, slots=True)
class Ready:
    server: Server
    readiness: Readiness


Report = Heard | Looked | Ready


@dataclass(slots=True)
class Progress:
    """How far one member is, by its own words."""

    spec: ContainerSpec
    last: "LogMilestone | None" = None
    since: float = field(default_factory=time.monotonic)
    words: str = "nothing was said yet"
    lines: int = 0
    """It has printed."""

    def waited(self, now: float) -> float:
        return now - self.since


class Measures(Protocol):
    """What is wanted of the engines' words alone: the watch ends when they have said it."""

    @property
    def awaits(self) -> str: ...
    @property
    def whole(self) -> bool: ...
    def hear(self, spec: ContainerSpec, reached: "LogMilestone") -> None: ...


class Watch:
    """All members of a run, from their start until every server answers; use as a context."""

    def __init__(self, run: Run, measures: Measures | None = None) -> None:
        self.run = run
        self._measures = measures
        self.ears: dict[tuple[str, str], Ear] = {}
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._progress: dict[tuple[str, str], Progress] = {}
        self._states: dict[tuple[str, str], tuple[str, str | None]] = {}
        self._silent: dict[str, tuple[float, str]] = {}
        self._asked: dict[str, float] = {}
        self._unlocked: set[str] = set()
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def hear(self, spec: ContainerSpec) -> None:
        """Listen to a container from its first line on. It has been started: before, an engine's log stays empty."""
        key = (spec.host, spec.name)
        ear = Ear(
            self.run.opened,
            spec,
            self.run.made[key],
            lambda spec, line: self._reports.put(Heard(spec, line)),
        )
        with self._lock:
            self._progress[key] = Progress(spec=spec)
            self.ears[key] = ear
        ear.start()

    def look(self) -> None:
        """Look at every host again and again, from now on; the time for all of it begins."""
        self._began = time.monotonic()
        for host in self.run.spec.hosts:
            threading.Thread(target=self._look_at, args=(host,), daemon=True).start()

    def until_served(self) -> None:
        """Returns when every server answers for the model, or has said what was wanted of it. Raises Halted."""
        run = self.run
        run.tell.phase(Phase.LOAD, self._awaited(), run.patience.ready)
        waiting = {server.number for server in run.spec.servers}
        for server in run.spec.servers:
            threading.Thread(target=self._ask, args=(server,), daemon=True).start()
        ended: float | None = None
        while waiting or self._not_running():
            try:
                report = self._reports.get(timeout=0.5)
            except queue.Empty:
                pass
            else:
                if isinstance(report, Ready):
                    waiting.discard(report.server.number)
                else:
                    self._take(report)
            if self._measures is not None and self._measures.whole:
                return
            now = time.monotonic()
            if ended is None and any(state in GONE for state, _ in self._states.values()):
                ended = now
            if ended is not None and now - ended > GATHER_SECONDS:
                raise Halted(Phase.LOAD, *self._lost_before(ended, now))  # else the logs say why
            self._check_patience(now, waiting)

    def stop(self) -> None:
        """Nothing is listened to any more; what was heard stays."""
        self._stopped.set()
        for ear in self.ears.values():
            ear.stop()

    def silent_hosts(self) -> frozenset[str]:
        """Hosts that have not answered for a while: what is asked of them is waited for in vain."""
        now = time.monotonic()
        return frozenset(
            host for host, (since, _) in self._unanswering().items() if now - since > GATHER_SECONDS
        )

    def _take(self, report: Heard | Looked) -> None:
        if isinstance(report, Heard):
            self._hear(report)
        elif report.found is None:
            self._silent.setdefault(report.host, (report.asked, report.why))
        else:
            self._silent.pop(report.host, None)
            self._see(report.host, report.found)

    def _hear(self, heard: Heard) -> None:
        from gpuplan.engine.startup_log import milestone

        progress = self._progress[heard.spec.host, heard.spec.name]
        progress.lines += 1
        reached = milestone(heard.line.text)
        if reached is None:
            if progress.last is None:
                progress.since = time.monotonic()
                progress.words = "it talks, and has not begun to load"
            return
        if self._measures is not None:
            self._measures.hear(heard.spec, reached)
        progress.last = reached
        progress.since = time.monotonic()
        progress.words = f"its last step: {reached.kind.value}"
        self.run.tell(
            Milestone(
                host=heard.spec.host,
                container=heard.spec.name,
                kind=reached.kind.value,
                text=self.run.masked(reached.text),
            )
        )

    def _see(self, host: str, found: tuple[Container, ...]) -> None:
        by_id = {one.id: one for one in found}
        for (where, name), identity in self.run.made.items():
            if where != host or not identity:
                continue
            one = by_id.get(identity)
            state = (one.state, one.health) if one is not None else ("missing", None)
            if self._states.get((host, name)) != state:
                self._states[host, name] = state
                spec = self.run.container(host, name)
                member = member_of(spec, identity, state[0], self.run)
                self.run.tell(
                    MemberSeen(
                        member=replace(
                            member, health=state[1], exit_code=one.member.exit_code if one else None
                        )
                    )
                )

    def _lost_before(self, ended: float, now: float) -> tuple[Fact, ...]:
        """Hosts that were silent already when the first member ended: it may have ended because of them."""
        return tuple(
            fact
            for host, (since, why) in self._unanswering().items()
            if since < ended
            for fact in host_lost(Phase.LOAD, host, why, round(now - since)).facts
        )

    def _unanswering(self) -> dict[str, tuple[float, str]]:
        """Hosts that failed to answer, or have not yet: since when, and why."""
        asked = {
            host: (since, "it was asked and has not answered") for host, since in self._asked.copy().items()
        }
        return asked | self._silent

    def _not_running(self) -> bool:
        """Whether some container was not yet seen to run."""
        return any(self._states.get(key, ("", None))[0] != "running" for key in self.run.made)

    def _tell_lost_locks(self) -> None:
        """What is started is watched on without the lock; that it is gone is told once."""
        lost = set(self.run.lost_locks()) - self._unlocked
        if lost:
            self._unlocked |= lost
            fact = Fact(
                code="GP822",
                severity=Severity.WARNING,
                subject={"hosts": tuple(sorted(lost))},
                figures={},
            )
            self.run.tell(Remark(fact=fact))

    def _check_patience(self, now: float, waiting: set[int]) -> None:
        patience = self.run.patience
        self._tell_lost_locks()
        for host, (since, why) in self._unanswering().items():
            if now - since > patience.host_lost:
                raise host_lost(Phase.LOAD, host, why, round(now - since))
        if now - self._began > patience.ready:
            late = [one for one in self._progress.values() if one.spec.server in waiting]
            raise self._overdue(now, round(now - self._began), late, self._awaited())
        slow = [
            one
            for one in self._progress.values()
            if one.spec.server in waiting and one.waited(now) > self._limit(one)
        ]
        servers = {one.spec.server for one in slow}
        for number in sorted(servers):
            members = [one for one in self._progress.values() if one.spec.server == number]
            if all(one in slow for one in members):
                raise self._overdue(now, round(min(one.waited(now) for one in members)), members, "")

    def _overdue(self, now: float, seconds: int, members: list[Progress], awaits: str) -> Halted:
        """Too long was waited for these: the one that is furthest behind is named, for which the others wait, too."""
        subject = {"deployment": self.run.spec.name}
        if members:
            last = min(members, key=_rank_of_progress)
            subject |= {"host": last.spec.host, "container": last.spec.name}
            behind = f"{last.spec.name} on {last.spec.host} to go on ({last.words})"
            awaits = f"{awaits}, and that for {behind}" if awaits else behind
        told = self._told(now)
        overdue = halted(Phase.LOAD, "GP814", subject, seconds=seconds, awaits=awaits, members=told)
        return Halted(Phase.LOAD, *self._lost_before(now - GATHER_SECONDS / 2, now), *overdue.facts)

    def _limit(self, progress: Progress) -> float:
        patience = self.run.patience
        if progress.last is None:
            return max(patience.start, patience.load if progress.words.startswith("it talks") else 0)
        weights = self.run.spec.predicted.weights_bytes or 0
        return patience.load + weights / SLOWEST_BYTES_PER_SECOND

    def _told(self, now: float) -> tuple[str, ...]:
        return tuple(
            f"{one.spec.name} on {one.spec.host}: {one.words}, {one.waited(now):.0f} s ago"
            for one in self._progress.values()
        )

    def _awaited(self) -> str:
        if self._measures is not None:
            return self._measures.awaits
        endpoints = ", ".join(server.endpoint for server in self.run.spec.servers)
        return f"{self.run.spec.served_name} to answer at {endpoints}"

    def _look_at(self, host: str) -> None:
        """Look at a host's containers again and again; a lost connection is opened anew."""
        while not self._stopped.is_set():
            asked = self._asked[host] = time.monotonic()
            outcome = look(self.run, host)
            if isinstance(outcome, Outcome):
                self._reports.put(Looked(host, None, outcome.why, asked))
                if outcome.unheard:
                    reconnect(self.run, host)
            else:
                self._reports.put(Looked(host, outcome))
            self._asked.pop(host, None)
            self._stopped.wait(self.run.patience.poll)

    def _ask(self, server: Server) -> None:
        while not self._stopped.is_set():
            readiness = ask_ready(self.run, server)
            if readiness.ready:
                self._reports.put(Ready(server, readiness))
                return
            self._stopped.wait(self.run.patience.poll)


def look(run: Run, host: str) -> tuple[Container, ...] | Outcome:
    """Our containers of this deployment on a host, or why it does not answer."""
    return on_each({host: partial(list_containers, run.opened, host, run.spec.name)}, LOOK_SECONDS)[host]


def reconnect(run: Run, host: str) -> bool:
    """A fresh connection to a host; False when it cannot be had now."""
    outcome = on_each({host: lambda: run.opened.reopen(host)}, RECONNECT_SECONDS)[host]
    return not isinstance(outcome, Outcome)


def _rank_of_progress(progress: Progress) -> tuple[int, int, int]:
    """The furthest behind first; of those that say the same, a follower, then the one that printed less."""
    order = progress.last.kind.place if progress.last is not None else -1
    return order, progress.spec.role is not ContainerRole.FOLLOWER, progress.lines
