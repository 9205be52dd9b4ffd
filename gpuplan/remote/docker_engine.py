"""The Docker Engine API over a connection, whatever carries it.

Every HTTP connection is a fresh stream to the engine's socket, kept alive between requests. Where the host does not
open sockets for us, `docker system dial-stdio` carries it instead, one session each. No request is without a time
limit, nothing is read from the proxy settings of this machine, and `close` ends every stream at once.
"""

import json
import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gpuplan.remote.connection import Connection, HostCallFailed, SocketRefused, Stream
from gpuplan.remote.local import LocalConnection
from gpuplan.remote.words import printable

if TYPE_CHECKING:
    from docker import APIClient

NEWEST_API = (1, 45)
"""What the SDK speaks; newer engines serve it."""
OLDEST_API = (1, 40)
"""Engine 19.03: the first with device requests, the way GPUs are given to containers."""
DIAL_SESSIONS = 7
"""Sessions of `docker system dial-stdio` at a time: sshd allows 10 in all (MaxSessions), probes and logs need some."""
ANSWER_LIMIT = 64 * 1024**2
"""Bytes of one answer."""

_IMPORTING = threading.Lock()
"""Packages whose modules import each other in a circle are found half made by a second thread that imports them."""

for _noisy in ("docker", "urllib3", "requests"):
    logging.getLogger(_noisy).addHandler(logging.NullHandler())


class Transport(StrEnum):
    """How the engine is reached."""

    SOCKET = "socket"
    DIAL_STDIO = "dial-stdio"
    LOCAL = "local"


class Cause(StrEnum):
    """Why an engine could not be used; the value is the code of the finding."""

    NO_SOCKET = "GP621"
    PERMISSION = "GP622"
    NOT_RUNNING = "GP623"
    FORWARDING = "GP625"
    """The host does not open the socket for us, and no docker CLI could: over SSH nothing more is told."""
    API_VERSION = "GP627"
    OTHER = "GP629"


class EngineFailed(HostCallFailed):
    """The engine could not be reached or refused: the cause, and one line of detail."""

    def __init__(self, cause: Cause, detail: str, *, api_version: str = "") -> None:
        super().__init__(f"{cause}: {detail}")
        self.cause = cause
        self.detail = detail
        self.api_version = api_version


