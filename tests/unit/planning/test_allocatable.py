"""What a GPU can give beside our own deployments and everybody else's programs, and who is named for the rest."""

from dataclasses import replace

import pytest

from gpuplan.domain.fleet import Basis, Gpu, GpuProcess, Host
from gpuplan.domain.host_facts import Docker, HostFacts, OurContainer
from gpuplan.domain.plan import Holding, Owner
from gpuplan.planning.allocatable import MOST_NAMED, Account, account, ours_by_gpu
from gpuplan.units import GIB

UUID = "GPU-1"
ALICE = GpuProcess(pid=4242, name="python", used_bytes=20 * GIB, user="alice", container="foo")


def card(free: float, *processes: GpuProcess, reserve: float = 0, unified: bool = False) -> Gpu:
    """80 GiB, of which `free` GiB are reported free."""
    return Gpu(
        index=0,
        name="card",
        uuid=UUID,
        total_bytes=80 * GIB,
        free_bytes=int(free * GIB),
        processes=processes,
        reserved_bytes=int(reserve * GIB),
        unified=unified,
    )


def container(
    claim: float | None, *, name: str = "gpuplan-qwen-0", state: str = "running", loading: bool = False
) -> OurContainer:
    return OurContainer(
        id=f"{name}-id".ljust(64, "0"),
        name=name,
        deployment="qwen",
        state=state,
        gpus=(UUID,),
        claims=() if claim is None else ((UUID, int(claim * GIB)),),
        loading=loading,
    )


def counted(gpu: Gpu, *containers: OurContainer) -> Account:
    host = Host(name="h", gpus=(gpu,), facts=HostFacts(docker=Docker(containers=containers)))
    return account(gpu, ours_by_gpu(host).get(UUID, ()), host)


def gib(made: Account) -> float:
    return made.allocatable_bytes / GIB


def owners(made: Account) -> list[tuple[str, float | None]]:
    return [
        (holding.owner.value, None if holding.bytes is None else holding.bytes / GIB) for holding in made.held
    ]


def ours(used: float | None, *, inside: str = "gpuplan-qwen-0") -> GpuProcess:
    return GpuProcess(
        pid=7, name="vllm", used_bytes=None if used is None else int(used * GIB), container=inside
    )


def test_nothing_runs() -> None:
    assert counted(card(80)) == Account(allocatable_bytes=80 * GIB, held=())
    assert counted(replace(card(80), free_bytes=None)).allocatable_bytes == 80 * GIB


def test_free_is_never_more_than_there_is() -> None:
    assert gib(counted(card(90))) == 80


def test_use_that_nobody_explains_and_the_reserve_are_told_apart() -> None:
    made = counted(card(70, reserve=2))
    assert gib(made) == 68
    assert owners(made) == [("unknown", 10), ("reserve", 2)]


def test_ours_that_just_started_counts_with_its_claim() -> None:
    made = counted(card(78, ours(2)), container(40))
    assert gib(made) == 40
    assert owners(made) == [("ours", 40)]
    assert made.held[0].basis is Basis.COMPUTED


def test_others_count_beside_ours_that_just_started() -> None:
    made = counted(card(58, ours(2), ALICE), container(40))
    assert gib(made) == 20
    assert owners(made) == [("ours", 40), ("process", 20)]


def test_others_nobody_can_name_count_too() -> None:
    made = counted(card(58, ours(2)), container(40))
    assert gib(made) == 20
    assert owners(made) == [("ours", 40), ("unknown", 20)]


def test_ours_that_took_more_than_predicted_counts_with_what_it_has() -> None:
    made = counted(card(35, ours(45)), container(40))
    assert gib(made) == 35
    assert owners(made) == [("ours", 45)]
    assert made.held[0].basis is Basis.MEASURED


def test_ours_that_serves_unseen_is_what_the_unexplained_use_is() -> None:
    made = counted(card(20), container(40))
    assert gib(made) == 20
    assert owners(made) == [("ours", 40), ("unknown", 20)]


