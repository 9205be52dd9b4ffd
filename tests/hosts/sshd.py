"""A real OpenSSH server on loopback for a test: own keys, own configuration, own free port, gone afterwards."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpuplan.domain.inventory import HostEntry

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin:/bin")
KEYGEN = shutil.which("ssh-keygen")
START_SECONDS = 10.0

CANNOT = (
    "needs sshd and ssh-keygen (the package openssh-server)"
    if SSHD is None or KEYGEN is None
    else "sshd runs as root only: it changes to the user who logs in"
    if os.getuid() != 0
    else ""
)
"""Why no server can run here; empty when one can."""
REQUIRED = os.environ.get("GPUPLAN_TEST_HOSTS") == "required"
"""In CI: what cannot run fails."""


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    """A new private key at `path`, its public half beside it."""
    assert KEYGEN is not None
    command = [KEYGEN, "-q", "-t", kind, "-N", passphrase, "-C", path.name, "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


def public(path: Path) -> str:
    """`TYPE BASE64` of a key."""
    return " ".join(path.with_name(f"{path.name}.pub").read_text().split()[:2])


def fingerprint(path: Path) -> str:
    """`SHA256:…` of a key."""
    digest = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(path)], check=True, capture_output=True, text=True
    ).stdout
    return digest.split()[1]


@dataclass(kw_only=True)
class Sshd:
    """A server that runs."""

    directory: Path
    port: int
    user: str
    client_key: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    @property
    def known_hosts_line(self) -> str:
        return f"[127.0.0.1]:{self.port} {public(self.directory / 'host_ed25519')}\n"

    def entry(self, name: str = "h1", **changes: object) -> HostEntry:
        """The host as an inventory names it."""
        values: dict[str, object] = {
            "name": name,
            "address": "127.0.0.1",
            "user": self.user,
            "port": self.port,
            "identity_file": str(self.client_key),
        }
        return HostEntry(**{**values, **changes})  # type: ignore[arg-type]  # keywords chosen by the test

    def sessions(self) -> set[int]:
        """The processes that serve connections."""
        return {pid for pid, parent in parents().items() if parent == self.process.pid}

    def log(self) -> str:
        return (self.directory / "log").read_text("utf-8", "replace")

    def stop(self) -> None:
        """End it and every session of it."""
        signal_tree(self.process.pid, signal.SIGCONT, signal.SIGKILL)
        self.process.wait(10)


def parents() -> dict[int, int]:
    """Every process and its parent."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = (line.split() for line in listed.splitlines())
    return {int(pid): int(parent) for pid, parent in pairs}


def signal_tree(root: int, *kinds: signal.Signals) -> None:
    """Send signals to `root` and every process below it, never to one that took over a number meanwhile."""
    before = parents()
    tree = [root]
    for number in tree:
        tree += [pid for pid, parent in before.items() if parent == number]
    held: dict[int, int] = {}
    for number in tree:
        with suppress(ProcessLookupError):
            held[number] = os.pidfd_open(number)
    now = parents()
    for number, descriptor in held.items():
        for kind in kinds if now.get(number) == before.get(number) else ():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, kind)
        os.close(descriptor)


def free_port() -> int:
    """A port nobody listens on at this moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def start(
    directory: Path, *options: str, user: str = "root", host_keys: Sequence[str] = ("ed25519",)
) -> Sshd:
    """Start a server in an empty directory; `options` are lines of sshd_config that win over the usual ones."""
    assert SSHD is not None
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    client_key = directory / "client"
    if not client_key.exists():
        make_key(client_key)
    authorized = _authorized_keys(directory, user)
    authorized.write_text(f"{public(client_key)}\n")
    lines = list(options)
    for kind in host_keys:
        path = directory / f"host_{kind}"
        if not path.exists():
            make_key(path, kind)
        lines.append(f"HostKey {path}")
    if user == "root":
        lines.append(f"SetEnv HOME={directory}")  # what this machine's root does on login is not tested
    port = free_port()
    lines += [
        f"ListenAddress 127.0.0.1:{port}",
        f"AuthorizedKeysFile {authorized}",
        "PermitRootLogin yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "StrictModes no",
        "UsePAM no",
        "PidFile none",
        "MaxStartups 200",
        "LogLevel VERBOSE",
    ]
    config = directory / "sshd_config"
    config.write_text("\n".join(lines) + "\n")
    command = [SSHD, "-D", "-f", str(config), "-E", str(directory / "log")]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    server = Sshd(directory=directory, port=port, user=user, client_key=client_key, process=process)
    _await_listening(server)
    return server


def _authorized_keys(directory: Path, user: str) -> Path:
    """sshd reads the file as the user, who cannot look into a test's directory."""
    if user == "root":
        return directory / "authorized_keys"
    owner = pwd.getpwnam(user)
    path = Path(owner.pw_dir, ".ssh", "authorized_keys")
    path.parent.mkdir(exist_ok=True)
    os.chown(path.parent, owner.pw_uid, owner.pw_gid)
    return path


def _await_listening(server: Sshd) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and server.process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", server.port), timeout=1).close()
        except ConnectionRefusedError:
            continue
        return
    server.stop()
    raise RuntimeError(f"sshd does not listen: {server.log()}")


@contextmanager
def running(directory: Path, *options: str, **more: object) -> Iterator[Sshd]:
    """A server for the time of the block."""
    server = start(directory, *options, **more)  # type: ignore[arg-type]  # passed on as they are
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def temporary_user(shell: str, password: str | None = None) -> Iterator[str]:
    """A user of this machine with that login shell, removed again with everything it runs."""
    name = f"gpt{os.getpid()}{time.monotonic_ns() % 10**6}"
    subprocess.run(["useradd", "--create-home", "--shell", shell, name], check=True, capture_output=True)
    try:
        # a locked account (`!`) may not log in, even by key; `*` has no password and is not locked
        hashed = "*" if password is None else _hashed(password)
        subprocess.run(["usermod", "--password", hashed, name], check=True, capture_output=True)
        yield name
    finally:
        number = pwd.getpwnam(name).pw_uid
        subprocess.run(["pkill", "-KILL", "-U", str(number)], check=False, capture_output=True)
        subprocess.run(["userdel", "--force", "--remove", name], check=False, capture_output=True)


def _hashed(password: str) -> str:
    return subprocess.run(
        ["openssl", "passwd", "-6", "-stdin"], input=password, check=True, capture_output=True, text=True
    ).stdout.strip()
