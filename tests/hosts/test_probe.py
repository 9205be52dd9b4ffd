"""Probe, snapshot and plan against real hosts: sshd, Docker, and GPUs that answer as recorded ones did."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.fleet import Fleet as Seen
from gpuplan.domain.fleet import Host, HostStatus
from gpuplan.domain.inventory import Inventory
from gpuplan.operations.probe import ProbeOptions, Progress, open_fleet, probe_fleet
from gpuplan.remote.ssh_settings import HostKeyPolicy, SshSettings, Timeouts
from gpuplan.sources import inventory_yaml
from gpuplan.sources.snapshot_json import dumps, parse
from gpuplan.units import MIB
from tests.hosts.fleet import Fleet

MODEL = "Qwen/Qwen3-32B"
NAMES = ("h100-a", "h100-b", "mixed", "mig", "spark")


@pytest.fixture
def inventory(fleet: Fleet, tmp_path: Path) -> Inventory:
    return inventory_yaml.load(fleet.inventory(tmp_path / "inventory.yaml"))


def options(fleet: Fleet, *, policy: HostKeyPolicy = HostKeyPolicy.STRICT) -> ProbeOptions:
    settings = SshSettings(
        known_hosts=fleet.home / "accepted",
        home=fleet.home,
        policy=policy,
        timeouts=Timeouts(connect=2, banner=2, authenticate=5),
    )
    return ProbeOptions(ssh=settings)


def probed(fleet: Fleet, inventory: Inventory) -> dict[str, Host]:
    return {host.name: host for host in probe_fleet(inventory, options(fleet)).hosts}


def conditions(host: Host) -> set[str]:
    return {fact.code for fact in host.facts.conditions}


def gpuplan(fleet: Fleet, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "gpuplan", *words],
        env={**os.environ, "HOME": str(fleet.home), "HF_HUB_OFFLINE": "1", "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def unharmed(hosts: dict[str, Host], *but: str) -> None:
    assert {name for name, host in hosts.items() if host.status is not HostStatus.OK} == set(but)
    assert all(host.gpus for name, host in hosts.items() if name not in but)


def test_what_is_there_is_seen(fleet: Fleet, inventory: Inventory) -> None:
    told: list[Progress] = []
    hosts = probe_fleet(inventory, options(fleet), told.append).hosts
    assert [host.name for host in hosts] == list(NAMES), "in the order of the inventory"
    assert [(step.done, step.failed, step.waiting) for step in told] == [(n, 0, 5 - n) for n in range(1, 6)]
    idle, busy, mixed, sliced, spark = hosts
    assert {(gpu.total_bytes, gpu.free_bytes, gpu.reported_bytes) for gpu in idle.gpus} == {
        (81081 * MIB, 81081 * MIB, 81559 * MIB)
    }
    assert len({gpu.uuid for gpu in idle.gpus}) == 8
    assert idle.link == "nvlink"
    holder = busy.gpus[0].processes[0]
    assert holder.name == "VLLM::Worker_TP0"
    assert holder.used_bytes is not None
    assert busy.gpus[0].free_bytes is not None
    assert busy.gpus[0].free_bytes + holder.used_bytes <= 81081 * MIB
    assert [gpu.name for gpu in mixed.gpus] == ["NVIDIA L40S"] * 2 + ["NVIDIA GeForce RTX 4090"]
    assert mixed.link == "pcie"
    assert [gpu.profile for gpu in sliced.gpus if gpu.parent is not None] == ["3g.40gb", "2g.20gb", "1g.10gb"]
    assert all((gpu.uuid or "").startswith("MIG-") for gpu in sliced.gpus if gpu.parent is not None)
    (gb10,) = spark.gpus
    assert gb10.unified
    assert (gb10.total_bytes, gb10.free_bytes) == (spark.ram_total_bytes, spark.ram_available_bytes)
    for host in hosts:
        facts = host.facts
        assert (facts.architecture, facts.user) == ("x86_64", "root")
        assert facts.machine_id == fleet[host.name].text("cat", "/etc/machine-id")
        assert facts.data_interface == "eth0"
        assert 22 in facts.listening_ports
        assert facts.docker is not None
        assert facts.docker.transport == "socket"
        assert abs(facts.clock_offset_seconds or 9) < 5, "all of them have this machine's clock"
        assert {disk.purpose for disk in facts.disks} >= {"model_dir", "docker_root", "shm"}
    image = idle.facts.docker.images[0] if idle.facts.docker is not None else None
    assert image is not None
    assert (image.vllm_version, image.ray) == ("0.33.0", False)
    assert spark.facts.docker is not None
    assert spark.facts.docker.gpu_support is False
    assert "GP626" in conditions(spark)


def comparable(document: str) -> Any:
    """A plan without what tells declared hardware from probed: where the figures come from, what a card is called, and
    speeds over links that only a probe finds."""
    plan = json.loads(document)
    plan["findings"] = [fact for fact in plan["findings"] if fact["code"] != "GP403"]
    del plan["fleet"]
    for strategy in plan["strategies"]:
        for candidate in strategy["candidates"]:
            del candidate["throughput"]
        for placed in (host for one in strategy["candidates"] for host in one["placement"]):
            del placed["driver_version"]
            for gpu in placed["gpus"]:
                del gpu["uuid"]
    return plan


def test_one_plan_live_from_the_snapshot_and_declared(fleet: Fleet, tmp_path: Path) -> None:
    declared: dict[str, dict[str, object]] = {
        "h100-a": {"gpus": {"name": "H100-80GB", "count": 8}},
        "mixed": {"gpus": [{"name": "L40S", "count": 2}, {"name": "RTX-4090"}], "exclude_gpus": [2]},
    }
    path = str(fleet.inventory(tmp_path / "inventory.yaml", *declared, entries=declared))
    snapshot = str(tmp_path / "fleet.json")
    gpuplan(fleet, "probe", "-i", path, "--save", snapshot)
    live = ""
    for asked in ((), ("-o", "json")):
        live = gpuplan(fleet, "plan", MODEL, "-i", path, "--context", "8k", *asked).stdout
        saved = gpuplan(fleet, "plan", MODEL, "--snapshot", snapshot, "--context", "8k", *asked).stdout
        assert saved == live
    word = gpuplan(fleet, "plan", MODEL, "-i", path, "--no-probe", "--context", "8k", "-o", "json").stdout
    assert comparable(word) == comparable(live)


def test_the_snapshot_is_the_fleet(fleet: Fleet, inventory: Inventory) -> None:
    seen = probe_fleet(inventory, options(fleet))
    assert parse(dumps(seen).encode(), "snapshot.json") == seen


def test_a_redacted_snapshot_names_nobody_and_plans_alike(fleet: Fleet, tmp_path: Path) -> None:
    path = str(fleet.inventory(tmp_path / "inventory.yaml"))
    open_, closed = tmp_path / "fleet.json", tmp_path / "redacted.json"
    gpuplan(fleet, "probe", "-i", path, "--save", str(open_))
    gpuplan(fleet, "probe", "--snapshot", str(open_), "--redact", "--save", str(closed))
    text = closed.read_text()
    named = [name for host in fleet for name in (host.address, f'"{host.spec.name}"') if name in text]
    assert named == []
    plans = [
        json.loads(gpuplan(fleet, "plan", MODEL, "--snapshot", str(each), "-o", "json").stdout)
        for each in (open_, closed)
    ]
    placed = [[len(item["candidates"]) for item in plan["strategies"]] for plan in plans]
    assert placed[0] == placed[1]
    assert plans[0]["recommended"] == plans[1]["recommended"]


def test_processes_have_their_owners(fleet: Fleet, inventory: Inventory) -> None:
    busy = fleet["h100-b"]
    busy.add_user("alice")
    pid = busy.start("sleep", "100000", user="alice")
    busy.recorded("48213", str(pid))
    holder = probed(fleet, inventory)["h100-b"].gpus[0].processes[0]
    assert (holder.pid, holder.user) == (pid, "alice")


@pytest.mark.parametrize(
    ("fault", "status", "stage", "words"),
    [
        ("kill_sshd", HostStatus.UNREACHABLE, "connect", "refused"),
        ("link_down", HostStatus.UNREACHABLE, "connect", ""),
        ("drop_packets", HostStatus.UNREACHABLE, "connect", "2 s"),
        ("freeze_sshd", HostStatus.UNREACHABLE, "connect", "2 s"),
        ("change_host_key", HostStatus.UNREACHABLE, "host_key", "SHA256:"),
        ("hang_after_login", HostStatus.FAILED, "command", ""),
        ("cut_in_the_middle", HostStatus.FAILED, "command", ""),
    ],
)
def test_a_host_that_cannot_be_read_says_why_and_harms_no_other(
    fault: str, status: HostStatus, stage: str, words: str, fleet: Fleet, inventory: Inventory
) -> None:
    getattr(fleet["mixed"], fault)()
    hosts = probed(fleet, inventory)
    unharmed(hosts, "mixed")
    failed = hosts["mixed"]
    assert failed.failure is not None
    assert (failed.status, failed.failure.stage) == (status, stage)
    assert words in failed.failure.detail
    assert failed.failure.detail.isprintable()


def test_hosts_that_are_not_there(fleet: Fleet, tmp_path: Path) -> None:
    extra: list[dict[str, object]] = [
        {"name": "nobody", "address": fleet.nobody()},
        {"name": "unknown", "address": "no-such-host.invalid"},
        {"name": "stranger", "address": fleet["mixed"].address, "port": 2},
        {"name": "keyless", "address": fleet["mixed"].address, "user": "nobody-here"},
    ]
    path = fleet.inventory(tmp_path / "inventory.yaml", "h100-a", extra=extra)
    hosts = probed(fleet, inventory_yaml.load(path))
    unharmed(hosts, "nobody", "unknown", "stranger", "keyless")
    stages = {name: host.failure.stage for name, host in hosts.items() if host.failure is not None}
    assert stages == {
        "nobody": "connect",
        "unknown": "resolve",
        "stranger": "connect",
        "keyless": "authenticate",
    }


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        ("hang", "GP604"),
        ("garbage", "GP606"),
        ("bytes", "GP606"),
        ("flood", "GP606"),
        ("driver", "GP602"),
        ("mismatch", "GP603"),
    ],
)
def test_a_sick_driver_is_a_state_and_the_rest_is_reported(
    mode: str, code: str, fleet: Fleet, inventory: Inventory
) -> None:
    fleet["mixed"].nvidia_smi(mode)
    hosts = probed(fleet, inventory)
    sick = hosts["mixed"]
    assert sick.status is HostStatus.OK
    assert sick.gpus == ()
    assert code in conditions(sick)
    assert sick.facts.docker is not None
    assert sick.ram_total_bytes
    assert all(host.gpus for name, host in hosts.items() if name != "mixed")


def test_a_host_without_the_tool_says_so(fleet: Fleet, inventory: Inventory) -> None:
    fleet["mixed"].nvidia_smi("absent")
    assert "GP601" in conditions(probed(fleet, inventory)["mixed"])


@pytest.mark.parametrize(
    ("fault", "code"), [("stop_dockerd", "GP623"), ("without_docker", "GP623"), ("without_toolkit", "GP626")]
)
def test_docker_states_have_their_own_words(
    fault: str, code: str, fleet: Fleet, inventory: Inventory
) -> None:
    getattr(fleet["h100-a"], fault)()
    host = probed(fleet, inventory)["h100-a"]
    assert len(host.gpus) == 8
    assert code in conditions(host)


@pytest.mark.parametrize("shell", ["/bin/csh", "/usr/bin/fish", "/bin/bash"])
def test_other_login_shells_and_what_they_print(shell: str, fleet: Fleet, tmp_path: Path) -> None:
    host = fleet["h100-a"]
    host.add_user("guest", shell=shell, greeting="Welcome to <the> [machine]!")
    entries = {"h100-a": {"user": "guest"}}
    path = fleet.inventory(tmp_path / "inventory.yaml", "h100-a", entries=entries)
    seen = probed(fleet, inventory_yaml.load(path))["h100-a"]
    assert len(seen.gpus) == 8
    assert seen.facts.user == "guest"
    assert "GP622" in conditions(seen), "an ordinary user may not use the engine's socket"


def test_a_shell_that_runs_nothing(fleet: Fleet, inventory: Inventory) -> None:
    fleet["mixed"].force("echo 'This account is [bold]not[/bold] available'; exit 1")
    failure = probed(fleet, inventory)["mixed"].failure
    assert failure is not None
    assert failure.stage == "command"
    assert "This account is [bold]not[/bold] available" in failure.detail


def test_a_flood_instead_of_an_answer_is_bounded(fleet: Fleet, inventory: Inventory) -> None:
    fleet["mixed"].force("head -c 10000000 /dev/zero | tr '\\0' 'x'; sh -s")
    hosts = probed(fleet, inventory)
    assert len(hosts["mixed"].gpus) == 3, "10 MB of junk before the answer are passed over"
    fleet["mixed"].force(
        "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done"
    )
    failure = probed(fleet, inventory)["mixed"].failure
    assert failure is not None
    assert "MiB were printed instead of an answer" in failure.detail


@pytest.mark.parametrize(
    ("settings", "transport", "code"),
    [
        ({"MaxSessions": "1"}, "socket", None),
        ({"AllowStreamLocalForwarding": "no"}, "dial-stdio", "GP624"),
        ({"DisableForwarding": "yes"}, "dial-stdio", "GP624"),
        ({"AllowStreamLocalForwarding": "no", "MaxSessions": "1"}, "dial-stdio", "GP624"),
    ],
)
def test_servers_that_allow_little(
    settings: dict[str, str], transport: str, code: str | None, fleet: Fleet, inventory: Inventory
) -> None:
    fleet["h100-a"].restart_sshd(**settings)
    host = probed(fleet, inventory)["h100-a"]
    assert host.facts.docker is not None
    assert host.facts.docker.transport == transport
    assert code is None or code in conditions(host)


def test_one_connection_serves_probe_and_docker(fleet: Fleet, inventory: Inventory) -> None:
    with open_fleet(inventory, options(fleet), only={"h100-a"}) as opened:
        assert opened.engine_of("h100-a").version["Version"]
        assert opened.connections["h100-a"].run(["id", "-un"], timeout=5).stdout == b"root\n"
        sessions = fleet["h100-a"].text("ss", "-H", "-tn", "state", "established", "sport = :22").splitlines()
        assert len(sessions) == 1
    assert set(opened.connections) == {"h100-a"}


def test_one_machine_under_two_names_is_planned_on_once(fleet: Fleet, tmp_path: Path) -> None:
    extra = [{"name": "again", "address": fleet["h100-a"].address, "jump": "mixed"}]
    path = fleet.inventory(tmp_path / "inventory.yaml", "h100-a", "mixed", extra=extra)
    hosts = probed(fleet, inventory_yaml.load(path))
    assert hosts["again"].status is HostStatus.FAILED
    assert "GP632" in conditions(hosts["h100-a"])
    assert len(hosts["h100-a"].gpus) == 8


def test_declared_hardware_is_compared(fleet: Fleet, tmp_path: Path) -> None:
    entries = {"h100-a": {"gpus": {"name": "H100-80GB", "count": 4}, "exclude_gpus": [1]}}
    path = fleet.inventory(tmp_path / "inventory.yaml", "h100-a", entries=entries)
    host = probed(fleet, inventory_yaml.load(path))["h100-a"]
    told = next(fact for fact in host.facts.conditions if fact.code == "GP631")
    assert told.figures == {"declared": "4 × H100-80GB", "found": "8 × H100-80GB"}
    assert [gpu.index for gpu in host.gpus if gpu.excluded] == [1]


def test_no_usable_host_at_all(fleet: Fleet, tmp_path: Path) -> None:
    fleet["spark"].kill_sshd()
    path = str(fleet.inventory(tmp_path / "inventory.yaml", "spark"))
    said = gpuplan(fleet, "plan", MODEL, "-i", path, status=4).stderr
    assert "spark" in said
    assert "refused" in said
    assert "connect" in gpuplan(fleet, "probe", "-i", path, status=4).stdout


def test_ctrl_c_ends_a_probe_at_once_and_shows_what_was_read(fleet: Fleet, tmp_path: Path) -> None:
    path = fleet.inventory(tmp_path / "inventory.yaml")
    for name in ("mixed", "mig"):
        fleet[name].nvidia_smi("slow", "60")
    environment = {**os.environ, "HOME": str(fleet.home), "COLUMNS": "80"}
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuplan", "probe", "-i", str(path)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    _wait_until_asked(fleet["mixed"].text, fleet["mig"].text)
    _wait_until_left(fleet["h100-a"].text, fleet["h100-b"].text, fleet["spark"].text)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 1
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "h100-a  8 × H100 80GB HBM3" in out
    assert "mixed" in out
    assert "broken off" in out


def _wait_until_asked(*hosts: Any) -> None:
    """Until every host runs nvidia-smi for us."""
    end = time.monotonic() + 30
    for text in hosts:
        while "nvidia-smi" not in text("ps", "-e", "-o", "args"):
            assert time.monotonic() < end
            time.sleep(0.05)


def _wait_until_left(*hosts: Any) -> None:
    """Until no host has a session of ours any more."""
    end = time.monotonic() + 30
    quiet = 0
    while quiet < 5:
        assert time.monotonic() < end
        sessions = [text("ss", "-H", "-tn", "state", "established", "sport = :22") for text in hosts]
        quiet = 0 if any(sessions) else quiet + 1
        time.sleep(0.05)


def test_accepted_host_keys_are_kept_apart_and_private(fleet: Fleet, inventory: Inventory) -> None:
    fleet.known_hosts.write_text("")
    assert {host.failure.stage for host in probed(fleet, inventory).values() if host.failure is not None} == {
        "host_key"
    }
    seen: Seen = probe_fleet(inventory, options(fleet, policy=HostKeyPolicy.ACCEPT_NEW))
    assert {host.status for host in seen.hosts} == {HostStatus.OK}
    accepted = fleet.home / "accepted"
    assert accepted.stat().st_mode & 0o777 == 0o600
    assert len(accepted.read_text().splitlines()) == 5
    unharmed(probed(fleet, inventory))
    accepted.unlink()