class RequestRefused(HostCallFailed):
    """The engine answered one request with an error; others may go well."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialer:
    """Opens streams to one engine."""

    connection: Connection
    socket_path: str
    transport: Transport
    sessions: threading.BoundedSemaphore

    def dial(self, timeout: float) -> Stream:
        """A fresh stream. Raises SocketRefused, ConnectionFailed."""
        if self.transport is not Transport.DIAL_STDIO:
            return self.connection.open_socket(self.socket_path, timeout=timeout)
        if not self.sessions.acquire(timeout=timeout):
            raise SocketRefused(f"all {DIAL_SESSIONS} sessions to the engine are in use")
        try:
            stream = self.connection.open_command(dial_command(self.socket_path), timeout=timeout)
        except BaseException:
            self.sessions.release()
            raise
        return _Session(stream, self.sessions)


class Engine:
    """One Docker engine; safe to use from several threads."""

    def __init__(self, dialer: Dialer, *, timeout: float) -> None:
        with _IMPORTING:
            from gpuplan.remote.docker_transport import EngineSession

        self.timeout = timeout
        """Seconds a request may take."""
        self._session = EngineSession(dialer.dial, timeout=timeout)
        self._lock = threading.Lock()
        self._api: APIClient | None = None
        self._version: Mapping[str, Any] = {}
        self.transport = dialer.transport

    @property
    def version(self) -> Mapping[str, Any]:
        """The answer to `GET /version`."""
        return self._version

    @property
    def api_version(self) -> str:
        """What is spoken with it: the engine's own version, or the newest we know if that is older."""
        return _dotted(min(_api_pair(self._version.get("ApiVersion")) or OLDEST_API, NEWEST_API))

    @property
    def api(self) -> "APIClient":
        """The SDK's client for this engine; it ends with the engine.

        Raises docker.errors.DockerException when the Docker settings of this machine make no sense.
        """
        with _IMPORTING:
            from gpuplan.remote.docker_sdk import EngineClient

        with self._lock:
            if self._api is None:
                self._api = EngineClient(self._session, version=self.api_version, timeout=self.timeout)
            return self._api

    def get(
        self,
        path: str,
        parameters: Mapping[str, str] | None = None,
        *,
        newest: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """The JSON document at a path such as `/info`, within `timeout` seconds in all.

        `newest` asks in the engine's own API version, for fields younger than the SDK. Raises EngineFailed,
        RequestRefused, ConnectionFailed.
        """
        own = _api_pair(self._version.get("ApiVersion"))
        spoken = _dotted(own) if newest and own is not None else self.api_version
        try:
            return self._document(f"/v{spoken}{path}", parameters, timeout)
        except SocketRefused as refused:
            raise unreachable(refused) from refused

    def close(self) -> None:
        """End every stream at once, those in use by other threads too."""
        self._session.close()

    def negotiate(self) -> None:
        """Ask for the version, which is what every other request needs to know.

        Raises EngineFailed when there is no engine, or none that speaks a version we speak.
        """
        try:
            version = self._document("/version", None, None)
        except RequestRefused as refused:
            raise EngineFailed(Cause.OTHER, f"GET /version: {refused}") from refused
        newest = _api_pair(version.get("ApiVersion")) if isinstance(version, dict) else None
        if newest is None:
            raise EngineFailed(Cause.OTHER, "what answers on the socket is no Docker engine")
        oldest = _api_pair(version.get("MinAPIVersion")) or newest
        name = f"Engine {version.get('Version') or 'of unknown version'}"
        if oldest > NEWEST_API:
            detail = f"{name} speaks API {_dotted(oldest)} and newer, gpuplan up to {_dotted(NEWEST_API)}"
            raise EngineFailed(Cause.API_VERSION, detail, api_version=_dotted(oldest))
        if newest < OLDEST_API:
            detail = f"{name} speaks API {_dotted(newest)} at most, gpuplan from {_dotted(OLDEST_API)}"
            raise EngineFailed(Cause.API_VERSION, detail, api_version=_dotted(newest))
        self._version = version

    def _document(self, path: str, parameters: Mapping[str, str] | None, timeout: float | None) -> Any:
        from gpuplan.remote.docker_transport import NoAnswer

        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        try:
            status, body = self._session.fetch(path, parameters, deadline=deadline, limit=ANSWER_LIMIT)
        except NoAnswer as error:
            raise EngineFailed(Cause.OTHER, f"GET {path}: {error}") from error
        if status >= 400:
            raise RequestRefused(status, _message(body))
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise EngineFailed(Cause.OTHER, f"GET {path}: the answer is not JSON") from error


def engine(connection: Connection, *, socket_path: str, cli: bool, timeout: float) -> Engine:
    """The engine behind a socket of the host, after it said its version.

    `cli`: a docker CLI is on the host and may carry the connection. `timeout`, in seconds, holds for every request;
    the SDK switches it off for the streams that may wait for ever (followed logs, events). Raises EngineFailed,
    ConnectionFailed.
    """
    sessions = threading.BoundedSemaphore(DIAL_SESSIONS)
    transport = Transport.LOCAL if isinstance(connection, LocalConnection) else Transport.SOCKET
    try:
        return _speaking(
            Dialer(connection=connection, socket_path=socket_path, transport=transport, sessions=sessions),
            timeout,
        )
    except SocketRefused as refused:
        cause = _cause(refused)
        if cause is not Cause.FORWARDING or not cli:
            raise EngineFailed(cause, str(refused)) from refused
        first = refused
    try:
        return _speaking(
            Dialer(
                connection=connection,
                socket_path=socket_path,
                transport=Transport.DIAL_STDIO,
                sessions=sessions,
            ),
            timeout,
        )
    except (SocketRefused, EngineFailed) as failed:
        if isinstance(failed, EngineFailed) and failed.cause is not Cause.OTHER:
            raise
        raise _told_by_cli(connection, socket_path, timeout, f"{first}; {failed}") from failed


def dial_command(socket_path: str) -> tuple[str, ...]:
    """The docker CLI as a bridge between its standard input and output and the engine's socket."""
    return ("docker", "-H", f"unix://{socket_path}", "system", "dial-stdio")


def unreachable(refused: SocketRefused) -> EngineFailed:
    """The engine whose socket was open before is not: over SSH the refusal does not tell why."""
    cause = _cause(refused)
    return EngineFailed(Cause.OTHER if cause is Cause.FORWARDING else cause, str(refused))


def _speaking(dialer: Dialer, timeout: float) -> Engine:
    candidate = Engine(dialer, timeout=timeout)
    try:
        candidate.negotiate()
    except BaseException:
        candidate.close()
        raise
    return candidate


def _cause(refused: SocketRefused) -> Cause:
    """What the operating system said, where it was heard; over SSH every refusal looks the same."""
    match refused.__cause__:
        case FileNotFoundError() | NotADirectoryError():
            return Cause.NO_SOCKET
        case PermissionError():
            return Cause.PERMISSION
        case ConnectionRefusedError():
            return Cause.NOT_RUNNING
        case OSError():
            return Cause.OTHER
        case _:
            return Cause.FORWARDING


def _told_by_cli(connection: Connection, socket_path: str, timeout: float, otherwise: str) -> EngineFailed:
    """Why the docker CLI does not reach the engine either: `dial-stdio` ends without a word, `version` explains."""
    asked = ("docker", "-H", f"unix://{socket_path}", "version", "--format", "{{.Server.Version}}")
    told = connection.run(asked, timeout=timeout, limit=64 * 1024)
    if told.exit_code in {126, 127}:
        return EngineFailed(Cause.FORWARDING, otherwise)
    words = printable(told.stderr or told.stdout)
    known = words.lower()
    if "permission denied" in known:
        return EngineFailed(Cause.PERMISSION, words)
    if "cannot connect to the docker daemon" in known or "is the docker daemon running" in known:
        return EngineFailed(Cause.NOT_RUNNING, words)
    if "no such file or directory" in known:
        return EngineFailed(Cause.NO_SOCKET, words)
    return EngineFailed(Cause.OTHER, words if told.exit_code != 0 and words else otherwise)


class _Session:
    """A stream that counts: it gives its place back when it is closed."""

    def __init__(self, stream: Stream, sessions: threading.BoundedSemaphore) -> None:
        self._stream = stream
        self._sessions: threading.BoundedSemaphore | None = sessions
        self._lock = threading.Lock()

    def recv(self, size: int, /) -> bytes:
        return self._stream.recv(size)

    def sendall(self, data: bytes, /) -> None:
        self._stream.sendall(data)

    def settimeout(self, seconds: float | None, /) -> None:
        self._stream.settimeout(seconds)

    def close(self) -> None:
        with self._lock:
            sessions, self._sessions = self._sessions, None
        if sessions is not None:
            try:
                self._stream.close()
            finally:
                sessions.release()


def _message(body: bytes) -> str:
    """The engine's own words about an error."""
    with suppress(ValueError, RecursionError):
        document = json.loads(body)
        if isinstance(document, dict) and isinstance(document.get("message"), str):
            return printable(document["message"])
    return printable(body)


def _api_pair(text: object) -> tuple[int, int] | None:
    """`1.41` as numbers; None for anything else."""
    parts = text.split(".") if isinstance(text, str) else []
    if len(parts) == 2 and all(part.isascii() and part.isdigit() and len(part) <= 4 for part in parts):
        return int(parts[0]), int(parts[1])
    return None


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