def test_ours_that_serves_unseen_beside_alice() -> None:
    made = counted(card(20, ALICE), container(40))
    assert gib(made) == 20
    assert owners(made) == [("ours", 40), ("process", 20)]


@pytest.mark.parametrize("state", ["created", "restarting"])
def test_ours_that_does_not_serve_yet_has_taken_nothing(state: str) -> None:
    assert gib(counted(card(58), container(40, state=state))) == 18
    assert gib(counted(card(58), container(40, loading=True))) == 18


def test_ours_that_sleeps_will_come_back() -> None:
    assert gib(counted(card(77, ours(3)), container(40))) == 40


@pytest.mark.parametrize("state", ["exited", "dead", "removing"])
def test_ours_that_ended_counts_no_more(state: str) -> None:
    assert gib(counted(card(80), container(40, state=state))) == 80


def test_without_a_prediction_the_measured_use_counts() -> None:
    assert gib(counted(card(50, ours(30)), container(None))) == 50


def test_a_report_that_lags_behind_the_processes() -> None:
    made = counted(card(80, ours(40), ALICE), container(40))
    assert gib(made) == 20


@pytest.mark.parametrize("inside", ["/gpuplan-qwen-0", "gpuplan-qwen-", "gpuplan-qwen-0-id0000"])
def test_containers_are_known_by_name_or_the_start_of_their_id(inside: str) -> None:
    named = counted(card(78, ours(2, inside=inside)), container(40))
    assert owners(named) == [("ours", 40)]


def test_other_containers_are_not_ours() -> None:
    made = counted(card(78, ours(2, inside="gpuplan")), container(40))
    assert [owner for owner, _ in owners(made)] == ["ours", "process"]


def test_several_of_ours_on_one_gpu() -> None:
    made = counted(
        card(70, ours(10)),
        container(30),
        container(25, name="gpuplan-other-0", state="created", loading=True),
    )
    assert gib(made) == 25
    assert owners(made) == [("ours", 25), ("ours", 30)]


def test_unexplained_use_is_taken_for_ours_once() -> None:
    made = counted(card(30), container(40), container(30, name="gpuplan-other-0"))
    assert gib(made) == 10
    assert owners(made) == [("ours", 30), ("ours", 40)]


def test_more_booked_than_there_is_leaves_nothing() -> None:
    assert counted(card(60, ours(2)), container(90)).allocatable_bytes == 0


def test_a_process_of_unknown_size_is_named() -> None:
    made = counted(card(50, GpuProcess(pid=9, name="python", user="bob")))
    assert gib(made) == 50
    assert owners(made) == [("process", None), ("unknown", 30)]
    assert made.held[0] == Holding(owner=Owner.PROCESS, bytes=None, name="python", user="bob", pid=9)


def test_the_largest_processes_are_named_and_the_rest_added_up() -> None:
    many = tuple(GpuProcess(pid=number, name="p", used_bytes=number * 2**20) for number in range(1, 41))
    made = counted(card(70, *many))
    named = [holding for holding in made.held if holding.owner is Owner.PROCESS]
    assert [holding.pid for holding in named[:2]] == [40, 39]
    assert len(named) == MOST_NAMED + 1
    assert named[-1].name == "24 more processes"
    assert sum(holding.bytes or 0 for holding in made.held) == 10 * GIB


def test_unified_memory_is_what_the_host_has_available() -> None:
    gpu = card(80, unified=True)
    host = Host(
        name="spark",
        gpus=(gpu,),
        ram_available_bytes=60 * GIB,
        ram_total_bytes=80 * GIB,
        ram_reserved_bytes=12 * GIB,
    )
    made = account(gpu, (), host)
    assert gib(made) == 48
    assert owners(made) == [("host", 20), ("reserve", 12)]
    assert account(gpu, (), replace(host, ram_available_bytes=None)).allocatable_bytes == 80 * GIB
    assert account(replace(gpu, unified=False), (), host).allocatable_bytes == 80 * GIB
