"""A fleet of real hosts on this machine: each its own address, sshd, Docker engine and (replayed) GPUs.

    with Fleet() as fleet:
        fleet["h100-a"].link_down()

Takes root, dockerd and sshd; about ten seconds and no network. Nothing is changed on this machine but one interface
and an empty control group, both gone at the end, or at the next start when the end was a kill.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Self

import yaml

from tests.hosts.gpu_tools import GpuTools
from tests.hosts.images import VLLM
from tests.hosts.machine import HostSpec
from tests.hosts.network import Bridge, HarnessFailed, call
from tests.hosts.power import Power
from tests.hosts.python_image import stand_in
from tests.hosts.waiting import wait_for

PROGRAMS = (
    "dockerd", "docker", "sshd", "ssh", "ssh-keygen", "ip", "iptables", "nsenter", "unshare", "setpriv", "pkill",
    "ss", "busybox", "useradd", "csh", "fish", "bash", "ldd", "python3",
)  # fmt: skip
DEBIAN_PACKAGES = "docker.io openssh-server openssh-client iproute2 iptables busybox-static procps csh fish"
FIVE = (
    HostSpec(name="h100-a", recording="h100-idle", images=(VLLM,)),
    HostSpec(name="h100-b", recording="h100-busy", images=(VLLM,)),
    HostSpec(name="mixed", recording="l40s-4090", images=(VLLM,)),
    HostSpec(name="mig", recording="a100-mig", images=(VLLM,)),
    HostSpec(name="spark", recording="gb10", toolkit=False),
)
"""The ordinary fleet."""
STAND_IN = stand_in(ray="2.53.0")
"""vLLM's image as the deploy tests use it, with the stand-in engine and the stand-in Ray."""
DEPLOY_FLEET = tuple(
    HostSpec(name=name, recording="h100-idle", own_uuids=True, images=(STAND_IN,))
    for name in ("gpu-a", "gpu-b", "gpu-c")
)
"""Three idle hosts of eight H100 each."""
FOUR = (*DEPLOY_FLEET, HostSpec(name="gpu-d", recording="l40s-4090", own_uuids=True, images=(STAND_IN,)))
"""Beside them two L40S and a 4090 in one host."""
TWENTY = tuple(
    HostSpec(name=f"node-{number:02}", recording="h100-idle", own_uuids=True, images=(STAND_IN,))
    for number in range(1, 21)
)
"""For what depends on the number of hosts."""
_CGROUPS = Path("/sys/fs/cgroup")
_PREFIX = "gpuplan-hosts-"


class TestHost(Power, GpuTools):
    """One host of a fleet: a machine with GPUs, an engine and an SSH server, and a method for each fault."""

    __test__ = False


def unmet() -> str | None:
    """Why this machine cannot hold test hosts; None when it can."""
    if os.geteuid() != 0:
        return "test hosts need root (network namespaces, dockerd)"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"test hosts need {', '.join(missing)} (Debian: apt-get install {DEBIAN_PACKAGES})"
    try:
        call(
            [
                "unshare",
                "--net",
                "--mount",
                "--uts",
                "--ipc",
                "--pid",
                "--fork",
                "--mount-proc",
                "ip",
                "link",
                "add",
                "type",
                "veth",
            ]
        )
    except HarnessFailed as error:
        return f"test hosts need namespaces and veth pairs of the kernel: {error}"
    return None


