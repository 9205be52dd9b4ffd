"""This machine as a connection: limits in time and size hold, and nothing stays behind."""

import gc
import os
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuplan.remote.connection import Completed, ConnectionFailed, SocketRefused, Stage, Stream
from gpuplan.remote.local import LocalConnection

LONG = 60.0
"""Seconds no test reaches unless what it tests is broken."""


@pytest.fixture
def connection() -> Iterator[LocalConnection]:
    opened = LocalConnection()
    yield opened
    opened.close()


class Lifeline:
    """A named pipe: its reader sees the end when the last process that holds the other end is gone."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def started(self) -> None:
        """Wait until somebody wrote a line."""
        assert select.select([self._reader], [], [], LONG)[0]
        assert os.read(self._reader, 100)

    def all_gone(self) -> bool:
        poll = select.poll()
        poll.register(self._reader, select.POLLHUP)
        return any(event & select.POLLHUP for _, event in poll.poll(LONG * 1000))

    def close(self) -> None:
        os.close(self._reader)


@pytest.fixture
def lifeline(tmp_path: Path) -> Iterator[Lifeline]:
    line = Lifeline(tmp_path / "lifeline")
    yield line
    line.close()


def shell(text: str) -> tuple[str, ...]:
    return ("sh", "-c", text)


def test_both_outputs_and_the_status_are_kept_apart(connection: LocalConnection) -> None:
    completed = connection.run(shell("echo out; echo err >&2; exit 3"), timeout=LONG)

    assert completed == Completed(exit_code=3, stdout=b"out\n", stderr=b"err\n")


def test_words_reach_the_command_as_they_are(connection: LocalConnection) -> None:
    words = ("two words", "$HOME", "it's", "a\nline", "", "*")

    completed = connection.run(("printf", "%s|", *words), timeout=LONG)

    assert completed.stdout == "".join(f"{word}|" for word in words).encode()


def test_input_and_output_larger_than_a_pipe_flow_at_the_same_time(connection: LocalConnection) -> None:
    sent = os.urandom(1024 * 1024)

    assert connection.run(("cat",), stdin=sent, timeout=LONG).stdout == sent


def test_input_nobody_reads_is_no_failure(connection: LocalConnection) -> None:
    completed = connection.run(shell("exit 0"), stdin=b"x" * 1024 * 1024, timeout=LONG)

    assert completed.exit_code == 0


def test_a_command_that_is_missing_ends_as_in_a_shell(connection: LocalConnection, tmp_path: Path) -> None:
    missing = connection.run(("no-such-command-here",), timeout=LONG)
    forbidden = connection.run((str(tmp_path),), timeout=LONG)

    assert (missing.exit_code, missing.stdout) == (127, b"")
    assert b"no-such-command-here" in missing.stderr
    assert forbidden.exit_code == 126


def test_more_output_than_the_limit_is_thrown_away_and_told(connection: LocalConnection) -> None:
    completed = connection.run(
        shell("head -c 10000000 /dev/zero; head -c 50 /dev/zero >&2"), timeout=LONG, limit=100
    )

    assert completed == Completed(exit_code=0, stdout=bytes(100), stderr=bytes(50), truncated=True)


def test_output_of_exactly_the_limit_is_whole(connection: LocalConnection) -> None:
    assert not connection.run(("printf", "12345"), timeout=LONG, limit=5).truncated


def test_out_of_time_the_output_so_far_is_told_and_the_whole_session_killed(
    connection: LocalConnection, lifeline: Lifeline
) -> None:
    script = f"trap '' TERM HUP; exec 3>{lifeline.path}; echo early; sleep 1000 & wait"

    completed = connection.run(shell(script), timeout=0.5)

    assert completed == Completed(exit_code=None, stdout=b"early\n", timed_out=True)
    assert lifeline.all_gone()


def test_endless_output_ends_at_the_deadline(connection: LocalConnection) -> None:
    completed = connection.run(("yes",), timeout=0.3, limit=1000)

    assert completed.timed_out
    assert completed.truncated
    assert len(completed.stdout) == 1000


def test_a_command_that_prints_nothing_is_given_up_sooner(connection: LocalConnection) -> None:
    silent = connection.run(("sleep", "1000"), timeout=LONG, silence=0.2)
    spoke = connection.run(shell("echo here; sleep 0.5; exit 3"), timeout=LONG, silence=0.4)

    assert silent == Completed(exit_code=None, stdout=b"", timed_out=True)
    assert spoke == Completed(exit_code=3, stdout=b"here\n")


def test_what_a_command_left_running_is_neither_waited_for_nor_left(
    connection: LocalConnection, lifeline: Lifeline
) -> None:
    completed = connection.run(shell(f"exec 3>{lifeline.path}; sleep 1000 & echo done"), timeout=LONG)

    assert completed == Completed(exit_code=0, stdout=b"done\n")
    assert lifeline.all_gone()


def test_a_command_that_closed_its_outputs_is_waited_for(connection: LocalConnection) -> None:
    assert connection.run(shell("exec >&- 2>&-; sleep 0.2; exit 7"), timeout=LONG).exit_code == 7


def test_a_command_ended_by_a_signal_has_no_status(connection: LocalConnection) -> None:
    assert connection.run(shell("kill -9 $$"), timeout=LONG) == Completed(exit_code=None, stdout=b"")


def test_the_end_of_a_command_is_seen_without_help_of_the_kernel(
    connection: LocalConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")

    assert connection.run(shell("sleep 1000 >/dev/null & echo done"), timeout=LONG).stdout == b"done\n"


def test_closing_ends_a_command_under_way(connection: LocalConnection, lifeline: Lifeline) -> None:
    failures: list[ConnectionFailed] = []

    def run() -> None:
        try:
            connection.run(shell(f"exec 3>{lifeline.path}; echo up >&3; sleep 1000"), timeout=LONG)
        except ConnectionFailed as failed:
            failures.append(failed)

    runner = threading.Thread(target=run)
    runner.start()
    lifeline.started()
    connection.close()
    runner.join(LONG)

    assert [failed.stage for failed in failures] == [Stage.CANCELLED]
    assert lifeline.all_gone()


def test_a_closed_connection_does_nothing_more(connection: LocalConnection) -> None:
    connection.close()

    for call in (
        lambda: connection.run(("true",), timeout=LONG),
        lambda: connection.open_socket("/nowhere", timeout=LONG),
        lambda: connection.open_port("127.0.0.1", 1, timeout=LONG),
        lambda: connection.open_command(("true",), timeout=LONG),
    ):
        with pytest.raises(ConnectionFailed):
            call()


def answered(stream: Stream, sent: bytes) -> bytes:
    stream.sendall(sent)
    received = b""
    while len(received) < len(sent):
        received += stream.recv(100)
    return received


def echo_once(listener: socket.socket) -> threading.Thread:
    def serve() -> None:
        accepted, _ = listener.accept()
        with accepted:
            while data := accepted.recv(100):
                accepted.sendall(data)

    server = threading.Thread(target=serve)
    server.start()
    return server


def test_sockets_and_ports_are_reached_directly(connection: LocalConnection, tmp_path: Path) -> None:
    path = str(tmp_path / "echo.sock")
    with (
        socket.socket(socket.AF_UNIX) as on_path,
        socket.create_server(("127.0.0.1", 0)) as on_port,
    ):
        on_path.bind(path)
        on_path.listen()
        servers = [echo_once(on_path), echo_once(on_port)]
        port = on_port.getsockname()[1]

        for stream in (
            connection.open_socket(path, timeout=LONG),
            connection.open_port("127.0.0.1", port, timeout=LONG),
        ):
            assert answered(stream, b"ping") == b"ping"
            stream.settimeout(0.0)
            with pytest.raises((BlockingIOError, TimeoutError)):
                stream.recv(1)
            stream.close()
        for server in servers:
            server.join(LONG)


def test_a_refusal_tells_its_cause(connection: LocalConnection, tmp_path: Path) -> None:
    dead = str(tmp_path / "dead.sock")
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(dead)

    with pytest.raises(SocketRefused) as missing:
        connection.open_socket(str(tmp_path / "missing.sock"), timeout=LONG)
    with pytest.raises(SocketRefused) as refused:
        connection.open_socket(dead, timeout=LONG)
    with pytest.raises(SocketRefused):
        connection.open_socket("/" + "x" * 200, timeout=LONG)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(SocketRefused, match=r"127\.0\.0\.1:\d+: connection refused"):
            connection.open_port("127.0.0.1", unused.getsockname()[1], timeout=LONG)

    assert isinstance(missing.value.__cause__, FileNotFoundError)
    assert isinstance(refused.value.__cause__, ConnectionRefusedError)


def test_a_command_is_spoken_with_and_killed_when_its_stream_closes(
    connection: LocalConnection, lifeline: Lifeline
) -> None:
    script = f"exec 3>{lifeline.path}; cat"
    stream = connection.open_command(shell(script), timeout=LONG)

    assert answered(stream, b"ping\n") == b"ping\n"
    stream.close()
    assert lifeline.all_gone()


def test_a_stream_ends_with_its_command(connection: LocalConnection) -> None:
    stream = connection.open_command(("true",), timeout=LONG)

    assert stream.recv(1) == b""
    stream.close()
    with pytest.raises(SocketRefused, match="no-such-command-here"):
        connection.open_command(("no-such-command-here",), timeout=LONG)


def test_closing_wakes_whoever_reads_a_stream(connection: LocalConnection) -> None:
    stream = connection.open_command(("sleep", "1000"), timeout=LONG)
    stream.settimeout(None)
    failures: list[ConnectionFailed] = []

    def read() -> None:
        try:
            stream.recv(1)
        except ConnectionFailed as failed:
            failures.append(failed)

    reader = threading.Thread(target=read)
    reader.start()
    connection.close()
    reader.join(LONG)

    assert [failed.stage for failed in failures] == [Stage.CANCELLED]


def test_nothing_is_left_open(tmp_path: Path) -> None:
    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the directory is not the file system's

    threads = threading.active_count()
    before = descriptors()
    connection = LocalConnection()
    for _ in range(5):
        connection.run(shell("echo x"), stdin=b"y", timeout=LONG)
        connection.run(("sleep", "1000"), timeout=0.01)
        connection.run(("no-such-command-here",), timeout=LONG)
        connection.open_command(("sleep", "1000"), timeout=LONG)
        with pytest.raises(SocketRefused):
            connection.open_socket(str(tmp_path / "missing"), timeout=LONG)
        with pytest.raises(SocketRefused):
            connection.open_command(("no-such-command-here",), timeout=LONG)
    connection.close()

    assert descriptors() == before
    assert threading.active_count() == threads
