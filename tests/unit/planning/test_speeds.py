"""Tokens per second of the candidates of a plan: which card, which links, ties, what is not told."""

from dataclasses import replace
from typing import Any

import pytest

from gpuplan.domain.fleet import Fleet, Host
from gpuplan.domain.hardware import Accelerator
from gpuplan.domain.host_facts import HostFacts, Interface, RdmaDevice
from gpuplan.domain.plan import Candidate, Plan, StrategyName
from gpuplan.domain.throughput import NoThroughput, Throughput
from gpuplan.domain.workload import Placement, Workload
from gpuplan.engine.arguments import parse
from gpuplan.engine.versions import version_of
from gpuplan.operations.cards import card_of
from gpuplan.planning.planner import plan
from gpuplan.planning.ranking import ranked
from gpuplan.planning.request import PlanRequest
from tests.fleets import gpu, host, of
from tests.unit.engine.test_throughput import DENSE

VERSION = version_of("0.33.0")


def planned(*hosts: Host, arguments: str = "", accelerators: Any = card_of, **workload: Any) -> Plan:
    return plan(
        PlanRequest(
            fleet=Fleet(hosts=hosts),
            profile=DENSE,
            workload=Workload(engine=parse([arguments] if arguments else [], version=VERSION), **workload),
            version=VERSION,
            utilization=0.92,
            accelerators=accelerators,
        )
    )


def first(made: Plan, strategy: StrategyName = StrategyName.SINGLE_HOST) -> Candidate:
    return of(made, strategy).candidates[0]


def told(candidate: Candidate) -> Throughput:
    assert isinstance(candidate.throughput, Throughput)
    return candidate.throughput


def reason(candidate: Candidate) -> str:
    assert isinstance(candidate.throughput, NoThroughput)
    return candidate.throughput.reason


def test_a_candidate_is_told_for_the_users_and_the_context_asked() -> None:
    speed = told(first(planned(host("h1", "H100", 2), context=32768, concurrency=4))).decode
    assert (speed.users, speed.context) == (4, 32768)
    assert 20 < speed.per_user < 80


def test_each_replica_has_its_users() -> None:
    made = planned(host("h1", "H100", 4), host("h2", "H100", 4), context=2048, concurrency=2, replicas=3)
    candidate = first(made, StrategyName.DATA_PARALLEL)
    alone = told(first(planned(host("h1", "H100", 4), context=2048, concurrency=2), StrategyName.SINGLE_GPU))
    assert told(candidate).decode.users == 6
    assert told(candidate).decode.per_user == pytest.approx(alone.decode.per_user)


def test_without_a_catalogue_nothing_is_said() -> None:
    with_cards = planned(host("h1", "H100", 2), context=8192)
    without = plan(
        PlanRequest(
            fleet=Fleet(hosts=(host("h1", "H100", 2),)),
            profile=DENSE,
            workload=Workload(context=8192),
            version=VERSION,
            utilization=0.92,
        )
    )
    assert first(without).throughput is None
    assert replace(first(with_cards), throughput=None) == first(without)


def test_why_there_is_no_figure() -> None:
    def unknown(_name: str, _total: int | None) -> Accelerator | None:
        return None

    assert "not in the catalogue" in reason(first(planned(host("h1", "H100", 2), accelerators=unknown)))
    claim = planned(host("h1", "H100", 2), vram_claim_bytes=10 * 1024**3)
    assert reason(first(claim, StrategyName.SINGLE_GPU)) == "only a claim is known"
    card = host("h1", "H100", 1)
    slice_ = replace(gpu(1, "H100"), uuid="MIG-1", parent=7, profile="7g.80gb")
    sliced = planned(replace(card, gpus=(slice_,)), context=2048)
    assert "MIG" in reason(first(sliced, StrategyName.SINGLE_GPU))


def test_what_cannot_run_has_no_speed() -> None:
    made = planned(host("h1", "4090", 1), context=8192)
    every = [item for result in made.strategies for item in result.candidates]
    assert all(item.throughput is None for item in every)


def over_two_hosts(**facts: Any) -> Throughput:
    hosts = [
        replace(host(name, "H100", 1), facts=HostFacts(**facts) if facts else HostFacts())
        for name in ("h1", "h2")
    ]
    made = planned(*hosts, context=4096, arguments="--tensor-parallel-size 2")
    return told(first(made, StrategyName.MULTI_HOST))


def test_ranks_on_two_hosts_exchange_over_the_network_between_them() -> None:
    unknown = over_two_hosts()
    assert any("assumed" in note for note in unknown.notes)
    wired = over_two_hosts(interfaces=(Interface(name="eth0", speed_bits_per_second=10_000_000_000),))
    fast = over_two_hosts(
        rdma=(RdmaDevice(name="mlx5_0", state="ACTIVE", rate_bits_per_second=400_000_000_000),)
    )
    assert not wired.notes
    assert not fast.notes
    assert wired.decode.per_user < fast.decode.per_user
    down = over_two_hosts(
        rdma=(RdmaDevice(name="mlx5_0", state="DOWN", rate_bits_per_second=400_000_000_000),)
    )
    assert down.decode.per_user == unknown.decode.per_user


def test_of_cards_of_one_size_the_faster_are_taken() -> None:
    """Two hosts alike but for their link; the slower one has more free, which decided before."""
    slow = replace(host("a-slow", "A100", 2), link="pcie")
    fast = replace(host("b-fast", "A100", 2, free={0: 79.0, 1: 79.0}), link="nvlink")
    made = planned(slow, fast, context=32768, arguments="--tensor-parallel-size 2")
    assert first(made).placement[0].host == "b-fast"
    assert made.recommended == (StrategyName.SINGLE_HOST, 0)


def test_speed_outweighs_neither_gpus_nor_the_size_of_cards() -> None:
    made = planned(host("big", "H100", 2), host("small", "L40S", 2), context=8192)
    pairs = of(made, StrategyName.SINGLE_HOST).candidates
    assert [item.placement[0].host for item in pairs] == ["small", "big"]
    assert told(pairs[1]).decode.total > told(pairs[0]).decode.total
    single = first(made, StrategyName.SINGLE_GPU)
    assert ranked((pairs[1], single), Placement.SPREAD)[0] is single
