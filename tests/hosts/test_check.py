"""Preflight of real hosts: ports taken, firewalls, clocks, containers with GPUs, servers that allow one session."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.inventory import Inventory
from gpuplan.operations.check import CheckOptions, check
from gpuplan.operations.probe import ProbeOptions
from gpuplan.planning.preflight_measures import ReachOutcome
from gpuplan.planning.preflight_report import Preflight, RungName, Status
from gpuplan.remote.ssh_settings import HostKeyPolicy, SshSettings, Timeouts
from gpuplan.sources import inventory_yaml
from tests.hosts.fleet import Fleet, TestHost
from tests.hosts.waiting import wait_for
from tests.preflights import rung

NAMES = ("h100-a", "h100-b", "mixed", "mig", "spark")
RANGES = {"service_ports": "25000-25009", "ray_ports": "25100-25199"}
"""Outside what the kernel gives to outgoing connections."""


@pytest.fixture
def inventory(fleet: Fleet, tmp_path: Path) -> Inventory:
    return inventory_yaml.load(fleet.inventory(tmp_path / "inventory.yaml", vllm=RANGES))


def checked(fleet: Fleet, inventory: Inventory, *names: str, **asked: Any) -> Preflight:
    settings = SshSettings(
        known_hosts=fleet.home / "accepted",
        home=fleet.home,
        policy=HostKeyPolicy.STRICT,
        timeouts=Timeouts(connect=2, banner=2, authenticate=5),
    )
    return check(inventory, ProbeOptions(ssh=settings), CheckOptions(**asked), only=names or None)


def processes(host: TestHost) -> set[str]:
    """What runs on a host beside sshd's sessions, which end a moment after their connection, and what looks."""
    lines = host.text("ps", "-eo", "pid=,args=").splitlines()
    return {line for line in lines if not any(word in line for word in ("sshd: root", "ps -eo"))}


def is_as_before(host: TestHost, before: set[str]) -> bool:
    return processes(host) <= before


def is_silent(host: TestHost, listening: str) -> bool:
    return not host.text("ss", "-Htln", listening)


def test_a_sound_fleet_and_nothing_is_left(fleet: Fleet, inventory: Inventory) -> None:
    before = {host.name: processes(host) for host in fleet}
    report = checked(fleet, inventory, gpu_test=True)
    assert tuple(ladder.host for ladder in report.hosts) == NAMES
    reach = rung(report, RungName.REACHABILITY)
    assert (reach.status, reach.figures["reached"]) == (Status.GREEN, 20)
    assert [rung(report, RungName.TOOLKIT, name).reason for name in NAMES[:4]] == ["test_saw_all"] * 4
    assert rung(report, RungName.TOOLKIT, "spark").reason == "toolkit_missing"
    assert [ladder.host for ladder in report.hosts if ladder.status is Status.RED] == ["spark"]
    assert (report.ok, report.usable) == (False, 4)
    for host in fleet:
        wait_for(f"{host.name} as it was", partial(is_as_before, host, before[host.name]))
        assert host.text("docker", "ps", "-aq") == ""
        assert host.text("ss", "-Htan", "sport >= :25000 and sport <= :25199") == ""


def test_a_firewall_in_one_direction(fleet: Fleet, inventory: Inventory) -> None:
    for port in range(25000, 25010):
        fleet["h100-b"].drop_port(port)
    reach = rung(checked(fleet, inventory), RungName.REACHABILITY)
    assert (reach.status, reach.figures["reached"]) == (Status.RED, 16)
    assert {(item.source, item.target, item.outcome) for item in reach.figures["failed"]} == {
        (name, "h100-b", ReachOutcome.TIMED_OUT) for name in NAMES if name != "h100-b"
    }


def test_a_port_that_is_taken(fleet: Fleet, inventory: Inventory) -> None:
    fleet["h100-a"].take_port(25000)
    report = checked(fleet, inventory, "h100-a", "h100-b")
    ports = rung(report, RungName.PORTS, "h100-a")
    assert (ports.status, ports.figures["taken"]) == (Status.AMBER, ((25000, "listening"),))
    assert ports.figures["free_service_ports"] == 9
    assert rung(report, RungName.PORTS, "h100-b").status is Status.GREEN
    assert rung(report, RungName.REACHABILITY).status is Status.GREEN


def test_clocks_that_differ(fleet: Fleet, inventory: Inventory) -> None:
    fleet["mig"].skew_clock(60)
    clocks = rung(checked(fleet, inventory, "h100-a", "mig"), RungName.CLOCKS)
    assert (clocks.status, clocks.figures["fastest"]) == (Status.AMBER, "mig")
    assert round(clocks.figures["seconds"], -1) == 60


