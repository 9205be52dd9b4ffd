"""What was read from a hub, kept per commit. Deleting it costs one more read; a damaged file is none."""

import contextlib
import gzip
import hashlib
import json
import os
import re
import tempfile
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpuplan.domain.repository import Evidence, Origin, Repository, TensorIndex, TensorKind

_FORMAT = 1
_LARGEST = 256 * 1024**2
_COMMIT = re.compile(r"[0-9a-f]{40,64}")


def default_directory() -> Path:
    """`$XDG_CACHE_HOME/gpuplan/hub`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gpuplan" / "hub"


class HubCache:
    """Summaries of one repository on one endpoint."""

    def __init__(self, directory: Path, endpoint: str, repository: str) -> None:
        server = hashlib.sha256(endpoint.encode()).hexdigest()[:12]
        self._directory = directory / server / ("models--" + repository.replace("/", "--"))

    def commit_of(self, revision: str) -> str | None:
        """The commit `revision` named when it was last read."""
        if _COMMIT.fullmatch(revision):
            return revision
        try:
            commit = self._reference(revision).read_text()[:64]
        except (OSError, UnicodeDecodeError):
            return None
        return commit if _COMMIT.fullmatch(commit) else None

    def load(self, commit: str) -> Repository | None:
        """The repository at `commit` as it was stored; None when it was not, or not readably."""
        if not _COMMIT.fullmatch(commit):
            return None
        try:
            with gzip.open(self._summary(commit)) as stream:
                content = stream.read(_LARGEST)
            return _from_document(json.loads(content))
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, IndexError, AttributeError):
            return None

    def store(self, repository: Repository, revision: str) -> None:
        """Keep the repository under its commit and what `revision` named; a disk that refuses is no fault."""
        commit = repository.revision
        if commit is None or not _COMMIT.fullmatch(commit):
            return
        content = gzip.compress(json.dumps(_to_document(repository)).encode(), compresslevel=1)
        with contextlib.suppress(OSError):
            _replace(self._summary(commit), content)
            self.refer(revision, commit)

    def refer(self, revision: str, commit: str) -> None:
        """Remember which commit `revision` names now."""
        if revision != commit and self.commit_of(revision) != commit:
            with contextlib.suppress(OSError):
                _replace(self._reference(revision), commit.encode())

    def _summary(self, commit: str) -> Path:
        return self._directory / f"{commit}.json.gz"

    def _reference(self, revision: str) -> Path:
        return self._directory / "refs" / quote(revision, safe="")


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        Path(name).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _to_document(repository: Repository) -> dict[str, Any]:
    tensors = None
    if repository.tensors is not None:
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(repository.tensors.kinds))}
        tensors = {
            "kinds": [[kind.dtype, kind.shape, kind.bytes] for kind in numbers],
            "names": repository.tensors.names,
            "kind_of": [numbers[kind] for kind in repository.tensors.kinds],
        }
    return {
        "format": _FORMAT,
        "name": repository.name,
        "config": repository.config,
        "quantization": repository.quantization,
        "tensors": tensors,
        "index_total_bytes": repository.index_total_bytes,
        "evidence": repository.evidence.value,
        "revision": repository.revision,
        "notes": repository.notes,
    }


def _from_document(document: dict[str, Any]) -> Repository | None:
    if document["format"] != _FORMAT or not isinstance(document["config"], dict):
        return None
    tensors = None
    if (stored := document["tensors"]) is not None:
        kinds = [
            TensorKind(dtype=dtype, shape=tuple(shape), bytes=size) for dtype, shape, size in stored["kinds"]
        ]
        tensors = TensorIndex(
            names=tuple(stored["names"]), kinds=tuple(kinds[number] for number in stored["kind_of"])
        )
    return Repository(
        name=document["name"],
        origin=Origin.HUB,
        location=document["name"],
        config=document["config"],
        quantization=document["quantization"],
        tensors=tensors,
        index_total_bytes=document["index_total_bytes"],
        evidence=Evidence(document["evidence"]),
        revision=document["revision"],
        notes=tuple(document["notes"]),
    )
