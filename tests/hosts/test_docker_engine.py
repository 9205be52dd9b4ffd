"""Real engines: over SSH and on this machine, asked, used through the SDK, and out of reach in every way."""

import os
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.inventory import HostEntry
from gpuplan.domain.labels import CLAIMS, DEPLOYMENT, GPUS, MANAGED
from gpuplan.probing import docker
from gpuplan.probing.docker import DockerReport
from gpuplan.probing.script import script, sections
from gpuplan.remote.connection import Connection
from gpuplan.remote.docker_engine import Engine, Transport, engine
from gpuplan.remote.local import LocalConnection
from gpuplan.remote.ssh import connect
from gpuplan.remote.ssh_settings import HostKeyPolicy, SshSettings
from tests.hosts.fleet import Fleet, TestHost
from tests.hosts.images import VLLM

SOCKET = "/var/run/docker.sock"
LONG = 60.0
UUID = "GPU-11111111-2222-3333-4444-555555555555"


@pytest.fixture
def reach(fleet: Fleet, tmp_path: Path) -> Iterator[Callable[..., Connection]]:
    """Connects to a host of the fleet over SSH."""
    settings = SshSettings(
        known_hosts=tmp_path / "known_hosts",
        home=tmp_path,
        policy=HostKeyPolicy.ACCEPT_NEW,
        environ={"PATH": os.environ["PATH"]},
        system_config=tmp_path / "none",
        system_known_hosts=(),
    )
    opened: list[Connection] = []

    def ssh(host: TestHost, user: str = "root") -> Connection:
        entry = HostEntry(name=host.name, address=host.address, user=user, identity_file=str(fleet.identity))
        opened.append(connect(entry, settings))
        return opened[-1]

    yield ssh
    for connection in opened:
        connection.close()


def access(connection: Connection) -> docker.DockerAccess:
    mark = f"mark{secrets.token_hex(8)}"
    completed = connection.run(("sh", "-s"), stdin=script(docker.COMMANDS, mark), timeout=LONG)
    return docker.access(sections(completed.stdout, docker.COMMANDS, mark))


def probed(connection: Connection, *, nvidia: bool = True, timeout: float = LONG) -> DockerReport:
    return docker.probe(connection, access(connection), nvidia=nvidia, timeout=timeout)


def codes(report: DockerReport) -> list[str]:
    return [fact.code for fact in report.conditions]


def engine_over(connection: Connection) -> Engine:
    return engine(connection, socket_path=SOCKET, cli=False, timeout=LONG)


@pytest.fixture
def container(fleet: Fleet, reach: Callable[..., Connection]) -> Iterator[tuple[Engine, str]]:
    """An engine over SSH, and a container of ours that writes a line and stays."""
    found = engine_over(reach(fleet["h100-a"]))
    api = found.api
    from docker.types import DeviceRequest

    gpus = DeviceRequest(driver="nvidia", device_ids=["0", "1"], capabilities=[["gpu"]])
    created = api.create_container(
        VLLM.tag,
        name="gpuplan-qwen3-n0",
        entrypoint=["sh"],
        command=["-c", "echo gpus=$NVIDIA_VISIBLE_DEVICES; while :; do sleep 1; done"],
        labels={MANAGED: "true", DEPLOYMENT: "qwen3", GPUS: f'["{UUID}"]', CLAIMS: f'{{"{UUID}": 5}}'},
        host_config=api.create_host_config(network_mode="host", device_requests=[gpus], init=True),
    )
    try:
        api.start(created)
        yield found, str(created["Id"])
    finally:
        found.close()
        again = engine_over(reach(fleet["h100-a"]))
        again.api.remove_container(created, force=True)
        again.close()


def test_an_engine_is_read_over_ssh(fleet: Fleet, reach: Callable[..., Connection]) -> None:
    report = probed(reach(fleet["h100-a"]))

    found = report.docker
    assert found is not None
    assert (found.transport, found.storage_driver, found.gpu_support) == ("socket", "overlay2", True)
    assert found.root_dir == "/srv/docker"
    (image,) = found.images
    assert (image.tags, image.vllm_version, image.ray, image.cuda_version) == (
        (VLLM.tag,),
        "0.33.0",
        False,
        "12.9.1",
    )
    assert codes(report) == []


def test_an_engine_without_the_toolkit_cannot_hand_out_gpus(
    fleet: Fleet, reach: Callable[..., Connection]
) -> None:
    connection = reach(fleet["spark"])

    assert codes(probed(connection)) == ["GP626"]
    assert codes(probed(connection, nvidia=False)) == []


