"""Engines with images in memory: tags, digests, a registry that some of them reach, and what goes wrong on the way."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from gpuplan.operations.transfers import OnProgress
from gpuplan.remote.connection import ConnectionFailed, HostCallFailed, Stage
from gpuplan.remote.images import ImageDetails, PullCause, PullFailed

TAG = "vllm/vllm-openai:v0.33.0"
SIZE = 30 * 1024**3


def build(letter: str = "a", *, architecture: str = "amd64", digest: bool = True) -> ImageDetails:
    """A build of the image; another letter is another build."""
    digests = (f"vllm/vllm-openai@sha256:{letter * 64}",) if digest else ()
    return ImageDetails(
        id=f"sha256:{letter * 63}0",
        digests=digests,
        architecture=architecture,
        size_bytes=SIZE,
        env=(),
        labels=(),
        entrypoint=("vllm", "serve"),
        command=(),
    )


class FakeStores:
    """What `ImageStores` asks of engines, in memory; every call is noted."""

    def __init__(self, **tagged: ImageDetails) -> None:
        self.images: dict[str, dict[str, ImageDetails]] = {}
        """Host to id to image."""
        self.tags: dict[tuple[str, str], str] = {}
        self.registry: dict[str, ImageDetails] = {}
        """Reference to image."""
        self.refused: dict[str, HostCallFailed] = {}
        """Hosts that cannot pull, and why."""
        self.pull_faults: dict[str, list[HostCallFailed]] = {}
        """What the next pulls on a host end with."""
        self.copy_faults: dict[str, list[HostCallFailed]] = {}
        self.silent: dict[str, list[HostCallFailed]] = {}
        """What the next questions to a host end with."""
        self.archives: dict[str, ImageDetails] = {}
        self.renamed: Callable[[ImageDetails], ImageDetails] = lambda details: details
        """What becomes of an image that is copied: an engine with another store counts ids its own way."""
        self.calls: list[tuple[str, ...]] = []
        self._lock = threading.Lock()
        for host, details in tagged.items():
            self.put(host.replace("_", " "), details, TAG)

    def put(self, host: str, details: ImageDetails, tag: str | None = None) -> None:
        self.images.setdefault(host, {})[details.id] = details
        if tag is not None:
            self.tags[host, tag] = details.id

    def made(self, kind: str) -> list[tuple[str, ...]]:
        """The calls of one kind, without it."""
        return [call[1:] for call in self.calls if call[0] == kind]

    # ------------------------------------------------------------------ what is asked

    def inspect(self, host: str, reference: str) -> ImageDetails | None:
        self._note("inspect", host, reference)
        _raise_next(self.silent, host)
        own = self.images.get(host, {})
        tagged = self.tags.get((host, reference))
        if tagged is not None:
            return own[tagged]
        return next((item for item in own.values() if reference in (item.id, *item.digests)), None)

    def pull(self, host: str, reference: str, on_progress: OnProgress) -> None:
        self._note("pull", host, reference)
        _raise_next(self.pull_faults, host)
        if host in self.refused:
            raise self.refused[host]
        details = self.registry.get(reference)
        if details is None:
            raise PullFailed(PullCause.NOT_FOUND, f"manifest for {reference} not found")
        on_progress(SIZE, SIZE, "downloading")
        self.put(host, details, None if "@" in reference else reference)

    def copy(
        self, source: str, target: str, image_id: str, total_bytes: int | None, on_progress: OnProgress
    ) -> str:
        self._note("copy", source, target, image_id)
        _raise_next(self.copy_faults, target)
        details = self.renamed(replace(self.images[source][image_id], digests=()))
        on_progress(SIZE, total_bytes, "copying")
        self.put(target, details)
        return details.id

    def load(self, host: str, path: Path, on_progress: OnProgress) -> tuple[str, ...]:
        self._note("load", host, path.name)
        details = self.archives[path.name]
        on_progress(SIZE, SIZE, "copying")
        self.put(host, details, TAG)
        return (TAG,)

    def tag(self, host: str, image_id: str, reference: str) -> None:
        self._note("tag", host, image_id, reference)
        self.tags[host, reference] = image_id

    def reopen(self, host: str) -> None:
        self._note("reopen", host)

    def _note(self, *call: str) -> None:
        with self._lock:
            self.calls.append(call)


def _raise_next(faults: Mapping[str, list[HostCallFailed]], host: str) -> None:
    if faults.get(host):
        raise faults[host].pop(0)


def unreached(words: str = "dial tcp: i/o timeout") -> PullFailed:
    return PullFailed(PullCause.NO_REGISTRY, words)


def cut(words: str = "connection reset by the other side") -> ConnectionFailed:
    return ConnectionFailed(Stage.COMMAND, words)
