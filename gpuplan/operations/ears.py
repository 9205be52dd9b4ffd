"""The logs of a deployment's containers as they are written, kept through lost connections and for the time after."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuplan.domain.deployment import ENDED, ContainerSpec
from gpuplan.operations.resumed_log import ResumedLog
from gpuplan.operations.saved_logs import KeptLines

if TYPE_CHECKING:
    from gpuplan.operations.probe import OpenFleet
    from gpuplan.remote.container_logs import LogLine, LogStream

RETRY_SECONDS = 0.5


class Ear:
    """One container's log; it listens from `start` to `stop`, in a thread of its own."""

    def __init__(
        self,
        opened: "OpenFleet",
        spec: ContainerSpec,
        identity: str,
        on_line: Callable[[ContainerSpec, "LogLine"], None],
    ) -> None:
        self.spec = spec
        self.identity = identity
        self.ended = threading.Event()
        self._opened = opened
        self._on_line = on_line
        self._kept = KeptLines()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._stream: LogStream | None = None
        self._log = ResumedLog()
        self._thread = threading.Thread(target=self._listen, daemon=True, name=f"log {spec.name}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the stream at once."""
        self._stopped.set()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.close()

    def catch_up(self, seconds: float) -> None:
        """Wait until the log of a container that has ended is read to its end, at most so long."""
        self.ended.wait(seconds)

    @property
    def lines(self) -> tuple["LogLine", ...]:
        """What was heard and kept, in order."""
        with self._lock:
            return self._kept.lines

    def _listen(self) -> None:
        from gpuplan.remote.connection import ConnectionFailed, SocketRefused
        from gpuplan.remote.container_logs import logs
        from gpuplan.remote.docker_engine import EngineFailed, RequestRefused

        while not self._stopped.is_set():
            with suppress(ConnectionFailed, SocketRefused, EngineFailed):
                try:
                    engine = self._opened.engine_of(self.spec.host)
                    stream = logs(engine, self.identity, since=self._log.start, follow=True)
                    with self._lock:
                        self._stream = stream
                    if self._stopped.is_set():
                        stream.close()
                    for line in self._log.unseen(stream):
                        self._hear(line)
                    if self._is_over():
                        break
                except RequestRefused:
                    break  # the container is gone
            self._stopped.wait(RETRY_SECONDS)
        self.ended.set()

    def _is_over(self) -> bool:
        """Whether nothing more will be printed: a container that was not started yet has an empty log, too."""
        from gpuplan.remote.containers import inspect

        document = inspect(self._opened.engine_of(self.spec.host), self.identity)
        return document is None or document["State"]["Status"] in ENDED

    def _hear(self, line: "LogLine") -> None:
        """Keep a line and pass it on."""
        with self._lock:
            self._kept.add(line)
        self._on_line(self.spec, line)
