"""S4.6: an eviction names nobody it must not, makes room where it says, and no set that loses less would do."""

from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.domain.fleet import Fleet, GpuProcess, Host
from gpuplan.domain.host_facts import OurContainer
from gpuplan.domain.plan import StrategyName, Verdict
from gpuplan.domain.workload import Workload
from gpuplan.engine.versions import version_of
from gpuplan.planning.evictable import Busy, Running, deployments, without
from gpuplan.planning.judge import Judge
from gpuplan.planning.offers import supply_of
from gpuplan.planning.planner import plan
from gpuplan.planning.request import PlanRequest
from gpuplan.planning.same_place import candidate_at
from gpuplan.planning.strategies import multi_host, single_gpu, single_host
from gpuplan.units import GIB
from tests.fleets import profile
from tests.rooms import runs, shared

VERSION = version_of("0.33.0")
CONTEXT = 8192
MODELS = ("Qwen__Qwen3-32B", "Qwen__Qwen3-Next-80B-A3B-Instruct")
PLACES = (("h1", 0), ("h1", 1), ("h2", 0), ("h2", 1))


@st.composite
def deployed(draw: st.DrawFn, name: str) -> list[OurContainer]:
    """A deployment on one or two GPUs of one host, or on one of each."""
    places = draw(st.lists(st.sampled_from(PLACES), min_size=1, max_size=2, unique=True))
    facts: dict[str, Any] = {
        "claim": draw(st.sampled_from((72.0, 72.0, 30.0, 6.0))),
        "keep_alive": draw(st.sampled_from((None, 60, 600, None, 60, 600, -1))),
    }
    state = draw(st.sampled_from((*["running"] * 8, "created", "exited")))
    loading = draw(st.integers(0, 9)) == 9
    made = []
    for host in dict.fromkeys(host for host, _ in places):
        own = [place for place in places if place[0] == host]
        requests = draw(st.sampled_from((None, 0, 0, 2)))
        made.append(runs(name, *own, requests=requests, state=state, loading=loading, **facts))
    return made


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    containers = [
        (one.gpus[0].split("-")[1], one)
        for number in range(draw(st.integers(3, 6)))
        for one in draw(deployed(f"d{number}"))
    ]
    hosts: list[Host] = []
    for name in ("h1", "h2"):
        stranger = GpuProcess(pid=7, name="train", used_bytes=draw(st.sampled_from((2, 40))) * GIB, user="bo")
        others = {draw(st.integers(0, 1)): stranger} if draw(st.integers(0, 5)) == 5 else None
        own = [one for host, one in containers if host == name]
        hosts.append(shared(name, *own, gpus=2, others=others))
    return Fleet(hosts=tuple(hosts))


def asked(fleet: Fleet, model: str) -> PlanRequest:
    return PlanRequest(
        fleet=fleet,
        profile=profile(model),
        workload=Workload(context=CONTEXT),
        version=VERSION,
        utilization=0.92,
    )


def gone(fleet: Fleet, names: frozenset[str]) -> Fleet:
    return Fleet(hosts=tuple(without(host, names) for host in fleet.hosts))


def fits(request: PlanRequest, names: frozenset[str]) -> bool:
    judge, supply = Judge(request), supply_of(gone(request.fleet, names))
    return any(
        one.evaluate(judge, supply).verdict is Verdict.FITS for one in (single_gpu, single_host, multi_host)
    )


def lost(names: frozenset[str], running: dict[str, Running]) -> tuple[int, int, int]:
    chosen = [running[name] for name in names]
    counts = [sum(one.busy is busy for one in chosen) for busy in (Busy.IN_FLIGHT, Busy.UNKNOWN)]
    return (counts[0], counts[1], len(chosen))


@settings(max_examples=40)
@given(fleet=fleets(), model=st.sampled_from(MODELS))
def test_s4_6_an_eviction_is_allowed_makes_room_and_loses_the_least(fleet: Fleet, model: str) -> None:
    request = asked(fleet, model)
    if not supply_of(fleet).offers:
        return
    result = next(one for one in plan(request).strategies if one.strategy is StrategyName.EVICT)
    running = {one.name: one for one in deployments(fleet)}
    stoppable = sorted(name for name, one in running.items() if one.stoppable)
    sets = [frozenset(some) for size in range(1, 7) for some in combinations(stoppable, size)]
    if result.verdict is not Verdict.FITS:
        if result.verdict is Verdict.NO_FIT:
            assert not any(fits(request, names) for names in sets[-1:])
        return
    (chosen,) = result.candidates
    names = frozenset(one.deployment for one in chosen.evicts)
    assert names <= set(stoppable)
    assert not fits(request, frozenset())
    after = asked(gone(fleet, names), model)
    again = candidate_at(after, chosen.placement, chosen.parallelism)
    assert again is not None
    assert again.verdict is Verdict.FITS
    best = min(lost(some, running) for some in sets if fits(request, some))
    assert lost(names, running) == best
