"""S4.3: nothing fits whole, so the GPUs that hold the most of the model are offered, with the rest in host RAM."""

from dataclasses import replace
from typing import Any

import pytest

from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import Fleet, Host
from gpuplan.domain.plan import Candidate, Plan, StrategyName, Verdict
from gpuplan.domain.throughput import Bound, Throughput
from gpuplan.domain.workload import GpuSelection, Workload
from gpuplan.engine.arguments import parse
from gpuplan.engine.divisibility import split_of
from gpuplan.engine.offload_reads import host_rate, read_bytes
from gpuplan.engine.offloading import offloaded_bytes, pinned_bytes
from gpuplan.engine.versions import version_of
from gpuplan.engine.weights import Split
from gpuplan.operations.cards import card_of
from gpuplan.planning.changes import breaks, changes
from gpuplan.planning.planner import plan as plan_on
from gpuplan.planning.request import PlanRequest
from gpuplan.planning.same_place import candidate_at
from gpuplan.sources.catalogue import accelerators
from gpuplan.units import GIB
from tests.fleets import host, of, planned, profile
from tests.rooms import runs, shared

MODEL = "Qwen__Qwen3-32B"
EXPERTS = "Qwen__Qwen3-30B-A3B"


def plan(*hosts: Host, arguments: str = "", **asked: Any) -> Plan:
    return planned(MODEL, *hosts, arguments=arguments, context=8192, **asked)


def offload(made: Plan) -> list[Candidate]:
    return list(of(made, StrategyName.OFFLOAD).candidates)


def reason(made: Plan) -> str:
    result = of(made, StrategyName.OFFLOAD)
    assert result.verdict is Verdict.SKIPPED
    return result.reason or ""


def refusals(made: Plan) -> list[Fact]:
    result = of(made, StrategyName.OFFLOAD)
    assert result.verdict is Verdict.NO_FIT
    return list(result.facts)


def words(candidate: Candidate) -> str:
    return " ".join(candidate.vllm_args)


def gib_of(candidate: Candidate) -> int:
    return candidate.placement[0].cpu_offload_gib


def test_s4_3_what_fits_whole_is_never_offloaded() -> None:
    assert reason(plan(host("h1", "H100", 1, ram=500))) == "the model fits whole"


def test_s4_3_the_rest_of_the_model_stays_in_host_memory() -> None:
    made = plan(host("h1", "4090", 1, ram=200))
    (one,) = offload(made)
    assert made.recommended == (StrategyName.OFFLOAD, 0)
    assert f"--cpu-offload-gb {gib_of(one)}" in words(one)
    assert one.engine.starts


@pytest.mark.parametrize(("gpus", "tensor"), [(1, 1), (2, 2)])
def test_s4_3_the_fewest_whole_gib_that_do_are_found(gpus: int, tensor: int) -> None:
    """Given by hand, one GiB less is refused by the ordinary strategies, and as much is not."""
    place = host("h1", "4090", gpus, ram=400)
    one = next(one for one in offload(plan(place)) if one.parallelism.tensor == tensor)
    sizes = "" if tensor == 1 else f"--tensor-parallel-size {tensor} "
    verdicts = [
        of(
            plan(place, arguments=f"{sizes}--cpu-offload-gb {gib_of(one) + more}"),
            StrategyName.SINGLE_GPU if tensor == 1 else StrategyName.SINGLE_HOST,
        ).verdict
        for more in (-1, 0)
    ]
    assert verdicts == [Verdict.NO_FIT, Verdict.FITS]


def test_s4_3_the_gpus_that_hold_the_most_come_first_and_one_alone_is_offered_too() -> None:
    group, alone = offload(plan(host("h1", "4090", 2, ram=400)))
    assert (group.parallelism.tensor, alone.parallelism.tensor) == (2, 1)
    assert 2 * gib_of(group) < gib_of(alone)


def test_s4_3_a_host_that_holds_more_is_preferred() -> None:
    first, *_ = offload(plan(host("a-small", "4090", 1, ram=400), host("b-large", "L40S", 1, ram=400)))
    assert first.placement[0].host == "b-large"


def test_s4_3_ram_is_counted_as_it_is_pinned_and_held_against_what_is_free() -> None:
    """PyTorch rounds each pinned tensor up to a power of two."""
    (one,) = offload(plan(host("h1", "4090", 1, ram=200)))
    gib = gib_of(one)
    need = one.placement[0].ram_claim_bytes
    pinned = pinned_bytes(profile(MODEL), Split(), float(gib))
    assert need == max(pinned, gib * GIB)
    assert offloaded_bytes(profile(MODEL), Split(), float(gib)) <= pinned
    enough, short = need / GIB + 0.01, need / GIB - 0.01
    assert offload(plan(host("h1", "4090", 1, ram=enough)))
    (refused,) = refusals(plan(host("h1", "4090", 1, ram=short)))
    assert refused.code == "GP221"
    assert refused.figures["need_bytes"] == need
    assert refused.figures["gap_bytes"] == need - refused.figures["have_bytes"]


def test_s4_3_the_reserve_of_the_inventory_is_left() -> None:
    (one,) = offload(plan(host("h1", "4090", 1, ram=200)))
    enough = replace(
        host("h1", "4090", 1), ram_available_bytes=one.placement[0].ram_claim_bytes, ram_reserved_bytes=GIB
    )
    assert refusals(plan(enough))[0].figures["gap_bytes"] == GIB


def test_s4_3_ram_that_nobody_measured_counts_as_none() -> None:
    (refused,) = refusals(plan(host("h1", "4090", 1)))
    assert refused.code == "GP221"
    assert refused.figures["have_bytes"] is None


