"""Logs in files, put together to starts: the log of another host of a server belongs to the one before it."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuplan.engine.start_facts import facts_of
from gpuplan.engine.startup_log import LogLine
from gpuplan.errors import GpuplanError, UsageError
from gpuplan.operations.learn import learn_from_lines
from gpuplan.operations.start_question import Known
from gpuplan.planning.learned import Gap, Learned, Missing
from gpuplan.sources import calibration_store

STDIN = "-"
LARGEST = 512 * 1024**2
"""Bytes of a log that are read: a start is told at its beginning, a restart rarely later."""
FEWEST = 4
"""Characters of an id that name a lesson."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One log, read."""

    name: str
    lines: tuple[LogLine, ...]
    at: float
    """When it was written last."""


def learn_logs(
    names: Sequence[str], known: Known, *, environ: Mapping[str, str], keep: bool = True
) -> tuple[Learned, ...]:
    """Learn from every start of the logs; one that is refused does not keep the others from being learned.

    Raises UsageError for a file that cannot be read, and of one start what `learn_from_lines` raises.
    """
    logs = [_read(name) for name in dict.fromkeys(names)]
    servers = _servers(logs)
    learned = []
    for server in servers:
        first, *others = server
        origin = first.name if not others else f"{first.name} and {len(others)} more"
        lines = {log.name: log.lines for log in server}
        try:
            one = learn_from_lines(
                lines,
                origin=origin,
                at=max(log.at for log in server),
                environ=environ,
                known=known,
                keep=keep,
            )
        except GpuplanError as error:
            if len(servers) == 1:
                error.message = f"{origin}: {error.message}"
                error.args = (error.message,)
                raise
            missing = Missing(gap=Gap.WRONG, detail=error.message, way=error.hint or "")
            one = Learned(origin=origin, facts=facts_of(lines), missing=(missing,))
        learned.append(one)
    return tuple(learned)


def _servers(logs: Sequence[Log]) -> list[list[Log]]:
    """Logs by server: one that does not say what was started, or that it serves nothing, follows the one before."""
    found: list[list[Log]] = []
    for log in logs:
        follows = found and facts_of({log.name: log.lines}).follower
        if follows:
            found[-1].append(log)
        else:
            found.append([log])
    return found


def _read(name: str) -> Log:
    try:
        if name == STDIN:
            return Log(name="stdin", lines=_lines(sys.stdin.buffer.read(LARGEST)), at=time.time())
        path = Path(name)
        with path.open("rb") as file:
            text = file.read(LARGEST)
        return Log(name=path.name, lines=_lines(text), at=path.stat().st_mtime)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(
            f"{name}: {reason}", hint="name a file with the log of a server, or - for stdin"
        ) from error


def _lines(text: bytes) -> tuple[LogLine, ...]:
    return tuple((None, line) for line in text.decode("utf-8", errors="replace").split("\n"))


def forget_lessons(wanted: Sequence[str], environ: Mapping[str, str]) -> int:
    """Forget starts by id or its beginning, or `all`; how many. Raises UsageError for one that is not there."""
    stored = calibration_store.load(environ)
    ids: set[str] = set()
    for name in wanted:
        found = {one.id for one in stored.lessons if name in ("all", one.id) or _begins(one.id, name)}
        if not found and name != "all":
            raise UsageError(
                f"--forget {name[:40]}: no such start was learned", hint="gpuplan learn --list shows them"
            )
        ids |= found
    try:
        return calibration_store.forget(lambda lesson: lesson.id in ids, environ)
    except OSError as error:
        raise UsageError(
            f"{stored.path}: {error.strerror}", hint="the file may be deleted by hand"
        ) from error


def _begins(identity: str, name: str) -> bool:
    return len(name) >= FEWEST and identity.startswith(name)
