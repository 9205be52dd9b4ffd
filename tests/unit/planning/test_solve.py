"""The plan asked backwards: what it names is accepted, and one GPU fewer is not."""

from dataclasses import replace

import pytest

from gpuplan.domain.fleet import Fleet, Host
from gpuplan.domain.hardware import Accelerator
from gpuplan.domain.plan import StrategyName, Verdict
from gpuplan.domain.workload import Workload
from gpuplan.planning.judge import Judge
from gpuplan.planning.offers import supply_of
from gpuplan.planning.planner import STRATEGIES
from gpuplan.planning.request import PlanRequest
from gpuplan.planning.solve import Card, Need, Solution, card_need, reach, solve
from gpuplan.sources.catalogue.accelerators import as_gpus, find
from tests.fleets import gpu, host, profile

MODEL = "Qwen__Qwen3-32B"
H100 = find("H100-80GB")
L40S = find("L40S")
THOR = find("JETSON-AGX-THOR")


def request(*hosts: Host, model: str = MODEL, **workload: object) -> PlanRequest:
    return PlanRequest(
        fleet=Fleet(hosts=hosts),
        profile=profile(model),
        workload=Workload(**workload),  # type: ignore[arg-type]
        utilization=0.92,
        echo={"context": workload.get("context"), "concurrency": workload.get("concurrency")},
    )


def card(accelerator: Accelerator, count: int = 8) -> Card:
    return Card(name=accelerator.name, gpus=as_gpus(accelerator, count), link=accelerator.link)


def accepted(asked: PlanRequest, one: Card, hosts: int, count: int) -> bool:
    """Whether the planner serves the request on so many hosts with so many cards each."""
    fleet = Fleet(hosts=tuple(Host(name=f"h{number}", gpus=one.gpus[:count]) for number in range(hosts)))
    if not fleet.hosts or not count:
        return False
    again = replace(asked, fleet=fleet)
    names = (StrategyName.SINGLE_GPU, StrategyName.SINGLE_HOST, StrategyName.MULTI_HOST)
    results = [STRATEGIES[name](Judge(again), supply_of(fleet)) for name in names]
    return any(result.verdict is Verdict.FITS for result in results)


@pytest.mark.parametrize(("context", "users"), [(8192, 1), (32768, 4), (32768, 16)])
@pytest.mark.parametrize("accelerator", [H100, L40S], ids=lambda one: one.name)
def test_the_fewest_of_a_card_are_named(accelerator: Accelerator, context: int, users: int) -> None:
    asked, one = request(context=context, concurrency=users), card(accelerator)
    need = card_need(asked, one)
    assert need is not None
    assert accepted(asked, one, need.hosts, need.gpus // need.hosts)
    if need.hosts == 1:
        assert not accepted(asked, one, 1, need.gpus // 2)
    else:
        assert not accepted(asked, one, 1, len(one.gpus))


def test_a_module_that_is_built_in_alone_is_one_of_its_host() -> None:
    need = card_need(request(context=32768, concurrency=8), card(THOR, 1))
    assert need is not None
    assert need.hosts == need.gpus


def test_nothing_over_hosts_where_that_was_ruled_out() -> None:
    large = request(context=40960, concurrency=64)
    assert card_need(large, card(L40S)) is not None
    alone = replace(large, workload=replace(large.workload, allow_distributed=False))
    assert card_need(alone, card(L40S)) is None


def test_the_users_sizes_are_kept() -> None:
    asked = request(context=8192)
    engine = replace(
        asked.workload.engine, tensor_parallel_size=4, user_set=frozenset({"tensor_parallel_size"})
    )
    need = card_need(replace(asked, workload=replace(asked.workload, engine=engine)), card(H100))
    assert need is not None
    assert (need.gpus, need.candidate.parallelism.tensor) == (4, 4)


def answer(asked: PlanRequest) -> Solution:
    return solve(asked, (card(H100), card(L40S)))


def test_the_fleet_by_kind_as_it_is_and_were_it_idle() -> None:
    busy = Host(name="b", gpus=tuple(gpu(index, "H100", 5.0) for index in range(4)))
    found = answer(request(host("a", "L40S", 4), busy, context=16384, concurrency=2))
    assert found.fleet is not None
    first, second = found.fleet
    assert (first.device, second.device) == ("NVIDIA L40S", "NVIDIA H100 80GB HBM3")
    assert first.now
    assert not first.idle
    assert not second.now
    assert [need.gpus for need in second.idle] == sorted(need.gpus for need in second.idle)
    assert found.found


def test_replicas_are_placed_together() -> None:
    found = answer(request(host("a", "H100", 8), context=8192, replicas=3))
    assert found.fleet is not None
    (need,) = found.fleet[0].now
    assert need.strategy is StrategyName.DATA_PARALLEL
    assert need.gpus == 3


def test_the_reach_of_the_recommended_placement() -> None:
    asked = request(host("a", "H100", 2), context=16384, concurrency=4)
    found = reach(asked)
    assert found is not None
    assert found.concurrency is not None
    assert found.context >= 16384
    assert found.concurrency >= 4
    one = found.candidate
    need = Need(strategy=found.strategy, candidate=one)

    def fits(context: int, users: int) -> bool:
        load = replace(asked, workload=replace(asked.workload, context=context, concurrency=users))
        devices = tuple(offer.device for offer in supply_of(asked.fleet).offers)[: need.gpus]
        return Judge(load).assess(one.parallelism, devices).fits

    assert fits(found.context, 4)
    assert found.context == 40960 or not fits(found.context + 16, 4)
    assert fits(16384, found.concurrency)
    assert not fits(16384, found.concurrency + 1)
    lengths = [length for _, length in found.curve]
    assert lengths == sorted(lengths, reverse=True)
    assert all(fits(length, users) for users, length in found.curve)


def test_without_a_fleet_the_cards_are_asked_alone() -> None:
    found = answer(request(context=8192))
    assert found.fleet is None
    assert found.reach is None
    assert {one.name for one in found.cards} == {"H100-80GB", "L40S"}
    assert [one.need.total_bytes for one in found.cards] == sorted(
        one.need.total_bytes for one in found.cards
    )


def test_what_no_card_serves_is_said() -> None:
    found = solve(request(model="deepseek-ai__DeepSeek-R1", context=8192), (card(find("L4"), 2),))
    assert found.too_small == ("L4",)
    assert not found.found
