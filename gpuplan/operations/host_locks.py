"""Locks of hosts: held for as long as a deploy or stop runs, on all of its hosts or on none.

Hosts are taken in the order of their engines' ids, so of several runs on overlapping hosts one always gets all of
its own. Each lock is a lease: it is ours until `silence` after the last beat that the host answered; `Locks.lost`
tells when that is over, whatever became of the connection.
"""

import getpass
import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gpuplan.deploying import host_lock
from gpuplan.deploying.host_lock import Answer, Busy, Free, Held, Holder, Unlockable
from gpuplan.domain.events import Event, Remark
from gpuplan.domain.fact import Fact, Severity
from gpuplan.errors import ExitCode, GpuplanError
from gpuplan.operations.across import Outcome, on_each
from gpuplan.remote.connection import Connection, ConnectionFailed, Stream
from gpuplan.remote.words import printable

if TYPE_CHECKING:
    from gpuplan.remote.docker_engine import Engine

WAITS = "GP850"
ANSWER_SECONDS = 20.0
"""A shell that answers nothing for so long cannot lock."""
RETRY_SECONDS = 2.0
"""Between two tries of a run that waits for a lock."""
_LETTING_GO_SECONDS = 2.0

OnEvent = Callable[[Event], None]


class Reached(Protocol):
    """Hosts that answered, with their engines: an `OpenFleet`, or any other that can be asked."""

    @property
    def connections(self) -> Mapping[str, Connection]: ...
    def engine_of(self, host: str) -> "Engine":
        """Raises EngineFailed, ConnectionFailed."""
        ...


class Locked(GpuplanError):
    """Another run works on a host; nothing was changed."""

    exit_code = ExitCode.DEPLOYMENT_FAILED

    def __init__(self, host: str, holder: Holder) -> None:
        super().__init__(
            f"{host} is locked: {described(holder)}",
            hint=f"--wait SECONDS waits for it; if that run is gone for good: `gpuplan unlock --host {host}`",
        )
        self.host = host
        self.holder = holder


class LockFailed(GpuplanError):
    """A host cannot be locked; nothing was changed."""

    exit_code = ExitCode.DEPLOYMENT_FAILED

    def __init__(self, host: str, why: str, *, hint: str | None = None) -> None:
        super().__init__(f"{host} cannot be locked: {why}", hint=hint)
        self.host = host


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a lock is kept."""

    silence_seconds: int = host_lock.SILENCE_SECONDS
    beat_seconds: float = host_lock.BEAT_SECONDS


TERMS = Terms()


class Locks:
    """The locks of one run, until its context ends."""

    def __init__(self, sessions: Sequence["_Session"]) -> None:
        self._sessions = sessions

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(session.host for session in self._sessions)

    def lost(self) -> tuple[str, ...]:
        """Hosts whose lock is not surely ours any more: touch them no further."""
        return tuple(session.host for session in self._sessions if session.lost)


def this_run(deployment: str = "", generation: str = "", purpose: str = "deploy") -> Holder:
    """What others are told of this process while it holds a lock."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a uid without an account
        user = str(os.getuid())
    return Holder(
        who=f"{user}@{socket.gethostname()}",
        pid=os.getpid(),
        since=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        deployment=deployment,
        generation=generation,
        purpose=purpose,
        run=secrets.token_hex(8),
    )


@contextmanager
def hold(
    fleet: Reached,
    hosts: Sequence[str],
    holder: Holder,
    *,
    wait: float = 0,
    on_event: OnEvent | None = None,
    terms: Terms = TERMS,
) -> Iterator[Locks]:
    """Lock these hosts, all or none, until the context ends.

    Raises Locked when another run holds one of them for longer than `wait` seconds, LockFailed when one cannot be
    locked.
    """
    places = _places(fleet, hosts)
    deadline = time.monotonic() + wait
    told: set[str] = set()
    while True:
        sessions = _opened(fleet, places, holder, terms)
        try:
            busy = _taken(sessions, holder)
            if busy is None:
                yield Locks([session for session in sessions if not session.shared])
                return
        finally:
            _let_go(sessions)
        host, other = busy
        left = deadline - time.monotonic()
        if left <= 0:
            raise Locked(host, other)
        if on_event is not None and other.run not in told:
            told.add(other.run)
            on_event(Remark(fact=waiting(host, other)))
        time.sleep(min(RETRY_SECONDS, left))


