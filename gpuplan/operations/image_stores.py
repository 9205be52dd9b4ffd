"""The engines between which an image is brought, behind one small face: those of the hosts, and this machine's own."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gpuplan.operations.transfers import OnProgress

if TYPE_CHECKING:
    from gpuplan.domain.fleet import Fleet
    from gpuplan.remote.docker_engine import Engine
    from gpuplan.remote.images import ImageDetails
    from gpuplan.remote.registry_login import RegistryLogin

THIS_MACHINE = "this machine"
"""Its Docker, as a source."""
SOCKET = "/var/run/docker.sock"
SILENCE_SECONDS = 600.0
"""Without a word from the engine a pull is taken for dead; a large layer is unpacked without one for minutes."""


class OpenHosts(Protocol):
    """The part of an open fleet that is needed here."""

    @property
    def fleet(self) -> "Fleet": ...
    def engine_of(self, host: str) -> "Engine": ...
    def reopen(self, host: str) -> None: ...


class ImageStores(Protocol):
    """Images by host name; every method may raise HostCallFailed."""

    def inspect(self, host: str, reference: str) -> "ImageDetails | None": ...
    def pull(self, host: str, reference: str, on_progress: OnProgress) -> None:
        """Raises PullFailed."""
        ...

    def copy(
        self, source: str, target: str, image_id: str, total_bytes: int | None, on_progress: OnProgress
    ) -> str:
        """Its id at the target. Raises LoadFailed."""
        ...

    def load(self, host: str, path: Path, on_progress: OnProgress) -> tuple[str, ...]:
        """Names or ids that came. Raises LoadFailed, OSError."""
        ...

    def tag(self, host: str, image_id: str, reference: str) -> None: ...
    def reopen(self, host: str) -> None: ...


class EngineStores:
    """The real ones; this machine's engine is opened when it is first asked for, and closed by `close`."""

    def __init__(self, opened: OpenHosts, environ: Mapping[str, str]) -> None:
        self._opened = opened
        self._environ = environ
        self._lock = threading.Lock()
        self._local: Engine | None = None
        self._logins: dict[str, RegistryLogin | None] = {}

    def _engine(self, host: str) -> "Engine":
        if host != THIS_MACHINE:
            return self._opened.engine_of(host)
        with self._lock:
            if self._local is None:
                from gpuplan.remote.docker_engine import engine
                from gpuplan.remote.local import LocalConnection

                self._local = engine(LocalConnection(), socket_path=SOCKET, cli=False, timeout=30)
            return self._local

    def inspect(self, host: str, reference: str) -> "ImageDetails | None":
        from gpuplan.remote.images import inspect_image

        return inspect_image(self._engine(host), reference)

    def pull(self, host: str, reference: str, on_progress: OnProgress) -> None:
        from gpuplan.remote.images import pull

        pull(
            self._engine(host),
            reference,
            auth=self._login(reference),
            on_progress=on_progress,
            silence=SILENCE_SECONDS,
        )

    def _login(self, reference: str) -> "RegistryLogin | None":
        """Asked once for all hosts: a credential helper may want a passphrase."""
        from gpuplan.remote.registry_login import registry_login

        name = reference.partition("@")[0]
        with self._lock:
            if name not in self._logins:
                self._logins[name] = registry_login(reference, self._environ)
            return self._logins[name]

    def copy(
        self, source: str, target: str, image_id: str, total_bytes: int | None, on_progress: OnProgress
    ) -> str:
        from gpuplan.remote.images import copy_image

        return copy_image(
            self._engine(source),
            self._engine(target),
            image_id,
            total_bytes=total_bytes,
            on_progress=on_progress,
        )

    def load(self, host: str, path: Path, on_progress: OnProgress) -> tuple[str, ...]:
        from gpuplan.remote.images import load_file

        return load_file(self._engine(host), path, on_progress)

    def tag(self, host: str, image_id: str, reference: str) -> None:
        from gpuplan.remote.engine_calls import asking

        head, slash, last = reference.partition("@")[0].rpartition("/")
        name, _, tag = last.partition(":")
        engine = self._engine(host)
        with asking(engine, f"tag {reference}"):
            engine.api.tag(image_id, head + slash + name, tag=tag or "latest")

    def reopen(self, host: str) -> None:
        if host != THIS_MACHINE:
            self._opened.reopen(host)
            self._opened.engine_of(host)

    def close(self) -> None:
        """Let this machine's engine go."""
        with self._lock:
            local, self._local = self._local, None
        if local is not None:
            local.close()
