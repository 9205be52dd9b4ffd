"""Lessons of earlier starts, one a line in `$XDG_STATE_HOME/gpuplan/calibration/lessons.jsonl`, for their owner's eyes.

A line is appended in one write, so that several gpuplans may learn at once. Lines that cannot be read are counted and stay
where they are; the file may be deleted at any time.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from gpuplan.domain.calibration import Compared, Ending, Lesson, Quantity, StageTerms, Start
from gpuplan.domain.secret_text import masked
from gpuplan.sources.state import state_directory

SCHEMA = 1
MODE = 0o600
LARGEST = 256 * 1024**2
"""Bytes of the file that are read, from its end."""

Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the file holds."""

    path: Path
    lessons: tuple[Lesson, ...] = ()
    """Newest first, each log once."""
    unread: int = 0
    """Lines that make no sense here: damaged, or of a newer gpuplan."""
    problem: str | None = None
    """Why the file could not be read at all."""


def lessons_file(environ: Mapping[str, str]) -> Path:
    """Where lessons are kept; not made here."""
    return state_directory(environ) / "calibration" / "lessons.jsonl"


_Signature = tuple[int, int, int]
_READ: dict[Path, tuple[_Signature, Stored]] = {}
"""What was read last from each file, for a process that plans again and again."""


def load(environ: Mapping[str, str]) -> Stored:
    """Every lesson there is. Never raises: a file that cannot be read is an empty one with a problem."""
    path = lessons_file(environ)
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Stored(path=path)
    except OSError as error:
        return Stored(path=path, problem=error.strerror or str(error))
    signature = (found.st_ino, found.st_size, found.st_mtime_ns)
    known = _READ.get(path)
    if known is None or known[0] != signature:
        known = _READ[path] = (signature, _read(path))
    return known[1]


def _read(path: Path) -> Stored:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - LARGEST))
            lines = file.read(LARGEST).splitlines()
    except OSError as error:
        return Stored(path=path, problem=error.strerror or str(error))
    lessons: dict[str, Lesson] = {}
    unread = 0
    for line in lines:
        if not line.strip():
            continue
        lesson = lesson_in(line)
        if lesson is None:
            unread += 1
        elif lesson.id not in lessons or lessons[lesson.id].at <= lesson.at:
            lessons[lesson.id] = lesson
    newest = sorted(lessons.values(), key=lambda lesson: (-lesson.at, lesson.id))
    return Stored(path=path, lessons=tuple(newest), unread=unread)


def keep(lesson: Lesson, environ: Mapping[str, str]) -> str | None:
    """Add a lesson; why it could not be, else None."""
    path = lessons_file(environ)
    line = json.dumps(document_of(lesson), ensure_ascii=True, separators=(",", ":")).encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND) as descriptor:
            size = os.fstat(descriptor).st_size
            # a line that was cut off stays by itself
            cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, (b"\n" if cut else b"") + line + b"\n")
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return None


def forget(wanted: Callable[[Lesson], bool], environ: Mapping[str, str]) -> int:
    """Take lessons out of the file, how many; lines that cannot be read stay. Raises OSError."""
    path = lessons_file(environ)
    if not path.exists():
        return 0
    taken: set[str] = set()
    with _opened(path, os.O_RDWR) as descriptor:
        with os.fdopen(os.dup(descriptor), "rb") as file:
            lines = file.read().splitlines(keepends=True)
        kept = []
        for line in lines:
            lesson = lesson_in(line)
            if lesson is not None and wanted(lesson):
                taken.add(lesson.id)
            else:
                kept.append(line)
        if taken:
            whole = path.with_name(f".{path.name}.{os.getpid()}")
            fresh = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, MODE)
            with os.fdopen(fresh, "wb") as file:
                file.write(b"".join(kept))
            whole.replace(path)
    return len(taken)


@contextmanager
def _opened(path: Path, how: int) -> Iterator[int]:
    """The file, locked against others that write it; opened again where it was replaced meanwhile."""
    import fcntl

    while True:
        descriptor = os.open(path, how, MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if path.stat().st_ino == os.fstat(descriptor).st_ino:
                    yield descriptor
                    return
        finally:
            os.close(descriptor)


# ---------------------------------------------------------------------- a lesson as a line


def document_of(lesson: Lesson) -> dict[str, Any]:
    """A lesson as it is written down, secrets masked."""
    return {
        "schema": SCHEMA,
        "id": lesson.id,
        "at": lesson.at,
        "origin": masked(lesson.origin)[:300],
        "learned_by": lesson.learned_by,
        "ending": lesson.ending.value,
        "check": lesson.check,
        "start": {field.name: getattr(lesson.start, field.name) for field in fields(Start)},
        "stages": [
            {
                "stage": stage.stage,
                "phase": stage.phase,
                "terms": {
                    term.quantity.value: [term.predicted, term.low, term.high, term.actual]
                    for term in stage.terms
                },
            }
            for stage in lesson.stages
        ],
    }


def lesson_in(line: bytes) -> Lesson | None:
    """The lesson of a line; None for one that is damaged or of a newer form."""
    try:
        document = json.loads(line)
        if document["schema"] != SCHEMA:
            return None
        return Lesson(
            id=_text(document["id"]),
            at=float(document["at"]),
            origin=_text(document["origin"]),
            learned_by=_text(document["learned_by"]),
            ending=Ending(document["ending"]),
            check=None if document["check"] is None else _text(document["check"]),
            start=_start(document["start"]),
            stages=tuple(_stage(stage) for stage in document["stages"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _stage(document: Mapping[str, Any]) -> StageTerms:
    known = {quantity.value for quantity in Quantity}
    return StageTerms(
        stage=_whole(document["stage"]),
        phase=_text(document["phase"]),
        terms=tuple(
            Compared(
                quantity=Quantity(name),
                predicted=_whole(predicted),
                low=_whole(low),
                high=_whole(high),
                actual=None if actual is None else _whole(actual),
            )
            for name, (predicted, low, high, actual) in document["terms"].items()
            if name in known
        ),
    )


_TEXTS = ("model", "digest", "architecture", "dtype", "version", "gpu", "kv_cache_dtype")
_NUMBERS = (
    "tensor",
    "pipeline",
    "data",
    "decode_context",
    "prefill_context",
    "max_num_batched_tokens",
    "max_num_seqs",
    "max_model_len",
)
_FLAGS = ("unified", "expert", "enforce_eager")


def _start(document: Mapping[str, Any]) -> Start:
    partition, share = document["layer_partition"], document["utilization"]
    plain: dict[str, Any] = {name: _text(document[name]) for name in _TEXTS}
    plain |= {name: _whole(document[name]) for name in _NUMBERS}
    plain |= {name: bool(document[name]) for name in _FLAGS}
    return Start(
        **plain,
        quantization=_or_none(_text, document["quantization"]),
        compute_capability=_or_none(_text, document["compute_capability"]),
        total_bytes=_or_none(_whole, document["total_bytes"]),
        layer_partition=None if partition is None else tuple(_whole(number) for number in partition),
        utilization=None if share is None else float(share),
        arguments=tuple((_text(name), _text(value)) for name, value in document["arguments"]),
    )


def _or_none(read: Callable[[Any], Kept], value: Any) -> Kept | None:
    return None if value is None else read(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > 2**60:
        raise TypeError(f"{value!r} is no whole number")
    return value
