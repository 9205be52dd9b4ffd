"""Machines' networks out of namespaces that live as long as a process of ours: one bridge, one cable to this machine.

Nothing here has a name that outlives us. A namespace belongs to its first process, that process ends when the pipe
to it closes, and interfaces go with their namespace; so a killed test run leaves nothing behind to trip over.
"""

import fcntl
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Self

from tests.hosts.waiting import wait_for

NETWORKS = tuple(IPv4Network("198.18.0.0/15").subnets(new_prefix=24))
"""Set apart for tests of network devices (RFC 2544): no machine has a real address there."""


class HarnessFailed(Exception):
    """The harness itself could not do what it was asked, with the command's own words."""


def call(argv: Sequence[str | Path], *, seconds: float = 60) -> str:
    """Run a command on this machine; its output. Raises HarnessFailed with what it said."""
    done = subprocess.run(
        [str(word) for word in argv], capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        raise HarnessFailed(f"{' '.join(map(str, argv))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Namespaces:
    """A process in new namespaces, ended by closing its standard input."""

    def __init__(self, unshared: Sequence[str], argv: Sequence[str | Path], log: Path) -> None:
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                ["unshare", *unshared, "--fork", "--kill-child=KILL", *map(str, argv)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self.pid: int | None = None
        if self._process.stdout.readline() != b"ready\n":
            self.end()
            raise HarnessFailed(f"{argv[0]} did not start: {log.read_text()[-2000:]}")
        self.pid = _child_of(self._process.pid)

    def entering(self) -> list[str]:
        """The words before a command that is to run inside."""
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", "--uts", "--ipc", "--pid"]

    def let_go(self) -> None:
        """Begin the end: the first process of the namespaces is killed, and the kernel ends the others."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self.pid is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):  # the closed pipe was enough
                os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Wait until all of it is gone."""
        self.let_go()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait(timeout=60)


def _child_of(parent: int) -> int:
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it ended while we looked
            continue
        if int(fields[1]) == parent:
            return int(status.parent.name)
    raise HarnessFailed(f"process {parent} has no child")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cable:
    """A host's way to the bridge."""

    outer: str
    """The end at the bridge."""
    address: str


class Bridge:
    """A network of its own; this machine is the last address of it."""

    def __init__(self, directory: Path) -> None:
        self._hub = Namespaces(
            ["--net"], ["bash", "-c", "echo ready; while read -r _; do :; done"], directory / "hub"
        )
        self.uplink = f"gpt{os.getpid()}n{next(_numbers)}"
        inside = self._inside
        try:
            inside("ip", "link", "set", "lo", "up")
            inside("ip", "link", "add", "br0", "type", "bridge")
            inside("ip", "link", "set", "br0", "up")
            call(
                [
                    "ip",
                    "link",
                    "add",
                    self.uplink,
                    "type",
                    "veth",
                    "peer",
                    "name",
                    "up0",
                    "netns",
                    str(self._hub.pid),
                ]
            )
            inside("ip", "link", "set", "up0", "master", "br0", "up")
            with _one_at_a_time():
                self.network = _unused_network()
                gateway = f"{self.network[254]}/24"
                call(["ip", "address", "add", gateway, "dev", self.uplink])
            call(["ip", "link", "set", self.uplink, "up"])
        except BaseException:
            self.remove()
            raise

    def _inside(self, *words: str) -> None:
        call(["nsenter", f"--target={self._hub.pid}", "--net", *words])

    def connect(self, number: int, host: Namespaces) -> Cable:
        """Give a host its interface `eth0` and address `number` of the network."""
        address, outer = str(self.network[number]), f"h{number}"
        self._inside(
            "ip",
            "link",
            "add",
            outer,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            f"/proc/{host.pid}/ns/net",
        )
        self._inside("ip", "link", "set", outer, "master", "br0", "up")
        enter = ["nsenter", f"--target={host.pid}", "--net"]
        call([*enter, "ip", "address", "add", f"{address}/24", "dev", "eth0"])
        call([*enter, "ip", "link", "set", "eth0", "up"])
        return Cable(outer=outer, address=address)

    def pull(self, cable: Cable) -> None:
        """Take the cable out: the host's interface loses its carrier."""
        self._inside("ip", "link", "set", cable.outer, "down")
        self.forget_neighbours()

    def plug(self, cable: Cable) -> None:
        self._inside("ip", "link", "set", cable.outer, "up")
        self.forget_neighbours()

    def forget_neighbours(self) -> None:
        """So that the next packet asks anew who is there."""
        call(["ip", "neighbour", "flush", "dev", self.uplink])

    def remove(self) -> None:
        """End the hub; the kernel takes the bridge and every cable with it."""
        self._hub.end()
        wait_for(f"the end of {self.uplink}", lambda: not Path(f"/sys/class/net/{self.uplink}").exists())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _count() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


_numbers = _count()


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Test runs side by side choose their networks one after the other."""
    with (Path(tempfile.gettempdir()) / "gpuplan-test-hosts.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unused_network() -> IPv4Network:
    taken = set(re.findall(r"198\.1[89]\.\d+\.", call(["ip", "-o", "-4", "address"])))
    for network in NETWORKS[1:]:
        if str(network[0])[:-1] not in taken:
            return network
    raise HarnessFailed(f"all {len(NETWORKS)} networks below 198.18.0.0/15 are taken")
