"""The harness does what the other tests of real hosts rely on, and leaves nothing behind."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from gpuplan.sources.inventory_yaml import load
from tests.hosts.fleet import FIVE, Fleet, clear_leftovers
from tests.hosts.images import VLLM
from tests.hosts.machine import HostSpec
from tests.hosts.network import HarnessFailed
from tests.hosts.waiting import wait_for


def test_the_stock_client_logs_in_on_every_host(fleet: Fleet) -> None:
    for host in fleet:
        done = fleet.ssh(host, "hostname; cat /etc/machine-id; command -v nvidia-smi; echo $HOME")
        name, machine, tool, home = done.stdout.decode().splitlines()
        assert (name, tool, home) == (host.name, "/srv/bin/nvidia-smi", "/srv/home/root")
        assert done.returncode == 0
        assert machine != Path("/etc/machine-id").read_text().strip()
    machines = {host.text("cat", "/etc/machine-id") for host in fleet}
    assert len(machines) == len(FIVE)


def test_hosts_reach_each_other(fleet: Fleet) -> None:
    for one in fleet:
        for other in fleet:
            assert one.text("busybox", "ping", "-c", "1", "-W", "5", other.address)


def test_a_host_sees_its_own_interfaces_devices_and_disks(fleet: Fleet) -> None:
    host = fleet["h100-a"]
    assert sorted(host.text("ls", "/sys/class/net").split()) == ["eth0", "lo"]
    assert host.text("sh", "-c", "ls /dev/nvidia[0-9]* | wc -l") == "8"
    assert host.text("cat", "/sys/bus/pci/devices/0000:db:00.0/vendor") == "0x10de"
    assert host.text("df", "--output=size", "-BG", "/srv/docker").split()[-1] == "200G"
    assert host.text("head", "-n", "1", "/proc/meminfo").split()[1] == "2113537468"


@pytest.mark.parametrize("name", [spec.name for spec in FIVE])
def test_an_engine_runs_containers(fleet: Fleet, name: str) -> None:
    host = fleet[name]
    if VLLM not in host.spec.images:
        host.load(VLLM)
    script = "hostname; cat /proc/net/fib_trie"
    done = fleet.ssh(
        host, f"docker run --rm --network=host --entrypoint sh {VLLM.tag} -c {shlex.quote(script)}"
    )
    assert done.stdout.decode().splitlines()[0] == name, done.stderr
    assert host.address in done.stdout.decode()
    labels = host.text("docker", "image", "inspect", VLLM.tag, "--format", "{{json .Config.Env}}")
    assert "CUDA_VERSION=12.9.1" in labels


def test_gpus_are_handed_out_where_the_toolkit_is(fleet: Fleet) -> None:
    host = fleet["h100-a"]
    script = "echo $NVIDIA_VISIBLE_DEVICES; nvidia-smi -L"
    command = (
        "docker",
        "run",
        "--rm",
        "--gpus",
        '"device=3,5"',
        "--entrypoint",
        "sh",
        VLLM.tag,
        "-c",
        script,
    )
    visible, *listed = host.text(*command).splitlines()
    assert visible == "3,5"
    all_cards = host.text("nvidia-smi", "-L").splitlines()
    assert [line.split("UUID: ")[1] for line in listed] == [all_cards[n].split("UUID: ")[1] for n in (3, 5)]

    host.without_toolkit()
    done = host.run(*command, check=False)
    assert b'could not select device driver "" with capabilities: [[gpu]]' in done.stderr
    host.restore()
    assert host.text(*command).splitlines()[0] == "3,5"


@pytest.mark.parametrize(
    ("recording", "cards", "first_free"),
    [
        ("h100-idle", 8, "81081 MiB"),
        ("h100-busy", 8, "9765 MiB"),
        ("l40s-4090", 3, "45460 MiB"),
        ("a100-mig", 2, "80977 MiB"),
        ("gb10", 1, "N/A"),
    ],
)
def test_recordings_agree_with_themselves(fleet: Fleet, recording: str, cards: int, first_free: str) -> None:
    host = fleet["spark"]
    host.replay(recording)
    log = ET.fromstring(host.run("nvidia-smi", "-q", "-x").stdout)
    found = log.findall("gpu")
    assert (log.findtext("attached_gpus"), len(found)) == (str(cards), cards)
    assert found[0].findtext("fb_memory_usage/free") == first_free
    rows = host.text(
        "nvidia-smi", "--query-gpu=uuid,name,pci.bus_id,memory.free", "--format=csv,noheader"
    ).splitlines()
    fields = ("uuid", "product_name", "pci/pci_bus_id", "fb_memory_usage/free")
    assert [row.replace("[N/A]", "N/A").split(", ") for row in rows] == [
        [card.findtext(field) for field in fields] for card in found
    ]
    for card in found:
        figures = [
            card.findtext(f"fb_memory_usage/{part}") or "" for part in ("total", "reserved", "used", "free")
        ]
        if "N/A" not in figures:
            total, *parts = (int(figure.removesuffix(" MiB")) for figure in figures)
            assert total == sum(parts)
    listed = [line for line in host.text("nvidia-smi", "-L").splitlines() if line.startswith("GPU")]
    assert [line.split("UUID: ")[1].rstrip(")") for line in listed] == [
        card.findtext("uuid") for card in found
    ]
    assert host.text("nvidia-smi", "topo", "-m").count("\nGPU") == cards
    assert int(host.text("sh", "-c", "ls /sys/bus/pci/devices | wc -l")) == cards


def test_a_field_nvidia_smi_does_not_know_fails_as_the_real_one_does(fleet: Fleet) -> None:
    done = fleet["h100-a"].run("nvidia-smi", "--query-gpu=index,no.such", "--format=csv", check=False)
    assert (done.returncode, done.stdout) == (2, b'Field "no.such" is not a valid field to query.\n\n')


def test_nvidia_smi_misbehaves_on_order(fleet: Fleet) -> None:
    host = fleet["h100-a"]
    whole = host.run("nvidia-smi", "-L").stdout
    for mode, status, sign in (
        ("driver", 9, b"NVIDIA driver"),
        ("bytes", 0, b"\xff\xfe"),
        ("flood", 0, b"0123456789abcdef"),
    ):
        host.nvidia_smi(mode)
        done = host.run("nvidia-smi", "-q", "-x", check=False)
        assert (done.returncode, sign in done.stdout) == (status, True), mode
        if mode == "flood":
            assert len(done.stdout) == 10 * 1024**2
        host.restore()
    host.nvidia_smi("hang")
    hung = host.run("timeout", "-k", "1", "0.2", "nvidia-smi", "-L", check=False)
    assert hung.returncode in {137, -signal.SIGKILL}  # TERM was not enough
    host.restore()
    host.nvidia_smi("absent")
    assert host.run("sh", "-c", "nvidia-smi", check=False).returncode == 127
    host.restore()
    assert host.run("nvidia-smi", "-L").stdout == whole


def test_memory_of_a_process_that_lives_on_the_host(fleet: Fleet) -> None:
    host = fleet["h100-b"]
    host.add_user("alice")
    pid = host.start("sleep", "1000", user="alice")
    host.recorded("51877", str(pid))
    query = ("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
    assert f"{pid}, 12034" in host.text(*query).splitlines()
    assert host.text("stat", "-c", "%U", f"/proc/{pid}") == "alice"


def test_faults_of_the_connection(fleet: Fleet) -> None:
    host, other = fleet["h100-a"], fleet["h100-b"]

    def outcome() -> tuple[int, bytes]:
        done = fleet.ssh(
            host, "printf %s $(seq 1000)", options=("-o", "ConnectTimeout=2", "-o", "ServerAliveInterval=1")
        )
        return done.returncode, done.stderr + done.stdout

    whole = outcome()
    assert whole[0] == 0
    for fault, sign in (
        (host.kill_sshd, b"Connection refused"),
        (host.freeze_sshd, b"timed out"),
        (host.freeze, b"timed out"),
        (host.drop_packets, b"timed out"),
        (host.change_host_key, b"IDENTIFICATION HAS CHANGED"),
        (host.hang_after_login, b"not responding"),
        (host.cut_in_the_middle, b"closed"),
    ):
        fault()
        status, said = outcome()
        assert (status, sign in said) == (255, True), (fault.__name__, said)
        assert fleet.ssh(other, "true").returncode == 0, fault.__name__
        fleet.restore()
        assert outcome() == whole, fault.__name__
    host.link_down()
    assert outcome()[0] == 255
    fleet.restore()
    assert outcome() == whole


def test_servers_that_allow_less(fleet: Fleet) -> None:
    host = fleet["h100-a"]
    path = fleet.home / "docker.sock"

    def ping() -> bytes:
        """The engine's answer through a socket forwarded by the stock client; empty when it was not forwarded."""
        path.unlink(missing_ok=True)
        arguments = ["-N", "-L", f"{path}:/var/run/docker.sock", "-o", "ExitOnForwardFailure=yes"]
        with subprocess.Popen(fleet.ssh_words(host, options=arguments), stderr=subprocess.DEVNULL) as client:
            try:
                wait_for("the forwarded socket", path.exists)
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.settimeout(60)
                    connection.connect(str(path))
                    connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
                    return b"".join(iter(lambda: connection.recv(4096), b""))
            except ConnectionError:
                return b""
            finally:
                client.terminate()

    assert ping().endswith(b"OK")
    for options in ({"AllowStreamLocalForwarding": "no"}, {"DisableForwarding": "yes"}):
        host.restart_sshd(**options)
        assert ping() == b""
    host.restart_sshd(MaxSessions="0")
    assert fleet.ssh(host, "true").returncode == 255
    host.banner("Authorised\n[users] only\n")
    assert b"[users] only" in fleet.ssh(host, "true").stderr


