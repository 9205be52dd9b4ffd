"""One line on stderr that says how far a probe is; nothing where nobody watches."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from gpuplan.cli import output
from gpuplan.present.document import padded, visible

if TYPE_CHECKING:
    from gpuplan.operations.probe import Progress

_CLEAR = "\r\x1b[K"


class StatusLine:
    """The last line of the terminal, kept up to date in place; it makes room for questions."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._text = ""
        self._aside = 0

    def show(self, text: str) -> None:
        """Put `text` in the place of what stood there."""
        if sys.stderr is None or not sys.stderr.isatty():
            return
        with self._lock:
            self._text = text
            if not self._aside:
                print(
                    f"{_CLEAR}{padded(text, output.width() - 1).rstrip()}",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )

    def clear(self) -> None:
        self.show("")

    def end(self) -> None:
        """Go on below what the terminal has echoed: `^C`."""
        if sys.stderr is not None and sys.stderr.isatty():
            print(file=sys.stderr)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the terminal to somebody else for a while."""
        shown = self._text
        self.show("")
        with self._lock:
            self._text = shown
            self._aside += 1
        try:
            yield
        finally:
            with self._lock:
                self._aside -= 1
            if self._text:
                self.show(self._text)


STATUS = StatusLine()
"""There is one terminal."""


class ProbeProgress:
    """`hosts: 12 of 40 read, 2 failed, 26 waiting (h12)`, wiped at the end."""

    def __init__(self, total: int) -> None:
        self._total = total

    def __enter__(self) -> Self:
        STATUS.show(f"hosts: 0 of {self._total} read, {self._total} waiting")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        STATUS.clear()

    def __call__(self, progress: "Progress") -> None:
        failed = f", {progress.failed} failed" if progress.failed else ""
        read = progress.done - progress.failed
        text = f"hosts: {read} of {progress.total} read{failed}, {progress.waiting} waiting"
        STATUS.show(f"{text} ({visible(progress.last.name)})")
