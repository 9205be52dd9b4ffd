"""A deploy as it goes: lines on stderr and a status line for people, one JSON object a line on stdout for scripts."""

import json
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpuplan.cli import output
from gpuplan.cli.progress import STATUS
from gpuplan.domain.events import PhaseStarted, Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.domain.events import At

QUIET_SECONDS = 1.0
"""Transfers are told at most so often where nobody watches them move."""


@contextmanager
def progress(*, as_json: bool) -> "Iterator[Callable[[At], None]]":
    """Where events go; the status line is wiped at the end."""
    sink = _JsonLines() if as_json else _Words()
    try:
        yield sink
    finally:
        STATUS.clear()


class _JsonLines:
    """Every event as one line of JSON, flushed: a script follows them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thinned = _Thinned()

    def __call__(self, at: "At") -> None:
        from gpuplan.present.event_words import event_document

        if self._thinned.skips(at):
            return
        with self._lock:
            print(f"{json.dumps(event_document(at), ensure_ascii=True)}\n", end="", flush=True)


class _Words:
    """One line an event on stderr; bytes under way in the status line."""

    def __init__(self) -> None:
        self._thinned = _Thinned()

    def __call__(self, at: "At") -> None:
        from gpuplan.present.event_words import WIDEST, event_text

        if sys.stderr is None:
            return
        text = event_text(at, output.width() if sys.stderr.isatty() else WIDEST)
        if text is None:
            return
        moving = isinstance(at.event, Transfer)
        if moving and sys.stderr.isatty():
            STATUS.show(text)
            return
        if moving and self._thinned.skips(at):
            return
        with STATUS.aside():
            print(text, file=sys.stderr, flush=True)
        if isinstance(at.event, PhaseStarted):
            STATUS.show(f"waiting for {at.event.awaits}")


class _Thinned:
    """Drops transfers that follow each other too fast; the last of each is always told."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], float] = {}

    def skips(self, at: "At") -> bool:
        event = at.event
        if not isinstance(event, Transfer) or event.done_bytes == event.total_bytes:
            return False
        key = (event.host, event.about)
        if at.at - self._last.get(key, 0.0) < QUIET_SECONDS:
            return True
        self._last[key] = at.at
        return False
