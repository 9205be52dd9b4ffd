"""A deploy as a process of its own: it outlives whoever began it, and whoever comes later picks it up.

Everything about it lies in one directory, readable by its owner alone: `plan.json` it deploys, `events.jsonl` and
`stderr.txt` it writes, `run.json` that says which process it is. No secret is in any of them: those travel in the
environment.
"""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuplan.domain.deployment import Deployment
from gpuplan.domain.events import At, Failed, StateChanged
from gpuplan.errors import ExitCode, GpuplanError
from gpuplan.operations.process_identity import identity_of, ignores_interrupts
from gpuplan.sources.event_json import NotAnEvent, read_line

RUNS = "runs"
PLAN, EVENTS, ERRORS, ABOUT, SEEN = "plan.json", "events.jsonl", "stderr.txt", "run.json", "seen"
STEP = 0.1
"""Seconds between two looks at a file that grows."""
KEPT = 30
"""Directories of deploys whose end was seen."""
MOST_ERRORS = 16 * 1024
"""Bytes of what it said on standard error that are shown, from the end."""
INTERRUPTED = "GP818"
CHANGED = "the fleet changed since the plan"
_CHILDREN: dict[int, "subprocess.Popen[bytes]"] = {}
"""Those this process began and has not seen end."""
_CHILDREN_LOCK = threading.Lock()


class CannotStart(GpuplanError):
    """The process, or the directory it writes to, cannot be made."""

    exit_code = ExitCode.UNEXPECTED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a deploy ended."""

    exit_code: int
    """Negative: the signal that killed it."""
    deployment: Deployment | None
    message: str = ""
    """What it said when it ended badly, hints included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _About:
    """`run.json`."""

    name: str
    pid: int
    identity: str
    """Of the process that had this number then: numbers are given again."""
    inventory: str
    started_at: str
    exit_code: int | None = None


def deploy_command(
    plan: Path | str,
    *,
    name: str,
    inventory: Path | str | None,
    keep_alive_seconds: int | None = None,
    host_key: str | None = None,
    jobs: int | None = None,
) -> tuple[str, ...]:
    """The words of the process that deploys a saved plan without asking anybody."""
    words = [sys.executable, "-m", "gpuplan", "deploy", str(plan), "-o", "json", "--yes", "--name", name]
    if inventory is not None:
        words += ["-i", str(Path(inventory).absolute())]
    if keep_alive_seconds is not None:
        words += ["--keep-alive", str(keep_alive_seconds)]
    if host_key is not None:
        words += ["--host-key", host_key]
    if jobs is not None:
        words += ["--jobs", str(jobs)]
    return tuple(words)


def new_directory(state: Path) -> Path:
    """A fresh directory for a run, mode 0700; old ones whose end was seen are removed. Raises CannotStart."""
    runs = state / RUNS
    try:
        runs.mkdir(parents=True, exist_ok=True, mode=0o700)
        _forget(runs)
        directory = runs / f"{time.time_ns() // 10**6:x}-{secrets.token_hex(3)}"
        directory.mkdir(mode=0o700)
    except OSError as error:
        raise CannotStart(
            f"{runs}: {error.strerror}", hint="make room there, or set XDG_STATE_HOME to another directory"
        ) from error
    return directory


def write_private(path: Path, content: str | bytes) -> None:
    """A file only its owner can read, whole or not there at all. Raises CannotStart."""
    data = content.encode() if isinstance(content, str) else content
    whole = path.with_name(f".{path.name}.{secrets.token_hex(3)}")
    try:
        descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        whole.replace(path)
    except OSError as error:
        with suppress(OSError):
            whole.unlink()
        raise CannotStart(f"{path}: {error.strerror}", hint="make room there, then try again") from error


def start(
    directory: Path,
    command: Sequence[str],
    *,
    name: str,
    inventory: str,
    cwd: Path,
    environ: Mapping[str, str],
) -> "DeployProcess":
    """Begin a command in a session of its own; what it prints goes to files of `directory`. Raises CannotStart."""
    private = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        out = os.open(directory / EVENTS, private, 0o600)
        error = os.open(directory / ERRORS, private, 0o600)
        try:
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=error,
                cwd=cwd,
                env=dict(environ),
                start_new_session=True,
            )
        finally:
            os.close(out)
            os.close(error)
    except OSError as failed:
        raise CannotStart(
            f"gpuplan deploy cannot be started: {failed.strerror}",
            hint="see the directory it names, and free memory",
        ) from failed
    with _CHILDREN_LOCK:
        _CHILDREN[child.pid] = child
    about = _About(
        name=name,
        pid=child.pid,
        identity=identity_of(child.pid) or "",
        inventory=inventory,
        started_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
    )
    _keep(directory, about)
    return DeployProcess(directory, about)


def find(state: Path) -> tuple["DeployProcess", ...]:
    """Deploys that are under way, or whose end nobody saw, latest first. Directories that cannot be read are left out."""
    try:
        directories = sorted((path for path in (state / RUNS).iterdir() if path.is_dir()), reverse=True)
    except OSError:
        return ()
    found = (_read(directory) for directory in directories if not (directory / SEEN).exists())
    return tuple(run for run in found if run is not None)


