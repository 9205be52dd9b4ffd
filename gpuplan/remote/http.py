"""One HTTP request to a port as its host sees it, through the connection and through nothing else: no proxy.

Where the host's SSH server forwards no ports, a short program on the host (Python, Perl or bash) carries the request;
it is fed over standard input, so that neither the request nor a key in its headers can be seen among the processes.
"""

import io
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any

from gpuplan.remote.connection import Connection, ConnectionFailed, HostCallFailed, SocketRefused, Stage
from gpuplan.remote.words import printable

ANSWER_LIMIT = 4 * 1024**2
_MARK = b"gpuplan-http\n"
_NO_PROGRAM = 69
_MARGIN = 0.5
_LOOK_SECONDS = 5.0
"""For telling a port that swallows everything from a connection that is lost."""
_ANSWERED = ("refused", "timed out", "unreachable", "no route", "reset", "resolve", "not known")
"""Words of an SSH server that did try to connect; without one of them it may forbid forwarding."""
_CHUNK = 64 * 1024


class Missing(StrEnum):
    """Why there is no answer."""

    REFUSED = "refused"
    """Nothing listens there, or the address cannot be reached from the host."""
    TIMED_OUT = "timed_out"
    NOT_HTTP = "not_http"
    BROKEN_OFF = "broken_off"
    TOO_LONG = "too_long"
    NO_WAY = "no_way"
    """The SSH server forwards no ports, and the host has no program that could connect instead."""


