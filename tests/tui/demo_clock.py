"""The demo without waiting: a clock that is moved on by those who wait."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gpuplan.domain.plan import Plan
from gpuplan.tui.demo import DemoServices
from gpuplan.tui.services import Question

BEGAN = 1_800_000_000.0


class MovedClock:
    """Nobody waits; a wait of so many seconds is over at once and the clock shows it.

    Not for an app: what watches or follows would never rest.
    """

    def __init__(self, most_waits: int | None = None) -> None:
        self._now = BEGAN
        self._lock = threading.Lock()
        self._left = most_waits
        """Then `stop` is set: for what would go on for ever."""

    def now(self) -> float:
        return self._now

    def wait(self, length: float, stop: threading.Event) -> bool:
        with self._lock:
            self._now += length
            if self._left is not None:
                self._left -= 1
                if self._left <= 0:
                    stop.set()
        return stop.is_set()

    def stop_after(self, waits: int) -> None:
        self._left = waits


class FastClock:
    """Time that passes faster than ours: for an app that waits, watches and follows."""

    def __init__(self, speed: float = 60.0) -> None:
        self._speed = speed
        self._began = time.monotonic()

    def now(self) -> float:
        return BEGAN + (time.monotonic() - self._began) * self._speed

    def wait(self, length: float, stop: threading.Event) -> bool:
        return stop.wait(length / self._speed)


class _NoSocket(socket.socket):
    def __init__(self, *_arguments: object, **_named: object) -> None:
        raise AssertionError("the demo opens a socket")


@contextmanager
def without_sockets() -> Iterator[None]:
    """Whoever opens a socket meanwhile fails."""
    before = socket.socket
    socket.socket = _NoSocket  # type: ignore[misc]  # put back below
    try:
        yield
    finally:
        socket.socket = before  # type: ignore[misc]


def demo(seed: int = 0) -> DemoServices:
    return DemoServices(clock=MovedClock(), seed=seed)


def recommended(services: DemoServices, question: Question) -> tuple[Plan, tuple[int, int]]:
    """The plan and the choice it recommends; where nothing fits, the first candidate there is."""
    plan = services.plan(question, services.world.fleet())
    if plan.recommended is None:
        return plan, (next(number for number, one in enumerate(plan.strategies) if one.candidates), 0)
    name, number = plan.recommended
    return plan, ([one.strategy for one in plan.strategies].index(name), number)