class DeployProcess:
    """One deploy and what it has written so far; any number of these may look at the same one."""

    def __init__(self, directory: Path, about: _About) -> None:
        self.directory = directory
        self._about = about

    @property
    def id(self) -> str:
        return self.directory.name

    @property
    def name(self) -> str:
        return self._about.name

    @property
    def inventory(self) -> str:
        return self._about.inventory

    @property
    def started_at(self) -> str:
        """ISO 8601, UTC."""
        return self._about.started_at

    @property
    def alive(self) -> bool:
        if self._about.exit_code is not None:
            return False
        child = _CHILDREN.get(self._about.pid)
        if child is None:
            return bool(self._about.identity) and identity_of(self._about.pid) == self._about.identity
        if child.poll() is None:
            return True
        self._about = _with_end(self._about, child.returncode)
        with suppress(CannotStart):  # the directory may be gone: then it is known here alone
            _keep(self.directory, self._about)
        with _CHILDREN_LOCK:
            _CHILDREN.pop(self._about.pid, None)
        return False

    def events(self) -> Iterator[At]:
        """Every event from the first, as they come; ends with the process. Lines that are none are passed over."""
        for entry in self._entries(follow=True):
            if isinstance(entry, At):
                yield entry

    def outcome(self) -> RunOutcome | None:
        """How it ended; None while it is alive."""
        if self.alive:
            return None
        deployment: Deployment | None = None
        last: At | None = None
        for entry in self._entries(follow=False):
            if isinstance(entry, Deployment):
                deployment = entry
            elif isinstance(entry.event, (Failed, StateChanged)):
                last = entry
        message = self._said()
        code = self._about.exit_code
        if code is None:
            code = _judged(deployment, last, message)
        if code == ExitCode.DONE:
            message = ""
        elif not message:
            message = _without_words(code)
        return RunOutcome(exit_code=code, deployment=deployment, message=message)

    def take_back(self) -> None:
        """Break it off as Ctrl-C would: the first time it takes everything back, the second it leaves things as they are."""
        pid = self._about.pid
        if not self.alive:
            return
        number = signal.SIGTERM if ignores_interrupts(pid) else signal.SIGINT
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)

    def acknowledge(self) -> None:
        """Its end was seen: `find` does not tell of it again. Of no effect while it is alive."""
        if not self.alive:
            with suppress(OSError):
                (self.directory / SEEN).touch(mode=0o600)

    def _entries(self, *, follow: bool) -> Iterator[At | Deployment]:
        """What its whole lines say; a last line that is half written waits for the rest."""
        try:
            file = (self.directory / EVENTS).open("rb")
        except OSError:
            return
        rest = b""
        with file:
            while True:
                ended = (
                    not follow or not self.alive
                )  # asked first: what it wrote before it ended is read after
                while part := file.read(1 << 20):
                    *lines, rest = (rest + part).split(b"\n")
                    for line in lines:
                        with suppress(NotAnEvent):
                            yield read_line(line)
                if ended:
                    break
                time.sleep(STEP)
        if rest.strip():
            with suppress(NotAnEvent):
                yield read_line(rest)

    def _said(self) -> str:
        """The end of its standard error."""
        try:
            with (self.directory / ERRORS).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - MOST_ERRORS))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return text.strip()


def _judged(deployment: Deployment | None, last: At | None, message: str) -> int:
    """The exit status of a process nobody waited for, from what it wrote."""
    event = None if last is None else last.event
    if isinstance(event, Failed):
        broken_off = any(fact.code == INTERRUPTED for fact in event.facts[:1])
        return ExitCode.INTERRUPTED if broken_off else ExitCode.DEPLOYMENT_FAILED
    if deployment is not None:
        served = deployment.state.value in {"running", "unhealthy"}
        return ExitCode.DONE if served else ExitCode.DEPLOYMENT_FAILED
    if isinstance(event, StateChanged) and event.state.value == "running":
        return ExitCode.DONE
    return ExitCode.FLEET_CHANGED if CHANGED in message else ExitCode.UNEXPECTED


def _without_words(code: int) -> str:
    """For an end that said nothing."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"the process was killed ({name}) before it could take anything back"
    return f"the process ended without a word (exit status {code}): nobody knows how far it came"


def _with_end(about: _About, code: int) -> _About:
    return _About(
        name=about.name,
        pid=about.pid,
        identity=about.identity,
        inventory=about.inventory,
        started_at=about.started_at,
        exit_code=code,
    )


def _keep(directory: Path, about: _About) -> None:
    document: dict[str, Any] = {
        "schema_version": 1,
        "name": about.name,
        "pid": about.pid,
        "process": about.identity,
        "inventory": about.inventory,
        "started_at": about.started_at,
        "exit_code": about.exit_code,
    }
    write_private(directory / ABOUT, json.dumps(document) + "\n")


def _read(directory: Path) -> DeployProcess | None:
    try:
        document = json.loads((directory / ABOUT).read_bytes())
        about = _About(
            name=str(document["name"]),
            pid=int(document["pid"]),
            identity=str(document["process"]),
            inventory=str(document["inventory"]),
            started_at=str(document["started_at"]),
            exit_code=None if document["exit_code"] is None else int(document["exit_code"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return DeployProcess(directory, about)


def _forget(runs: Path) -> None:
    """Keep the latest of those whose end was seen."""
    seen = sorted((path for path in runs.iterdir() if (path / SEEN).exists()), reverse=True)
    for directory in seen[KEPT:]:
        shutil.rmtree(directory, ignore_errors=True)
