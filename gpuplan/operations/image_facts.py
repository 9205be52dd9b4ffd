"""What is inside an image, asked once and remembered on this machine by the image's id."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gpuplan.deploying.image_probe import SECONDS, UNKNOWN, ImageFacts, parse, probe_body

if TYPE_CHECKING:
    from gpuplan.remote.connection import Completed
    from gpuplan.remote.docker_engine import Engine

__all__ = ["UNKNOWN", "ImageFacts", "image_facts"]

_FORMAT = 1
_ID = re.compile(r"sha256:([0-9a-f]{64})")


class HasEngines(Protocol):
    """The part of an open fleet that is needed here."""

    def engine_of(self, host: str) -> "Engine": ...


class RunOnce(Protocol):
    """`remote.containers.run_once`."""

    def __call__(
        self, engine: "Engine", body: Mapping[str, object], *, timeout: float, name: str
    ) -> "Completed": ...


def image_facts(
    opened: HasEngines,
    host: str,
    image_id: str,
    environ: Mapping[str, str],
    *,
    run: RunOnce | None = None,
) -> ImageFacts:
    """The facts of an image that is on a host, from the cache or from a container that is run there and removed.

    An image that cannot run a shell is unknown, which is no failure and is not remembered. Raises EngineFailed,
    ConnectionFailed, RequestRefused where the engine itself fails.
    """
    place = _place(environ, image_id)
    known = _load(place)
    if known is not None:
        return known
    facts = _asked(opened.engine_of(host), image_id, run)
    if facts != UNKNOWN:
        _store(place, facts)
    return facts


def _asked(engine: "Engine", image_id: str, run: RunOnce | None) -> ImageFacts:
    from gpuplan.remote.docker_engine import RequestRefused

    if run is None:
        from gpuplan.remote.containers import run_once

        run = run_once
    name = f"gpuplan-helper-image-{secrets.token_hex(4)}"
    try:
        done = run(engine, probe_body(image_id), timeout=SECONDS, name=name)
    except RequestRefused as refused:
        if _has_no_shell(refused.detail):
            return UNKNOWN
        raise
    return parse(done.stdout.decode(errors="replace"))


def _has_no_shell(detail: str) -> bool:
    """Whether the engine could not start `sh`: it is missing, or made for another machine (runc's words)."""
    words = detail.lower()
    return any(
        part in words
        for part in ("executable file not found", "no such file or directory", "exec format error")
    )


def _place(environ: Mapping[str, str], image_id: str) -> Path:
    """`$XDG_CACHE_HOME/gpuplan/images/ID.json`."""
    base = environ.get("XDG_CACHE_HOME")
    home = environ.get("HOME") or str(Path.home())
    match = _ID.fullmatch(image_id)
    name = match.group(1) if match is not None else hashlib.sha256(image_id.encode()).hexdigest()
    return (Path(base) if base else Path(home) / ".cache") / "gpuplan" / "images" / f"{name}.json"


def _load(place: Path) -> ImageFacts | None:
    """What was remembered; a damaged file is none."""
    try:
        document = json.loads(place.read_text())
        if document.pop("format") != _FORMAT:
            return None
        return ImageFacts(**document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _store(place: Path, facts: ImageFacts) -> None:
    """A disk that refuses is no fault."""
    text = json.dumps({"format": _FORMAT, **dataclasses.asdict(facts)})
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place.parent)
        try:
            with os.fdopen(handle, "w") as stream:
                stream.write(text)
            Path(name).replace(place)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
