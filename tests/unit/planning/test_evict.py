"""S4.6: whom to stop where a model does not fit beside what runs: the fewest, idle ones first, pinned ones never."""

from dataclasses import replace
from typing import Any

import pytest

from gpuplan.domain.fleet import Fleet, GpuProcess, Host
from gpuplan.domain.plan import Candidate, Eviction, Plan, StrategyName, Verdict
from gpuplan.domain.workload import GpuSelection
from gpuplan.errors import NoHostError
from gpuplan.planning.evictable import Busy, deployments
from gpuplan.planning.planner import candidate_of
from gpuplan.planning.released import released
from gpuplan.units import GIB
from tests.fleets import host, of, planned
from tests.rooms import runs, shared

MODEL = "Qwen__Qwen3-32B"
ALICE = GpuProcess(pid=4242, name="train.py", used_bytes=60 * GIB, user="alice", container="lab")


def plan(*hosts: Host, **asked: Any) -> Plan:
    return planned(MODEL, *hosts, context=8192, **asked)


def chosen(made: Plan) -> Candidate:
    result = of(made, StrategyName.EVICT)
    assert result.verdict is Verdict.FITS
    return result.candidates[0]


def stopped(made: Plan) -> list[str]:
    return [one.deployment for one in chosen(made).evicts]


def codes(made: Plan) -> list[str]:
    return [fact.code for fact in of(made, StrategyName.EVICT).facts]


def test_s4_6_the_idle_one_is_named_before_the_busy_one_whatever_their_keep_alive() -> None:
    busy = runs("busy", ("h1", 0), keep_alive=60, requests=2)
    idle = runs("idle", ("h1", 1), requests=0)
    made = plan(shared("h1", busy, idle, gpus=2))
    assert stopped(made) == ["idle"]
    assert chosen(made).placement[0].gpus[0].index == 1


def test_s4_6_requests_that_wait_are_in_flight_too() -> None:
    queued = runs("queued", ("h1", 0), keep_alive=60, requests=0, waiting=1)
    idle = runs("idle", ("h1", 1), requests=0)
    assert stopped(plan(shared("h1", queued, idle, gpus=2))) == ["idle"]


def test_s4_6_among_equals_the_shortest_keep_alive_goes_and_none_at_all_comes_last() -> None:
    several = [
        runs("long", ("h1", 0), keep_alive=3600, requests=0),
        runs("none", ("h1", 1), requests=0),
        runs("short", ("h1", 2), keep_alive=60, requests=0),
    ]
    assert stopped(plan(shared("h1", *several, gpus=3))) == ["short"]
    assert stopped(plan(shared("h1", *several[:2], gpus=2))) == ["long"]


def test_s4_6_one_that_did_not_tell_goes_after_the_idle_and_before_the_busy() -> None:
    silent, busy = runs("silent", ("h1", 0)), runs("busy", ("h1", 1), keep_alive=60, requests=1)
    assert stopped(plan(shared("h1", silent, busy, gpus=2))) == ["silent"]
    idle = runs("idle", ("h1", 1), requests=0)
    assert stopped(plan(shared("h1", silent, idle, gpus=2))) == ["idle"]


def test_s4_6_a_pinned_one_and_one_that_still_starts_are_never_named() -> None:
    pinned = runs("pinned", ("h1", 0), keep_alive=-1, requests=0)
    starting = runs("starting", ("h1", 1), keep_alive=60, loading=True)
    created = runs("created", ("h1", 2), keep_alive=60, state="created")
    busy = runs("busy", ("h1", 3), requests=9)
    assert stopped(plan(shared("h1", pinned, starting, created, busy, gpus=4))) == ["busy"]
    made = plan(shared("h1", pinned, starting, gpus=2))
    assert of(made, StrategyName.EVICT).verdict is Verdict.NO_FIT
    assert sorted(codes(made)) == ["GP232", "GP233"]
    assert made.recommended is None


def test_s4_6_the_fewest_are_named() -> None:
    """One that holds both GPUs of a host instead of two that hold one each."""
    pair = [runs(f"half-{index}", ("h1", index), requests=0, keep_alive=60) for index in (0, 1)]
    one = runs("whole", ("h2", 0), ("h2", 1), requests=0)
    made = planned(
        "Qwen__Qwen3-32B",
        shared("h1", *pair, gpus=2),
        shared("h2", one, gpus=2),
        context=8192,
        arguments="--tensor-parallel-size 2",
    )
    assert stopped(made) == ["whole"]


def test_s4_6_only_what_is_needed_of_a_shared_gpu_is_stopped() -> None:
    small = runs("small", ("h1", 0), claim=6, requests=0, keep_alive=60)
    large = runs("large", ("h1", 0), claim=60, requests=0, keep_alive=600)
    made = planned(
        MODEL,
        shared("h1", small, large, used={0: 66}),
        context=8192,
        arguments="--gpu-memory-utilization 0.9",
    )
    assert stopped(made) == ["large"]


def test_s4_6_processes_of_others_are_named_and_never_stopped() -> None:
    ours = runs("ours", ("h1", 1), claim=10, requests=0)
    made = plan(shared("h1", ours, gpus=2, others={0: ALICE, 1: replace(ALICE, pid=7)}))
    result = of(made, StrategyName.EVICT)
    assert result.verdict is Verdict.NO_FIT
    assert codes(made)[0] == "GP234"
    named = [fact for fact in result.facts if fact.code == "GP231"]
    assert [(fact.subject["host"], fact.subject["gpu"], fact.figures["pid"]) for fact in named] == [
        ("h1", 0, 4242),
        ("h1", 1, 7),
    ]
    assert {(fact.figures["user"], fact.figures["bytes"]) for fact in named} == {("alice", 60 * GIB)}