@pytest.mark.parametrize(
    "settings", [{"MaxSessions": "1"}, {"AllowTcpForwarding": "no", "AllowStreamLocalForwarding": "no"}]
)
def test_servers_that_allow_less(fleet: Fleet, inventory: Inventory, settings: dict[str, str]) -> None:
    for name in ("h100-a", "h100-b"):
        fleet[name].restart_sshd(**settings)
    report = checked(fleet, inventory, "h100-a", "h100-b", gpu_test=True)
    assert rung(report, RungName.REACHABILITY).status is Status.GREEN
    assert rung(report, RungName.PORTS, "h100-a").status is Status.GREEN
    assert rung(report, RungName.TOOLKIT, "h100-a").reason == "test_saw_all"


@pytest.mark.parametrize("shell", ["/bin/bash", "/bin/csh", "/usr/bin/fish"])
def test_login_shells_that_are_not_posix_and_print(fleet: Fleet, tmp_path: Path, shell: str) -> None:
    for name in ("h100-a", "h100-b"):
        fleet[name].add_user(
            "ada", shell=shell, groups=("docker",), greeting="Welcome! gpuplan-reach listen 1"
        )
    entries = {name: {"user": "ada"} for name in ("h100-a", "h100-b")}
    path = fleet.inventory(tmp_path / "ada.yaml", *entries, entries=entries, vllm=RANGES)
    report = checked(fleet, inventory_yaml.load(path))
    assert rung(report, RungName.REACHABILITY).status is Status.GREEN
    assert rung(report, RungName.PORTS, "h100-b").reason == "ports_free"


def test_copies_of_a_model_that_differ(fleet: Fleet, inventory: Inventory) -> None:
    pair = ("h100-a", "h100-b")
    place = "/srv/models/Qwen/Qwen3-4B"
    for name in pair:
        for file, text in (("config.json", "{}"), ("model.safetensors", "0" * 4096)):
            fleet[name].write(f"{place}/{file}", text)
        fleet[name].later(partial(fleet[name].run, "rm", "-rf", "/srv/models/Qwen"))

    def copies() -> tuple[Status, str]:
        item = rung(checked(fleet, inventory, *pair, model="Qwen/Qwen3-4B"), RungName.SAME_MODEL)
        return item.status, item.reason

    assert copies() == (Status.GREEN, "model_same")
    fleet["h100-b"].write(f"{place}/model.safetensors", "0" * 4095)
    assert copies() == (Status.RED, "model_files_differ")
    fleet["h100-b"].run("rm", "-r", place)
    assert copies() == (Status.AMBER, "model_one_host")


def test_engines_that_do_not_give_gpus_or_do_not_answer(fleet: Fleet, inventory: Inventory) -> None:
    fleet["h100-a"].without_toolkit()
    fleet["h100-b"].without_docker()
    report = checked(fleet, inventory, "h100-a", "h100-b", "mixed", gpu_test=True)
    assert rung(report, RungName.TOOLKIT, "h100-a").reason in {"test_failed", "toolkit_missing"}
    assert rung(report, RungName.TOOLKIT, "h100-a").status is Status.RED
    assert rung(report, RungName.DOCKER, "h100-b").status is Status.RED
    assert rung(report, RungName.TOOLKIT, "h100-b").reason == "needs_docker"
    assert fleet["h100-a"].text("docker", "ps", "-aq") == ""
    assert report.hosts[2].status is not Status.RED


def gpuplan(fleet: Fleet, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "gpuplan", *words],
        env={**os.environ, "HOME": str(fleet.home), "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_exit_codes_and_the_document(fleet: Fleet, tmp_path: Path) -> None:
    path = str(fleet.inventory(tmp_path / "inventory.yaml", vllm=RANGES))
    dead = [{"name": "dead", "address": fleet["h100-a"].address, "port": 2}]
    some = str(fleet.inventory(tmp_path / "some.yaml", "h100-a", extra=dead, vllm=RANGES))
    for status, words in (
        (0, ["-i", path, "--host", "h100-a", "--host", "h100-b"]),
        (1, ["-i", some]),
        (4, ["-i", some, "--host", "dead"]),
        (2, ["-i", path, "--host", "nobody"]),
    ):
        with gpuplan(fleet, "check", *words, "-o", "json") as command:
            out, err = command.communicate(timeout=120)
        assert command.returncode == status, out + err
        if status != 2:
            document = json.loads(out)
            assert (next(iter(document)), document["ok"]) == ("schema_version", status == 0)


def test_ctrl_c_ends_it_and_leaves_nothing(fleet: Fleet, tmp_path: Path) -> None:
    path = str(fleet.inventory(tmp_path / "inventory.yaml", "h100-a", "h100-b", vllm=RANGES))
    for port in range(25000, 25010):
        fleet["h100-b"].drop_port(port)
    listening = "sport >= :25000 and sport <= :25009"
    with gpuplan(fleet, "check", "-i", path) as command:
        wait_for("a listener", lambda: bool(fleet["h100-a"].text("ss", "-Htln", listening)))
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=30)
    assert (command.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    for name in ("h100-a", "h100-b"):
        wait_for(f"nothing on {name}", partial(is_silent, fleet[name], listening))
