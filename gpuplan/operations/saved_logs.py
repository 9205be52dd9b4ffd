"""Logs of containers in files: the first and the last lines of each, secrets masked, for the eyes of their owner alone.

The root cause of a failure stands early, its last words late.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from gpuplan.domain.secret_text import masked

if TYPE_CHECKING:
    from gpuplan.remote.container_logs import LogLine
    from gpuplan.remote.docker_engine import Engine

FIRST_LINES, LAST_LINES = 6000, 4000
"""Kept of each log."""
LONGEST_NAME = 200


class KeptLines:
    """The first and the last lines of a log; not for several threads at once."""

    def __init__(self) -> None:
        self._first: list[LogLine] = []
        self._last: deque[LogLine] = deque(maxlen=LAST_LINES)
        self.cut: str | None = None
        """Why it could not be read to its end."""

    def add(self, line: "LogLine") -> None:
        """The next line."""
        (self._first if len(self._first) < FIRST_LINES else self._last).append(line)

    @property
    def lines(self) -> tuple["LogLine", ...]:
        """What is kept, in order."""
        return (*self._first, *self._last)


def read_log(engine_of: "Callable[[], Engine]", container: str) -> KeptLines:
    """What a container has printed until now. Never raises for a host: the log is then cut."""
    from gpuplan.remote.connection import HostCallFailed
    from gpuplan.remote.container_logs import logs

    kept = KeptLines()
    try:
        with logs(engine_of(), container, follow=False) as stream:
            for line in stream:
                kept.add(line)
    except HostCallFailed as failed:
        kept.cut = failed.detail
    return kept


def write_log(
    path: Path, lines: Iterable["LogLine"], *, mask: Callable[[str], str] = masked, cut: str | None = None
) -> None:
    """A new file of mode 0600 in a directory of mode 0700, its text behind `mask`. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.writelines(f"{line.at} {mask(line.text)}\n" for line in lines)
        if cut is not None:
            file.write(f"the log ends here: {mask(cut)}\n")


def file_name(text: str) -> str:
    """A name from a host or a label as that of a file: it leads to no other directory and is not hidden."""
    return text.replace(os.sep, "_").replace("\0", "_").lstrip(".")[:LONGEST_NAME] or "_"
