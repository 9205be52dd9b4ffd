"""HTTP over the streams of a connection, for `requests` and the Docker SDK.

Imported only when an engine is spoken to: it needs requests and urllib3. A stream is given to http.client as the
socket it expects, and ends when the socket and every file made of it are closed.
"""

import errno
import io
import threading
import time
from collections.abc import Callable, Mapping
from http.client import BadStatusLine, HTTPException, IncompleteRead, RemoteDisconnected
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from gpuplan.remote.connection import Stream
from gpuplan.remote.words import printable

BASE_URL = "http+docker://engine"
_POOLED = 4
"""Idle streams kept for the next request."""
_CHUNK = 64 * 1024
_NEVER = float("inf")


class NoAnswer(Exception):
    """A request got no answer, or none that is HTTP, in time and in size; the text says which."""


class StreamSocket:
    """A stream as http.client and the SDK use a socket."""

    def __init__(self, stream: Stream, ended: "Callable[[StreamSocket], None]") -> None:
        self._stream = stream
        self._ended = ended
        self._lock = threading.Lock()
        self._users = 1
        self._timeout: float | None = None
        self._deadline = _NEVER

    def settimeout(self, seconds: float | None) -> None:
        """For every single read or write from now on."""
        self._timeout = seconds
        self._stream.settimeout(seconds)

    def gettimeout(self) -> float | None:
        return self._timeout

    def finish_by(self, deadline: float) -> None:
        """Reads after this time of the monotonic clock fail, however often single bytes come in."""
        self._deadline = deadline
        if deadline == _NEVER:
            self._stream.settimeout(self._timeout)

    def recv(self, size: int) -> bytes:
        if self._deadline != _NEVER:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._stream.settimeout(left if self._timeout is None else min(left, self._timeout))
        return self._stream.recv(size)

    def sendall(self, data: bytes) -> None:
        """What the other side said before it stopped listening can still be read: whoever sends goes on to read it."""
        try:
            self._stream.sendall(data)
        except TimeoutError:
            raise
        except (OSError, EOFError) as error:  # paramiko's end of the whole connection is no OSError
            raise BrokenPipeError(errno.EPIPE, "the other side stopped listening") from error

    def makefile(self, mode: str = "rb", buffering: int | None = None) -> io.BufferedReader:
        with self._lock:
            self._users += 1
        return _Buffered(StreamReader(self), _CHUNK)

    def quiet(self) -> bool:
        """Whether an idle stream is fit for another request: open, and with nothing left to read."""
        try:
            self._stream.settimeout(0.0)
            self._stream.recv(1)
        except (TimeoutError, BlockingIOError):
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """One user less; with the last one the stream ends."""
        with self._lock:
            self._users -= 1
            last = self._users == 0
        if last:
            self.shutdown()

    def shutdown(self, how: int = 0) -> None:
        """End the stream now, whoever uses it."""
        self._stream.close()
        self._ended(self)


class StreamReader(io.RawIOBase):
    """The reading side of a stream; the SDK reaches through it for the socket."""

    def __init__(self, sock: StreamSocket) -> None:
        super().__init__()
        self._sock = sock

    @property
    def _response(self) -> None:
        """Not to be set: the SDK would tie a response to its own reader, and neither would end in order."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        received = self._sock.recv(len(buffer))
        buffer[: len(received)] = received
        return len(received)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._sock.close()


class _Buffered(io.BufferedReader):
    """May be closed before the response that reads it, as when the interpreter ends."""

    def flush(self) -> None:
        if not self.closed:
            super().flush()


class StreamConnection(HTTPConnection):
    """One HTTP connection over a stream of its own."""

    stream_socket: StreamSocket | None = None

    def __init__(self, open_socket: Callable[[float], StreamSocket], timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._open_socket = open_socket
        self._longest = timeout

    def connect(self) -> None:
        timeout = self.timeout if isinstance(self.timeout, int | float) else self._longest
        self.stream_socket = self._open_socket(float(timeout))
        self.stream_socket.settimeout(timeout)
        self.sock = self.stream_socket

    def getresponse(self) -> Any:
        """The head of the answer has to be there in time as a whole; the body is the reader's business."""
        sock = self.stream_socket
        if sock is None:
            return super().getresponse()
        sock.finish_by(time.monotonic() + self.timeout if isinstance(self.timeout, int | float) else _NEVER)
        response = super().getresponse()
        sock.finish_by(_NEVER)
        return response

    @property
    def is_connected(self) -> bool:
        return self.sock is not None and self.stream_socket is not None and self.stream_socket.quiet()


