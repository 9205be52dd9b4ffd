"""The turn of a deploy that waits for room: who came first and may fit goes first, and not more wait than is sensible.

Of those that wait, the first that fits goes first: one that needs much does not hold up one that needs little. So one
that fits asks whether anybody before it may fit, too: they look as often as it does, and are given until their next look.
"""

import os
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from gpuplan.errors import ExitCode, GpuplanError
from gpuplan.operations.process_identity import identity_of
from gpuplan.sources import capacity_queue
from gpuplan.sources.capacity_queue import Waiter, Waiters

MOST_WAITING = 8
MOST_NAMED = 8
LAGS_SECONDS = 60.0
"""One that has not looked for so long does not keep others waiting: it is stopped, or its hosts are slow."""


class QueueFull(GpuplanError):
    """As many deploys as may wait for this fleet do; nothing was touched."""

    exit_code = ExitCode.NO_FIT

    def __init__(self, waiting: Sequence[Waiter]) -> None:
        named = ", ".join(
            f"{one.name} (pid {one.pid}, since {_clock(one.since)})" for one in waiting[:MOST_NAMED]
        )
        super().__init__(
            f"busy: nothing fits now, and {len(waiting)} deploys wait for room on this fleet already: {named}",
            hint="try again later, or make room: gpuplan status shows what runs",
        )
        self.waiting = tuple(waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How it stands with one that waits."""

    place: int
    """From 1."""
    waiting: int
    blocked_by: Waiter | None = None
    """Who came earlier and may fit, too; None: nobody."""


class Turn:
    """One deploy's place in the queue of a fleet; it leaves with its context. Raises GpuplanError without a state directory."""

    def __init__(
        self,
        path: Path,
        name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        alive: Callable[[Waiter], bool] | None = None,
    ) -> None:
        self._path = path
        self._clock = clock
        self._alive = alive if alive is not None else _alive
        self._entered = False
        pid = os.getpid()
        self._me = Waiter(
            id=secrets.token_hex(8), pid=pid, process=identity_of(pid) or "", name=name, since=time.time()
        )
        self._fits_since: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._entered:
            with capacity_queue.opened(self._path) as waiters:
                waiters.pop(self._me.id, None)

    @property
    def entered(self) -> bool:
        """Whether it stands in the queue."""
        return self._entered

    def others(self) -> tuple[Waiter, ...]:
        """Who waits beside it."""
        with capacity_queue.opened(self._path) as waiters:
            self._drop_dead(waiters)
            return tuple(one for one in waiters.values() if one.id != self._me.id and not one.trying)

    def tell(self, *, looked: float, fits: bool) -> Standing:
        """Say what a look that began then has found; how it stands. Raises QueueFull where it would be one too many."""
        self._fits_since = (self._fits_since or looked) if fits else None
        self._me = replace(self._me, looked=looked, fits=fits, trying=False)
        with capacity_queue.opened(self._path) as waiters:
            self._drop_dead(waiters)
            if not self._entered and not fits:
                self._require_room(waiters)
            waiters[self._me.id] = self._me
            self._entered = True
            before = _before(waiters, self._me)
            blocked_by = next((one for one in before if self._comes_first(one)), None) if fits else None
            waiting = sum(not one.trying for one in waiters.values())
        return Standing(place=len(before) + 1, waiting=waiting, blocked_by=blocked_by)

    def begin(self) -> None:
        """It has its turn: whoever looks from here on does not wait for it, the locks of the hosts do."""
        self._me, self._fits_since = replace(self._me, trying=True, fits=False), None
        with capacity_queue.opened(self._path) as waiters:
            self._drop_dead(waiters)
            waiters[self._me.id] = self._me
            self._entered = True

    def _comes_first(self, other: Waiter) -> bool:
        """One before it that fits, or has not looked since this one does."""
        assert self._fits_since is not None
        if self._clock() - other.looked > LAGS_SECONDS:
            return False
        return other.fits or other.looked < self._fits_since

    def _require_room(self, waiters: Waiters) -> None:
        waiting = [one for one in waiters.values() if not one.trying]
        if len(waiting) >= MOST_WAITING:
            raise QueueFull(waiting)

    def _drop_dead(self, waiters: Waiters) -> None:
        for one in tuple(waiters.values()):
            if one.id != self._me.id and not self._alive(one):
                del waiters[one.id]


def _before(waiters: Waiters, me: Waiter) -> list[Waiter]:
    """Those that came earlier and wait still."""
    found: list[Waiter] = []
    for one in waiters.values():
        if one.id == me.id:
            break
        if not one.trying:
            found.append(one)
    return found


def _alive(waiter: Waiter) -> bool:
    """The very process, not a later one of its number or of another boot."""
    return identity_of(waiter.pid) == waiter.process


def _clock(since: float) -> str:
    return datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%d %H:%M UTC")
