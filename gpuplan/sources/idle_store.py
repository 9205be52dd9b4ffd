"""What sweeps of this machine have seen, in `$XDG_STATE_HOME/gpuplan/sweep.json`, for its owner's eyes.

One reader and writer at a time. What cannot be read is as if it had never been seen: clocks start anew, nothing is
stopped early. The file may be deleted at any time.
"""

import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpuplan.domain.idle import Moment, Sighting
from gpuplan.errors import GpuplanError
from gpuplan.sources.state import state_directory

SCHEMA = 1
MODE = 0o600
KEPT_SECONDS = 90 * 86400
"""A deployment nobody looked at for so long is forgotten."""
LARGEST = 64 * 1024**2

Sightings = dict[tuple[str, str], Sighting]
"""By name and generation."""


def sightings_file(environ: Mapping[str, str]) -> Path:
    """Where they are kept; not made here."""
    return state_directory(environ) / "sweep.json"


@contextmanager
def remembered(environ: Mapping[str, str]) -> Iterator[Sightings]:
    """All there is, to be changed in place: written whole at the end, and nobody else writes meanwhile.

    Raises GpuplanError when it cannot be read or written: without a memory nothing is ever known to be idle.
    """
    path = sightings_file(environ)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path.with_name("sweep.lock"), os.O_RDWR | os.O_CREAT, MODE)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            found = _read(path)
        except OSError as error:
            raise _unwritable(path, error) from error
        yield found
        newest = max((one.looked for one in found.values()), default=0.0)
        kept = [one for one in found.values() if one.looked >= newest - KEPT_SECONDS]
        try:
            _write(path, kept)
        except OSError as error:
            raise _unwritable(path, error) from error
    finally:
        os.close(descriptor)


def _read(path: Path) -> Sightings:
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(LARGEST))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return {}
    entries = document.get("deployments")
    found = [_sighting(entry) for entry in (entries if isinstance(entries, list) else [])]
    return {one.key: one for one in found if one is not None}


def _write(path: Path, sightings: list[Sighting]) -> None:
    """The whole file or none; only its writer holds the lock, so one name beside it is enough."""
    whole = path.with_name(".sweep.json.new")
    document = {"schema": SCHEMA, "deployments": [asdict(one) for one in sightings]}
    with suppress(FileNotFoundError):
        whole.unlink()
    descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(document, file, ensure_ascii=True)
        file.flush()
        os.fsync(file.fileno())
    whole.replace(path)


def _sighting(entry: Any) -> Sighting | None:
    try:
        since = entry["since"]
        sighting = Sighting(
            name=str(entry["name"]),
            generation=str(entry["generation"]),
            starts=tuple(str(one) for one in entry["starts"]),
            counters=tuple(
                (int(server), int(served), int(tokens)) for server, served, tokens in entry["counters"]
            ),
            since=Moment(wall=float(since["wall"]), steady=float(since["steady"]), boot=str(since["boot"])),
            looked=float(entry["looked"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    times = (sighting.since.wall, sighting.since.steady, sighting.looked)
    return sighting if all(math.isfinite(one) for one in times) else None


def _unwritable(path: Path, error: OSError) -> GpuplanError:
    return GpuplanError(
        f"{path}: {error.strerror or error}: what a sweep sees cannot be remembered, so nothing is ever known to be idle",
        hint="set XDG_STATE_HOME to a directory that can be written",
    )
