"""Every fault of a connection, made real with OpenSSH's own server: stage, words, time, nothing left behind."""

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan.domain.inventory import HostEntry
from gpuplan.remote.connection import ConnectionFailed, SocketRefused, Stage
from gpuplan.remote.ssh import connect
from gpuplan.remote.ssh_settings import HostKeyPolicy, SshSettings, Timeouts
from tests.hosts import sshd
from tests.hosts.sshd import Sshd

pytestmark = pytest.mark.skipif(bool(sshd.CANNOT) and not sshd.REQUIRED, reason=sshd.CANNOT or "never")

SHORT = Timeouts(resolve=2, connect=2, banner=2, authenticate=5, command=3)


class Person:
    """Answers as told, and remembers what was asked."""

    def __init__(self, *, trust: bool = False, secret: str | None = None) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.trust, self.secret = trust, secret

    def trust_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        self.asked.append(("trust", host, key_type, fingerprint))
        return self.trust

    def passphrase(self, path: str) -> str | None:
        self.asked.append(("passphrase", path))
        return self.secret

    def password(self, user_at_host: str) -> str | None:
        self.asked.append(("password", user_at_host))
        return self.secret


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """No descriptor and no thread of a test outlives it; a thread that is on its way out gets a moment."""
    before, open_before = set(threading.enumerate()), _descriptors()
    yield
    end = time.monotonic() + 3
    while (set(threading.enumerate()) - before or _descriptors() > open_before) and time.monotonic() < end:
        for thread in set(threading.enumerate()) - before:
            thread.join(0.2)
        time.sleep(0.02)
    assert set(threading.enumerate()) - before == set()
    assert _descriptors() <= open_before


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd.running(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def settings(tmp_path: Path) -> SshSettings:
    """Nobody to ask, new keys accepted, an empty home."""
    return SshSettings(
        known_hosts=tmp_path / "gpuplan" / "known_hosts",
        home=tmp_path,
        policy=HostKeyPolicy.ACCEPT_NEW,
        timeouts=SHORT,
        environ={"PATH": os.environ["PATH"]},
        system_config=tmp_path / "none",
        system_known_hosts=(),
    )


def _failure(entry: HostEntry, settings: SshSettings, *, within: float = 10.0) -> ConnectionFailed:
    begun = time.monotonic()
    with pytest.raises(ConnectionFailed) as caught:
        connect(entry, settings)
    assert time.monotonic() - begun < within
    assert caught.value.detail.isprintable()
    return caught.value


@contextmanager
def _fake_server(speak: Callable[[socket.socket], None]) -> Iterator[int]:
    """Something that listens and is no SSH server: each connection is given to `speak`, then closed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    sock, _address = listener.accept()
                except OSError:
                    return
                with sock:
                    try:
                        speak(sock)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, name="fake server")
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def _until_closed(sock: socket.socket) -> None:
    while sock.recv(4096):
        pass


def test_one_connection_runs_commands_side_by_side(server: Sshd, settings: SshSettings) -> None:
    connection = connect(server.entry(), settings)
    try:
        before = server.log().count("Accepted publickey")
        results: dict[int, bytes] = {}

        def run(number: int) -> None:
            done = connection.run(["sh", "-s"], stdin=f"echo {number}; exit {number}".encode(), timeout=20)
            assert done.exit_code == number
            results[number] = done.stdout

        threads = [threading.Thread(target=run, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == {number: f"{number}\n".encode() for number in range(12)}
        assert server.log().count("Accepted publickey") == before
    finally:
        connection.close()


def test_words_are_quoted_once_and_both_outputs_kept_apart(server: Sshd, settings: SshSettings) -> None:
    connection = connect(server.entry(), settings)
    try:
        words = ["sh", "-c", 'printf "%s|" "$@"; echo bad >&2', "-", "a b", "$HOME", "it's", "*", ""]
        done = connection.run(words, timeout=10)
    finally:
        connection.close()
    assert done.stdout == b"a b|$HOME|it's|*||"
    assert done.stderr == b"bad\n"
    assert (done.exit_code, done.timed_out, done.truncated) == (0, False, False)


def test_a_command_that_hangs_is_cut_off_with_what_it_printed(server: Sshd, settings: SshSettings) -> None:
    connection = connect(server.entry(), settings)
    try:
        begun = time.monotonic()
        done = connection.run(["sh", "-c", "echo first; exec sleep 60"], timeout=1)
        assert time.monotonic() - begun < 5
        assert (done.exit_code, done.timed_out, done.stdout) == (None, True, b"first\n")
        assert connection.run(["echo", "still"], timeout=10).stdout == b"still\n"
    finally:
        connection.close()


def test_a_command_killed_by_a_signal_has_no_exit_code(server: Sshd, settings: SshSettings) -> None:
    connection = connect(server.entry(), settings)
    try:
        done = connection.run(["sh", "-c", "kill -9 $$"], timeout=10)
    finally:
        connection.close()
    assert (done.exit_code, done.timed_out) == (None, False)


def test_what_a_command_leaves_behind_does_not_hold_the_answer_back(
    server: Sshd, settings: SshSettings
) -> None:
    connection = connect(server.entry(), settings)
    try:
        begun = time.monotonic()
        done = connection.run(["sh", "-c", "sleep 30 & echo done"], timeout=20)
        assert time.monotonic() - begun < 10
    finally:
        connection.close()
    assert (done.exit_code, done.stdout, done.timed_out) == (0, b"done\n", False)


def test_ten_megabytes_of_junk_are_read_and_thrown_away(server: Sshd, settings: SshSettings) -> None:
    connection = connect(server.entry(), settings)
    try:
        script = b"head -c 10000000 /dev/urandom; head -c 3000000 /dev/zero >&2; exit 4"
        done = connection.run(["sh", "-s"], stdin=script, timeout=30, limit=100_000)
    finally:
        connection.close()
    assert (len(done.stdout), len(done.stderr)) == (100_000, 100_000)
    assert (done.truncated, done.exit_code) == (True, 4)


def test_output_without_end_is_stopped(server: Sshd, settings: SshSettings) -> None:
    connection = connect(server.entry(), settings)
    try:
        begun = time.monotonic()
        done = connection.run(["yes"], timeout=60, limit=1000)
        assert time.monotonic() - begun < 30
        assert connection.run(["true"], timeout=10).exit_code == 0
    finally:
        connection.close()
    assert (len(done.stdout), done.truncated, done.exit_code) == (1000, True, None)


def test_much_input_and_much_output_at_once(server: Sshd, settings: SshSettings) -> None:
    data = b"0123456789abcdef" * 400_000
    connection = connect(server.entry(), settings)
    try:
        done = connection.run(["cat"], stdin=data, timeout=30, limit=len(data))
    finally:
        connection.close()
    assert done.stdout == data


def test_refused_port(settings: SshSettings) -> None:
    failure = _failure(HostEntry(name="h", address="127.0.0.1", port=sshd.free_port()), settings, within=2)
    assert (failure.stage, failure.detail) == (Stage.CONNECT, "connection refused")


def test_name_unknown(settings: SshSettings) -> None:
    failure = _failure(HostEntry(name="h", address="no-such-host.invalid"), settings)
    assert failure.stage is Stage.RESOLVE
    assert "no-such-host.invalid" in failure.detail


def test_a_host_that_does_not_answer_costs_the_connect_timeout(settings: SshSettings) -> None:
    """A full backlog drops what comes next, as a firewall does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(address)
        failure = _failure(HostEntry(name="h", address="127.0.0.1", port=address[1]), settings, within=6)
        for filler in fillers:
            filler.close()
    assert (failure.stage, failure.detail) == (Stage.CONNECT, "no answer within 2 s")


def test_not_an_ssh_server(settings: SshSettings) -> None:
    def speak(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.0 400 Bad\x1b[31m Request\r\n\r\n")

    with _fake_server(speak) as port:
        failure = _failure(HostEntry(name="h", address="127.0.0.1", port=port), settings)
    assert failure.stage is Stage.CONNECT
    assert failure.detail == "not an SSH server: it said 'HTTP/1.0 400 Bad [31m Request'"


def test_silent_server(settings: SshSettings) -> None:
    with _fake_server(_until_closed) as port:
        failure = _failure(HostEntry(name="h", address="127.0.0.1", port=port), settings, within=7)
    assert failure.stage is Stage.CONNECT
    assert "no SSH server greeted within 2 s" in failure.detail


def test_server_that_closes_at_once(settings: SshSettings) -> None:
    patient = replace(settings, timeouts=Timeouts())
    with _fake_server(lambda _sock: None) as port:
        failure = _failure(HostEntry(name="h", address="127.0.0.1", port=port), patient)
    assert failure.stage is Stage.CONNECT
    assert "MaxStartups" in failure.detail


def test_endless_greeting(settings: SshSettings) -> None:
    def speak(sock: socket.socket) -> None:
        while True:
            sock.sendall(b"x" * 1000)

    with _fake_server(speak) as port:
        failure = _failure(HostEntry(name="h", address="127.0.0.1", port=port), settings, within=7)
    assert failure.stage is Stage.CONNECT
    assert failure.detail.startswith("not an SSH server: it said 'xxx")
    assert len(failure.detail) < 300


def test_greeting_and_then_nothing(settings: SshSettings) -> None:
    def speak(sock: socket.socket) -> None:
        sock.sendall(b"SSH-2.0-slow\r\n")
        _until_closed(sock)

    with _fake_server(speak) as port:
        failure = _failure(HostEntry(name="h", address="127.0.0.1", port=port), settings, within=7)
    assert failure.stage is Stage.CONNECT
    assert "within 2 s" in failure.detail


def test_wrong_key_names_what_was_tried_and_what_is_offered(
    server: Sshd, settings: SshSettings, tmp_path: Path
) -> None:
    wrong = sshd.make_key(tmp_path / "wrong")
    failure = _failure(server.entry(identity_file=str(wrong)), settings)
    assert failure.stage is Stage.AUTHENTICATE
    assert str(wrong) in failure.detail
    assert "the server takes publickey" in failure.detail


def test_missing_identity_file_of_the_inventory(server: Sshd, settings: SshSettings, tmp_path: Path) -> None:
    failure = _failure(server.entry(identity_file=str(tmp_path / "absent")), settings)
    assert failure.stage is Stage.AUTHENTICATE
    assert f"{tmp_path / 'absent'}, named in the inventory, does not exist" in failure.detail


def test_unknown_user(server: Sshd, settings: SshSettings) -> None:
    failure = _failure(server.entry(user="nobody-of-that-name"), settings)
    assert failure.stage is Stage.AUTHENTICATE
    assert failure.detail.startswith("nobody-of-that-name was not let in")


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_other_key_types(kind: str, server: Sshd, settings: SshSettings, tmp_path: Path) -> None:
    key = sshd.make_key(tmp_path / "other", kind)
    authorized = server.directory / "authorized_keys"
    usual = authorized.read_text()
    authorized.write_text(f"{usual}{sshd.public(key)}\n")
    try:
        connect(server.entry(identity_file=str(key)), settings).close()
    finally:
        authorized.write_text(usual)


@pytest.mark.parametrize(
    ("secret", "accepted"),
    [("right-Secret", True), ("wrong", False), (None, False)],
    ids=["right", "wrong", "none"],
)
@pytest.mark.parametrize("method", ["PasswordAuthentication", "KbdInteractiveAuthentication"])
def test_password(
    method: str, secret: str | None, accepted: bool, tmp_path: Path, settings: SshSettings
) -> None:
    options = [f"{method} yes", "PubkeyAuthentication no"]
    if method.startswith("Kbd"):
        options.append("UsePAM yes")
    with (
        sshd.temporary_user("/bin/sh", "right-Secret") as user,
        sshd.running(tmp_path / "s", *options, user=user) as server,
    ):
        person = Person(secret=secret)
        asking = replace(settings, questions=person, policy=HostKeyPolicy.ACCEPT_NEW)
        if accepted:
            for name in ("one", "one"):
                connect(server.entry(name), asking).close()
        else:
            failure = _failure(server.entry("one"), asking, within=12)
            assert failure.stage is Stage.AUTHENTICATE
            assert "was not let in" in failure.detail
    assert person.asked == [("password", f"{user}@one")]


def test_host_key_policies(server: Sshd, settings: SshSettings) -> None:
    expected = sshd.fingerprint(server.directory / "host_ed25519")
    for policy in (HostKeyPolicy.STRICT, HostKeyPolicy.ASK):
        failure = _failure(server.entry(), replace(settings, policy=policy))
        assert failure.stage is Stage.HOST_KEY
        assert expected in failure.detail
        assert not settings.known_hosts.exists()
    no, yes = Person(trust=False), Person(trust=True)
    declined = _failure(server.entry(), replace(settings, policy=HostKeyPolicy.ASK, questions=no))
    assert (declined.stage, "declined" in declined.detail) == (Stage.HOST_KEY, True)
    asking = replace(settings, policy=HostKeyPolicy.ASK, questions=yes)
    connect(server.entry(), asking).close()
    assert yes.asked == no.asked == [("trust", f"[127.0.0.1]:{server.port}", "ssh-ed25519", expected)]
    assert settings.known_hosts.read_text() == server.known_hosts_line
    assert settings.known_hosts.stat().st_mode & 0o777 == 0o600
    connect(server.entry(), replace(settings, policy=HostKeyPolicy.STRICT)).close()


@pytest.mark.parametrize("policy", list(HostKeyPolicy))
def test_a_changed_host_key_is_refused_under_every_policy(
    policy: HostKeyPolicy, server: Sshd, settings: SshSettings, tmp_path: Path
) -> None:
    other = sshd.make_key(tmp_path / "other")
    known = tmp_path / ".ssh" / "known_hosts"
    known.parent.mkdir()
    known.write_text(f"# mine\n[127.0.0.1]:{server.port} {sshd.public(other)}\n")
    person = Person(trust=True)
    failure = _failure(server.entry(), replace(settings, policy=policy, questions=person))
    assert failure.stage is Stage.HOST_KEY
    assert f"{known}:2" in failure.detail
    assert sshd.fingerprint(other) in failure.detail
    assert sshd.fingerprint(server.directory / "host_ed25519") in failure.detail
    assert person.asked == []


def test_the_known_key_type_is_the_one_that_is_negotiated(tmp_path: Path, settings: SshSettings) -> None:
    with sshd.running(tmp_path / "s", host_keys=("ed25519", "ecdsa", "rsa")) as server:
        for kind in ("rsa", "ecdsa", "ed25519"):
            settings.known_hosts.parent.mkdir(exist_ok=True)
            line = f"[127.0.0.1]:{server.port} {sshd.public(server.directory / f'host_{kind}')}\n"
            settings.known_hosts.write_text(line)
            connect(server.entry(), replace(settings, policy=HostKeyPolicy.STRICT)).close()


def test_a_banner_is_no_trouble_and_is_shown_when_login_fails(tmp_path: Path, settings: SshSettings) -> None:
    banner = tmp_path / "banner"
    banner.write_text("AUTHORIZED\x1b[5m USE\nONLY\n")
    with sshd.running(tmp_path / "s", f"Banner {banner}") as server:
        connection = connect(server.entry(), settings)
        try:
            assert connection.run(["echo", "x"], timeout=10).stdout == b"x\n"
        finally:
            connection.close()
        failure = _failure(server.entry(user="nobody-of-that-name"), settings)
    assert "USE ONLY'" in failure.detail


@pytest.mark.parametrize("shell", ["/bin/csh", "/usr/bin/fish", "/bin/bash"])
def test_login_shells(shell: str, tmp_path: Path, settings: SshSettings) -> None:
    if not Path(shell).exists() and not sshd.REQUIRED:
        pytest.skip(f"{shell} is not installed")
    script = b'set -e\nfor x in "a b" \'c!\'; do echo "[$x] \\\\"; done\nexit 7\n'
    with sshd.temporary_user(shell) as user, sshd.running(tmp_path / "s", user=user) as server:
        connection = connect(server.entry(), settings)
        try:
            done = connection.run(["sh", "-s"], stdin=script, timeout=20)
            words = connection.run(["printf", "%s|", "a b", "it's", "$HOME", "*"], timeout=20)
        finally:
            connection.close()
    assert (done.exit_code, done.stdout) == (7, b"[a b] \\\n[c!] \\\n")
    assert words.stdout == b"a b|it's|$HOME|*|"


def test_a_login_shell_that_prints(tmp_path: Path, settings: SshSettings) -> None:
    with sshd.temporary_user("/bin/bash") as user, sshd.running(tmp_path / "s", user=user) as server:
        Path(f"/home/{user}/.bashrc").write_text("echo Welcome, $USER; echo tea? >&2\n")
        connection = connect(server.entry(), settings)
        try:
            done = connection.run(["sh", "-s"], stdin=b"echo answer", timeout=10)
        finally:
            connection.close()
    assert done.exit_code == 0
    assert done.stdout.endswith(b"answer\n")


def test_a_connection_cut_in_the_middle(server: Sshd, settings: SshSettings) -> None:
    others = server.sessions()
    connection = connect(server.entry(), settings)
    try:
        (worker,) = server.sessions() - others
        timer = threading.Timer(0.5, sshd.signal_tree, (worker, signal.SIGKILL))
        timer.start()
        begun = time.monotonic()
        with pytest.raises(ConnectionFailed) as caught:
            connection.run(["sh", "-c", "echo begun; exec sleep 60"], timeout=30)
        timer.join()
        assert time.monotonic() - begun < 10
        assert caught.value.stage is Stage.COMMAND
        assert "lost" in caught.value.detail
        with pytest.raises(ConnectionFailed):
            connection.run(["true"], timeout=5)
    finally:
        connection.close()


def test_a_host_that_hangs_after_authentication(server: Sshd, settings: SshSettings) -> None:
    others = server.sessions()
    connection = connect(server.entry(), settings)
    (worker,) = server.sessions() - others
    try:
        sshd.signal_tree(worker, signal.SIGSTOP)
        begun = time.monotonic()
        with pytest.raises(ConnectionFailed) as caught:
            connection.run(["true"], timeout=1)
        assert time.monotonic() - begun < 5
        assert caught.value.stage is Stage.COMMAND
        assert "within 1 s" in caught.value.detail
    finally:
        connection.close()
        sshd.signal_tree(worker, signal.SIGCONT)


def test_one_session_at_a_time(tmp_path: Path, settings: SshSettings) -> None:
    with sshd.running(tmp_path / "s", "MaxSessions 1") as server:
        connection = connect(server.entry(), settings)
        outputs: list[bytes] = []

        def run() -> None:
            outputs.append(connection.run(["sh", "-c", "sleep 0.1; echo x"], timeout=20).stdout)

        threads = [threading.Thread(target=run) for _ in range(4)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            connection.close()
    assert outputs == [b"x\n"] * 4


def test_no_sessions_at_all(tmp_path: Path, settings: SshSettings) -> None:
    with sshd.running(tmp_path / "s", "MaxSessions 0") as server:
        connection = connect(server.entry(), settings)
        try:
            with pytest.raises(ConnectionFailed, match="opens no session"):
                connection.run(["true"], timeout=1)
        finally:
            connection.close()


def test_sockets_ports_and_commands(server: Sshd, settings: SshSettings, tmp_path: Path) -> None:
    path = tmp_path / "socket"

    def echo(listener: socket.socket) -> None:
        sock, _address = listener.accept()
        with sock:
            while data := sock.recv(100):
                sock.sendall(data.upper())

    with socket.socket(socket.AF_UNIX) as unix, socket.create_server(("127.0.0.1", 0)) as tcp:
        unix.bind(str(path))
        unix.listen()
        threads = [threading.Thread(target=echo, args=(listener,)) for listener in (unix, tcp)]
        for thread in threads:
            thread.start()
        connection = connect(server.entry(), settings)
        try:
            for stream in (
                connection.open_socket(str(path), timeout=5),
                connection.open_port("127.0.0.1", tcp.getsockname()[1], timeout=5),
                connection.open_command(["sh", "-c", "echo why >&2; exec tr a-z A-Z"], timeout=5),
            ):
                stream.settimeout(5)
                stream.sendall(b"hello")
                if hasattr(stream, "shutdown_write"):
                    stream.shutdown_write()
                assert stream.recv(5) == b"HELLO"
                stream.close()
            with pytest.raises(SocketRefused):
                connection.open_socket(str(tmp_path / "absent"), timeout=5)
            with pytest.raises(SocketRefused):
                connection.open_port("127.0.0.1", sshd.free_port(), timeout=5)
            command = connection.open_command(["sh", "-c", "echo because >&2"], timeout=5)
            assert command.recv(10) == b""
            assert command.last_words() == b"because\n"
            command.close()
        finally:
            connection.close()
            for thread in threads:
                thread.join()


def test_forwarding_forbidden(tmp_path: Path, settings: SshSettings) -> None:
    with sshd.running(tmp_path / "s", "AllowStreamLocalForwarding no", "AllowTcpForwarding no") as server:
        connection = connect(server.entry(), settings)
        try:
            with pytest.raises(SocketRefused):
                connection.open_socket("/var/run/docker.sock", timeout=5)
            with pytest.raises(SocketRefused):
                connection.open_port("127.0.0.1", server.port, timeout=5)
            assert connection.run(["true"], timeout=10).exit_code == 0
        finally:
            connection.close()


def test_an_encrypted_key_is_asked_for_once_for_all_hosts(
    server: Sshd, settings: SshSettings, tmp_path: Path
) -> None:
    key = sshd.make_key(tmp_path / "locked", passphrase="open sesame")
    authorized = server.directory / "authorized_keys"
    usual = authorized.read_text()
    authorized.write_text(f"{usual}{sshd.public(key)}\n")
    entries = [server.entry(f"h{number}", identity_file=str(key)) for number in range(3)]
    try:
        person = Person(secret="open sesame")
        asking = replace(settings, questions=person)
        for entry in entries:
            connect(entry, asking).close()
        assert person.asked == [("passphrase", str(key))]
        failure = _failure(entries[0], replace(settings))
        assert failure.stage is Stage.AUTHENTICATE
        assert f"ssh-add {key}" in failure.detail
        wrong = _failure(entries[0], replace(settings, questions=Person(secret="wrong")))
        assert "the passphrase is wrong" in wrong.detail
    finally:
        authorized.write_text(usual)


def test_a_key_the_server_would_not_take_is_not_asked_for(
    server: Sshd, settings: SshSettings, tmp_path: Path
) -> None:
    key = sshd.make_key(tmp_path / "locked", passphrase="open sesame")
    person = Person(secret=None)
    failure = _failure(server.entry(identity_file=str(key)), replace(settings, questions=person))
    assert failure.stage is Stage.AUTHENTICATE
    assert person.asked == []


@contextmanager
def _agent(tmp_path: Path, *keys: Path) -> Iterator[str]:
    path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 5
        while not path.exists() and time.monotonic() < end:
            process.poll()
        environ = {**os.environ, "SSH_AUTH_SOCK": str(path)}
        for key in keys:
            subprocess.run(["ssh-add", "-q", str(key)], env=environ, check=True, capture_output=True)
        yield str(path)
    finally:
        process.kill()
        process.wait(5)


def test_agent(server: Sshd, settings: SshSettings, tmp_path: Path) -> None:
    other = sshd.make_key(tmp_path / "other", "rsa")
    with _agent(tmp_path, other, server.client_key) as path:
        with_agent = replace(settings, environ={"SSH_AUTH_SOCK": path})
        connect(server.entry(identity_file=None), with_agent).close()
    gone = _failure(server.entry(identity_file=None), with_agent)
    assert gone.stage is Stage.AUTHENTICATE
    assert "ssh-agent" in gone.detail


def test_the_named_key_comes_before_an_agent_full_of_others(
    server: Sshd, settings: SshSettings, tmp_path: Path
) -> None:
    keys = [sshd.make_key(tmp_path / f"k{number}") for number in range(8)]
    with _agent(tmp_path, *keys) as path:
        with_agent = replace(settings, environ={"SSH_AUTH_SOCK": path})
        connect(server.entry(), with_agent).close()
        failure = _failure(server.entry(identity_file=None), with_agent)
    assert failure.stage is Stage.AUTHENTICATE
    assert "Too many authentication failures" in failure.detail
    assert "agent key k0" in failure.detail


def test_through_a_jump_host_by_its_name_in_the_inventory(tmp_path: Path, settings: SshSettings) -> None:
    with sshd.running(tmp_path / "bastion") as bastion, sshd.running(tmp_path / "inner") as inner:
        hosts = {"bastion": bastion.entry("bastion")}
        entries = [inner.entry(f"h{number}", jump="bastion") for number in range(3)]
        connections = [connect(entry, settings, hosts) for entry in entries]
        try:
            for connection in connections:
                assert connection.run(["echo", "here"], timeout=10).stdout == b"here\n"
            assert bastion.log().count("Accepted publickey") == 1
            assert inner.log().count("Accepted publickey") == 3
            connections[0].close()
            assert connections[1].run(["true"], timeout=10).exit_code == 0
        finally:
            for connection in connections:
                connection.close()


def test_a_chain_of_jump_hosts_from_the_configuration(tmp_path: Path, settings: SshSettings) -> None:
    with (
        sshd.running(tmp_path / "a") as first,
        sshd.running(tmp_path / "b") as second,
        sshd.running(tmp_path / "c") as third,
    ):
        config = tmp_path / ".ssh" / "config"
        config.parent.mkdir()
        config.write_text("Include conf.d/*\nHost gpu\n  ProxyJump one,two\n")
        (config.parent / "conf.d").mkdir()
        (config.parent / "conf.d" / "hosts").write_text(
            "".join(
                f"Host {name}\n HostName 127.0.0.1\n Port {server.port}\n User root\n"
                f" IdentityFile {server.client_key}\n"
                for name, server in (("one", first), ("two", second), ("gpu", third))
            )
        )
        connection = connect(HostEntry(name="gpu", address="gpu"), settings)
        try:
            assert connection.run(["echo", "deep"], timeout=10).stdout == b"deep\n"
            assert [s.log().count("Accepted publickey") for s in (first, second, third)] == [1, 1, 1]
        finally:
            connection.close()


def test_a_jump_host_that_fails_is_named(server: Sshd, tmp_path: Path, settings: SshSettings) -> None:
    dead = f"127.0.0.1:{sshd.free_port()}"
    failure = _failure(server.entry(jump=dead), settings)
    assert (failure.stage, failure.detail) == (Stage.JUMP, f"jump host {dead} (connect): connection refused")
    with sshd.running(tmp_path / "bastion", "AllowTcpForwarding no") as bastion:
        with pytest.raises(ConnectionFailed) as caught:
            connect(server.entry(jump="bastion"), settings, {"bastion": bastion.entry("bastion")})
        assert caught.value.stage is Stage.JUMP
        assert "forbids forwarding" in caught.value.detail
    with pytest.raises(ConnectionFailed) as circle:
        connect(server.entry("h1", jump="h1"), settings, {"h1": server.entry("h1", jump="h1")})
    assert (circle.value.stage, "circle" in circle.value.detail) == (Stage.JUMP, True)


def test_proxy_command(server: Sshd, settings: SshSettings, tmp_path: Path) -> None:
    config = tmp_path / ".ssh" / "config"
    config.parent.mkdir()
    script = tmp_path / "relay.py"
    script.write_text(
        "import os, socket, sys, threading\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def up():\n"
        "    while data := os.read(0, 65536):\n"
        "        s.sendall(data)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := s.recv(65536):\n"
        "    os.write(1, data)\n"
    )
    config.write_text(
        f"Host good\n HostName 127.0.0.1\n ProxyCommand python3 {script} %h %p\n"
        "Host bad\n ProxyCommand sh -c 'echo no way in >&2; exit 9'\n"
    )
    connection = connect(server.entry(address="good"), settings)
    try:
        assert connection.run(["echo", "x"], timeout=10).stdout == b"x\n"
    finally:
        connection.close()
    failure = _failure(server.entry(address="bad"), settings)
    assert failure.stage is Stage.CONNECT
    assert "exit code 9" in failure.detail
    assert "no way in" in failure.detail
    children = subprocess.run(
        ["ps", "-o", "stat=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=True
    ).stdout
    assert "relay.py" not in children
    assert "<defunct>" not in children


def test_cancel_ends_everything_at_once(server: Sshd, settings: SshSettings) -> None:
    """A command, a silent server and a host that drops packets: all back within a second of the cancel."""
    with socket.socket() as full, _fake_server(_until_closed) as silent:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        slow = replace(settings, timeouts=Timeouts(connect=60, banner=60))
        connection = connect(server.entry(), slow)
        failures: list[ConnectionFailed] = []
        waiting = threading.Semaphore(0)

        def attempt(call: Callable[[], object]) -> None:
            waiting.release()
            try:
                call()
            except ConnectionFailed as failure:
                failures.append(failure)

        calls: list[Callable[[], object]] = [
            lambda: connection.run(["sleep", "60"], timeout=60),
            lambda: connect(HostEntry(name="s", address="127.0.0.1", port=silent), slow),
            lambda: connect(HostEntry(name="f", address="127.0.0.1", port=full.getsockname()[1]), slow),
        ]
        threads = [threading.Thread(target=attempt, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
            waiting.acquire()
        begun = time.monotonic()
        slow.cancellation.cancel()
        for thread in threads:
            thread.join(5)
        assert time.monotonic() - begun < 1
        connection.close()
        for filler in fillers:
            filler.close()
    assert [str(failure) for failure in failures] == ["cancelled: stopped before it was done"] * 3
    assert _failure(server.entry(), slow, within=1).stage is Stage.CANCELLED