def waiting(host: str, holder: Holder) -> Fact:
    """GP850: a run waits for the lock of another."""
    figures = {"holder": described(holder)}
    return Fact(code=WAITS, severity=Severity.INFO, subject={"host": host}, figures=figures)


def read_lock(connection: Connection, engine: "Engine") -> Answer:
    """Whose the lock of a host is. Raises ConnectionFailed, EngineFailed, RequestRefused."""
    return _asked(connection, host_lock.read_command(_place(connection, engine)))


def read_locks(fleet: Reached, hosts: Sequence[str], seconds: float = 30) -> dict[str, Answer | Outcome]:
    """The locks of many hosts at once."""

    def read(host: str) -> Answer:
        return read_lock(fleet.connections[host], fleet.engine_of(host))

    return on_each({host: partial(read, host) for host in hosts}, seconds)


def break_lock(connection: Connection, engine: "Engine", holder: Holder) -> Answer:
    """End the shell that holds the lock, and remove what a killed one left; `Free` when it is nobody's then.

    Only a shell of ours is ended, by its login or root. Raises ConnectionFailed, EngineFailed, RequestRefused.
    """
    return _asked(connection, host_lock.break_command(_place(connection, engine), holder.remote_pid))


def described(holder: Holder) -> str:
    """`alice@laptop deploys qwen3 there since 2026-11-22T01:20:00Z (process 4711)`."""
    if not holder.who:
        return "somebody works on it who has left no name"
    does = {"stop": "stops", "restart": "restarts"}.get(holder.purpose, "deploys")
    what = f"{does} {holder.deployment}" if holder.deployment else "works"
    since = f" since {holder.since}" if holder.since else ""
    return f"{holder.who} {what} there{since} (process {holder.pid})"


class _Session:
    """One shell that takes a lock, and the thread that keeps it."""

    def __init__(self, host: str, stream: Stream, terms: Terms) -> None:
        self.host = host
        self.shared = False
        """The same machine was locked by this run under another name."""
        self._stream = stream
        self._terms = terms
        self._ours_until = 0.0
        self._released = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def lost(self) -> bool:
        return not self._released.is_set() and (self._ended.is_set() or _now() >= self._ours_until)

    def take(self) -> Answer:
        """Ask for the lock and wait for the answer; once it is ours it is kept."""
        asked = _now()
        printed = b""
        try:
            self._stream.settimeout(ANSWER_SECONDS)
            self._stream.sendall(host_lock.GO)
            while (answer := host_lock.parse(printed.decode("utf-8", "replace"))) is None:
                heard = self._stream.recv(4096)
                if not heard:
                    return Unlockable(detail=self._last_words(printed))
                printed = (printed + heard)[-64 * 1024 :]
        except TimeoutError:
            return Unlockable(detail=f"its shell did not answer within {ANSWER_SECONDS:.0f} s")
        except ConnectionFailed as failed:
            return Unlockable(detail=failed.detail)
        except (OSError, EOFError) as failed:
            return Unlockable(detail=printable(str(failed)) or "the connection ended")
        if isinstance(answer, Held):
            self._ours_until = asked + self._terms.silence_seconds
            self._thread = threading.Thread(target=self._keep, name=f"lock {self.host}", daemon=True)
            self._thread.start()
        return answer

    def end(self) -> None:
        """Tell the shell to let go, without waiting for it."""
        self._released.set()
        if self._thread is not None and not self._ended.is_set():
            with suppress(ConnectionFailed, OSError, EOFError):
                self._stream.sendall(host_lock.END)

    def close(self) -> None:
        """Wait a moment for the shell to end by itself, then end the session."""
        if self._thread is not None:
            self._thread.join(_LETTING_GO_SECONDS)
        with suppress(ConnectionFailed, OSError, EOFError):
            self._stream.close()
        if self._thread is not None:
            self._thread.join(_LETTING_GO_SECONDS)

    def _keep(self) -> None:
        """Beat, and move the end of the lease with each answer, until the session ends."""
        unanswered: deque[float] = deque()
        try:
            self._stream.settimeout(self._terms.beat_seconds)
            while True:
                try:
                    heard = self._stream.recv(256)
                except TimeoutError:
                    unanswered.append(_now())
                    self._stream.sendall(host_lock.BEAT)
                    continue
                if not heard:
                    break
                for _ in range(min(heard.count(b"."), len(unanswered))):
                    self._ours_until = unanswered.popleft() + self._terms.silence_seconds
        except (ConnectionFailed, OSError, EOFError):
            pass  # it ended, whatever the reason
        finally:
            self._ended.set()

    def _last_words(self, printed: bytes) -> str:
        said = getattr(self._stream, "last_words", bytes)() or printed
        return printable(said) or "its login shell ended without a word"


