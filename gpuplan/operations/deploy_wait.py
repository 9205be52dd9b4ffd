"""`deploy --wait-for-capacity`: look again and again until it fits and it is this one's turn, for a bounded time (S4.5, S4.10).

Nothing is touched while it waits. What would not fit with nothing else running is refused at once. Somebody else may
take the room between the look and the locks: then it goes on waiting in its place.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpuplan.domain.events import Phase, Remark
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import HostStatus
from gpuplan.domain.inventory import Inventory
from gpuplan.domain.plan import Verdict
from gpuplan.errors import GpuplanError, NoHostError
from gpuplan.operations.across import on_each
from gpuplan.operations.capacity_queue import Standing, Turn
from gpuplan.operations.deploy_evicted import NOT_AS_AGREED
from gpuplan.operations.deploy_prepare import Prepared, prepare
from gpuplan.operations.deploy_question import require_ever
from gpuplan.operations.deploy_request import Wanted
from gpuplan.operations.deploy_run import Teller
from gpuplan.operations.deploy_watch import RECONNECT_SECONDS
from gpuplan.operations.host_locks import Locked
from gpuplan.operations.stopped import FleetChanged, NothingFits, StillNoRoom

if TYPE_CHECKING:
    from gpuplan.operations.probe import OpenFleet

WAITS, TURN, TAKEN, OVER = "GP890", "GP891", "GP892", "GP893"
OTHERS_FIRST = "others that came earlier went first"
POLL_SECONDS = 10.0
"""Between two looks at the fleet; less where the whole time is short."""
LEAST_POLL_SECONDS = 1.0
LOOKS = 30
"""At the least within the whole time, for as long as that takes a second each."""
_LASTS = frozenset({"GP801", "GP802", "GP803", "GP808", "GP821"})
"""Changes since a saved plan was made that no room mends: another host, another card, other arguments, another name."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Time as it passes; a test has another one."""

    now: Callable[[], float] = time.monotonic
    pause: Callable[[float], object] = time.sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """How room is waited for."""

    seconds: float
    queue: Path
    """The file of those that wait for this fleet."""
    clock: Clock = Clock()

    @property
    def poll(self) -> float:
        return max(LEAST_POLL_SECONDS, min(POLL_SECONDS, self.seconds / LOOKS))


def reached_by(inventory: Inventory) -> tuple[str, ...]:
    """What tells a fleet from others: how its hosts are reached."""
    return tuple(f"{entry.address}:{entry.port}" for entry in inventory.hosts)


