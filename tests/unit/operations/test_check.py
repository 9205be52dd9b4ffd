"""The measuring of a fleet that is open: over connections we own, and over this machine for what is real."""

import random
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpuplan.domain.fleet import Fleet, Host
from gpuplan.domain.host_facts import Interface
from gpuplan.domain.inventory import HostEntry, VllmSettings
from gpuplan.errors import ModelError
from gpuplan.operations.across import in_time
from gpuplan.operations.check import CheckOptions, check_opened, model_need
from gpuplan.operations.check_gpu import COMMAND, LABELS, run_gpu_test
from gpuplan.planning.preflight_measures import GpuTestOutcome, ReachOutcome, Wanted
from gpuplan.planning.preflight_report import Preflight, RungName, Status
from gpuplan.remote.connection import Completed, Connection, ConnectionFailed, SocketRefused, Stage, Stream
from gpuplan.remote.local import LocalConnection
from tests.preflights import DOCKER, host, lost, rung

if TYPE_CHECKING:
    from gpuplan.remote.docker_engine import Engine

LOOPBACK = (Interface(name="eth0", addresses=("127.0.0.1/8",), mtu=1500),)


class Silent:
    """A connection on which nothing comes back, or that breaks at the first word."""

    address = "192.0.2.7"

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.asked: list[str] = []

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float,
        limit: int = 0,
        silence: float | None = None,
    ) -> Completed:
        self.asked.append(stdin.decode())
        if isinstance(self._error, ConnectionFailed):
            raise self._error
        return Completed(exit_code=None, stdout=b"", timed_out=True)

    def open_socket(self, path: str, *, timeout: float) -> Stream:
        raise SocketRefused("no")

    def open_port(self, address: str, port: int, *, timeout: float) -> Stream:
        raise SocketRefused("no")

    def open_command(self, command: Sequence[str], *, timeout: float) -> Stream:
        raise self._error or SocketRefused("the server allows one session")

    def close(self) -> None:
        pass


class Opened:
    """A fleet that was probed before the test began."""

    def __init__(self, hosts: Sequence[Host], connections: Mapping[str, Connection]) -> None:
        self.fleet = Fleet(hosts=tuple(hosts))
        self.entries = {item.name: HostEntry(name=item.name, address=item.name) for item in hosts}
        self.connections = connections

    def engine_of(self, host: str) -> "Engine":
        raise SocketRefused(f"{host} has no engine")


def free_range(count: int) -> tuple[int, int]:
    """Ports nobody uses, below those the kernel gives to outgoing connections."""
    for first in random.sample(range(20_000, 32_000, count), 100):
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("", port))
            except OSError:
                continue
            return first, first + count - 1
    raise AssertionError("all of a hundred ranges are in use")


def wanted(opened: Opened) -> Wanted:
    settings = VllmSettings(service_ports=free_range(20), ray_ports=free_range(100))
    return Wanted(image="vllm/vllm-openai:v0.33.0", settings=settings, entries=opened.entries)


def checked(
    hosts: Sequence[Host], connections: Mapping[str, Connection], *, gpu_test: bool = False
) -> Preflight:
    opened = Opened(hosts, connections)
    return check_opened(opened, wanted(opened), CheckOptions(gpu_test=gpu_test))


def test_hosts_reach_each_other_for_real_and_ports_are_bound_for_real() -> None:
    here = {name: LocalConnection() for name in ("h1", "h2", "h3")}
    report = checked([host(name, interfaces=LOOPBACK) for name in here], here)
    assert rung(report, RungName.REACHABILITY).status is Status.GREEN
    assert rung(report, RungName.REACHABILITY).figures["reached"] == 6
    for name in here:
        ports = rung(report, RungName.PORTS, name)
        assert (ports.status, ports.reason) == (Status.GREEN, "ports_free")
        assert ports.figures["tool"] in {"python3", "perl"}
    for connection in here.values():
        connection.close()


def test_an_address_that_is_not_the_hosts_is_no_listener_and_the_other_direction_is_tried() -> None:
    here = {"h1": LocalConnection(), "h2": LocalConnection()}
    away = (Interface(name="eth0", addresses=("192.0.2.9/24",), mtu=1500),)
    report = checked([host("h1", interfaces=LOOPBACK), host("h2", interfaces=away)], here)
    item = rung(report, RungName.REACHABILITY)
    assert (item.status, item.reason) == (Status.AMBER, "not_all_tried")
    (untold,) = item.figures["untold"]
    assert (untold.source, untold.target, untold.outcome) == ("h1", "h2", ReachOutcome.NO_LISTENER)
    assert "192.0.2.9" in untold.detail
    for connection in here.values():
        connection.close()


@pytest.mark.parametrize(
    "error", [None, ConnectionFailed(Stage.COMMAND, "the connection was cut"), SocketRefused("MaxSessions")]
)
def test_a_host_that_stops_answering_keeps_its_ladder_and_spoils_no_other(error: Exception | None) -> None:
    here: dict[str, Connection] = {"h1": LocalConnection(), "h2": LocalConnection(), "mute": Silent(error)}
    report = checked([host(name, interfaces=LOOPBACK) for name in here], here)
    assert rung(report, RungName.PORTS, "mute").reason == "ports_unknown"
    assert rung(report, RungName.PORTS, "h1").reason == "ports_free"
    item = rung(report, RungName.REACHABILITY)
    assert item.status is Status.AMBER
    assert item.figures["reached"] == 2
    assert {(one.source, one.target) for one in item.figures["untold"]} == {
        ("h1", "mute"),
        ("h2", "mute"),
        ("mute", "h1"),
        ("mute", "h2"),
    }
    for connection in here.values():
        connection.close()


