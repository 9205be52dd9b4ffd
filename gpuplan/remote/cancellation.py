"""One switch that ends every connection begun under it, from any thread and at once."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from gpuplan.remote.connection import ConnectionFailed, Stage

STEP = 0.1
"""Seconds after which a wait that cannot be woken looks whether it was cancelled."""


class Cancellation:
    """Shared by many connects; once cancelled it stays so, and whatever is begun under it later fails at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._happened = threading.Event()
        self._enders: dict[int, Callable[[], None]] = {}
        self._numbers = count()

    @property
    def cancelled(self) -> bool:
        return self._happened.is_set()

    def cancel(self) -> None:
        """End every socket and transport now; they are told in turn, none is waited for."""
        with self._lock:
            self._happened.set()
            enders = list(self._enders.values())
            self._enders.clear()
        for end in enders:
            end()

    def check(self) -> None:
        """Raise ConnectionFailed (stage CANCELLED) when it was cancelled."""
        if self._happened.is_set():
            raise ConnectionFailed(Stage.CANCELLED, "stopped before it was done")

    def register(self, end: Callable[[], None]) -> Callable[[], None]:
        """`end` is called once when it is cancelled, from that thread; what is returned takes it off again.

        `end` must not block. Raises ConnectionFailed (stage CANCELLED), having called it, when that was before.
        """
        with self._lock:
            number = next(self._numbers)
            late = self._happened.is_set()
            if not late:
                self._enders[number] = end
        if late:
            end()
            self.check()

        def release() -> None:
            with self._lock:
                self._enders.pop(number, None)

        return release

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """What fails in the block because of a cancel is told as such, not as a lost connection."""
        try:
            yield
        except ConnectionFailed:
            self.check()
            raise
