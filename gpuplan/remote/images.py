"""Images of one engine: what they are, pulled from a registry, or carried over from another engine or a file.

An image that arrives is looked for afterwards: an engine may answer well and have nothing.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpuplan.remote.connection import ConnectionFailed, HostCallFailed, SocketRefused, Stage
from gpuplan.remote.docker_engine import Engine, EngineFailed, RequestRefused, unreachable
from gpuplan.remote.engine_calls import CHUNK, AnswerStream, BrokenOff, Silent, lost, stream_answer
from gpuplan.remote.pull_progress import PullProgress
from gpuplan.remote.registry_login import RegistryLogin
from gpuplan.remote.words import printable

OnProgress = Callable[[int, int | None, str], None]
"""Bytes done, bytes in all (None: not yet known), and what is going on: `downloading`, `unpacking`, `copying`."""

LOAD_SILENCE = 1800.0
"""Seconds an engine may prepare an image before the first byte: it copies all layers first (Engine 20.10)."""


class PullCause(StrEnum):
    """Why an image did not come."""

    NOT_FOUND = "not_found"
    DENIED = "denied"
    """Also said of repositories that are not there."""
    RATE_LIMITED = "rate_limited"
    NO_REGISTRY = "no_registry"
    """Not reached, not trusted, or it broke off."""
    NO_SPACE = "no_space"
    WRONG_ARCHITECTURE = "wrong_architecture"
    LOST = "lost"
    """The host or its engine."""
    STALLED = "stalled"
    OTHER = "other"


class PullFailed(HostCallFailed):
    """An image was not pulled: the cause, and the engine's own words."""

    def __init__(self, cause: PullCause, detail: str) -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause
        self.detail = detail


class LoadFailed(PullFailed):
    """An image was not carried over; `at_source`: the engine it comes from is at fault, not the one it goes to."""

    def __init__(self, cause: PullCause, detail: str, *, at_source: bool = False) -> None:
        super().__init__(cause, detail)
        self.at_source = at_source


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDetails:
    """An image an engine has."""

    id: str
    digests: tuple[str, ...]
    """`vllm/vllm-openai@sha256:…`; none when it was loaded, not pulled."""
    architecture: str
    """Go's name: `amd64`, `arm64`."""
    size_bytes: int
    """Unpacked."""
    env: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    tags: tuple[str, ...] = ()
    user: str = ""


def inspect_image(engine: Engine, reference: str) -> ImageDetails | None:
    """What an engine has under a tag, digest or id; None when it has nothing. Raises HostCallFailed."""
    try:
        found = engine.get(f"/images/{quote(reference, safe='/:@')}/json")
    except RequestRefused as refused:
        if refused.status == 404:
            return None
        raise
    config = found.get("Config") or {}
    variables = (str(entry).partition("=") for entry in config.get("Env") or ())
    return ImageDetails(
        id=str(found["Id"]),
        digests=tuple(found.get("RepoDigests") or ()),
        architecture=str(found.get("Architecture") or ""),
        size_bytes=int(found.get("Size") or 0),
        env=tuple((name, value) for name, _, value in variables),
        labels=tuple(sorted((config.get("Labels") or {}).items())),
        entrypoint=tuple(config.get("Entrypoint") or ()),
        command=tuple(config.get("Cmd") or ()),
        tags=tuple(found.get("RepoTags") or ()),
        user=str(config.get("User") or ""),
    )


def pull(
    engine: Engine,
    reference: str,
    *,
    auth: RegistryLogin | None,
    on_progress: OnProgress,
    silence: float,
) -> None:
    """Have an engine pull an image by tag or digest; what it has already is not pulled again.

    `silence`: seconds without any word after which it is given up; the engine then stops as well. A big layer is
    checked and unpacked without a word for a minute or more. Raises PullFailed.
    """
    name, tag = _split(reference)
    headers = {} if auth is None else {"X-Registry-Auth": auth.header()}
    progress = PullProgress()
    try:
        answer = stream_answer(
            engine,
            "POST",
            "/images/create",
            parameters={"fromImage": name, "tag": tag},
            headers=headers,
            silence=silence,
        )
        with closing(answer):
            for event in _events(answer):
                progress.take(event)
                on_progress(progress.done, progress.total, progress.about)
        if inspect_image(engine, reference) is None:
            raise PullFailed(PullCause.OTHER, f"the engine said it pulled {reference}, and has no such image")
    except Silent as silent:
        raise PullFailed(PullCause.STALLED, f"no word for {silence:g} s") from silent
    except PullFailed:
        raise
    except HostCallFailed as failed:
        raise _pull_failed(engine, f"pull {reference}", failed) from failed