def _places(fleet: Reached, hosts: Sequence[str]) -> list[tuple[str, str]]:
    """Lock and host, in locking order. Raises LockFailed."""
    missing = [host for host in hosts if host not in fleet.connections]
    if missing:
        raise LockFailed(missing[0], "it does not answer", hint="`gpuplan check` tells why")

    def place_of(host: str) -> str:
        return _place(fleet.connections[host], fleet.engine_of(host))

    found = on_each({host: partial(place_of, host) for host in hosts}, ANSWER_SECONDS)
    places = []
    for host, place in found.items():
        if isinstance(place, Outcome):
            raise LockFailed(host, place.why)
        places.append((place, host))
    return sorted(places)


def _place(connection: Connection, engine: "Engine") -> str:
    """The lock of an engine; of a machine where the engine (podman) makes up a new id each time it is asked."""
    components = engine.version.get("Components") or ()
    if any("podman" in str(component.get("Name", "")).lower() for component in components):
        done = connection.run(("cat", "/etc/machine-id"), timeout=ANSWER_SECONDS, limit=256)
        return host_lock.prefix(done.stdout.decode("ascii", "replace"))
    return host_lock.prefix(str((engine.get("/info") or {}).get("ID") or ""))


def _opened(
    fleet: Reached, places: Sequence[tuple[str, str]], holder: Holder, terms: Terms
) -> list[_Session]:
    """The shells of all hosts, started at once and not yet told to lock, in locking order. Raises LockFailed."""

    def start(place: str, host: str) -> _Session:
        command = host_lock.hold_command(place, holder, terms.silence_seconds)
        stream = fleet.connections[host].open_command(command, timeout=ANSWER_SECONDS)
        return _Session(host, stream, terms)

    started = on_each({host: partial(start, place, host) for place, host in places}, ANSWER_SECONDS)
    failed = [(host, one) for host, one in started.items() if isinstance(one, Outcome)]
    sessions = [one for one in started.values() if isinstance(one, _Session)]
    if failed:
        _let_go(sessions)
        raise LockFailed(failed[0][0], failed[0][1].why)
    return sessions


def _taken(sessions: Sequence[_Session], holder: Holder) -> tuple[str, Holder] | None:
    """Take them in order; the first that another run holds ends it. Raises LockFailed."""
    for session in sessions:
        match session.take():
            case Held():
                pass
            case Busy(holder=other) if other.run == holder.run and holder.run:
                session.shared = True
            case Busy(holder=other):
                return session.host, other
            case Unlockable(missing=str(program)):
                package = host_lock.PACKAGES.get(program, program)
                raise LockFailed(
                    session.host, f"{program} is missing", hint=f"install the package {package} there"
                )
            case Unlockable(detail=detail):
                raise LockFailed(session.host, detail)
            case Free():
                raise LockFailed(session.host, "its shell makes no sense")
    return None


def _let_go(sessions: Sequence[_Session]) -> None:
    for session in sessions:
        session.end()
    for session in sessions:
        session.close()


def _asked(connection: Connection, command: Sequence[str]) -> Answer:
    done = connection.run(command, timeout=ANSWER_SECONDS, limit=64 * 1024)
    answer = host_lock.parse(done.stdout.decode("utf-8", "replace"))
    if answer is not None:
        return answer
    return Unlockable(detail=printable(done.stderr or done.stdout) or "its login shell said nothing")


def _now() -> float:
    """Seconds on a clock that goes on while this machine sleeps: the other end counts on."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
