"""A plan is held against the fleet as it is now: what it survives, what it does not, and why."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet, Gpu, GpuProcess, Host, HostFailure, HostStatus
from gpuplan.domain.host_facts import Docker, HostFacts, OurContainer
from gpuplan.domain.plan import Candidate, Owner, Verdict
from gpuplan.domain.workload import Workload
from gpuplan.engine.arguments import parse
from gpuplan.engine.versions import DEFAULT
from gpuplan.planning.changes import NOTICEABLE, breaks, changes
from gpuplan.planning.planner import candidate_of, plan
from gpuplan.planning.released import released
from gpuplan.planning.request import PlanRequest
from gpuplan.planning.same_place import candidate_at
from gpuplan.present.findings import word
from gpuplan.units import GIB
from tests.fleets import host, profile

MODEL = "Qwen__Qwen3-32B"


def with_uuids(seen: Host, driver: str = "580.82.07") -> Host:
    gpus = tuple(replace(gpu, uuid=f"GPU-{seen.name}-{gpu.index}") for gpu in seen.gpus)
    return replace(seen, gpus=gpus, facts=replace(seen.facts, driver_version=driver))


def asked(
    *hosts: Host, arguments: str = "", utilization: float | None = 0.92, **workload: Any
) -> PlanRequest:
    engine = parse([arguments] if arguments else [], version=DEFAULT)
    return PlanRequest(
        fleet=Fleet(hosts=hosts),
        profile=profile(MODEL),
        workload=Workload(engine=engine, **workload),
        utilization=engine.gpu_memory_utilization or utilization,
        model_path="Qwen/Qwen3-32B",
    )


def recommended(request: PlanRequest) -> Candidate:
    chosen = candidate_of(plan(request))
    assert chosen is not None
    return chosen


def on(request: PlanRequest, *hosts: Host) -> PlanRequest:
    return replace(request, fleet=Fleet(hosts=hosts))


def changed(seen: Host, index: int, change: Callable[[Gpu], Gpu]) -> Host:
    return replace(seen, gpus=tuple(change(gpu) if gpu.index == index else gpu for gpu in seen.gpus))


def codes(facts: tuple[Fact, ...]) -> list[str]:
    return [fact.code for fact in facts]


def worded(facts: tuple[Fact, ...]) -> str:
    return "\n".join(part for fact in facts for part in (word(fact).headline, *word(fact).because))


ONE = with_uuids(host("h1", "H100", 2))
REQUEST = asked(ONE, context=32768)
BEFORE = recommended(REQUEST)


def test_nothing_changed() -> None:
    assert BEFORE.placement[0].gpus[0].uuid == "GPU-h1-0"
    assert BEFORE.placement[0].driver_version == "580.82.07"
    assert changes(BEFORE, REQUEST) == ()
    assert candidate_at(REQUEST, BEFORE.placement, BEFORE.parallelism) == BEFORE


def test_a_host_that_does_not_answer() -> None:
    failure = HostFailure(stage="connect", detail="timed out after 5 s")
    lost = replace(ONE, gpus=(), status=HostStatus.UNREACHABLE, failure=failure, address="10.0.0.1")
    facts = changes(BEFORE, on(REQUEST, lost))
    assert codes(facts) == ["GP801"]
    assert breaks(facts)
    assert "no connection\ntimed out after 5 s" in worded(facts)


def test_a_host_that_is_not_in_the_fleet() -> None:
    facts = changes(BEFORE, on(REQUEST, with_uuids(host("h2", "H100", 2))))
    assert codes(facts) == ["GP802"]
    assert breaks(facts)


def test_another_card_at_the_same_index() -> None:
    facts = changes(BEFORE, on(REQUEST, changed(ONE, 0, lambda gpu: replace(gpu, uuid="GPU-new"))))
    assert codes(facts) == ["GP803"]
    assert breaks(facts)
    assert "h1:0 is another GPU than planned\nplanned: GPU-h1-0\nat index 0 now: GPU-new" in worded(facts)


def test_a_card_that_is_gone() -> None:
    facts = changes(BEFORE, on(REQUEST, replace(ONE, gpus=ONE.gpus[1:])))
    assert codes(facts) == ["GP803"]
    assert "h1:0 is gone" in worded(facts)


def test_indexes_that_moved_change_nothing() -> None:
    first, second = ONE.gpus
    moved = replace(ONE, gpus=(replace(second, index=0), replace(first, index=1)))
    request = on(REQUEST, moved)
    assert changes(BEFORE, request) == ()
    after = candidate_at(request, BEFORE.placement, BEFORE.parallelism)
    assert after is not None
    assert [(gpu.index, gpu.uuid) for gpu in after.placement[0].gpus] == [(0, "GPU-h1-1"), (1, "GPU-h1-0")]


def test_a_deployment_that_loads_there() -> None:
    other = OurContainer(
        id="1" * 64,
        name="gpuplan-llama-n0",
        deployment="llama",
        state="running",
        gpus=("GPU-h1-0",),
        claims=(("GPU-h1-0", 40 * GIB),),
        loading=True,
    )
    busy = replace(ONE, facts=replace(ONE.facts, docker=Docker(containers=(other,))))
    facts = changes(BEFORE, on(REQUEST, busy))
    assert codes(facts) == ["GP804"]
    assert "llama is loading" in worded(facts)


def test_a_card_the_inventory_excludes_now() -> None:
    facts = changes(BEFORE, on(REQUEST, changed(ONE, 0, lambda gpu: replace(gpu, excluded=True))))
    assert codes(facts) == ["GP804"]
    assert breaks(facts)


def taken(size: float) -> Host:
    process = GpuProcess(pid=7, name="python", used_bytes=int(size * GIB), user="alice")
    return changed(
        ONE,
        0,
        lambda gpu: replace(gpu, free_bytes=(gpu.total_bytes or 0) - int(size * GIB), processes=(process,)),
    )


def test_memory_that_was_taken_and_is_missed() -> None:
    facts = changes(BEFORE, on(REQUEST, taken(20)))
    assert codes(facts)[:2] == ["GP805", "GP807"]
    assert breaks(facts)
    fact = facts[0]
    assert fact.severity is Severity.ERROR
    assert fact.figures["then_bytes"] - fact.figures["now_bytes"] == 20 * GIB
    (held,) = fact.figures["held"]
    assert (held.owner, held.user, held.bytes) == (Owner.PROCESS, "alice", 20 * GIB)
    assert "python of alice, pid 7" in worded(facts)
    assert "Free memory on device" in worded(facts)


def test_memory_that_was_taken_and_is_not_missed() -> None:
    facts = changes(BEFORE, on(REQUEST, taken(1)))
    assert codes(facts) == ["GP805"]
    assert not breaks(facts)
    assert changes(BEFORE, on(REQUEST, taken((NOTICEABLE - 1) / GIB))) == ()


def test_a_driver_that_changed() -> None:
    facts = changes(BEFORE, on(REQUEST, with_uuids(host("h1", "H100", 2), driver="590.10")))
    assert codes(facts) == ["GP806"]
    assert not breaks(facts)


def test_arguments_that_would_differ() -> None:
    request = replace(REQUEST, workload=replace(REQUEST.workload, context=16384))
    facts = changes(BEFORE, request)
    assert [fact.subject["argument"] for fact in facts] == ["--max-model-len"]
    assert facts[0].figures == {"then": "--max-model-len 32768", "now": "--max-model-len 16384"}
    assert breaks(facts)


def test_secrets_are_not_compared() -> None:
    before = recommended(asked(ONE, arguments="--api-key one", context=32768))
    assert changes(before, asked(ONE, arguments="--api-key two", context=32768)) == ()


def test_variables_that_would_differ() -> None:
    facts = changes(replace(BEFORE, env=(("VLLM_PP_LAYER_PARTITION", "1,2"),)), REQUEST)
    assert [fact.subject for fact in facts] == [{"variable": "VLLM_PP_LAYER_PARTITION"}]


def test_an_overcommitted_plan_may_stay_so() -> None:
    small = with_uuids(host("h1", "4090", 2, free={0: 20.0, 1: 20.0}))
    request = asked(small, arguments="--tensor-parallel-size 2", vram_claim_bytes=42 * GIB)
    shape = replace(BEFORE.parallelism, tensor=2)
    place = replace(
        BEFORE.placement[0],
        gpus=tuple(replace(BEFORE.placement[0].gpus[0], index=i, uuid=None) for i in (0, 1)),
    )
    before = candidate_at(request, (place,), shape)
    assert before is not None
    assert before.verdict is Verdict.OVERCOMMIT
    assert changes(before, request) == ()


SEVERAL = (with_uuids(host("a", "4090", 4)), with_uuids(host("b", "4090", 4)))


@pytest.mark.parametrize(
    ("hosts", "workload"),
    [
        ((with_uuids(host("h1", "H100", 1)),), {}),
        ((with_uuids(host("h1", "H100", 4)),), {"arguments": "--tensor-parallel-size 4"}),
        (SEVERAL, {"arguments": "--tensor-parallel-size 4 --pipeline-parallel-size 2"}),
        ((with_uuids(host("a", "4090", 4)), with_uuids(host("b", "4090", 2))), {"context": 4096}),
        ((with_uuids(host("a", "H100", 2)), with_uuids(host("b", "H100", 2))), {"replicas": 3}),
        (
            tuple(with_uuids(host(name, "4090", 4)) for name in "abcd"),
            {"replicas": 2, "arguments": "--tensor-parallel-size 4"},
        ),
        (
            SEVERAL + tuple(with_uuids(host(name, "4090", 4)) for name in "cd"),
            {"replicas": 2, "arguments": "--tensor-parallel-size 4 --pipeline-parallel-size 2"},
        ),
    ],
)
def test_every_shape_is_found_again_where_it_is(hosts: tuple[Host, ...], workload: dict[str, Any]) -> None:
    request = asked(*hosts, **workload)
    before = recommended(request)
    assert changes(before, request) == ()
    after = candidate_at(request, before.placement, before.parallelism)
    assert after is not None
    assert (after.placement, after.vllm_args, after.verdict) == (
        before.placement,
        before.vllm_args,
        before.verdict,
    )


def test_one_replica_that_no_longer_fits_is_enough() -> None:
    request = asked(with_uuids(host("a", "H100", 2)), with_uuids(host("b", "H100", 2)), replicas=3)
    before = recommended(request)
    last = before.placement[-1]
    busy = tuple(
        replace(
            seen,
            gpus=tuple(
                replace(gpu, free_bytes=GIB)
                if (seen.name, gpu.index) == (last.host, last.gpus[0].index)
                else gpu
                for gpu in seen.gpus
            ),
        )
        for seen in request.fleet.hosts
    )
    facts = changes(before, on(request, *busy))
    assert codes(facts)[:2] == ["GP805", "GP807"]
    assert facts[0].subject == {"host": last.host, "gpu": last.gpus[0].index}


def test_a_redeployed_model_stays_where_it_is() -> None:
    """Its own memory is in the way of the plan, until it is released."""
    claims = tuple((str(gpu.uuid), gpu.claim_bytes) for gpu in BEFORE.placement[0].gpus)
    running = OurContainer(
        id="1" * 64,
        name="gpuplan-qwen-n0",
        deployment="qwen",
        state="running",
        gpus=tuple(uuid for uuid, _ in claims),
        claims=claims,
    )
    seen = replace(
        ONE,
        gpus=tuple(
            replace(gpu, free_bytes=(gpu.total_bytes or 0) - claim)
            for gpu, (_, claim) in zip(ONE.gpus, claims, strict=True)
        ),
        facts=replace(ONE.facts, docker=Docker(containers=(running,))),
    )
    assert breaks(changes(BEFORE, on(REQUEST, seen)))
    stopped = replace(REQUEST, fleet=released(Fleet(hosts=(seen,)), "qwen"))
    assert changes(BEFORE, stopped) == ()


def test_without_facts_of_a_probe_only_memory_and_places_count() -> None:
    plain = replace(ONE, facts=HostFacts())
    assert changes(BEFORE, on(REQUEST, plain)) == ()
