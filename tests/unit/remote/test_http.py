"""Requests to ports through a connection: whole answers, every way to have none, and hosts that forward no ports."""

import re
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuplan.remote import http
from gpuplan.remote.connection import Completed, ConnectionFailed, SocketRefused, Stage
from gpuplan.remote.http import Missing, NoAnswer
from gpuplan.remote.local import LocalConnection

LONG = 60.0
SHORT = 0.5
HEALTHY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n3\r\npe!\r\n0\r\n\r\n"


class Server:
    """Says the same to everyone, and keeps what it heard."""

    def __init__(self, says: bytes, *, stays: bool = False) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.heard = b""
        self._says = says
        self._stays = stays
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            peer, _ = self._listener.accept()
            with peer:
                if self._done.is_set():
                    return
                peer.settimeout(LONG)
                while not self._is_whole():
                    self.heard += peer.recv(65536)
                peer.sendall(self._says)
                if self._stays:
                    self._done.wait(LONG)

    def _is_whole(self) -> bool:
        """Head and body: they may come apart."""
        head, end, body = self.heard.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        return bool(end) and len(body) >= (int(length[1]) if length else 0)

    def close(self) -> None:
        self._done.set()
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join(LONG)
        self._listener.close()


@contextmanager
def server(says: bytes, *, stays: bool = False) -> Iterator[Server]:
    running = Server(says, stays=stays)
    try:
        yield running
    finally:
        running.close()


class Forbidding(LocalConnection):
    """This machine as it looks over an SSH server that forwards no ports, with some programs."""

    def __init__(self, path: str | None = None) -> None:
        super().__init__()
        self._path = path

    def open_port(self, address: str, port: int, *, timeout: float) -> Any:
        raise SocketRefused("the SSH server could not open it: Connect failed")

    def run(self, command: Any, **options: Any) -> Completed:
        words = list(command)
        if self._path is not None:
            words = ["env", "-i", f"PATH={self._path}", *words]
        return super().run(words, **options)


PROGRAMS = ("python3", "perl", "bash")


@pytest.fixture(params=["port", *PROGRAMS])
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalConnection]:
    """Every way to a port."""
    if request.param == "port":
        opened = LocalConnection()
    else:
        for name in ("sh", "head", "cat", request.param):
            found = sys.executable if name == "python3" else shutil.which(name)
            if found is None:
                pytest.skip(f"{name} is not here")
            (tmp_path / name).symlink_to(found)
        opened = Forbidding(str(tmp_path))
    yield opened
    opened.close()


def ask(connection: LocalConnection, port: int, **options: Any) -> http.Answer:
    return http.ask(connection, "127.0.0.1", port, **{"path": "/health", "timeout": LONG, **options})


def missing(connection: LocalConnection, port: int, **options: Any) -> Missing:
    with pytest.raises(NoAnswer) as failed:
        ask(connection, port, **options)
    assert failed.value.detail
    return failed.value.reason


@pytest.mark.parametrize("stays", [False, True])
def test_a_whole_answer_is_read(connection: LocalConnection, stays: bool) -> None:
    with server(HEALTHY, stays=stays and not isinstance(connection, Forbidding)) as asked:
        assert ask(connection, asked.port) == http.Answer(status=200, body=b"ok")

    assert asked.heard.startswith(b"GET /health HTTP/1.1\r\n")
    assert b"Host: 127.0.0.1:%d\r\n" % asked.port in asked.heard
    assert b"Connection: close\r\n" in asked.heard


def test_pieces_are_put_together_and_an_error_is_an_answer(connection: LocalConnection) -> None:
    with server(CHUNKED) as asked:
        assert ask(connection, asked.port) == http.Answer(status=503, body=b"nope!")


def test_a_body_and_headers_are_sent(connection: LocalConnection) -> None:
    with server(HEALTHY) as asked:
        ask(
            connection,
            asked.port,
            method="POST",
            path="/v1/completions",
            body=b'{"a": "\xff"}END',
            headers={"Authorization": "Bearer x", "Content-Type": "application/json"},
        )

    assert asked.heard.startswith(b"POST /v1/completions HTTP/1.1\r\n")
    assert asked.heard.endswith(b'\r\n\r\n{"a": "\xff"}END')
    assert b"Authorization: Bearer x\r\n" in asked.heard


def test_an_address_that_means_every_address_is_asked_at_the_host_itself(connection: LocalConnection) -> None:
    with server(HEALTHY) as asked:
        assert http.ask(connection, "0.0.0.0", asked.port, path="/", timeout=LONG).status == 200


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (b"SSH-2.0-x\r\n", Missing.NOT_HTTP),
        (b"", Missing.BROKEN_OFF),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", Missing.BROKEN_OFF),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf", Missing.BROKEN_OFF),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000, Missing.TOO_LONG),
    ],
)
def test_answers_that_are_none(connection: LocalConnection, says: bytes, reason: Missing) -> None:
    with server(says) as asked:
        assert missing(connection, asked.port, limit=20_000) is reason


def test_a_closed_port_refuses(connection: LocalConnection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    assert missing(connection, port) is Missing.REFUSED


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def test_a_server_that_hangs_is_given_up(connection: LocalConnection, says: bytes) -> None:
    with server(says, stays=True) as asked:
        assert missing(connection, asked.port, timeout=SHORT) is Missing.TIMED_OUT


def test_a_greeting_of_the_login_shell_is_no_answer() -> None:
    class Greeting(Forbidding):
        def run(self, command: Any, **options: Any) -> Completed:
            done = super().run(command, **options)
            return Completed(exit_code=done.exit_code, stdout=b"Welcome!\r\n" + done.stdout)

    connection = Greeting()
    with server(HEALTHY) as asked:
        assert ask(connection, asked.port).body == b"ok"
    connection.close()


def test_without_forwarding_and_without_a_program_there_is_no_way(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    connection = Forbidding(str(tmp_path))

    assert missing(connection, 1) is Missing.NO_WAY
    connection.close()


def test_neither_the_request_nor_its_key_is_among_the_words_of_a_command() -> None:
    words: list[str] = []

    class Watching(Forbidding):
        def run(self, command: Any, **options: Any) -> Completed:
            words.extend(command)
            return super().run(command, **options)

    connection = Watching()
    with server(HEALTHY) as asked:
        ask(connection, asked.port, headers={"Authorization": "Bearer hunter2"})
    connection.close()

    assert not any("hunter2" in word for word in words)
    assert not any("\n" in word for word in words)


def swallowing(then: Callable[[], Completed]) -> LocalConnection:
    """A host whose port swallows every packet; what it does when asked for a command."""

    class Swallowing(LocalConnection):
        def open_port(self, address: str, port: int, *, timeout: float) -> Any:
            raise ConnectionFailed(Stage.COMMAND, "no answer within 0.1 s")

        def run(self, command: Any, **options: Any) -> Completed:
            return then()

    return Swallowing()


def test_a_port_that_swallows_everything_is_no_lost_connection() -> None:
    def gone() -> Completed:
        raise ConnectionFailed(Stage.COMMAND, "gone")

    assert (
        missing(swallowing(lambda: Completed(exit_code=0, stdout=b"")), 1, timeout=0.1) is Missing.TIMED_OUT
    )
    with pytest.raises(ConnectionFailed, match="gone"):
        ask(swallowing(gone), 1, timeout=0.1)
    with pytest.raises(ConnectionFailed, match="no answer"):
        ask(swallowing(gone), 1)
