"""One deploy under way: what it works on, what it has made so far, whom it tells. Undoing reads it backwards."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuplan.domain.deployment import ContainerSpec, DeploymentSpec, SecretValues
from gpuplan.domain.events import At, Event, Phase, PhaseDone, PhaseStarted
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.secret_text import masked

if TYPE_CHECKING:
    from gpuplan.deploying.observed import Container
    from gpuplan.operations.probe import OpenFleet

Sink = Callable[[At], None]
UNDER_WAY_SECONDS = 20.0
"""A request that was sent before an interrupt has this long to be answered before everything is taken back."""
Uninterrupted = Callable[[], AbstractContextManager[None]]
"""A step that Ctrl-C waits for: half of it could not be taken back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long each thing may take, in seconds, before it is told that it did not happen."""

    request: float = 60.0
    """One question to one engine."""
    start: float = 300.0
    """From the start of a container to its first word."""
    register: float = 600.0
    """Until every host and GPU is in the cluster."""
    load: float = 1800.0
    """Between two milestones of the engine; weights are given longer by their size."""
    ready: float = 7200.0
    """From the start to the answer, all in all."""
    answer: float = 120.0
    """One completion."""
    host_lost: float = 60.0
    """A host may be silent so long while others wait for it."""
    memory_back: float = 30.0
    poll: float = 2.0
    """Between two looks at the containers."""

    @classmethod
    def within(cls, seconds: float) -> "Patience":
        """Of a deploy that must serve after so many seconds: no part of it takes longer, a silence a quarter at most."""
        usual = cls()
        return replace(
            usual,
            ready=seconds,
            load=seconds,
            register=min(usual.register, seconds),
            start=min(usual.start, seconds),
            host_lost=min(usual.host_lost, max(5.0, seconds / 4)),
            memory_back=min(usual.memory_back, max(5.0, seconds / 4)),
        )


class Halted(Exception):
    """The deploy cannot go on: the phase, and what is known of why, the root cause first."""

    def __init__(self, phase: Phase, *facts: Fact) -> None:
        super().__init__(", ".join(fact.code for fact in facts))
        self.phase = phase
        self.facts = facts


class Ended(Exception):
    """The run is being taken back: told to a thread that nobody waits for any more."""


def halted(phase: Phase, code: str, subject: Mapping[str, object], **figures: object) -> Halted:
    """A halt for one reason."""
    return Halted(phase, Fact(code=code, severity=Severity.ERROR, subject=subject, figures=figures))


def host_lost(phase: Phase, host: str, why: str, seconds: float | None = None) -> Halted:
    """A halt because a host fell silent."""
    return halted(phase, "GP813", {"host": host}, why=why, seconds=seconds, during=phase.value)


class Teller:
    """Stamps events and passes them on, one at a time whoever tells them."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._lock = threading.RLock()
        self._phase: tuple[Phase, float] | None = None

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._sink(At(at=time.time(), event=event))

    def phase(self, phase: Phase, awaits: str, deadline: float | None = None) -> None:
        """The next phase begins, the last one is done."""
        self.done()
        self._phase = (phase, time.monotonic())
        self(PhaseStarted(phase=phase, awaits=awaits, deadline_seconds=deadline))

    def done(self) -> None:
        """The phase under way is done."""
        if self._phase is not None:
            phase, since = self._phase
            self._phase = None
            self(PhaseDone(phase=phase, seconds=round(time.monotonic() - since, 1)))

    def break_off(self) -> None:
        """The phase under way ends without being done."""
        self._phase = None

    @property
    def current(self) -> Phase:
        return self._phase[0] if self._phase is not None else Phase.CONNECT


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A container of an earlier deploy, stopped and renamed until the new one serves."""

    found: "Container"
    name_before: str
    ran: bool


@dataclass(slots=True, kw_only=True)
class Run:
    """The state of one deploy."""

    opened: "OpenFleet"
    spec: DeploymentSpec
    spec_hash: str
    generation: str
    secrets: SecretValues
    tell: Teller
    patience: Patience
    lost_locks: Callable[[], tuple[str, ...]] = tuple
    """Hosts whose lock was lost meanwhile."""
    image_ids: Mapping[str, str] = field(default_factory=dict)
    """By host."""
    made: dict[tuple[str, str], str] = field(default_factory=dict)
    """Host and name of each container created, to its id; filled before the engine is asked with an empty id."""
    aside: list[SetAside] = field(default_factory=list)
    started: bool = False
    committed: bool = False
    """It serves: nothing is taken back any more."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Put into every container at `files_at` before it starts."""
    files_at: str = ""
    uninterrupted: Uninterrupted = nullcontext
    directory: Path | None = None
    """Where logs of what is removed are kept."""
    ends: threading.Event = field(default_factory=threading.Event)
    """Set when it is taken back: nothing is made or started any more."""
    _at_work: defaultdict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))

    @contextmanager
    def at_work(self, host: str) -> Iterator[None]:
        """A request that makes or starts a container is under way. Raises Ended."""
        with self._at_work[host]:
            if self.ends.is_set():
                raise Ended
            yield

    def masked(self, text: str) -> str:
        """Without the secrets of this deploy, and without what looks like one."""
        return self.secrets.masked(masked(text))

    def end(self) -> None:
        """Nothing is made or started from here on; what is under way is waited for, so that it is seen and removed."""
        self.ends.set()
        deadline = time.monotonic() + UNDER_WAY_SECONDS
        for lock in tuple(self._at_work.values()):
            if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                lock.release()

    def container(self, host: str, name: str) -> ContainerSpec:
        """The spec of a container that was made."""
        return next(one for one in self.spec.containers if (one.host, one.name) == (host, name))
