"""A machine out of namespaces: its own network, mounts, accounts, processes, and what can happen to them."""

import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.hosts.images import ImageSpec
from tests.hosts.network import Bridge, Cable, HarnessFailed, Namespaces
from tests.hosts.waiting import wait_for

PROGRAMS = Path(__file__).parent / "bin"
PATH = "/srv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_START_FILES = {"bash": ".bashrc", "csh": ".cshrc", "fish": ".config/fish/config.fish"}

_LISTEN = "import socket, sys; s = socket.create_server(('', int(sys.argv[1])))\nwhile True: s.accept()"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpec:
    """What a test host is made with."""

    name: str
    recording: str | None = None
    """Directory under tests/data/hosts; None: no nvidia-smi, no devices."""
    own_uuids: bool = False
    """Whether its GPUs differ from those of other hosts with the same recording, as two machines' do."""
    toolkit: bool = True
    """Whether the engine can hand out GPUs."""
    engine: bool = True
    images: tuple[ImageSpec, ...] = ()
    docker_space: str = "200g"
    """Size of the file system under Docker's data root, as tmpfs takes it; nothing is used until it is written."""
    model_space: str = "2000g"
    """Likewise under /srv/models."""


class Machine:
    """A running machine with an address. Every change made through it is undone by `restore`.

    Below /srv: `bin` (first on every PATH) and `logs`, shared with `directory`; `models`, `docker`, `home`, `ssh`.
    """

    def __init__(self, spec: HostSpec, *, bridge: Bridge, number: int, directory: Path, cgroup: str) -> None:
        self.spec = spec
        self.name = spec.name
        self.directory = directory
        self.bridge = bridge
        self.cgroup = cgroup
        self._undo: list[Callable[[], object]] = []
        for name in ("bin", "logs"):
            (directory / name).mkdir(parents=True)
            (directory / name).chmod(0o755)
        self.namespaces = Namespaces(
            ["--net", "--mount", "--uts", "--ipc", "--pid", "--mount-proc"],
            ["bash", PROGRAMS / "boot", self.name, directory, spec.docker_space, spec.model_space],
            directory / "boot.log",
        )
        try:
            self.cable: Cable = bridge.connect(number, self.namespaces)
        except BaseException:
            self.namespaces.end()
            raise

    @property
    def address(self) -> str:
        return self.cable.address

    def entering(self) -> list[str]:
        """The words before a command that is to run on the host as root."""
        return [*self.namespaces.entering(), "env", "-i", f"PATH={PATH}", "HOME=/srv/home/root", "USER=root"]

    def run(
        self, *words: str, stdin: bytes = b"", seconds: float = 120, check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command on the host as root, without SSH. Raises HarnessFailed when it fails and `check` is set."""
        done = subprocess.run(
            [*self.entering(), *words], input=stdin, capture_output=True, timeout=seconds, check=False
        )
        if check and done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise HarnessFailed(f"{self.name}: {shlex.join(words)}: status {done.returncode}: {said}")
        return done

    def text(self, *words: str) -> str:
        """What a command on the host prints, without the last newline."""
        return self.run(*words).stdout.decode().rstrip("\n")

    def start(self, *words: str, user: str = "root") -> int:
        """Start a command in the background; its process id as the host sees it. `restore` ends it."""
        login = ["setpriv", "--reuid", user, "--regid", user, "--init-groups"] if user != "root" else []
        begin = """setsid sh -c 'echo $$; exec "$@" >/dev/null' sh "$@" </dev/null 2>/dev/null &"""
        pid = int(self.run(*login, "sh", "-c", begin, "sh", *words).stdout)
        self.later(lambda: self.run("kill", "-9", str(pid), check=False))
        return pid

    def write(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        """Write a file of the host."""
        data = content.encode() if isinstance(content, str) else content
        script = 'mkdir -p "$(dirname "$1")" && cat >"$1" && chmod "$2" "$1"'
        self.run("sh", "-c", script, "sh", path, f"{mode:o}", stdin=data)

    def put_tool(self, name: str, script: str) -> None:
        """A program of the host that stands before all others of its name: amd-smi, date, uname."""
        tool = self.directory / "bin" / name
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        self.later(lambda: tool.unlink(missing_ok=True))

    def skew_clock(self, seconds: int) -> None:
        """Have `date` tell another time than the others."""
        self.put_tool("date", f'exec /bin/date -d "{seconds:+d} seconds" "$@"')

    def later(self, action: Callable[[], object]) -> None:
        """What undoes a change; the same method is kept once."""
        if action not in self._undo:
            self._undo.append(action)

    def restore(self) -> None:
        """Undo everything done to the host since it came up, the last thing first."""
        while self._undo:
            self._undo.pop()()

    def end(self) -> None:
        self.namespaces.end()

    def add_user(
        self, name: str, *, shell: str = "/bin/sh", groups: Sequence[str] = (), greeting: str = ""
    ) -> None:
        """A user who logs in with the fleet's key; `greeting` is printed by the shell (bash, csh, fish) at every login.

        These read a file even for a single command over SSH; `sh` reads none and stays silent.
        """
        home = f"/srv/home/{name}"
        member = ["-G", ",".join(groups)] if groups else []
        self.run("useradd", "-m", "-d", home, "-p", "*", "-s", shell, *member, name)
        if greeting:
            start = _START_FILES[Path(shell).name]
            self.write(f"{home}/{start}", f"echo {shlex.quote(greeting)}\n")
            self.run("chown", "-R", f"{name}:", home)
        self.later(lambda: self.run("userdel", "-f", "-r", name, check=False))

    def link_down(self) -> None:
        """Pull the cable: packets to the host go nowhere, and nobody answers for its address."""
        self.bridge.pull(self.cable)
        self.later(self.link_up)

    def link_up(self) -> None:
        self.bridge.plug(self.cable)

    def drop_packets(self) -> None:
        """A firewall that drops everything without a word."""
        self.run("iptables", "-w", "-I", "INPUT", "-i", "eth0", "-j", "DROP")
        self.later(lambda: self.run("iptables", "-w", "-D", "INPUT", "-i", "eth0", "-j", "DROP"))

    def drop_port(self, port: int) -> None:
        """A firewall that drops what comes for one port."""
        rule = ["INPUT", "-i", "eth0", "-p", "tcp", "--dport", str(port), "-j", "DROP"]
        self.run("iptables", "-w", "-I", *rule)
        self.later(lambda: self.run("iptables", "-w", "-D", *rule))

    def delay(self, milliseconds: int) -> None:
        """Everything the host sends comes later. Raises HarnessFailed where the kernel has no netem."""
        self.run("tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", f"{milliseconds}ms")
        self.later(lambda: self.run("tc", "qdisc", "del", "dev", "eth0", "root"))

    def take_port(self, port: int) -> None:
        """Listen on a port of the host."""
        self.start(sys.executable, "-c", _LISTEN, str(port))
        listening = f"sport = :{port}"
        wait_for(f"port {port}", lambda: bool(self.text("ss", "-Hltn", listening)))

    def freeze(self) -> None:
        """Stop every process of the host but its first, sessions included."""
        self.run("sh", "-c", "kill -STOP -1")
        self.later(self.thaw)

    def thaw(self) -> None:
        self.run("sh", "-c", "kill -CONT -1")
