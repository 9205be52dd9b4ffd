"""`gpuplan unlock`: whose the locks of the hosts are, and breaking them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gpuplan.deploying.host_lock import Answer, Busy, Free, Holder, Unlockable
from gpuplan.domain.fleet import Host, HostFailure, HostStatus
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.host_locks import break_lock, read_locks
from gpuplan.operations.observation import ENGINE
from gpuplan.operations.reached import ReachedFleet
from gpuplan.operations.status import reached

SECONDS = 40.0
NEEDS = "log in there as that user or as root, and run gpuplan unlock as them"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockSeen:
    """The lock of one host."""

    host: str
    holder: Holder | None = None
    """Who holds it now."""
    left: Holder | None = None
    """Who was killed while holding it: nobody holds it now."""
    problem: str | None = None
    """Why it cannot be told, or not be broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlocked:
    """What became of the locks."""

    before: tuple[LockSeen, ...]
    after: tuple[LockSeen, ...]
    """Of those that were to be broken or cleared."""
    silent: tuple[Host, ...] = ()
    asked: bool = True
    """False: it was not confirmed, and nothing was done."""

    @property
    def complete(self) -> bool:
        return not any(lock.holder is not None or lock.problem is not None for lock in self.after)


def unlock(options: FleetOptions, confirmed: Callable[[Sequence[LockSeen]], bool]) -> Unlocked:
    """Break every lock that is held and clear what killed runs left, when `confirmed` says so of what was found.

    With nothing held and nothing left nobody is asked. Never raises for a host.
    """
    with reached(options) as fleet:
        found = read_locks(fleet, tuple(fleet.connections), SECONDS)
        silent = [*fleet.silent_hosts]
        before = []
        for name, answer in found.items():
            if isinstance(answer, Outcome):
                failure = HostFailure(stage=ENGINE, detail=answer.why)
                silent.append(Host(name=name, status=HostStatus.FAILED, failure=failure))
            else:
                before.append(_seen(name, answer))
        meant = [lock for lock in before if lock.holder is not None or lock.left is not None]
        if meant and not confirmed(before):
            return Unlocked(before=tuple(before), after=(), silent=tuple(silent), asked=False)
        after = on_each({lock.host: partial(_broken, fleet, lock) for lock in meant}, SECONDS)
        return Unlocked(
            before=tuple(before),
            after=tuple(_after(lock, after[lock.host]) for lock in meant),
            silent=tuple(silent),
        )


def _broken(fleet: ReachedFleet, lock: LockSeen) -> Answer:
    holder = lock.holder or lock.left
    assert holder is not None, "only locks with a name are broken"
    return break_lock(fleet.connections[lock.host], fleet.engine_of(lock.host), holder)


def _after(lock: LockSeen, answer: Answer | Outcome) -> LockSeen:
    if isinstance(answer, Outcome):
        return LockSeen(host=lock.host, holder=lock.holder, problem=answer.why)
    seen = _seen(lock.host, answer)
    if seen.problem is None or lock.holder is None:
        return seen
    login = lock.holder.login or "another user"
    return LockSeen(
        host=lock.host, holder=lock.holder, problem=f"{seen.problem} ({login} on {lock.host}): {NEEDS}"
    )


def _seen(host: str, answer: Answer) -> LockSeen:
    match answer:
        case Busy(holder=holder):
            return LockSeen(host=host, holder=holder)
        case Free(left=left):
            return LockSeen(host=host, left=left)
        case Unlockable(detail=detail):
            return LockSeen(host=host, problem=detail)
        case _:
            return LockSeen(host=host)