def test_a_host_that_was_not_reached_is_asked_nothing() -> None:
    silent = Silent()
    report = checked([host("h1"), lost("gone", "connect", "no route")], {"h1": silent})
    assert len(silent.asked) == 1
    assert report.hosts[1].status is Status.RED
    assert rung(report, RungName.REACHABILITY).reason == "one_host"


def test_the_gpu_test_without_an_image_says_so_and_with_a_broken_engine_fails() -> None:
    bare = host("h1", docker=replace(DOCKER, images=()))
    report = checked([bare, host("h2")], {"h1": Silent(), "h2": Silent()}, gpu_test=True)
    assert rung(report, RungName.TOOLKIT, "h1").reason == "test_needs_image"
    assert rung(report, RungName.TOOLKIT, "h2").reason == "test_failed"
    assert "h2 has no engine" in rung(report, RungName.TOOLKIT, "h2").figures["detail"]


def test_calls_that_take_too_long_are_left_behind() -> None:
    never = threading.Event()
    calls: dict[str, Callable[[], object]] = {"slow": never.wait, "quick": lambda: "done"}
    assert in_time(calls, seconds=0.2) == {"quick": "done"}
    never.set()


# ---------------------------------------------------------------------- the container


class Api:
    """The engine's client as far as a short container needs it."""

    def __init__(
        self, printed: Sequence[bytes] = (), refused: str | None = None, hangs: bool = False
    ) -> None:
        self._printed = printed
        self._refused = refused
        self._ended = threading.Event()
        if not hangs:
            self._ended.set()
        self.calls: list[str] = []
        self.created: dict[str, object] = {}
        self.host_config: dict[str, Any] = {}

    def create_host_config(self, **config: Any) -> dict[str, Any]:
        self.host_config = config
        return config

    def create_container(self, image: str, **config: object) -> dict[str, str]:
        self.created = {"image": image, **config}
        return {"Id": "c1"}

    def attach(self, container: str, **how: object) -> Iterator[bytes]:
        self.calls.append("attach")
        return self._output()

    def _output(self) -> Iterator[bytes]:
        yield from self._printed
        self._ended.wait()

    def start(self, container: str) -> None:
        from docker.errors import APIError

        self.calls.append("start")
        if self._refused is not None:
            raise APIError("500 Server Error", explanation=self._refused)

    def kill(self, container: str) -> None:
        self.calls.append("kill")
        self._ended.set()

    def remove_container(self, container: str, *, force: bool) -> None:
        assert force
        self.calls.append("remove")


class OneEngine:
    def __init__(self, api: Any) -> None:
        self.api = api


LISTED = (
    b"GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-2222-3333-4444-555555555555)\n",
    b"GPU 1: NVIDIA A100 (UUID: GPU-1)\n  MIG 3g.40gb Device 0: (UUID: MIG-22222222-2222-3333-4444-5)\n",
)


def test_the_container_has_the_gpus_no_network_our_label_and_is_removed() -> None:
    api = Api(LISTED)
    test = run_gpu_test(lambda: OneEngine(api), "sha256:1", "img", 30)
    assert test.outcome is GpuTestOutcome.SEEN
    assert test.uuids == (
        "GPU-11111111-2222-3333-4444-555555555555",
        "GPU-1",
        "MIG-22222222-2222-3333-4444-5",
    )
    assert api.calls == ["attach", "start", "remove"]
    assert (api.created["image"], api.created["entrypoint"]) == ("sha256:1", list(COMMAND))
    assert api.created["labels"] == LABELS
    assert LABELS["io.gpuplan.managed"] == "true"
    assert api.host_config["network_mode"] == "none"
    assert api.host_config["auto_remove"] is True
    (request,) = api.host_config["device_requests"]
    assert (request["Count"], request["Capabilities"]) == (-1, [["gpu"]])


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', GpuTestOutcome.FAILED),
        ('exec: "nvidia-smi": executable file not found in $PATH: unknown', GpuTestOutcome.NO_TOOL),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0", GpuTestOutcome.FAILED),
    ],
)
def test_a_container_that_does_not_start_is_removed_and_told_in_the_engines_words(
    said: str, outcome: GpuTestOutcome
) -> None:
    api = Api(refused=said)
    test = run_gpu_test(lambda: OneEngine(api), "sha256:1", "img", 30)
    assert (test.outcome, test.detail) == (outcome, said)
    assert api.calls[-1] == "remove"


def test_a_container_that_lists_nothing_has_failed() -> None:
    test = run_gpu_test(
        lambda: OneEngine(Api([b"Failed to initialize NVML:\n Unknown Error"])), "i", "img", 30
    )
    assert (test.outcome, test.detail) == (GpuTestOutcome.FAILED, "Failed to initialize NVML: Unknown Error")


def test_a_container_that_hangs_is_killed_and_removed() -> None:
    api = Api([LISTED[0]], hangs=True)
    test = run_gpu_test(lambda: OneEngine(api), "i", "img", 0.05)
    assert (test.outcome, test.seconds) == (GpuTestOutcome.TIMED_OUT, 0.05)
    assert api.calls == ["attach", "start", "kill", "remove"]


# ---------------------------------------------------------------------- the model


def test_the_size_of_a_model_is_the_planners() -> None:
    need = model_need("Qwen/Qwen3-32B")
    assert need is not None
    assert (need.name, need.reference) == ("Qwen/Qwen3-32B", "Qwen/Qwen3-32B")
    assert need.weights_bytes is not None
    assert 60e9 < need.weights_bytes < 70e9
    assert model_need(None) is None


def test_a_path_may_exist_on_the_hosts_alone_and_a_wrong_name_may_not() -> None:
    need = model_need("/data/models/own")
    assert need is not None
    assert need.weights_bytes is None
    with pytest.raises(ModelError):
        model_need("no/such-model-anywhere")
