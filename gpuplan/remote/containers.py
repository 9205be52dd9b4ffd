"""Our containers on one engine: made, filled, started, asked, stopped and removed.

Every call that changes a container looks first whether it carries our label and then speaks of it by its id, so that
nothing foreign is ever touched. Every failure is a `HostCallFailed`: RequestRefused is the engine's own no (404: no
such container, 409: not in that state), NameTaken one of it; EngineFailed and ConnectionFailed are no answer at all.
"""

import io
import math
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import PurePosixPath
from typing import Any

from gpuplan.domain.labels import DEPLOYMENT, MANAGED
from gpuplan.remote.connection import Completed, HostCallFailed
from gpuplan.remote.container_logs import LogLine, LogStream, Output, gathered_output, logs
from gpuplan.remote.docker_engine import Engine, RequestRefused
from gpuplan.remote.engine_calls import AnswerStream, Silent, answering, asking, inspect

__all__ = [
    "LogLine",
    "LogStream",
    "NameTaken",
    "NotOurs",
    "Output",
    "create",
    "execute",
    "inspect",
    "is_ours",
    "kill",
    "list_ours",
    "logs",
    "put_files",
    "remove",
    "rename",
    "run_once",
    "start",
    "stop",
]

OUTPUT_LIMIT = 4 * 1024**2
"""Bytes kept of each output of a command."""
_PAUSE = 0.1
"""Seconds before something that ends by itself is looked at again."""


class NameTaken(RequestRefused):
    """Another container of the host has the name."""


class NotOurs(RequestRefused):
    """A container without our label was to be changed: refused here, the engine was not asked."""

    def __init__(self, container: str) -> None:
        super().__init__(403, f"container {container} was not made by gpuplan")


def create(engine: Engine, body: Mapping[str, Any], name: str) -> str:
    """Make a container from the JSON of `/containers/create`; its id. It is not started.

    Raises NameTaken, RequestRefused (404: no such image), EngineFailed, ConnectionFailed.
    """
    if (body.get("Labels") or {}).get(MANAGED) != "true":
        raise ValueError(f"a container without the label {MANAGED} could never be removed again")
    with asking(engine, f"create {name}"), _name_conflicts():
        api: Any = engine.api
        return str(api.create_container_from_config(dict(body), name)["Id"])


def put_files(
    engine: Engine, container: str, files: Mapping[str, bytes], *, directory: str, uid: int, gid: int
) -> None:
    """Write files that only their owner reads (0400) into a directory of their own (0700), started or not.

    `files`: content by plain name. `directory`: absolute; parents that are missing are made (0755, root).
    """
    identity = _ours(engine, container)
    archive = _archive(
        files, PurePosixPath(directory), uid, gid, has=lambda path: _has(engine, identity, path)
    )
    with asking(engine, f"write into {container}"):
        engine.api.put_archive(identity, "/", archive)


def start(engine: Engine, container: str) -> None:
    """Start it; one that runs stays as it is. The engine tells errors with GPUs here: RequestRefused, 500."""
    identity = _ours(engine, container)
    with asking(engine, f"start {container}"):
        engine.api.start(identity)


def stop(engine: Engine, container: str, seconds: float) -> None:
    """Ask it to end, kill it after `seconds`; returns when it has ended. One that does not run stays as it is."""
    identity = _ours(engine, container)
    with asking(engine, f"stop {container}"):
        engine.api.stop(identity, timeout=math.ceil(seconds))


def kill(engine: Engine, container: str, signal: str = "SIGKILL") -> None:
    """Send a signal. Raises RequestRefused (409) when it does not run."""
    identity = _ours(engine, container)
    with asking(engine, f"kill {container}"):
        engine.api.kill(identity, signal)


def remove(engine: Engine, container: str) -> None:
    """Take it away with its anonymous volumes, running or not; one that is gone is fine."""
    found = inspect(engine, container)
    if found is None:
        return
    identity = _identity(found, container)
    try:
        with asking(engine, f"remove {container}"):
            engine.api.remove_container(identity, v=True, force=True)
    except RequestRefused as refused:
        if refused.status == 409 and "in progress" in refused.detail:
            _until_gone(engine, identity, refused)
        elif refused.status != 404:
            raise


def rename(engine: Engine, container: str, name: str) -> None:
    """Give it another name. Raises NameTaken."""
    identity = _ours(engine, container)
    with asking(engine, f"rename {container}"), _name_conflicts():
        engine.api.rename(identity, name)


def list_ours(engine: Engine, *, deployment: str | None = None) -> list[dict[str, Any]]:
    """What `inspect` says of each of our containers, stopped ones too, in the engine's order (newest first)."""
    labels = [f"{MANAGED}=true", *([f"{DEPLOYMENT}={deployment}"] if deployment is not None else [])]
    with asking(engine, "list containers"):
        listed = engine.api.containers(all=True, filters={"label": labels})
    found = (inspect(engine, str(entry["Id"])) for entry in listed)
    return [each for each in found if each is not None and is_ours(each)]


def is_ours(inspected: Mapping[str, Any]) -> bool:
    """Whether what `inspect` told carries our label."""
    labels = (inspected.get("Config") or {}).get("Labels") or {}
    return bool(labels.get(MANAGED) == "true")