class StreamPool(HTTPConnectionPool):
    """The connections to one engine, and a register of all their streams, for ending them."""

    def __init__(self, dial: Callable[[float], Stream], *, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout, maxsize=_POOLED)
        self._dial = dial
        self._longest = timeout
        self._register = threading.Lock()
        self._sockets: set[StreamSocket] = set()
        self._ended = False

    def _new_conn(self) -> StreamConnection:
        self.num_connections += 1
        return StreamConnection(self._open_socket, self._longest)

    def _open_socket(self, timeout: float) -> StreamSocket:
        sock = StreamSocket(self._dial(timeout), self._forget)
        with self._register:
            ended = self._ended
            self._sockets.add(sock)
        if ended:
            sock.shutdown()
        return sock

    def _forget(self, sock: StreamSocket) -> None:
        with self._register:
            self._sockets.discard(sock)

    def end(self) -> None:
        """Close the idle connections and cut off the others."""
        with self._register:
            self._ended = True
            sockets = tuple(self._sockets)
        for sock in sockets:
            sock.shutdown()
        self.close()


class EngineAdapter(HTTPAdapter):
    """Sends every request to the one engine, whatever its address says."""

    def __init__(self, pool: StreamPool) -> None:
        self._pool = pool
        super().__init__()

    def get_connection(self, url: Any, proxies: Any = None) -> Any:
        return self._pool

    def get_connection_with_tls_context(
        self, request: Any, verify: Any, proxies: Any = None, cert: Any = None
    ) -> Any:
        return self._pool

    def request_url(self, request: requests.PreparedRequest, proxies: Any) -> str:
        return request.path_url

    def close(self) -> None:
        self._pool.end()
        super().close()


class EngineSession(requests.Session):
    """Requests to one engine and to nothing else."""

    def __init__(self, dial: Callable[[float], Stream], *, timeout: float) -> None:
        super().__init__()
        self.adapter = EngineAdapter(StreamPool(dial, timeout=timeout))
        confine(self, self.adapter)

    def fetch(
        self, path: str, parameters: Mapping[str, str] | None, *, deadline: float, limit: int
    ) -> tuple[int, bytes]:
        """Status and body of a GET, all of it by `deadline` (monotonic clock) and within `limit` bytes.

        Raises NoAnswer, and what opening a stream raises.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            raise NoAnswer("no time was left to ask")
        try:
            with self.get(
                BASE_URL + path, params=parameters, stream=True, timeout=left, allow_redirects=False
            ) as response:
                return response.status_code, _body(response, deadline=deadline, limit=limit)
        except (requests.RequestException, urllib3.exceptions.HTTPError, HTTPException, OSError) as error:
            raise NoAnswer(plain_words(error)) from error


def confine(session: requests.Session, adapter: EngineAdapter) -> None:
    """No proxy, no .netrc, no address but the engine's."""
    session.trust_env = False
    session.adapters.clear()
    session.mount(BASE_URL, adapter)


def _body(response: requests.Response, *, deadline: float, limit: int) -> bytes:
    connection = getattr(response.raw, "connection", None)
    if isinstance(connection, StreamConnection) and connection.stream_socket is not None:
        connection.stream_socket.finish_by(deadline)
    body = bytearray()
    for chunk in response.raw.stream(_CHUNK, decode_content=True):
        body += chunk
        if len(body) > limit:
            raise NoAnswer(f"the answer is longer than {limit} bytes")
    return bytes(body)


def plain_words(error: BaseException) -> str:
    """What went wrong, without the names of the libraries it came through."""
    link: BaseException | None = error
    while link is not None:
        for kinds, words in _MEANINGS:
            if isinstance(link, kinds):
                return words
        link = link.__cause__ or link.__context__
    return printable(str(error)) or type(error).__name__


_MEANINGS: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    (
        (RemoteDisconnected, ConnectionResetError, BrokenPipeError),
        "the connection was closed without an answer",
    ),
    ((BadStatusLine,), "the answer is not HTTP"),
    ((TimeoutError, urllib3.exceptions.TimeoutError, requests.Timeout), "no answer in time"),
    (
        (IncompleteRead, urllib3.exceptions.IncompleteRead),
        "the connection was closed in the middle of the answer",
    ),
)