def copy_image(
    source: Engine,
    target: Engine,
    image: str,
    *,
    total_bytes: int | None,
    on_progress: OnProgress,
    silence: float = LOAD_SILENCE,
) -> str:
    """Carry an image from one engine to another through this machine, as it comes; its id there.

    `image`: an id, `sha256:…`: no tag is moved or made. The id is the same unless one engine stores images in
    another way (containerd). `total_bytes`: what `on_progress` is told. Raises LoadFailed.
    """
    try:
        answer = stream_answer(source, "GET", f"/images/{quote(image, safe=':')}/get", silence=silence)
    except HostCallFailed as failed:
        raise _load_failed(source, f"save {image}", failed, at_source=True) from failed
    pieces = _from_source(source, image, answer.pieces())
    try:
        loaded = _load(target, image, _counted(pieces, total_bytes, on_progress), on_progress, silence)
    finally:
        answer.close()
    try:
        found = next((each for name in (image, *loaded) if (each := inspect_image(target, name))), None)
    except HostCallFailed as failed:
        raise _load_failed(target, f"load {image}", failed) from failed
    if found is None:
        raise LoadFailed(PullCause.OTHER, f"the engine said it loaded {image}, and has no such image")
    return found.id


def load_file(
    engine: Engine, path: Path, on_progress: OnProgress, *, silence: float = LOAD_SILENCE
) -> tuple[str, ...]:
    """Load an archive of this machine (`docker save`, packed or not); the names or ids the engine says it loaded.

    Raises LoadFailed, and OSError for the file itself.
    """
    with path.open("rb") as file:
        total = path.stat().st_size
        pieces = iter(lambda: file.read(CHUNK), b"")
        return _load(engine, path.name, _counted(pieces, total, on_progress), on_progress, silence)


def pull_cause(words: str) -> PullCause:
    """What an engine's or a registry's words mean (`deploy-failures` 19 to 22; Engine 20.10 and 28)."""
    known = words.lower()
    return next((cause for cause, pattern in _CAUSES if re.search(pattern, known)), PullCause.OTHER)


_CAUSES = (
    (PullCause.NO_SPACE, r"no space left on device|disk quota exceeded|not enough space"),
    (PullCause.RATE_LIMITED, r"toomanyrequests|too many requests|rate limit|status\D{0,20}429\b"),
    (
        PullCause.WRONG_ARCHITECTURE,
        r"no matching manifest for|no match for platform|does not match the (specified|expected) platform",
    ),
    (
        PullCause.DENIED,
        r"denied|unauthorized|authentication required|no basic auth|forbidden|incorrect username",
    ),
    (
        PullCause.NO_REGISTRY,
        "|".join(
            (
                *(
                    "connection refused",
                    "no such host",
                    "i/o timeout",
                    "tls handshake",
                    "x509",
                    "certificate",
                ),
                *(
                    "http response to https",
                    "network is unreachable",
                    "no route to host",
                    "deadline exceeded",
                ),
                *(
                    "request canceled",
                    r"client\.timeout",
                    "proxyconnect",
                    "name resolution",
                    "server misbehaving",
                ),
                *("name or service not known", "connection reset", "broken pipe", r"\beof\b", "bad gateway"),
                *(r"status\D{0,20}5\d\d\b", "service unavailable", "layer verification failed"),
            )
        ),
    ),
    (
        PullCause.NOT_FOUND,
        r"not found|manifest unknown|no such image|name unknown|not known|invalid reference",
    ),
)