def execute(
    engine: Engine,
    container: str,
    command: Sequence[str],
    *,
    timeout: float,
    env: Sequence[tuple[str, str]] = (),
    limit: int = OUTPUT_LIMIT,
) -> Completed:
    """Run a command in a running container of ours, without a shell, and wait at most `timeout` seconds.

    Out of time, what it printed so far is returned with `timed_out`; the engine cannot end it, so it goes on inside.
    `env` can be read by whoever may inspect containers. Raises RequestRefused (409: the container does not run).
    """
    deadline = time.monotonic() + timeout
    identity = _ours(engine, container)
    what = f"run {command[0]} in {container}"
    outputs = (bytearray(), bytearray())
    truncated = timed_out = False
    with asking(engine, what):
        api: Any = engine.api
        begun = str(api.exec_create(identity, list(command), environment=dict(env) or None)["Id"])
        response, frames = api.exec_frames(begun)
        with closing(AnswerStream(response)) as answer:
            answer.finish_by(deadline)
            try:
                with answering():
                    for standard, data in frames:
                        kept = outputs[0] if standard else outputs[1]
                        room = max(0, limit - len(kept))
                        truncated = truncated or len(data) > room
                        kept.extend(data[:room])
            except Silent:
                timed_out = True
    code = None if timed_out else _exit_code(engine, begun, what, deadline)
    return Completed(
        exit_code=code,
        stdout=bytes(outputs[0]),
        stderr=bytes(outputs[1]),
        truncated=truncated,
        timed_out=timed_out,
    )


def run_once(
    engine: Engine, body: Mapping[str, Any], *, timeout: float, name: str, limit: int = OUTPUT_LIMIT
) -> Completed:
    """Make a container, let it run to its end or for `timeout` seconds, and remove it whatever happens.

    The body carries our labels. Out of time it is killed, and what it printed so far returned with `timed_out`. When
    it cannot be removed because the host is lost, it stays, ended or not: `list_ours` finds it later.
    """
    identity = create(engine, body, name)
    with _removing(engine, identity):
        start(engine, identity)
        code = _wait(engine, identity, f"wait for {name}", timeout)
        output, errors, truncated = gathered_output(engine, identity, limit)
        return Completed(
            exit_code=code, stdout=output, stderr=errors, truncated=truncated, timed_out=code is None
        )


def _ours(engine: Engine, container: str) -> str:
    """The id of a container that is ours. Raises RequestRefused (404), NotOurs."""
    found = inspect(engine, container)
    if found is None:
        raise RequestRefused(404, f"No such container: {container}")
    return _identity(found, container)


def _identity(inspected: Mapping[str, Any], container: str) -> str:
    if not is_ours(inspected):
        raise NotOurs(container)
    return str(inspected["Id"])


@contextmanager
def _name_conflicts() -> Iterator[None]:
    try:
        with answering():
            yield
    except RequestRefused as refused:
        if refused.status == 409 and "already in use" in refused.detail:
            raise NameTaken(refused.status, refused.detail) from refused
        raise


def _until_gone(engine: Engine, identity: str, refused: RequestRefused) -> None:
    """Someone else removes it: until that is done, as long as a request may take."""
    deadline = time.monotonic() + engine.timeout
    while inspect(engine, identity) is not None:
        if time.monotonic() > deadline:
            raise refused
        time.sleep(_PAUSE)


def _archive(files: Mapping[str, bytes], directory: PurePosixPath, uid: int, gid: int, *, has: Any) -> bytes:
    """A tar for `/`. Directories that are there stay out of it but the last: unpacking would change their mode."""
    if not directory.is_absolute() or ".." in directory.parts or len(directory.parts) < 2:
        raise ValueError(f"{directory} is no absolute directory")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        above = [path for path in reversed(directory.parents) if len(path.parts) > 1 and not has(str(path))]
        for path in [*above, directory]:
            entry = tarfile.TarInfo(str(path).lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            if path == directory:
                entry.mode, entry.uid, entry.gid = 0o700, uid, gid
            tar.addfile(entry)
        for name, content in files.items():
            if "/" in name or name in {"", ".", ".."}:
                raise ValueError(f"{name!r} is no plain file name")
            entry = tarfile.TarInfo(str(directory / name).lstrip("/"))
            entry.size, entry.mode, entry.uid, entry.gid = len(content), 0o400, uid, gid
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _has(engine: Engine, identity: str, path: str) -> bool:
    with asking(engine, f"look at {path}"):
        api: Any = engine.api
        url = api._url("/containers/{0}/archive", identity)
        answer = api.head(url, params={"path": path}, timeout=engine.timeout)
        if answer.status_code != 404:
            api._raise_for_status(answer)
        return bool(answer.status_code == 200)


def _exit_code(engine: Engine, begun: str, what: str, deadline: float) -> int | None:
    """Of a command whose outputs are closed; None when it still runs at the deadline."""
    while True:
        with asking(engine, what):
            state = engine.api.exec_inspect(begun)
        if not state.get("Running") and state.get("ExitCode") is not None:
            return int(state["ExitCode"])
        if time.monotonic() > deadline:
            return None
        time.sleep(_PAUSE)


def _wait(engine: Engine, identity: str, what: str, timeout: float) -> int | None:
    """The exit code of a container; None when it still runs after `timeout` seconds."""
    with asking(engine, what):
        try:
            with answering():
                return int(engine.api.wait(identity, timeout=math.ceil(timeout))["StatusCode"])
        except Silent:
            pass  # it runs on, or the host is silent: looked at next
    found = inspect(engine, identity)
    state = (found or {}).get("State") or {}
    return None if state.get("Running", True) else int(state.get("ExitCode", 0))


@contextmanager
def _removing(engine: Engine, identity: str) -> Iterator[None]:
    """Remove it at the end; when something else went wrong as well, that is told, with a note of what stayed."""
    try:
        yield
    except BaseException as error:
        try:
            remove(engine, identity)
        except HostCallFailed as failed:
            error.add_note(f"container {identity[:12]} could not be removed: {failed.detail}")
        raise
    remove(engine, identity)