class NoAnswer(HostCallFailed):
    """A server gave no answer; the connection to its host is sound."""

    def __init__(self, reason: Missing, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server said, whatever the status."""

    status: int
    body: bytes


def ask(
    connection: Connection,
    address: str,
    port: int,
    *,
    method: str = "GET",
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    timeout: float,
    limit: int = ANSWER_LIMIT,
) -> Answer:
    """Ask a server on or near a host; all of it within `timeout` seconds and `limit` bytes.

    `address`: an IP address or name as the host knows it; `0.0.0.0` and `::` mean the host itself. Redirects are
    answers like others. Raises NoAnswer, ConnectionFailed.
    """
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    request = _Request(
        host=f"[{address}]:{port}" if ":" in address else f"{address}:{port}",
        method=method,
        path=path,
        body=body,
        headers={**(headers or {}), "Connection": "close", "Accept-Encoding": "identity"},
    )
    deadline = time.monotonic() + timeout
    try:
        stream = connection.open_port(address, port, timeout=timeout)
    except SocketRefused as refused:
        if not _may_be_forbidden(refused):
            reason = Missing.TIMED_OUT if "timed out" in refused.detail else Missing.REFUSED
            raise NoAnswer(reason, refused.detail) from refused
        return _carried(connection, address, port, request, deadline, limit)
    except ConnectionFailed as failed:
        if failed.stage is Stage.CANCELLED or time.monotonic() < deadline - _MARGIN:
            raise
        connection.run(("true",), timeout=_LOOK_SECONDS)
        raise NoAnswer(Missing.TIMED_OUT, f"{request.host}: no connection in time") from failed
    from gpuplan.remote.docker_transport import StreamSocket

    socket = StreamSocket(stream, lambda _: None)
    try:
        socket.settimeout(timeout)
        socket.finish_by(deadline)
        return _exchange(socket, request, limit)
    finally:
        socket.shutdown()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    host: str
    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]


class _OneRequest(HTTPConnection):
    """A request over something that is open already."""

    def __init__(self, request: _Request, opened: Any) -> None:
        super().__init__(request.host)
        self.sock = opened
        self.auto_open = 0
        self._asked = request

    def send_request(self) -> None:
        headers = {"Host": self._asked.host, **self._asked.headers}
        self.request(self._asked.method, self._asked.path, body=self._asked.body or None, headers=headers)


def _exchange(opened: Any, request: _Request, limit: int) -> Answer:
    try:
        connection = _OneRequest(request, opened)
        connection.send_request()
        with connection.getresponse() as response:
            return _whole(response, limit)
    except TimeoutError as error:
        raise NoAnswer(Missing.TIMED_OUT, "no answer in time") from error
    except (HTTPException, OSError) as error:
        raise _no_http(error) from error


def _whole(response: HTTPResponse, limit: int) -> Answer:
    body = bytearray()
    while part := response.read(_CHUNK):
        body += part
        if len(body) > limit:
            raise NoAnswer(Missing.TOO_LONG, f"the answer is longer than {limit} bytes")
    if response.length:
        raise NoAnswer(Missing.BROKEN_OFF, "the connection was closed in the middle of the answer")
    return Answer(status=response.status, body=bytes(body))


def _no_http(error: Exception) -> NoAnswer:
    from gpuplan.remote.docker_transport import plain_words

    words = plain_words(error)
    return NoAnswer(Missing.BROKEN_OFF if "closed" in words else Missing.NOT_HTTP, words)


def _may_be_forbidden(refused: SocketRefused) -> bool:
    """An SSH server that forwards no ports gives no reason, or says that it is prohibited (OpenSSH 9.2, measured)."""
    if isinstance(refused.__cause__, OSError):
        return False
    words = str(refused.__cause__ or refused).lower()
    return not any(known in words for known in _ANSWERED)


class _Recorded:
    """Takes a request as a socket does, then gives an answer read before."""

    def __init__(self, answer: bytes = b"") -> None:
        self.sent = bytearray()
        self._answer = answer

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def makefile(self, *_: object, **__: object) -> io.BytesIO:
        return io.BytesIO(self._answer)

    def close(self) -> None:
        pass


def _carried(
    connection: Connection, address: str, port: int, request: _Request, deadline: float, limit: int
) -> Answer:
    """Through a program of the host: it connects, sends what it is fed and prints what comes back."""
    written = _Recorded()
    _OneRequest(request, written).send_request()
    left = max(0.1, deadline - time.monotonic())
    words = ("sh", "-c", _CARRIER, "sh", address, str(port), f"{left:.1f}", str(len(written.sent)))
    done = connection.run(words, stdin=bytes(written.sent), timeout=left, limit=limit + 64 * 1024)
    if done.exit_code == _NO_PROGRAM:
        detail = "the SSH server forwards no ports, and the host has none of python3, perl and bash to connect with"
        raise NoAnswer(Missing.NO_WAY, detail)
    _, mark, answer = done.stdout.partition(_MARK)
    said = printable((done.stderr.strip().splitlines() or [b""])[-1])
    if done.timed_out or "timed out" in said.lower():
        raise NoAnswer(Missing.TIMED_OUT, said or "no answer in time")
    if not mark:
        raise NoAnswer(Missing.REFUSED, said or f"{request.host}: no connection from the host")
    if done.truncated:
        raise NoAnswer(Missing.TOO_LONG, f"the answer is longer than {limit} bytes")
    return _exchange(_Recorded(answer), request, limit)


_PYTHON = (
    "import os,socket,sys;"
    "s=socket.create_connection((sys.argv[1],int(sys.argv[2])),float(sys.argv[3]));"
    "s.sendall(sys.stdin.buffer.read(int(sys.argv[4])));"
    f'os.write(1,b"{_MARK.decode().strip()}"+bytes([10]));'
    "[os.write(1,d) for d in iter(lambda: s.recv(65536), bytes())]"
)
_PERL = (
    "use IO::Socket::IP; my $s=IO::Socket::IP->new(PeerHost=>$ARGV[0],PeerPort=>$ARGV[1],Timeout=>$ARGV[2])"
    ' or die "$@$/"; $s->blocking(1); read STDIN,my $q,$ARGV[3]; $s->autoflush(1); print $s $q; $|=1;'
    f' print "{_MARK.decode().strip()}",chr(10); my $d; print $d while sysread $s,$d,65536;'
)
_BASH = f"exec 3<>/dev/tcp/$1/$2 || exit 7; head -c $4 >&3; echo {_MARK.decode().strip()}; exec cat <&3"
_CARRIER = (
    f'if command -v python3 >/dev/null 2>&1; then exec python3 -c \'{_PYTHON}\' "$1" "$2" "$3" "$4"; fi; '
    f"if command -v perl >/dev/null 2>&1 && perl -MIO::Socket::IP -e 1 2>/dev/null; "
    f'then exec perl -e \'{_PERL}\' "$1" "$2" "$3" "$4"; fi; '
    f'if command -v bash >/dev/null 2>&1; then exec bash -c \'{_BASH}\' bash "$1" "$2" "$3" "$4"; fi; '
    f"exit {_NO_PROGRAM}"
)
"""On one line: login shells other than POSIX ones cannot quote lines."""
