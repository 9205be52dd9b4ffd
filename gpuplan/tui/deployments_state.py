"""What the deployments screens know, and the rows of their list; a row is known by its deployment's name or its run."""

from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from textual.app import App
from textual.message import Message

from gpuplan.errors import GpuplanError
from gpuplan.operations.status import DeploymentSeen, StatusReport
from gpuplan.present.document import Line, Lines, Role, wrapped
from gpuplan.present.event_words import event_line
from gpuplan.present.status_rows import (
    Columns,
    address_text,
    columns,
    deployment_line,
    header_line,
    more_text,
    run_line,
)
from gpuplan.present.status_text import duration
from gpuplan.tui.run_feed import RunFeed

EVERY_SECONDS = 5.0
"""Between two looks at what runs, while it is shown."""
IDLE_SECONDS = 120.0
"""Connections of a list that is not shown are kept so long."""
CHANGES = "changes"
"""The group of the app's workers that stop or restart something: leaving asks while one goes on."""

RowKey = tuple[str, str]
"""What a row is about (`RUN` or `DEPLOYMENT`), and the run's id or the deployment's name."""
RUN, DEPLOYMENT = "run", "deployment"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeen:
    """A deploy under way, or one whose end nobody saw."""

    id: str
    name: str
    words: str
    """How far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentsState:
    """What runs, as far as it was read."""

    report: StatusReport | None = None
    read_at: datetime | None = None
    reading: bool = False
    error: str | None = None
    """Why the last look failed; the report is then of an earlier one."""
    hint: str | None = None
    runs: tuple[RunSeen, ...] = ()
    """On top of the list."""

    def find(self, name: str) -> DeploymentSeen | None:
        """The deployment of that name."""
        seen = self.report.deployments if self.report is not None else ()
        return next((one for one in seen if one.deployment.name == name), None)

    def failed(self, error: GpuplanError) -> "DeploymentsState":
        """After a look that failed."""
        return replace(self, reading=False, error=error.message, hint=error.hint)

    def age_words(self, now: datetime) -> str:
        """`read 3 s ago`, `asking the hosts…`."""
        if self.read_at is None:
            return "asking the hosts what runs…" if self.reading else "not read yet"
        seconds = max(0, round((now - self.read_at).total_seconds()))
        words = f"read {duration(seconds)} ago"
        if self.error is not None:
            return f"{words}, and not since: the last look failed"
        return f"{words}, asking again…" if self.reading else words

    def error_lines(self, width: int) -> Lines:
        """Why there is nothing, or nothing newer; what mends it."""
        if self.error is None:
            return ()
        hint = wrapped(self.hint, width, first="hint: ", role=Role.HINT) if self.hint else ()
        rows = (line for row in self.error.splitlines() for line in wrapped(row, width, role=Role.BAD))
        return (*rows, *hint)


NOTHING_KNOWN = DeploymentsState()


@dataclass
class ChangeTold(Message):
    """A stop or restart told how far it is."""

    words: str


def runs_seen(feeds: Iterable[RunFeed]) -> tuple[RunSeen, ...]:
    """The deploys that go on, or ended badly and were not looked at; the latest first."""
    return tuple(
        RunSeen(id=feed.run.id, name=feed.run.name, words=_run_words(feed))
        for feed in reversed(tuple(feeds))
        if not feed.over or feed.badly
    )


def _run_words(feed: RunFeed) -> str:
    if feed.over:
        return "was not deployed; Enter shows why"
    phase = feed.progress.phase
    words = event_line(phase) if phase is not None else None
    return f"deploying: {words}" if words else "deploying"


def changes_under_way(app: App[Any]) -> tuple[str, ...]:
    """What the app itself stops or restarts now: `restart qwen3-32b`."""
    return tuple(worker.name for worker in app.workers if worker.group == CHANGES and not worker.is_finished)


def posting(post: Callable[[Message], object], message: Message) -> None:
    """Post from a thread; an app that was left hears nothing."""
    with suppress(RuntimeError):  # its event loop is closed
        post(message)


class DeploymentRows:
    """The rows of the list: deploys under way, then what runs."""

    def __init__(self, state: DeploymentsState) -> None:
        report = state.report
        self._runs = state.runs
        self._seen = report.deployments if report is not None else ()
        names = [one.name for one in state.runs]
        self._names = [*names, *(one.deployment.name for one in self._seen)]
        self._addresses = [address_text(one.deployment) for one in self._seen]
        self._keys: list[RowKey] = [
            *((RUN, one.id) for one in self._runs),
            *((DEPLOYMENT, one.deployment.name) for one in self._seen),
        ]
        self._at = {key: number for number, key in enumerate(self._keys)}
        self._fitted: Columns | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def key(self, index: int) -> Hashable:
        return self._keys[index]

    def index(self, key: Hashable) -> int | None:
        return self._at.get(key) if isinstance(key, tuple) else None

    def line(self, index: int, width: int) -> Line:
        fitted = self._columns(width)
        if index < len(self._runs):
            return run_line(self._runs[index].name, self._runs[index].words, fitted)
        return deployment_line(self._seen[index - len(self._runs)].deployment, fitted)

    def header(self, width: int) -> Line:
        """What the columns are."""
        return header_line(self._columns(width))

    def more(self, key: Hashable, width: int) -> Lines:
        """What the row has no room for."""
        index = self.index(key)
        if index is None:
            return ()
        if index < len(self._runs):
            return wrapped(self._runs[index].words, width, role=Role.DIM)
        seen = self._seen[index - len(self._runs)]
        return more_text(seen.deployment, seen.facts, width)

    def _columns(self, width: int) -> Columns:
        if self._fitted is None or self._fitted.width != width:
            self._fitted = columns(self._names, self._addresses, width)
        return self._fitted