def test_a_ram_claim_is_needed_beside_it() -> None:
    (plain,) = offload(plan(host("h1", "4090", 1, ram=200)))
    (more,) = offload(plan(host("h1", "4090", 1, ram=200), ram_claim_bytes=10 * GIB))
    assert more.placement[0].ram_claim_bytes == plain.placement[0].ram_claim_bytes + 10 * GIB


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"arguments": "--cpu-offload-gb 10"}, "--cpu-offload-gb is given"),
        ({"arguments": "--cpu-offload-params experts"}, "the arguments given"),
        ({"vram_claim_bytes": 100 * GIB}, "--vram-claim"),
        ({"replicas": 2}, "replicas"),
        ({"selection": (GpuSelection(host="h1", devices=("0",)),)}, "selection"),
    ],
)
def test_where_offload_is_not_considered_the_reason_is_said(asked: dict[str, Any], said: str) -> None:
    assert said in reason(plan(host("h1", "4090", 1, ram=200), **asked))


def test_asked_for_alone_it_is_planned_where_several_hosts_would_hold_the_model() -> None:
    fleet = [host(name, "L40S", 1, ram=200) for name in ("h1", "h2")]
    assert reason(plan(*fleet)) == "the model fits whole"
    made = plan(*fleet, strategies=("offload",))
    assert made.recommended == (StrategyName.OFFLOAD, 0)


def test_too_large_for_the_gpu_even_with_all_layers_outside() -> None:
    (refused,) = refusals(planned(MODEL, host("h1", "4090", 1, ram=400), context=40960, concurrency=64))
    assert refused.code == "GP222"
    assert refused.figures["gap_bytes"] > 0
    assert refused.figures["offload_gib"] >= 55


def test_moving_weights_frees_nothing_where_memory_is_shared_or_cannot_be_read() -> None:
    seen = host("h1", "4090", 1, ram=200)
    for change, why in (({"unified": True}, "unified"), ({"backend": "cann", "vendor": "ascend"}, "backend")):
        changed = replace(seen, gpus=(replace(seen.gpus[0], **change),))
        (refused,) = refusals(plan(changed))
        assert (refused.code, refused.figures["why"]) == ("GP223", why)


def test_a_busy_gpu_is_no_case_for_it() -> None:
    made = plan(shared("h1", runs("chat", ("h1", 0), claim=20), card="4090", ram=200))
    assert "no GPU has free" in reason(made)


def request(*hosts: Host, model: str = MODEL, arguments: str = "") -> PlanRequest:
    version = version_of("0.33.0")
    return PlanRequest(
        fleet=Fleet(hosts=hosts),
        profile=profile(model),
        workload=Workload(context=8192, engine=parse([arguments] if arguments else [], version=version)),
        version=version,
        utilization=0.92,
        accelerators=card_of,
    )


def test_s4_3_its_cost_is_said_in_tokens_per_second_against_the_same_cards_without_it() -> None:
    made = plan_on(request(host("h1", "4090", 2, ram=200)))
    one = offload(made)[0]
    assert isinstance(one.throughput, Throughput)
    assert one.throughput.decode.bound is Bound.OFFLOAD
    (cost,) = [fact for fact in one.facts if fact.code == "GP220"]
    figures = cost.figures
    assert figures["read_bytes"] == pytest.approx(gib_of(one) * GIB, rel=0.05)
    assert figures["step_seconds"] == pytest.approx(
        figures["read_bytes"] / figures["bytes_per_second"], rel=0.01
    )
    assert figures["tokens_per_second"] == pytest.approx(one.throughput.decode.per_user, abs=0.01)
    assert figures["tokens_per_second"] < 1 / figures["step_seconds"] < figures["whole_tokens_per_second"]


def test_a_step_reads_of_routed_experts_only_those_that_are_chosen() -> None:
    split = split_of(offload(plan(host("h1", "4090", 1, ram=200)))[0].parallelism)
    few, many = (read_bytes(profile(EXPERTS), split, 20.0, tokens=tokens) for tokens in (1, 4096))
    assert few < 0.3 * many
    assert many == pytest.approx(offloaded_bytes(profile(EXPERTS), split, 20.0), rel=0.01)
    dense = read_bytes(profile(MODEL), split, 20.0, tokens=1)
    assert dense == offloaded_bytes(profile(MODEL), split, 20.0)


def test_all_gpus_of_a_host_share_its_memory() -> None:
    card = accelerators.find("H100-80GB")
    assert host_rate(card, 1) > host_rate(card, 8)
    assert host_rate(accelerators.find("A100-80GB"), 1) < host_rate(card, 1)


def test_the_same_place_is_judged_with_what_stays_outside() -> None:
    """What a deploy asks of the plan it was given: as it stands, on the fleet as it is."""
    asked = request(host("h1", "4090", 2, ram=200))
    one = offload(plan_on(asked))[0]
    again = candidate_at(asked, one.placement, one.parallelism)
    assert again is not None
    assert again.verdict is Verdict.FITS
    assert again.vllm_args == one.vllm_args
    assert again.placement == one.placement
    assert not breaks(changes(one, asked))
    without = candidate_at(
        asked, tuple(replace(placed, cpu_offload_gib=0) for placed in one.placement), one.parallelism
    )
    assert without is not None
    assert without.verdict is not Verdict.FITS


def test_it_comes_before_an_eviction_that_was_asked_for_beside_it() -> None:
    fleet = (
        host("h1", "4090", 1, ram=200),
        shared("h2", runs("chat", ("h2", 0), requests=0), ram=200),
    )
    made = plan(*fleet, strategies=("offload", "evict"))
    assert of(made, StrategyName.EVICT).verdict is Verdict.FITS
    assert made.recommended == (StrategyName.OFFLOAD, 0)