def _split(reference: str) -> tuple[str, str]:
    """`fromImage` and `tag` of a reference; with a digest the tag is nothing but a name for people."""
    name, at, digest = reference.partition("@")
    head, slash, last = name.rpartition("/")
    bare, _, tag = last.partition(":")
    return f"{head}{slash}{bare}", digest if at else tag or "latest"


def _events(answer: AnswerStream) -> Iterator[Mapping[str, Any]]:
    """JSON documents, one a line, as they come. Raises PullFailed for one that tells an error; BrokenOff, Silent."""
    waiting = bytearray()
    for piece in answer.pieces():
        waiting += piece
        *lines, rest = bytes(waiting).split(b"\n")
        waiting[:] = rest
        yield from _documents(lines)
    yield from _documents([bytes(waiting)])


def _documents(lines: list[bytes]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BrokenOff(f"the answer makes no sense: {printable(line, 80)}") from error
        if isinstance(document, dict):
            said = _error(document)
            if said is not None:
                raise PullFailed(pull_cause(said), printable(said))
            yield document


def _error(event: Mapping[str, Any]) -> str | None:
    detail = event.get("errorDetail")
    if isinstance(detail, dict) and detail.get("message"):
        return str(detail["message"])
    return str(event["error"]) if event.get("error") else None


def _pull_failed(engine: Engine, what: str, failed: HostCallFailed) -> PullFailed:
    match failed:
        case ConnectionFailed(stage=Stage.CANCELLED):
            raise failed
        case PullFailed():
            return PullFailed(failed.cause, failed.detail)
        case RequestRefused():
            cause = pull_cause(failed.detail)
            by_status = {401: PullCause.DENIED, 403: PullCause.DENIED, 404: PullCause.NOT_FOUND}
            if cause is PullCause.OTHER:
                cause = by_status.get(failed.status, PullCause.OTHER)
            return PullFailed(cause, failed.detail)
        case BrokenOff():
            return _pull_failed(engine, what, lost(engine, what, failed))
        case SocketRefused():
            return PullFailed(PullCause.LOST, unreachable(failed).detail)
        case ConnectionFailed() | EngineFailed():
            return PullFailed(PullCause.LOST, failed.detail)
        case _:
            return PullFailed(PullCause.OTHER, failed.detail)


def _load_failed(engine: Engine, what: str, failed: HostCallFailed, *, at_source: bool = False) -> LoadFailed:
    if isinstance(failed, LoadFailed):
        return failed
    if isinstance(failed, Silent):
        return LoadFailed(PullCause.STALLED, f"{what}: {failed.detail}", at_source=at_source)
    told = _pull_failed(engine, what, failed)
    return LoadFailed(told.cause, told.detail, at_source=at_source)


def _from_source(source: Engine, image: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from pieces
    except HostCallFailed as failed:
        raise _load_failed(source, f"save {image}", failed, at_source=True) from failed


def _counted(pieces: Iterator[bytes], total: int | None, on_progress: OnProgress) -> Iterator[bytes]:
    done = 0
    for piece in pieces:
        yield piece
        done += len(piece)
        on_progress(done, total, "copying")


def _load(
    engine: Engine, what: str, pieces: Iterator[bytes], on_progress: OnProgress, silence: float
) -> tuple[str, ...]:
    loaded: list[str] = []
    try:
        answer = stream_answer(
            engine, "POST", "/images/load", parameters={"quiet": "0"}, body=pieces, silence=silence,
            headers={"Content-Type": "application/x-tar"},
        )  # fmt: skip
        with closing(answer):
            for event in _events(answer):
                loaded += _LOADED.findall(str(event.get("stream") or ""))
                detail = event.get("progressDetail")
                if isinstance(detail, dict) and isinstance(detail.get("current"), int):
                    total = detail.get("total")
                    on_progress(detail["current"], total if isinstance(total, int) else None, "unpacking")
    except HostCallFailed as failed:
        raise _load_failed(engine, f"load {what}", failed) from failed
    return tuple(loaded)


_LOADED = re.compile(r"Loaded image(?: ID)?: (\S+)")
