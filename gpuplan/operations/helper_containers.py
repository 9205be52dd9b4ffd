"""Containers that help a deployment and end by themselves: begun, followed line by line, taken away again."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from gpuplan.remote.docker_engine import Engine


class HelperContainers(Protocol):
    """Helper containers by host; every method may raise HostCallFailed."""

    def begin(self, host: str, name: str, body: Mapping[str, Any], files: "Files | None") -> str:
        """Make and start one; its id. One of ours that runs under the name already is taken as it is."""
        ...

    def lines(self, host: str, container: str) -> Iterator[str]:
        """All it has printed and prints until it ends."""
        ...

    def exit_code(self, host: str, container: str) -> int | None:
        """None while it runs."""
        ...

    def remove(self, host: str, container: str) -> None: ...


class Files(Protocol):
    """Secrets that are put into a container before it starts."""

    @property
    def directory(self) -> str: ...
    @property
    def contents(self) -> Mapping[str, bytes]: ...
    @property
    def owner(self) -> tuple[int, int]: ...


class HasEngines(Protocol):
    """The part of an open fleet that is needed here."""

    def engine_of(self, host: str) -> "Engine": ...


class EngineHelpers:
    """The real ones."""

    def __init__(self, opened: HasEngines) -> None:
        self._opened = opened

    def begin(self, host: str, name: str, body: Mapping[str, Any], files: Files | None) -> str:
        from gpuplan.remote import containers

        engine = self._opened.engine_of(host)
        left = containers.inspect(engine, name)
        if left is not None and containers.is_ours(left):
            if (left.get("State") or {}).get("Running"):
                return str(left["Id"])
            containers.remove(engine, str(left["Id"]))
        identity = containers.create(engine, body, name)
        try:
            if files is not None:
                uid, gid = files.owner
                containers.put_files(
                    engine, identity, files.contents, directory=files.directory, uid=uid, gid=gid
                )
            containers.start(engine, identity)
        except BaseException:
            containers.remove(engine, identity)
            raise
        return identity

    def lines(self, host: str, container: str) -> Iterator[str]:
        from gpuplan.remote import containers

        with containers.logs(
            self._opened.engine_of(host), container, follow=True, timestamps=False
        ) as stream:
            for line in stream:
                yield line.text

    def exit_code(self, host: str, container: str) -> int | None:
        from gpuplan.remote import containers

        state = (containers.inspect(self._opened.engine_of(host), container) or {}).get("State") or {}
        return None if state.get("Running") else int(state.get("ExitCode", -1))

    def remove(self, host: str, container: str) -> None:
        from gpuplan.remote import containers

        containers.remove(self._opened.engine_of(host), container)
