"""A log that is taken up again: after a lost connection no line is lost, and none comes twice."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpuplan.deploying.timestamps import nanoseconds, stamp_of

if TYPE_CHECKING:
    from gpuplan.remote.container_logs import LogLine

OVERLAP = 10**9
"""Nanoseconds read again after a reconnect: two outputs of a process may be written down in the wrong order."""


class ResumedLog:
    """Where one log was left, and what was seen just before; for one thread at a time."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, str]] = deque()
        self._newest = 0

    @property
    def start(self) -> str | None:
        """The time stamp to read from; None where nothing was seen yet."""
        return stamp_of(self._newest - OVERLAP) if self._newest else None

    def time_of(self, line: "LogLine") -> int:
        """Nanoseconds since 1970; those of the newest line for one that says no time."""
        return nanoseconds(line.at) or self._newest

    def unseen(self, lines: Iterable["LogLine"]) -> Iterator["LogLine"]:
        """Of lines that were read from `start` on those not seen before; each is seen once it is given."""
        known = Counter(self._recent)
        for line in lines:
            at = self.time_of(line)
            if known[at, line.text] > 0:
                known[at, line.text] -= 1
                continue
            self._remember(at, line.text)
            yield line

    def _remember(self, at: int, text: str) -> None:
        self._newest = max(self._newest, at)
        self._recent.append((at, text))
        while self._recent and self._recent[0][0] < self._newest - OVERLAP:
            self._recent.popleft()
