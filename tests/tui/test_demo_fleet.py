"""The recording behind the demo: made from recorded outputs, read as a snapshot, of every kind of host."""

from collections.abc import Iterator
from importlib.resources import files

import pytest

from gpuplan.domain.fleet import Basis, Fleet, HostStatus
from gpuplan.domain.plan import Owner
from gpuplan.errors import ModelError
from gpuplan.operations.plan import ServingOptions
from gpuplan.planning.allocatable import account, ours_by_gpu, ours_on
from gpuplan.sources import snapshot_json
from gpuplan.tui.demo_world import FAILS, RECORDINGS
from gpuplan.tui.services import Question
from tests.tools import make_demo_fleet
from tests.tui.demo_clock import demo, without_sockets


@pytest.fixture(autouse=True)
def no_sockets() -> Iterator[None]:
    with without_sockets():
        yield


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return snapshot_json.parse((RECORDINGS / "fleet.json").read_bytes(), "fleet.json")


def test_the_recording_is_what_its_script_makes() -> None:
    for name, text in make_demo_fleet.files().items():
        assert (RECORDINGS / name).read_text() == text, f"python -m tests.tools.make_demo_fleet ({name})"


def test_it_is_a_measured_snapshot_of_a_dozen_hosts(fleet: Fleet) -> None:
    assert (fleet.basis, len(fleet.hosts)) == (Basis.MEASURED, 12)
    assert all((host.address or "").startswith(("192.0.2.", "198.51.100.")) for host in fleet.hosts)


def test_the_world_begins_as_it_was_recorded(fleet: Fleet) -> None:
    assert demo().world.fleet().hosts == fleet.hosts


def test_every_kind_of_host_is_there(fleet: Fleet) -> None:
    hosts = {host.name: host for host in fleet.hosts}
    codes = {name: {fact.code for fact in host.facts.conditions} for name, host in hosts.items()}
    links = {name: {link.kind for link in host.facts.links} for name, host in hosts.items()}
    names = {name: [gpu.name for gpu in host.gpus] for name, host in hosts.items()}
    assert names["h100-a"] == names["h100-b"] == ["NVIDIA H100 80GB HBM3"] * 8
    assert all(gpu.free_bytes == gpu.total_bytes for gpu in hosts["h100-a"].gpus)
    assert links["h100-a"] == {"NV18"}
    assert {(one.user, one.container) for gpu in hosts["h100-c"].gpus for one in gpu.processes} == {
        ("root", "chat-prod"),
        ("alice", None),
        ("bob", "finetune-qwen"),
    }
    assert names["h200-a"] == ["NVIDIA H200"] * 8
    assert {gpu.profile for gpu in hosts["a100-mig"].gpus} == {None, "3g.40gb", "2g.20gb", "1g.10gb"}
    assert names["mixed-a"] == ["NVIDIA L40S", "NVIDIA L40S", "NVIDIA GeForce RTX 4090"]
    assert names["rtx-a"] == ["NVIDIA GeForce RTX 4090"] * 4
    assert links["rtx-a"] == {"SYS"}
    assert hosts["spark-a"].gpus[0].unified
    assert hosts["spark-a"].facts.architecture == "aarch64"
    assert "GP626" in codes["l40s-a"]
    assert FAILS in hosts["l40s-b"].labels
    assert codes["h100-d"] == {"GP602"}
    assert hosts["h100-e"].status is HostStatus.UNREACHABLE
    assert hosts["h100-e"].failure is not None
    assert hosts["h100-e"].failure.stage == "connect"


def test_hosts_that_answer_tell_what_a_preflight_asks(fleet: Fleet) -> None:
    for host in fleet.hosts:
        if host.status is not HostStatus.OK:
            continue
        facts = host.facts
        assert facts.docker is not None, host.name
        assert {disk.purpose for disk in facts.disks} >= {
            "model_dir",
            "docker_root",
            "shm",
            "huggingface_cache",
        }
        assert facts.data_interface == "enp65s0f0np0"
        assert facts.listening_ports[0] == 22
        assert host.ram_total_bytes


def test_ours_is_named_in_the_memory_it_holds(fleet: Fleet) -> None:
    host = next(host for host in fleet.hosts if host.name == "h200-a")
    ours = ours_by_gpu(host)
    held = [account(gpu, ours_on(gpu, ours), host).held for gpu in host.gpus]
    assert [[(one.owner, one.name) for one in holdings] for holdings in held[:3]] == [
        [(Owner.OURS, "llama-70b")],
        [(Owner.OURS, "llama-70b")],
        [],
    ]


def test_models_of_the_catalogue_are_planned_on_it_whatever_comes_out() -> None:
    services = demo()
    fleet = services.world.fleet()
    verdicts: set[str] = set()
    for model in services.models()[::7]:
        plan = services.plan(Question(reference=model.name), fleet)
        verdicts |= {strategy.verdict.value for strategy in plan.strategies}
    busy = ServingOptions(gpus=("h100-c:0",), allow_overcommit=True)
    plan = services.plan(Question(reference="Qwen/Qwen3-8B", serving=busy), fleet)
    verdicts |= {strategy.verdict.value for strategy in plan.strategies}
    assert verdicts == {"fits", "overcommit", "no_fit", "skipped"}


def test_a_model_that_only_the_hub_has_is_not_asked_for() -> None:
    services = demo()
    with pytest.raises(ModelError) as caught:
        services.plan(Question(reference="nobody/never-published-this-one"), services.world.fleet())
    assert "the demo does not ask the hub" in caught.value.message
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("choose a model of the catalogue")


def test_a_revision_is_a_matter_of_the_hub_too() -> None:
    services = demo()
    serving = ServingOptions(engine_args=("--revision", "abc123"))
    with pytest.raises(ModelError):
        services.plan(Question(reference="Qwen/Qwen3-8B", serving=serving), services.world.fleet())


def test_the_recordings_are_in_the_package() -> None:
    names = {entry.name for entry in (files("gpuplan.tui") / "recordings").iterdir()}
    assert {"fleet.json", "containers.json", "demo-inventory.yaml"} <= names
