"""SSH against a server in this process: the messages paramiko has no names for, quoting, order of keys, cancelling."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from gpuplan.domain.inventory import HostEntry
from gpuplan.remote.cancellation import Cancellation
from gpuplan.remote.connection import ConnectionFailed, SocketRefused, Stage
from gpuplan.remote.dialing import dial, resolve
from gpuplan.remote.ssh import connect
from gpuplan.remote.ssh_settings import HostKeyPolicy, SshSettings
from gpuplan.remote.words import printable


class _Server(asyncssh.SSHServer):
    def unix_connection_requested(self, dest_path: str) -> bool:
        return dest_path.endswith("socket")

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return dest_host == "127.0.0.1"


async def _answer(process: "asyncssh.SSHServerProcess[bytes]") -> None:
    """Print the command line as it came, then the standard input."""
    process.stdout.write((process.command or "").encode() + b"\n")
    process.stdout.write(await process.stdin.read())
    process.stderr.write(b"\xff\xfe")
    process.exit(3)


@pytest.fixture
def entry(tmp_path: Path) -> Iterator[HostEntry]:
    """A server that runs in a thread of its own, and the host it plays."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(tmp_path / "id")
    key.write_public_key(tmp_path / "id.pub")
    loop = asyncio.new_event_loop()

    async def listen() -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=_Server,
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            authorized_client_keys=str(tmp_path / "id.pub"),
            process_factory=_answer,
            encoding=None,
        )

    acceptor = loop.run_until_complete(listen())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield HostEntry(
            name="h",
            address="127.0.0.1",
            user="u",
            port=acceptor.get_port(),
            identity_file=str(tmp_path / "id"),
        )
    finally:

        async def stop() -> None:
            acceptor.close()
            await acceptor.wait_closed()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 5)

        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


@pytest.fixture
def settings(tmp_path: Path) -> SshSettings:
    return SshSettings(
        known_hosts=tmp_path / "known_hosts",
        home=tmp_path,
        policy=HostKeyPolicy.ACCEPT_NEW,
        system_config=tmp_path / "none",
        system_known_hosts=(),
    )


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["sh", "-s"], "sh -s"),
        (["echo", "a b", "$x", "it's", ""], """echo 'a b' '$x' 'it'"'"'s' ''"""),
        (["ls", "grüße"], "ls 'grüße'"),
    ],
)
def test_a_command_line_is_quoted_once(
    command: Sequence[str], line: str, entry: HostEntry, settings: SshSettings
) -> None:
    connection = connect(entry, settings)
    try:
        done = connection.run(command, stdin=b"input", timeout=10)
    finally:
        connection.close()
    assert done.stdout == line.encode() + b"\ninput"
    assert (done.stderr, done.exit_code) == (b"\xff\xfe", 3)


def test_a_socket_of_the_host(entry: HostEntry, settings: SshSettings, tmp_path: Path) -> None:
    """`direct-streamlocal@openssh.com` is written here, message by message."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        connection = connect(entry, settings)
        try:
            stream = connection.open_socket(str(tmp_path / "socket"), timeout=5)
            served, _address = listener.accept()
            with served:
                stream.settimeout(5)
                stream.sendall(b"ping")
                assert served.recv(4) == b"ping"
                served.sendall(b"pong")
                assert stream.recv(4) == b"pong"
                stream.settimeout(0.01)
                with pytest.raises(TimeoutError):
                    stream.recv(1)
            stream.settimeout(5)
            assert stream.recv(1) == b""
            with pytest.raises(SocketRefused, match="other"):
                connection.open_socket(str(tmp_path / "other"), timeout=5)
        finally:
            connection.close()


def test_after_close_everything_fails_in_words(entry: HostEntry, settings: SshSettings) -> None:
    connection = connect(entry, settings)
    connection.close()
    connection.close()
    with pytest.raises(ConnectionFailed, match="closed here") as caught:
        connection.run(["true"], timeout=5)
    assert caught.value.stage is Stage.COMMAND
    with pytest.raises(ConnectionFailed, match="closed here"):
        connection.open_port("127.0.0.1", 1, timeout=5)


def test_after_a_cancel_everything_is_cancelled(entry: HostEntry, settings: SshSettings) -> None:
    connection = connect(entry, settings)
    settings.cancellation.cancel()
    for call in (
        lambda: connection.run(["true"], timeout=5),
        lambda: connection.open_socket("/socket", timeout=5),
        lambda: connect(entry, settings),
        lambda: connect(entry, replace(settings)),
    ):
        with pytest.raises(ConnectionFailed) as caught:
            call()
        assert caught.value.stage is Stage.CANCELLED
    connection.close()


def test_a_cancellation_calls_each_end_once() -> None:
    cancellation = Cancellation()
    ended: list[str] = []
    release = cancellation.register(lambda: ended.append("released"))
    release()
    cancellation.register(lambda: ended.append("kept"))
    cancellation.cancel()
    cancellation.cancel()
    with pytest.raises(ConnectionFailed):
        cancellation.register(lambda: ended.append("late"))
    assert ended == ["kept", "late"]


def test_the_first_address_that_answers_is_used() -> None:
    with socket.create_server(("127.0.0.1", 0)) as open_port, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        addresses = [
            (socket.AF_INET, closed.getsockname()),
            (socket.AF_INET, open_port.getsockname()),
        ]
        sock = dial(addresses, 5, Cancellation())
        assert sock.getpeername() == open_port.getsockname()
        sock.close()
        with pytest.raises(ConnectionFailed, match="connection refused"):
            dial(addresses[:1], 5, Cancellation())


def test_an_address_needs_no_name_server() -> None:
    assert [address[1][0] for address in resolve("::1", 22, 5, Cancellation())] == ["::1"]
    with pytest.raises(ConnectionFailed) as caught:
        resolve("no\x1bsuch..name", 22, 5, Cancellation())
    assert caught.value.stage is Stage.RESOLVE
    assert caught.value.detail.isprintable()


def test_words_from_elsewhere_are_one_printable_line() -> None:
    assert printable(b"a\x1b[2J\r\n\tb\xff") == "a [2J b�"
    assert printable("x" * 1000) == "x" * 299 + "…"
    assert printable("\u202edetcel\u200b") == "detcel"
