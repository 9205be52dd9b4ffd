"""What a host can give once a deployment of ours is stopped, and that nothing else about it changes."""

from dataclasses import replace

import pytest

from gpuplan.domain.fleet import Fleet, Gpu, GpuProcess, Host
from gpuplan.domain.host_facts import Docker, HostFacts, OurContainer
from gpuplan.planning.allocatable import account, ours_by_gpu, ours_on
from gpuplan.planning.released import released
from gpuplan.units import GIB

UUID = "GPU-1"
ALICE = GpuProcess(pid=4242, name="python", used_bytes=20 * GIB, user="alice", container="lab")


def card(free: float | None, *processes: GpuProcess, unified: bool = False, uuid: str | None = UUID) -> Gpu:
    """80 GiB, of which `free` GiB are reported free."""
    return Gpu(
        index=0,
        name="card",
        uuid=uuid,
        total_bytes=80 * GIB,
        free_bytes=None if free is None else int(free * GIB),
        processes=processes,
        unified=unified,
    )


def running(
    deployment: str,
    claim: float,
    *,
    state: str = "running",
    loading: bool = False,
    ports: tuple[int, ...] = (),
) -> OurContainer:
    return OurContainer(
        id=deployment.ljust(64, "0"),
        name=f"gpuplan-{deployment}-n0",
        deployment=deployment,
        state=state,
        gpus=(UUID,),
        claims=((UUID, int(claim * GIB)),),
        loading=loading,
        ports=ports,
    )


def process(deployment: str, used: float | None) -> GpuProcess:
    size = None if used is None else int(used * GIB)
    return GpuProcess(pid=7, name="vllm", used_bytes=size, container=f"gpuplan-{deployment}-n0")


def host(gpu: Gpu, *containers: OurContainer, ports: tuple[int, ...] = (), ram: int | None = None) -> Host:
    facts = HostFacts(docker=Docker(containers=containers), listening_ports=ports)
    return Host(
        name="h",
        gpus=(gpu,),
        facts=facts,
        ram_available_bytes=ram,
        ram_total_bytes=None if ram is None else 80 * GIB,
    )


def after(seen: Host, name: str = "qwen") -> Host:
    (left,) = released(Fleet(hosts=(seen,)), name).hosts
    return left


def allocatable(seen: Host) -> float:
    gpu = seen.gpus[0]
    return account(gpu, ours_on(gpu, ours_by_gpu(seen)), seen).allocatable_bytes / GIB


def test_its_processes_go_and_leave_their_memory() -> None:
    seen = host(card(18, process("qwen", 42), ALICE), running("qwen", 40))
    left = after(seen)
    assert left.gpus[0].processes == (ALICE,)
    assert left.facts.docker is not None
    assert left.facts.docker.containers == ()
    assert allocatable(left) == 60


@pytest.mark.parametrize("named", [(), (process("qwen", None),)])
def test_unseen_it_gives_back_what_nobody_else_explains_up_to_its_claim(
    named: tuple[GpuProcess, ...],
) -> None:
    assert allocatable(after(host(card(10, *named), running("qwen", 40)))) == 50
    assert allocatable(after(host(card(30, ALICE, *named), running("qwen", 40)))) == 60


def test_one_that_loads_gives_back_what_it_may_have_taken() -> None:
    seen = host(card(50), running("qwen", 40, loading=True))
    assert allocatable(seen) == 10
    assert allocatable(after(seen)) == 80


def test_it_never_gives_back_more_than_there_is() -> None:
    left = after(host(card(70, process("qwen", 40)), running("qwen", 40)))
    assert left.gpus[0].free_bytes == 80 * GIB


def test_what_nobody_reported_stays_unreported() -> None:
    left = after(host(card(None), running("qwen", 40)))
    assert left.gpus[0].free_bytes is None
    assert allocatable(left) == 80


def test_one_that_ended_leaves_only_its_container() -> None:
    seen = host(card(70), running("qwen", 40, state="exited"))
    left = after(seen)
    assert left.gpus == seen.gpus
    assert left.facts.docker is not None
    assert left.facts.docker.containers == ()


def test_others_keep_what_they_have() -> None:
    both = (running("qwen", 30), running("llama", 20, loading=True))
    seen = host(card(42, process("qwen", 30), process("llama", 8)), *both)
    left = after(seen)
    assert allocatable(left) == 80 - 20
    assert left.facts.docker is not None
    assert [one.deployment for one in left.facts.docker.containers] == ["llama"]


def test_a_gpu_of_unknown_uuid_gives_back_what_its_processes_hold_only() -> None:
    unplaced = replace(running("qwen", 40), gpus=("GPU-x",), claims=(("GPU-x", 40 * GIB),), state="created")
    assert allocatable(after(host(card(50, uuid=None), unplaced))) == 50
    assert allocatable(after(host(card(50, process("qwen", 30), uuid=None), unplaced))) == 80


def test_its_ports_close_unless_another_has_them_too() -> None:
    both = (running("qwen", 1, ports=(40000, 41000)), running("llama", 1, ports=(41000,)))
    left = after(host(card(80), *both, ports=(22, 40000, 41000)))
    assert left.facts.listening_ports == (22, 41000)


def test_ram_is_unchanged_but_where_the_gpu_shares_it() -> None:
    seen = host(card(20, process("qwen", 40)), running("qwen", 40), ram=10 * GIB)
    assert after(seen).ram_available_bytes == 10 * GIB
    shared = host(card(20, process("qwen", 40), unified=True), running("qwen", 40), ram=20 * GIB)
    assert after(shared).ram_available_bytes == 60 * GIB
    assert allocatable(after(shared)) == 60


def test_without_such_a_deployment_the_fleet_is_the_same() -> None:
    fleet = Fleet(hosts=(host(card(20), running("qwen", 40)), Host(name="plain")))
    assert released(fleet, "llama") is fleet
