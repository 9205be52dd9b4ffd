"""Progress of several hosts at once, told one event at a time and not too often."""

import threading
import time
from collections.abc import Callable

from gpuplan.domain.events import Event, Phase, Transfer

EVERY_SECONDS = 0.25
"""Between two events of one host."""

Emit = Callable[[Event], None]
OnProgress = Callable[[int, int | None, str], None]
"""Bytes done, bytes in all, and what about."""


class Meter:
    """Between the threads that move bytes and whoever is told; after `close` nothing is told any more."""

    def __init__(self, emit: Emit, phase: Phase, clock: Callable[[], float] = time.monotonic) -> None:
        self._emit = emit
        self._phase = phase
        self._clock = clock
        self._lock = threading.Lock()
        self._told: dict[str, tuple[float, str]] = {}
        self._open = True

    def tell(self, event: Event) -> None:
        """Hand on an event."""
        with self._lock:
            if self._open:
                self._emit(event)

    def progress(self, host: str, about: str = "") -> OnProgress:
        """What a transfer to a host calls; `about` is told after what it says of itself: `copying from h100-a`."""

        def moved(done: int, total: int | None, doing: str) -> None:
            words = f"{doing} {about}".strip()
            now = self._clock()
            before, said = self._told.get(host, (-EVERY_SECONDS, ""))
            ended = total is not None and done >= total
            if now - before < EVERY_SECONDS and said == words and not ended:
                return
            self._told[host] = (now, words)
            self.tell(Transfer(phase=self._phase, host=host, done_bytes=done, total_bytes=total, about=words))

        return moved

    def close(self) -> None:
        """What is still under way is told to nobody."""
        with self._lock:
            self._open = False
