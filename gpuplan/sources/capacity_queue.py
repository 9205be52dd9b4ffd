"""Who of this user waits for room on a fleet, first come first: a file in `$XDG_STATE_HOME/gpuplan`.

One reader and writer at a time. A process that has ended without leaving is dropped by whoever looks next. The file may
be deleted at any time: whoever waits then stands last.
"""

import fcntl
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuplan.errors import GpuplanError
from gpuplan.sources.state import state_directory

SCHEMA = 1
MODE = 0o600
LARGEST = 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """A deploy that waits."""

    id: str
    pid: int
    process: str
    """What tells the process of that number from earlier and later ones."""
    name: str
    """What it deploys."""
    since: float
    """Seconds since 1970."""
    looked: float = 0.0
    """When it last began to look whether it fits, by the monotonic clock of this machine."""
    fits: bool = False
    """Whether it did."""
    trying: bool = False
    """It has left off waiting and tries."""


Waiters = dict[str, Waiter]
"""By id, in the order they came."""


def queue_file(environ: Mapping[str, str], fleet: Iterable[str]) -> Path:
    """Where the queue of a fleet is kept; `fleet`: what its hosts are reached by, in any order."""
    digest = hashlib.sha256("\n".join(sorted(fleet)).encode()).hexdigest()[:12]
    return state_directory(environ) / f"queue-{digest}.json"


@contextmanager
def opened(path: Path) -> Iterator[Waiters]:
    """All that wait, to be changed in place: written at the end, and nobody else writes meanwhile.

    Raises GpuplanError when it cannot be read or written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, MODE)
    except OSError as error:
        raise _unwritable(path, error) from error
    with os.fdopen(descriptor, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            before = file.read(LARGEST)
        except OSError as error:
            raise _unwritable(path, error) from error
        waiters = _read(before)
        yield waiters
        entries = [asdict(one) for one in waiters.values()]
        document = json.dumps({"schema": SCHEMA, "waiting": entries}).encode()
        if document == before:
            return
        try:
            file.seek(0)
            file.write(document)
            file.truncate()
            file.flush()
        except OSError as error:
            raise _unwritable(path, error) from error


def _read(content: bytes) -> Waiters:
    """A file that makes no sense, as one cut short is, holds nobody."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return {}
    entries = document.get("waiting")
    found = [_waiter(entry) for entry in (entries if isinstance(entries, list) else [])]
    return {one.id: one for one in found if one is not None}


def _waiter(entry: Any) -> Waiter | None:
    try:
        waiter = Waiter(
            id=str(entry["id"]),
            pid=int(entry["pid"]),
            process=str(entry["process"]),
            name=str(entry["name"]),
            since=float(entry["since"]),
            looked=float(entry["looked"]),
            fits=entry["fits"] is True,
            trying=entry["trying"] is True,
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return waiter if math.isfinite(waiter.since) and waiter.pid > 0 else None


def _unwritable(path: Path, error: OSError) -> GpuplanError:
    return GpuplanError(
        f"{path}: {error.strerror or error}: so nobody could know who waits for room first",
        hint="set XDG_STATE_HOME to a directory that can be written, or leave --wait-for-capacity out",
    )
