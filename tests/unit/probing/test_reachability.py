"""Listeners and tries for real, on loopback, with each program a host may have."""

import os
import select
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from gpuplan.planning.preflight_measures import ReachOutcome
from gpuplan.probing.reachability import Listener, ListenerFailed, Target, directions
from gpuplan.remote.connection import Stream

TOOLS = {
    "python": ("python3",),
    "perl": ("perl",),
    "shell": ("bash", "busybox", "timeout", "grep", "tr", "cut", "sleep", "cat"),
}
"""What stands on the PATH of a host, beside sh and dd."""
MARKER = "GPUPLAN_TEST_HOST"


class PipeStream:
    """A command's standard input and output as a stream; closing it closes them and kills nothing, as sshd does."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._timeout: float | None = None

    def recv(self, size: int, /) -> bytes:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], self._timeout)
        if not ready:
            raise TimeoutError
        return os.read(self._process.stdout.fileno(), size)

    def sendall(self, data: bytes, /) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def settimeout(self, seconds: float | None, /) -> None:
        self._timeout = seconds

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # it still held what nobody read
                    pipe.close()


class TestHost:
    """Commands run here with a PATH of their own; only `open_command` is asked for."""

    __test__ = False

    def __init__(self, path: Path, greeting: bytes = b"") -> None:
        self.mark = uuid.uuid4().hex
        self._path = path
        self._environment = {"PATH": str(path), MARKER: self.mark}
        self._greeting = greeting
        self._started: list[subprocess.Popen[bytes]] = []

    def has(self, tool: str) -> bool:
        return (self._path / tool).exists()

    def open_command(self, command: Sequence[str], *, timeout: float) -> Stream:
        if self._greeting:
            script = f"printf %s '{self._greeting.decode()}'; exec \"$@\""
            command = ["sh", "-c", script, "sh", *command]
        process = subprocess.Popen(
            command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._started.append(process)
        return PipeStream(process)

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()

    def left(self) -> list[int]:
        """Processes of the host that still run, after they were given five seconds to end."""
        ends = time.monotonic() + 5
        for process in self._started:
            process.wait(timeout=5)
        while (pids := _running(self.mark)) and time.monotonic() < ends:
            select.select([], [], [], 0.05)
        return pids


def _running(mark: str) -> list[int]:
    pids = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARKER}={mark}".encode() in place.read_bytes():
                pids.append(int(place.parent.name))
        except OSError:
            continue
    return pids


@pytest.fixture(params=TOOLS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    for tool in ("sh", "dd", *TOOLS[request.param]):
        real = shutil.which(tool)
        if real is None:
            pytest.skip(f"this machine has no {tool}")
        (tmp_path / tool).symlink_to(_resolved(tool, real))
    return tmp_path


def _resolved(tool: str, real: str) -> str:
    """Past a version manager's launcher, which needs more than the tool on the PATH."""
    if tool != "python3":
        return real
    found = subprocess.run(
        [real, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


@pytest.fixture
def host(path: Path) -> Iterator[TestHost]:
    host = TestHost(path)
    yield host
    host.close()


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for item in held:
        item.bind(("127.0.0.1", 0))
    ports = [item.getsockname()[1] for item in held]
    for item in held:
        item.close()
    return ports


def target(listener: Listener, word: str, name: str = "b") -> Target:
    assert listener.port is not None
    return Target(host=name, address="127.0.0.1", port=listener.port, word=word)


def test_two_hosts_reach_each_other_and_leave_nothing(path: Path) -> None:
    a, b = TestHost(path), TestHost(path)
    there = Listener.open(a, "127.0.0.1", free_ports(2), "word-a")
    here = Listener.open(b, "127.0.0.1", free_ports(2), "word-b")
    forth = there.connect([target(here, "word-b", "b")])
    back = here.connect([target(there, "word-a", "a")])
    there.close()
    here.close()
    assert [(item.host, item.outcome) for item in forth] == [("b", ReachOutcome.REACHED)]
    assert [(item.host, item.outcome) for item in back] == [("a", ReachOutcome.REACHED)]
    assert a.left() == []
    assert b.left() == []


def test_a_closed_port_is_refused_and_a_strangers_is_told(host: TestHost) -> None:
    (closed,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        listener = Listener.open(host, "127.0.0.1", free_ports(1), "word")
        refused, stranger = listener.connect(
            [
                Target(host="down", address="127.0.0.1", port=closed, word="x"),
                Target(host="other", address="127.0.0.1", port=other.getsockname()[1], word="x"),
            ]
        )
        listener.close()
    assert (refused.host, refused.outcome) == ("down", ReachOutcome.REFUSED)
    assert refused.detail == "Connection refused"
    assert stranger.host == "other"
    assert stranger.outcome in {ReachOutcome.STRANGER, ReachOutcome.TIMED_OUT}
    assert host.left() == []


def test_a_listener_takes_the_next_port_when_one_is_taken(host: TestHost) -> None:
    (free,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as other:
        listener = Listener.open(host, "127.0.0.1", [other.getsockname()[1], free], "word")
        listener.close()
    assert listener.port == free


def test_a_listener_that_cannot_listen_says_why(host: TestHost) -> None:
    if host.has("busybox"):
        pytest.skip("a small nc takes no address: it listens on all of them")
    listener = Listener.open(host, "192.0.2.1", free_ports(1), "word")
    listener.close()
    assert listener.port is None
    assert "192.0.2.1" in listener.why
    assert host.left() == []


def test_the_port_is_free_again_at_once(host: TestHost) -> None:
    if host.has("busybox"):
        pytest.skip("nc closes first: the kernel keeps the port for a minute, which is told as closing")
    ports = free_ports(1)
    listener = Listener.open(host, "127.0.0.1", ports, "word")
    assert [item.outcome for item in listener.connect([target(listener, "word")])] == [ReachOutcome.REACHED]
    listener.close()
    assert host.left() == []
    with socket.socket() as plain:
        plain.bind(("127.0.0.1", ports[0]))


def test_many_targets_at_once(host: TestHost) -> None:
    listener = Listener.open(host, "127.0.0.1", free_ports(1), "word")
    count = 6 if host.has("busybox") else 70  # busybox lets one connection wait while it answers another
    tries = listener.connect([target(listener, "word", str(number)) for number in range(count)])
    listener.close()
    assert {item.outcome for item in tries} == {ReachOutcome.REACHED}
    assert [item.host for item in tries] == [str(number) for number in range(count)]
    assert host.left() == []


def test_a_login_shell_that_prints_is_passed_over(path: Path) -> None:
    host = TestHost(path, greeting=b"Welcome!\nlisten 1\n")
    listener = Listener.open(host, "127.0.0.1", free_ports(1), "word")
    listener.close()
    assert listener.port is not None
    assert listener.port > 1
    assert host.left() == []


def test_a_host_without_any_tool_says_so(tmp_path: Path) -> None:
    for tool in ("sh", "dd"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    host = TestHost(tmp_path)
    listener = Listener.open(host, "127.0.0.1", free_ports(1), "word")
    listener.close()
    assert (listener.port, listener.why) == (None, "none of python3, perl and busybox is on the host")
    host.close()


def test_a_host_that_ends_in_the_middle_loses_only_its_own_tries(host: TestHost) -> None:
    listener = Listener.open(host, "127.0.0.1", free_ports(1), "word")
    host.close()
    (tried,) = listener.connect([target(listener, "word")])
    listener.close()
    assert tried.outcome is ReachOutcome.NO_ANSWER


def test_a_program_that_does_not_come_up_says_so(tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to(str(shutil.which("sh")))
    host = TestHost(tmp_path)
    with pytest.raises(ListenerFailed, match="the session ended early"):
        Listener.open(host, "127.0.0.1", free_ports(1), "word")
    assert host.left() == []


def test_directions_of_a_small_fleet_are_all_pairs_and_of_a_large_one_a_ring_and_a_star() -> None:
    assert directions(["a", "b", "c"]) == (
        ("a", "b"),
        ("a", "c"),
        ("b", "a"),
        ("b", "c"),
        ("c", "a"),
        ("c", "b"),
    )
    sixteen = [f"h{number}" for number in range(16)]
    assert len(directions(sixteen)) == 16 * 15
    forty = [f"h{number}" for number in range(40)]
    pairs = set(directions(forty))
    assert len(pairs) == 2 * (40 + 39 - 2)
    assert all((b, a) in pairs for a, b in pairs)
    assert {a for a, _ in pairs} == set(forty)