class Fleet:
    """Hosts that are up from construction until `end`, in the order of their specs."""

    def __init__(self, specs: Sequence[HostSpec] = FIVE) -> None:
        clear_leftovers()
        self._stack = ExitStack()
        self.directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self.directory.chmod(0o755)
        self._stack.callback(shutil.rmtree, self.directory)
        self._cgroup = f"/{self.directory.name}"
        self._stack.callback(_remove_cgroups, self.directory.name)
        self.hosts: dict[str, TestHost] = {}
        try:
            self._up(specs)
        except BaseException:
            self._stack.close()
            raise

    def _up(self, specs: Sequence[HostSpec]) -> None:
        self.home = self.directory / "home"
        (self.home / ".ssh").mkdir(parents=True, mode=0o700)
        self.identity = self.home / ".ssh" / "id_ed25519"
        call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", self.identity])
        self.bridge = self._stack.enter_context(Bridge(self.directory))
        for number, spec in enumerate(specs, start=1):
            host = TestHost(
                spec,
                bridge=self.bridge,
                number=number,
                directory=self.directory / spec.name,
                cgroup=f"{self._cgroup}/{spec.name}",
            )
            self._stack.callback(host.end)
            self.hosts[spec.name] = host
            host.lay_out_gpus()
            host.lay_out_toolkit()
            if spec.engine:
                host.start_dockerd()
        with ThreadPoolExecutor(len(self.hosts)) as pool:
            list(pool.map(self._finish, self.hosts.values()))
        self.write_known_hosts()

    def _finish(self, host: TestHost) -> None:
        host.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/srv/ssh/host_key")
        host.write("/srv/ssh/authorized_keys", self.identity.with_suffix(".pub").read_bytes())
        host.start_sshd()
        if host.spec.engine:
            host.await_dockerd()
            for image in host.spec.images:
                host.load(image)

    def __getitem__(self, name: str) -> TestHost:
        return self.hosts[name]

    def __iter__(self) -> Iterator[TestHost]:
        return iter(self.hosts.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def restore(self) -> None:
        """Undo what was done to the hosts, the user's files included."""
        for host in self:
            host.restore()
        self.bridge.forget_neighbours()
        self.write_known_hosts()

    def clean(self) -> None:
        """Besides, take away what a deployer leaves: containers, other images, models, and files of its own."""
        self.restore()
        with ThreadPoolExecutor(len(self.hosts)) as pool:
            list(pool.map(_clean, self.hosts.values()))

    def end(self) -> None:
        """End every process of the fleet; namespaces, mounts and interfaces go with them."""
        for host in self:
            host.namespaces.let_go()
        self._stack.close()

    # ------------------------------------------------------------------ the user's side

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh" / "known_hosts"

    def write_known_hosts(self) -> None:
        """The hosts' own keys, whatever a fault made of what they serve."""
        lines = [
            f"{host.address} {' '.join(host.text('cat', '/srv/ssh/host_key.pub').split()[:2])}\n"
            for host in self
        ]
        self.known_hosts.write_text("".join(lines))
        self.known_hosts.chmod(0o600)

    def nobody(self) -> str:
        """An address of the network that no host has."""
        return str(self.bridge.network[200])

    def inventory(
        self,
        path: Path,
        *names: str,
        entries: Mapping[str, Mapping[str, object]] | None = None,
        extra: Sequence[Mapping[str, object]] = (),
        vllm: Mapping[str, object] | None = None,
    ) -> Path:
        """Write an inventory of the named hosts (all when none is named) and return its path.

        `entries` adds keys to a host's entry, `extra` adds hosts that are not of this fleet.
        """
        hosts: list[dict[str, object]] = [
            {"name": name, "address": self[name].address, **(entries or {}).get(name, {})}
            for name in names or self.hosts
        ]
        defaults = {"user": "root", "identity_file": str(self.identity), "model_dir": "/srv/models"}
        document: dict[str, object] = {"defaults": defaults, "hosts": [*hosts, *map(dict, extra)]}
        if vllm is not None:
            document["vllm"] = dict(vllm)
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path

    def environment(self) -> dict[str, str]:
        """What a program that is to reach the hosts is run with: this home, no agent."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SSH_", "XDG_"))}
        return {**kept, "HOME": str(self.home)}

    def ssh_words(self, host: TestHost, *, user: str = "root", options: Sequence[str] = ()) -> list[str]:
        """The stock client's command line for a host, without the command."""
        return [
            "ssh", "-F", "none", "-i", str(self.identity), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
            "-o", f"UserKnownHostsFile={self.known_hosts}", "-o", "GlobalKnownHostsFile=none", *options,
            "-o", "ConnectTimeout=10", f"{user}@{host.address}",
        ]  # fmt: skip

    def ssh(
        self, host: TestHost, command: str, *, user: str = "root", options: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command on a host with the stock client."""
        return subprocess.run(
            [*self.ssh_words(host, user=user, options=options), command],
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )


def _clean(host: TestHost) -> None:
    host.remove_containers()
    host.images_as_made()
    host.run("sh", "-c", "rm -rf /srv/models/* /srv/home/root/.local /srv/home/root/.cache")


def clear_leftovers() -> None:
    """Remove what killed runs left: their directories and empty control groups. Their processes ended with them."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if _is_dead(directory.name):
            shutil.rmtree(directory, ignore_errors=True)
    for name in {path.name for path in _groups(f"{_PREFIX}*")}:
        if _is_dead(name):
            _remove_cgroups(name)


def _is_dead(name: str) -> bool:
    pid = name.removeprefix(_PREFIX).partition("-")[0]
    return pid.isdigit() and not Path(f"/proc/{pid}").exists()


def _groups(pattern: str) -> list[Path]:
    return [*_CGROUPS.glob(pattern), *_CGROUPS.glob(f"*/{pattern}")]


def _remove_cgroups(name: str) -> None:
    """Remove empty control groups below `name`, in whichever hierarchy, the inner ones first.

    Another run may be removing the same ones: `os.walk` takes what vanishes under it as empty.
    """
    for top in _groups(name):
        for path, _, _ in os.walk(top, topdown=False):
            wait_for(f"an empty control group {path}", partial(_removed, Path(path)))


def _removed(path: Path) -> bool:
    """Its last process may still be on its way out."""
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