@pytest.mark.parametrize(
    "options",
    [{"AllowStreamLocalForwarding": "no"}, {"DisableForwarding": "yes", "MaxSessions": "1"}],
    ids=["no-sockets", "no-forwarding-one-session"],
)
def test_a_server_that_forbids_forwarding_is_met_with_the_docker_cli(
    fleet: Fleet, reach: Callable[..., Connection], options: dict[str, str]
) -> None:
    fleet["h100-a"].restart_sshd(**options)

    report = probed(reach(fleet["h100-a"]))

    assert report.docker is not None
    assert report.docker.transport == Transport.DIAL_STDIO
    assert [image.tags for image in report.docker.images] == [(VLLM.tag,)]
    assert codes(report) == ["GP624"]


def test_without_forwarding_and_without_the_docker_cli_there_is_no_way(
    fleet: Fleet, reach: Callable[..., Connection]
) -> None:
    fleet["h100-a"].restart_sshd(AllowStreamLocalForwarding="no")
    connection = reach(fleet["h100-a"])

    report = docker.probe(connection, replace(access(connection), cli=None), nvidia=True, timeout=LONG)

    assert codes(report) == ["GP625"]


@pytest.mark.parametrize("forwarding", ["yes", "no"])
def test_a_dead_daemon_is_told(fleet: Fleet, reach: Callable[..., Connection], forwarding: str) -> None:
    fleet["h100-b"].restart_sshd(AllowStreamLocalForwarding=forwarding)
    fleet["h100-b"].stop_dockerd()

    report = probed(reach(fleet["h100-b"]))

    assert codes(report) == ["GP623"]
    assert report.docker is None


def test_docker_without_a_socket_is_told(fleet: Fleet, reach: Callable[..., Connection]) -> None:
    fleet["h100-b"].without_docker()

    report = probed(reach(fleet["h100-b"]))

    assert codes(report) == ["GP623"]
    assert SOCKET in str(report.conditions[0].figures["detail"])


def test_a_login_outside_the_group_is_told(fleet: Fleet, reach: Callable[..., Connection]) -> None:
    host = fleet["mixed"]
    host.add_user("stranger")
    host.docker_socket(0o660)

    report = probed(reach(host, "stranger"))

    (fact,) = report.conditions
    assert fact.code == "GP622"
    assert (fact.figures["user"], fact.figures["path"]) == ("stranger", SOCKET)
    assert fact.figures["groups"] == ["stranger"]


def test_gpus_are_given_and_the_container_is_known_as_ours(
    fleet: Fleet, reach: Callable[..., Connection], container: tuple[Engine, str]
) -> None:
    found, identity = container
    logs = found.api.logs(identity, stream=True, follow=True)
    first = next(logs)
    logs.close()

    report = probed(reach(fleet["h100-a"]))

    assert first == b"gpus=0,1\n"
    assert report.docker is not None
    (ours,) = report.docker.containers
    assert (ours.id, ours.name, ours.deployment, ours.state) == (
        identity,
        "gpuplan-qwen3-n0",
        "qwen3",
        "running",
    )
    assert (ours.gpus, ours.claims) == ((UUID,), ((UUID, 5),))
    assert (identity, "gpuplan-qwen3-n0") in report.containers


def test_commands_run_in_containers_over_ssh(container: tuple[Engine, str]) -> None:
    found, identity = container
    started = found.api.exec_create(identity, ["sh", "-c", "echo out; echo err >&2"])

    assert found.api.exec_start(started["Id"], demux=True) == (b"out\n", b"err\n")


def test_twelve_logs_are_followed_at_a_time_and_end_with_the_engine(container: tuple[Engine, str]) -> None:
    found, identity = container
    ready = threading.Barrier(13, timeout=LONG)
    ended: list[Any] = []

    def follow() -> None:
        stream = found.api.logs(identity, stream=True, follow=True)
        next(stream)
        ready.wait()
        ended.append(list(stream))

    followers = [threading.Thread(target=follow, daemon=True) for _ in range(12)]
    for follower in followers:
        follower.start()
    ready.wait()
    found.close()
    for follower in followers:
        follower.join(LONG)

    assert ended == [[]] * 12


def test_the_engine_of_this_machine_is_reached_directly(fleet: Fleet) -> None:
    pid = fleet["h100-a"].namespaces.pid
    connection = LocalConnection()

    found = engine(connection, socket_path=f"/proc/{pid}/root/run/docker.sock", cli=False, timeout=LONG)
    report = docker.read(found, docker.DockerAccess(), nvidia=False)
    found.close()
    connection.close()

    assert report.docker is not None
    assert report.docker.transport == "local"
    assert [image.vllm_version for image in report.docker.images] == ["0.33.0"]