class RoomWait:
    """One deploy that waits, as a context: it leaves the queue with it."""

    def __init__(self, wait: Wait, turn: Turn, name: str, tell: Teller) -> None:
        self._wait = wait
        self._turn = turn
        self._name = name
        self._tell = tell
        self._ends = wait.clock.now() + wait.seconds
        self._told: object = None

    @property
    def over(self) -> bool:
        return self._wait.clock.now() >= self._ends

    def until_fits(
        self, look: Callable[[], T], again: Callable[[], object], require_ever: Callable[[], object]
    ) -> T:
        """The result of the first look that fits, once it is this one's turn; `again` reads the fleet before each other.

        Raises QueueFull, StillNoRoom, and what `look` raises that waiting does not mend; what `require_ever` raises.
        """
        first = True
        while True:
            began = self._wait.clock.now()
            found, missing = self._looked(look)
            if found is not None and not self._turn.entered and not self._turn.others():
                return found
            if missing is not None and first:
                require_ever()
            standing = self._turn.tell(looked=began, fits=found is not None)
            if found is not None and standing.blocked_by is None:
                self._turn.begin()
                self._tell.done()
                return found
            first = False
            self._say(standing, missing)
            self._pause(missing)
            again()

    def taken(self, error: GpuplanError) -> None:
        """It fitted, and was not to be had: wait on, or raise the error at the end of the time."""
        if self.over:
            raise error
        self._told = None
        self._tell(Remark(fact=_fact(TAKEN, self._name, **missing_of(error))))
        self._wait.clock.pause(self._wait.poll)

    def _looked(self, look: Callable[[], T]) -> tuple[T | None, GpuplanError | None]:
        try:
            return look(), None
        except (NothingFits, NoHostError) as error:
            return None, error
        except FleetChanged as changed:
            if any(map(_lasts, changed.facts)):
                raise
            return None, changed

    def _say(self, standing: Standing, missing: GpuplanError | None) -> None:
        """What differs from the last time; the phase with its deadline at first."""
        left = max(0.0, self._ends - self._wait.clock.now())
        if missing is None:
            ahead = standing.blocked_by.name if standing.blocked_by is not None else ""
            fact = _fact(TURN, self._name, ahead=ahead)
        else:
            fact = _fact(
                WAITS,
                self._name,
                **missing_of(missing),
                place=standing.place,
                waiting=standing.waiting,
            )
        if self._told is None:
            self._tell.phase(Phase.CAPACITY, f"room for {self._name}", round(left, 1))
        if self._told != fact:
            self._tell(Remark(fact=fact))
        self._told = fact

    def _pause(self, missing: GpuplanError | None) -> None:
        """Until the next look. Raises StillNoRoom at the end of the time."""
        left = self._ends - self._wait.clock.now()
        if left <= 0:
            plan = missing.plan if isinstance(missing, NothingFits) else None
            lacks = {"words": OTHERS_FIRST} if missing is None else missing_of(missing)
            fact = _fact(OVER, self._name, seconds=self._wait.seconds, **lacks)
            raise StillNoRoom([replace(fact, severity=Severity.ERROR)], plan)
        self._wait.clock.pause(min(self._wait.poll, left))


def when_it_fits(
    opened: "OpenFleet",
    wanted: Wanted,
    wait: Wait,
    tell: Teller,
    attempt: Callable[[Prepared], T],
) -> T:
    """Carry out `attempt` once there is room, again where others were faster; it raises FleetChanged or Locked for that.

    Raises QueueFull, StillNoRoom, NeverFits and what an attempt raises.
    """
    name = wanted.name or wanted.model.profile.name
    with Turn(wait.queue, name, clock=wait.clock.now) as turn:
        room = RoomWait(wait, turn, name, tell)
        while True:
            prepared = room.until_fits(
                partial(prepare, opened, wanted),
                partial(read_again, opened),
                partial(require_ever, opened.fleet, wanted),
            )
            try:
                return attempt(prepared)
            except (FleetChanged, Locked) as error:
                room.taken(error)
            read_again(opened)


def read_again(opened: "OpenFleet") -> None:
    """All hosts as they are now; those whose connection was lost are called anew. Never raises for a host."""
    lost = [
        host.name
        for host in opened.fleet.hosts
        if host.status is HostStatus.UNREACHABLE and host.name in opened.entries
    ]
    on_each({name: partial(opened.reopen, name) for name in lost}, RECONNECT_SECONDS)
    opened.read_again(tuple(opened.entries))


def _lasts(fact: Fact) -> bool:
    if fact.code == NOT_AS_AGREED:
        return fact.figures.get("reason") in {"pinned", "others"}
    return fact.severity is Severity.ERROR and fact.code in _LASTS


def missing_of(error: GpuplanError) -> dict[str, object]:
    """Why it does not fit, for the figures of a fact: `missing`, a fact of its own, or `words` where there is none."""
    facts: Sequence[Fact] = ()
    words = error.message
    if isinstance(error, FleetChanged):
        facts = error.facts
    elif isinstance(error, NothingFits):
        # the first strategy that was evaluated asks for the fewest GPUs
        first = next((one for one in error.plan.strategies if one.verdict is not Verdict.SKIPPED), None)
        facts = [fact for fact in first.facts if fact.severity is Severity.ERROR] if first is not None else ()
        words = first.reason if first is not None and first.reason else "no strategy fits"
    return {"missing": facts[0]} if facts else {"words": words}


def _fact(code: str, name: str, **figures: object) -> Fact:
    return Fact(code=code, severity=Severity.INFO, subject={"deployment": name}, figures=figures)
