"""What a connection to a host can do, whatever carries it: SSH, this machine, a recording."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Stage(StrEnum):
    """Where on the way to an answer a host failed."""

    RESOLVE = "resolve"
    CONNECT = "connect"
    HOST_KEY = "host_key"
    AUTHENTICATE = "authenticate"
    JUMP = "jump"
    COMMAND = "command"
    CANCELLED = "cancelled"


class HostCallFailed(Exception):
    """Something asked of a host was not done; `detail` says why in one printable sentence.

    The family of all expected failures of this layer: ConnectionFailed (the connection is gone), SocketRefused,
    `docker_engine.EngineFailed` (the engine is out of reach) and RequestRefused (it said no), `images.PullFailed` and
    LoadFailed, `http.NoAnswer`.
    """

    detail = ""


class ConnectionFailed(HostCallFailed):
    """A host could not be reached or stopped answering: the stage, and one sentence of detail."""

    def __init__(self, stage: Stage, detail: str) -> None:
        super().__init__(f"{stage}: {detail}")
        self.stage = stage
        self.detail = detail


class SocketRefused(HostCallFailed):
    """The host did not open a socket or port for us; the connection itself is sound."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A command that came to an end, or ran out of time or output."""

    exit_code: int | None
    """None when it was cut off: no answer in time, or killed by a signal."""
    stdout: bytes
    stderr: bytes = b""
    truncated: bool = False
    """More was printed than the limit; the rest was thrown away."""
    timed_out: bool = False


class Stream(Protocol):
    """A two-way stream of bytes, used as a socket is."""

    def recv(self, size: int, /) -> bytes: ...
    def sendall(self, data: bytes, /) -> None: ...
    def settimeout(self, seconds: float | None, /) -> None: ...
    def close(self) -> None: ...


class Connection(Protocol):
    """One host, one connection, used by probes, Docker and logs alike; safe to use from several threads."""

    @property
    def address(self) -> str | None:
        """The IP address that was reached; None where a jump host or a command leads there, or it is this machine."""
        ...

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float,
        limit: int = 4 * 1024**2,
        silence: float | None = None,
    ) -> Completed:
        """Run a command without a terminal; at most `limit` bytes of each output are kept.

        `silence`: seconds after which a command that has printed nothing at all is given up, as out of time.

        Words are quoted once, here. Raises ConnectionFailed (stage COMMAND) when the connection is lost, never
        for the command's own failure; out of time, what it printed so far is returned with `timed_out`.
        """
        ...

    def open_socket(self, path: str, *, timeout: float) -> Stream:
        """Connect to a Unix socket of the host. Raises SocketRefused, ConnectionFailed."""
        ...

    def open_port(self, address: str, port: int, *, timeout: float) -> Stream:
        """Connect to a TCP port as the host sees it. Raises SocketRefused, ConnectionFailed."""
        ...

    def open_command(self, command: Sequence[str], *, timeout: float) -> Stream:
        """Start a command and speak with its standard input and output. Raises SocketRefused, ConnectionFailed."""
        ...

    def close(self) -> None:
        """End it at once; calls under way raise ConnectionFailed."""
        ...