@pytest.mark.parametrize(
    ("shell", "greeting"), [("/bin/csh", "Hello"), ("/usr/bin/fish", "Hello"), ("/bin/bash", "Hello [all]")]
)
def test_users_with_other_shells(fleet: Fleet, shell: str, greeting: str) -> None:
    host = fleet["h100-a"]
    host.add_user("ops", shell=shell, greeting=greeting, groups=("docker",))
    done = fleet.ssh(host, "docker version --format '{{.Server.Os}}'", user="ops")
    assert done.stdout.decode().split("\n") == [greeting, "linux", ""], done.stderr


def test_a_user_who_may_not_use_docker(fleet: Fleet) -> None:
    host = fleet["h100-a"]
    host.add_user("guest")
    assert b"permission denied" in fleet.ssh(host, "docker version", user="guest").stderr.lower()
    host.docker_socket(0o666)
    assert fleet.ssh(host, "docker version", user="guest").returncode == 0


def test_faults_of_the_engine_and_the_disk(fleet: Fleet) -> None:
    host = fleet["h100-a"]
    host.fill("/srv/docker", leave=4096 * 4)
    assert (
        host.run("dd", "if=/dev/zero", "of=/srv/docker/x", "bs=64k", "count=1", check=False).returncode != 0
    )
    host.run("rm", "-f", "/srv/docker/x")
    host.stop_dockerd()
    assert host.run("docker", "version", check=False).returncode != 0
    host.take_port(40000)
    assert ":40000" in host.text("ss", "-Hltn")
    host.skew_clock(3600)
    assert 3590 < int(host.text("date", "+%s")) - int(host.text("/bin/date", "+%s")) < 3610
    fleet.restore()
    assert host.run("docker", "version").returncode == 0
    assert ":40000" not in host.text("ss", "-Hltn")
    assert host.text("df", "--output=size", "-BG", "/srv/docker").split()[-1] == "200G"