def test_s4_6_where_nothing_is_ours_others_are_named_all_the_same() -> None:
    made = plan(shared("h1", others={0: ALICE}))
    result = of(made, StrategyName.EVICT)
    assert result.verdict is Verdict.SKIPPED
    assert [fact.figures["pid"] for fact in result.facts] == [4242]


def test_s4_6_nobody_is_stopped_unasked() -> None:
    """Not recommended, and so exit 3, until eviction is asked for."""
    fleet = shared("h1", runs("chat", ("h1", 0), requests=0))
    unasked = plan(fleet)
    assert unasked.recommended is None
    assert stopped(unasked) == ["chat"]
    asked = plan(fleet, strategies=("evict",))
    assert asked.recommended == (StrategyName.EVICT, 0)
    assert plan(fleet, strategies=("single_gpu",)).recommended is None
    assert candidate_of(asked) == chosen(asked)


def test_what_fits_beside_the_others_stops_nobody() -> None:
    beside = shared("h1", runs("chat", ("h1", 0), requests=0), gpus=2)
    for strategies in ((), ("evict",), ("single_gpu", "evict")):
        made = plan(beside, strategies=strategies)
        assert of(made, StrategyName.EVICT).verdict is Verdict.SKIPPED


def test_an_eviction_says_what_comes_back_and_why_it_was_chosen() -> None:
    chat = runs("chat", ("h1", 0), ("h1", 1), keep_alive=600, requests=0)
    (one,) = chosen(plan(shared("h1", chat, gpus=2))).evicts
    assert one == Eviction(
        deployment="chat",
        gpus=(("h1", 0, 72 * GIB), ("h1", 1, 72 * GIB)),
        running_requests=0,
        keep_alive_seconds=600,
    )


def test_a_deployment_over_hosts_is_stopped_whole() -> None:
    leader = runs("wide", ("h1", 0), role="leader", requests=0)
    follower = runs("wide", ("h2", 0), role="follower")
    made = plan(shared("h1", leader), shared("h2", follower))
    (one,) = chosen(made).evicts
    assert [host for host, _, _ in one.gpus] == ["h1", "h2"]
    assert one.running_requests == 0


def test_requests_are_known_only_when_every_server_tells() -> None:
    told = runs("pair", ("h1", 0), role="replica", requests=0)
    silent = runs("pair", ("h2", 0), role="replica")
    (one,) = deployments(Fleet(hosts=(shared("h1", told), shared("h2", silent))))
    assert one.busy is Busy.UNKNOWN
    busy = replace(told, running_requests=1)
    (one,) = deployments(Fleet(hosts=(shared("h1", busy), shared("h2", silent))))
    assert one.busy is Busy.IN_FLIGHT


def test_the_placement_fits_once_they_are_gone() -> None:
    fleet = (shared("h1", runs("a", ("h1", 0), requests=0), runs("b", ("h1", 1), requests=0), gpus=2),)
    made = planned(MODEL, *fleet, context=8192, arguments="--tensor-parallel-size 2")
    after = Fleet(hosts=fleet)
    for one in chosen(made).evicts:
        after = released(after, one.deployment)
    assert stopped(made) == ["a", "b"]
    again = planned(MODEL, *after.hosts, context=8192, arguments="--tensor-parallel-size 2")
    best = candidate_of(again)
    assert best is not None
    assert best.placement == chosen(made).placement


def test_the_selection_says_which_gpus_are_to_be_free() -> None:
    fleet = shared("h1", runs("a", ("h1", 0), requests=0), runs("b", ("h1", 1), requests=5), gpus=2)
    made = plan(fleet, selection=(GpuSelection(host="h1", devices=("1",)),))
    assert stopped(made) == ["b"]


def test_replicas_make_room_for_all_of_them() -> None:
    fleet = shared("h1", *(runs(f"d{index}", ("h1", index), requests=0) for index in range(3)), gpus=3)
    assert stopped(plan(fleet, replicas=2)) == ["d0", "d1"]


def test_gpus_that_are_full_only_by_count_are_made_room_on_when_asked() -> None:
    """S4.10: three deployments are the most on a GPU; where every GPU is full there is nothing else to plan on."""
    full = shared("h1", *(runs(f"d{index}", ("h1", 0), claim=20, requests=0) for index in range(3)))
    with pytest.raises(NoHostError):
        plan(full)
    made = plan(full, strategies=("evict",))
    assert stopped(made) == ["d0", "d1", "d2"]


def test_of_many_deployments_over_many_hosts_the_first_in_order_make_room() -> None:
    """More than are weighed set by set: 20 hosts of two, only those of h07 idle."""
    fleet = []
    for number in range(20):
        name = f"h{number:02}"
        requests = 0 if number == 7 else 3
        pair = [runs(f"{name}-{index}", (name, index), requests=requests) for index in (0, 1)]
        fleet.append(shared(name, *pair, gpus=2))
    made = planned(MODEL, *fleet, context=8192, arguments="--tensor-parallel-size 2")
    assert stopped(made) == ["h07-0", "h07-1"]


def test_hosts_with_nothing_of_ours_may_be_part_of_the_placement() -> None:
    made = planned(
        MODEL,
        shared("h1", runs("chat", ("h1", 0), requests=0)),
        host("h2", "H100", 1),
        context=8192,
        arguments="--pipeline-parallel-size 2",
    )
    assert stopped(made) == ["chat"]
    assert [one.host for one in chosen(made).placement] == ["h1", "h2"]
