"""Ctrl-C while something is under way that has to be taken back: once to take it back, once more to leave it."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a script's time-out, a terminal that is gone: all are one wish."""
FIRST = "interrupted: what was started is taken back; interrupt once more to leave it as it is"
AGAIN = "interrupted again: nothing more is waited for"


class Interrupts:
    """Each signal as a KeyboardInterrupt, the first one not before the step under way has ended; use as a context."""

    def __init__(self) -> None:
        self._count = 0
        self._held = 0
        self._pending = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, a job in the background
                    self._before[number] = signal.signal(number, self._arrived)
        return self

    def __exit__(self, *_error: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """A step that the first signal waits for; it is raised at the step's end."""
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            if self._pending and not self._held:
                self._pending = False
                raise KeyboardInterrupt

    def _arrived(self, _number: int, _frame: FrameType | None) -> None:
        self._count += 1
        _say(FIRST if self._count == 1 else AGAIN)
        if self._held and self._count == 1:
            self._pending = True
            return
        self._pending = False
        raise KeyboardInterrupt


def _say(text: str) -> None:
    """On a line of its own, below the echo of `^C`. A terminal that is gone hears nothing."""
    if sys.stderr is None:
        return
    try:
        begin = "\n" if sys.stderr.isatty() else ""
        print(f"{begin}gpuplan: {text}\n", end="", file=sys.stderr, flush=True)
    except (OSError, RuntimeError):  # RuntimeError: the signal came in the middle of another print
        return
