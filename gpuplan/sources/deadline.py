"""Bounded waiting: work runs in threads nobody has to wait for; a stalled server never holds up an exit."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class DeadlineExceeded(Exception):
    """The time allowed for all of the work is over."""


class Deadline:
    """A point in time on the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends = time.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left; raises DeadlineExceeded when there are none."""
        left = self._ends - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded
        return left

    def portion(self, share: float) -> "Deadline":
        """An earlier deadline: `share` of what is left of this one."""
        return Deadline(self.remaining() * share)


def gather(calls: Sequence[Callable[[], T]], *, deadline: Deadline, workers: int) -> list[T]:
    """Results of `calls` in order, at most `workers` of them running at a time.

    The first exception is raised and no further call starts; calls already running are abandoned. Raises
    DeadlineExceeded when time runs out.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()
    stopped = threading.Event()

    def work() -> None:
        while not stopped.is_set():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((number, calls[number](), None))
            except BaseException as error:  # noqa: BLE001 - handed to the waiting thread, which raises it
                done.put((number, None, error))

    for number in range(len(calls)):
        waiting.put(number)
    for _ in range(min(workers, len(calls))):
        threading.Thread(target=work, daemon=True).start()
    results: dict[int, T] = {}
    try:
        while len(results) < len(calls):
            number, result, error = done.get(timeout=deadline.remaining())
            if error is not None:
                raise error
            results[number] = result  # type: ignore[assignment] # without an error there is a result
    except queue.Empty:
        raise DeadlineExceeded from None
    finally:
        stopped.set()
    return [results[number] for number in range(len(calls))]