def test_the_inventory_names_every_host(fleet: Fleet, tmp_path: Path) -> None:
    inventory = load(fleet.inventory(tmp_path / "inventory.yaml", entries={"mixed": {"exclude_gpus": [2]}}))
    assert [(host.name, host.address) for host in inventory.hosts] == [
        (host.name, host.address) for host in fleet
    ]
    assert inventory.hosts[2].exclude_gpus == (2,)


def _traces(name: str) -> list[str]:
    """What is on this machine of fleets whose directory begins with `name`: a word for the kind, and which."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        found += [f"process {words}"] if any(name in word for word in words) else []
    found += [f"mount {line}" for line in Path("/proc/self/mounts").read_text().splitlines() if name in line]
    found += [f"group {path}" for path in Path("/sys/fs/cgroup").glob(f"**/{name}*")]
    return sorted(found + [f"directory {path}" for path in Path(tempfile.gettempdir()).glob(f"{name}*")])


_ONE = HostSpec(name="one", recording="broken-driver", images=(VLLM,))


def test_nothing_is_left_at_the_end(fleet: Fleet) -> None:
    with Fleet([_ONE]) as second:
        mark = second.directory.name
        host = second["one"]
        namespaces = {(Path(f"/proc/{host.namespaces.pid}/ns") / kind).readlink() for kind in _KINDS}
        uplink = Path("/sys/class/net") / second.bridge.uplink
        host.run("docker", "run", "-d", "--entrypoint", "sleep", VLLM.tag, "1000")
        host.hang_after_login()
        assert namespaces <= _namespaces()
        assert uplink.exists()
        assert {trace.split()[0] for trace in _traces(mark)} >= {"process", "group", "directory"}
        assert second.bridge.network != fleet.bridge.network
    assert _traces(mark) == []
    assert not uplink.exists()
    assert not namespaces & _namespaces()


_KINDS = ("net", "mnt", "pid", "uts", "ipc")


def _namespaces() -> set[Path]:
    """All that any process is in."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/ns/*"):
        try:
            found.add(link.readlink())
        except OSError:
            continue
    return found


_KILLED = """
import sys
from tests.hosts.fleet import Fleet
from tests.hosts.test_fleet_itself import _ONE
fleet = Fleet([_ONE])
print(fleet.directory.name, flush=True)
sys.stdin.read()
"""


@pytest.mark.usefixtures("fleet")
def test_nothing_is_left_after_a_kill(repository: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED],
        cwd=repository,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        mark = process.stdout.readline().strip()
        assert mark.startswith("gpuplan-hosts-")
        process.send_signal(signal.SIGKILL)
    uplink = f"gpt{process.pid}n0"
    wait_for(
        "the end of the hosts", lambda: not [trace for trace in _traces(mark) if trace.startswith("process ")]
    )
    wait_for("the end of the network", lambda: not Path(f"/sys/class/net/{uplink}").exists())
    clear_leftovers()
    assert _traces(mark) == []


@pytest.mark.usefixtures("fleet")
def test_a_fleet_that_cannot_come_up_takes_itself_down() -> None:
    ours = f"gpuplan-hosts-{os.getpid()}-"
    before = _traces(ours)
    with pytest.raises(HarnessFailed, match="no recording"):
        Fleet([_ONE, HostSpec(name="two", recording="no-such")])
    assert _traces(ours) == before
