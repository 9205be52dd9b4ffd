"""Bounded waiting: work runs in threads nobody has to wait for; a stalled server never holds up an exit."""

import queue
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Generic, NoReturn, TypeVar

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


@dataclass(frozen=True, slots=True)
class Finished(Generic[T]):
    """One call that came to its end."""

    number: int
    result: Callable[[], T]
    """Gives the result, or raises what the call raised."""


def as_finished(
    calls: Sequence[Callable[[], T]], *, workers: int, deadline: Deadline | None = None
) -> Generator[Finished[T], None, None]:
    """Each call as it ends, at most `workers` of them running at a time.

    When the iterator is closed no further call starts; calls already running are abandoned. Raises
    DeadlineExceeded when time runs out.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[Finished[T]] = queue.SimpleQueue()
    stopped = threading.Event()

    def work() -> None:
        while not stopped.is_set():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                return
            done.put(Finished(number, _outcome(calls[number])))

    for number in range(len(calls)):
        waiting.put(number)
    for _ in range(min(workers, len(calls))):
        threading.Thread(target=work, daemon=True).start()
    try:
        for _ in calls:
            yield done.get(timeout=deadline.remaining() if deadline is not None else None)
    except queue.Empty:
        raise DeadlineExceeded from None
    finally:
        stopped.set()


def gather(calls: Sequence[Callable[[], T]], *, deadline: Deadline, workers: int) -> list[T]:
    """Results of `calls` in order, at most `workers` of them running at a time.

    The first exception is raised and no further call starts; calls already running are abandoned. Raises
    DeadlineExceeded when time runs out.
    """
    with closing(as_finished(calls, workers=workers, deadline=deadline)) as finished:
        results = {call.number: call.result() for call in finished}
    return [results[number] for number in range(len(calls))]


def _outcome(call: Callable[[], T]) -> Callable[[], T]:
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - handed to the waiting thread, which raises it
        return partial(_raise, error)
    return lambda: result


def _raise(error: BaseException) -> NoReturn:
    raise error
