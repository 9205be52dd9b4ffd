"""The engine's start-up check on what is free now: the share that would pass, and whether the model fits into it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Gpu, GpuProcess, Host
from gpuplan.domain.plan import Owner, Plan, StrategyName, Verdict
from gpuplan.domain.workload import GpuSelection
from gpuplan.engine.overhead import start_overhead_bytes
from gpuplan.engine.startup import budget_bytes, least_utilization, passing_utilization
from gpuplan.engine.versions import version_of
from gpuplan.planning.planner import candidate_of
from gpuplan.present.findings import word
from gpuplan.units import GIB
from tests.fleets import host, of, planned

SMALL = "Qwen__Qwen3-4B"
LARGE = "Qwen__Qwen3-32B"


@given(free=st.integers(0, 2**38), total=st.integers(2**30, 2**38))
def test_the_passing_share_is_the_largest_of_two_digits(free: int, total: int) -> None:
    share = passing_utilization(free, total)
    assert 0 <= share <= 1
    assert round(share, 2) == share
    assert share == 0 or budget_bytes(total, share) <= free
    larger = round(share + 0.01, 2)
    assert larger > 1 or budget_bytes(total, larger) > free


def test_no_share_passes_on_a_card_of_unknown_size() -> None:
    assert passing_utilization(5, 0) == 0.0


def busy_fact(made: Plan, strategy: StrategyName) -> Fact:
    return next(fact for fact in of(made, strategy).facts if fact.code == "GP201")


def at(share: float) -> str:
    return f"--gpu-memory-utilization {share:.2f}"


@pytest.mark.parametrize("free", [19.6, 33.3, 41.0, 60.0, 72.9])
def test_the_share_in_the_hint_works_and_is_the_largest(free: float) -> None:
    busy = host("a", "H100", 1, free={0: free})
    fact = busy_fact(planned(SMALL, busy), StrategyName.SINGLE_GPU)
    share = fact.figures["passing_utilization"]
    assert fact.figures["passing_fits"] is True
    assert f"-- {at(share)}" in str(word(fact).hint)
    assert of(planned(SMALL, busy, arguments=at(share)), StrategyName.SINGLE_GPU).verdict is Verdict.FITS
    assert (
        of(planned(SMALL, busy, arguments=at(share + 0.01)), StrategyName.SINGLE_GPU).verdict
        is Verdict.NO_FIT
    )


@pytest.mark.parametrize("free", [{0: 40.0, 1: 52.5}, {0: 61.7, 1: 30.2, 2: 44.4, 3: 70.0}])
def test_the_remedy_is_the_largest_share_that_works(free: dict[int, float]) -> None:
    busy = host("a", "H100", len(free), free=free)
    for strategy in (StrategyName.SINGLE_GPU, StrategyName.SINGLE_HOST):
        remedies = [
            item
            for item in of(planned(SMALL, busy), strategy).remedies
            if item.kind == "gpu_memory_utilization"
        ]
        (remedy,) = remedies
        share = remedy.change["--gpu-memory-utilization"]
        assert remedy.verified
        assert of(planned(SMALL, busy, arguments=at(share)), strategy).verdict is Verdict.FITS
        assert of(planned(SMALL, busy, arguments=at(share + 0.01)), strategy).verdict is Verdict.NO_FIT


def test_a_share_must_pass_on_every_gpu_of_the_placement() -> None:
    busy = [host("a", "H100", 1, free={0: 60.0}), host("b", "H100", 1, free={0: 40.0})]
    chosen = (GpuSelection(host="a", devices=("0",)), GpuSelection(host="b", devices=("0",)))
    made = planned(SMALL, *busy, arguments="--pipeline-parallel-size 2", selection=chosen)
    shares = {
        fact.figures["passing_utilization"]
        for fact in of(made, StrategyName.MANUAL).facts
        if fact.code == "GP201"
    }
    (share,) = shares
    again = planned(SMALL, *busy, arguments=f"--pipeline-parallel-size 2 {at(share)}", selection=chosen)
    assert of(again, StrategyName.MANUAL).verdict is Verdict.FITS


def test_where_no_share_is_enough_it_says_because_of_what() -> None:
    made = planned(LARGE, host("a", "H100", 1, free={0: 40.0}))
    fact = busy_fact(made, StrategyName.SINGLE_GPU)
    assert fact.figures["passing_fits"] is False
    finding = word(fact)
    assert "--gpu-memory-utilization" not in str(finding.hint)
    (reason,) = [text for text in finding.because if text.startswith("even")]
    assert reason.startswith("even 0.49, the largest utilization that passes here, is not enough")
    assert "the weights alone need 61.02 GiB, the budget is 38.80 GiB" in reason


def test_the_same_for_the_context() -> None:
    made = planned(SMALL, host("a", "H100", 1, free={0: 14.0}), context=40960)
    (reason,) = [
        text for text in word(busy_fact(made, StrategyName.SINGLE_GPU)).because if text.startswith("even")
    ]
    assert "one request of 40,960 tokens needs" in reason


def test_the_biggest_holder_is_named_and_asked() -> None:
    alice = GpuProcess(pid=4242, name="python", used_bytes=int(60.1 * GIB), user="alice", container="foo")
    bob = GpuProcess(pid=17, name="ollama", used_bytes=GIB, user="bob")
    made = host("h1", "H100", 1, free={0: 18.09})
    made = replace(made, gpus=(replace(made.gpus[0], processes=(bob, alice), reserved_bytes=GIB),))
    finding = word(busy_fact(planned(LARGE, made), StrategyName.SINGLE_GPU))
    assert "python of alice, pid 4242, container foo, holds 60.10 GiB on h1 GPU 0: ask its owner" in str(
        finding.hint
    )
    (held,) = [text for text in finding.because if "is held" in text]
    assert "60.10 GiB by python of alice, pid 4242, container foo" in held
    assert "1.00 GiB by ollama of bob, pid 17" in held
    assert "1.00 GiB by the inventory's reserve" in held
    said = " ".join((finding.headline, *finding.because, str(finding.hint)))
    assert "kill" not in said
    assert [item.name for item in finding.figures["held"] if item.owner is Owner.PROCESS] == [
        "python",
        "ollama",
    ]


def test_without_a_share_what_is_missing_is_the_need() -> None:
    chosen = (GpuSelection(host="a", devices=("0",)),)
    made = planned(SMALL, host("a", "H100", 1, free={0: 2.0}), utilization=None, selection=chosen)
    fact = busy_fact(made, StrategyName.MANUAL)
    assert fact.figures["gap_bytes"] > 0
    assert "utilization" not in str(word(fact).hint)


def test_stages_open_channels_to_each_other_before_free_memory_is_measured() -> None:
    """Two stages on one host take what a pair takes, not what a process alone takes (GiB of a 79.19 GiB card)."""
    arguments = "--tensor-parallel-size 1 --pipeline-parallel-size 2"
    budget = 0.92 * 79.19
    alone, pair = (
        start_overhead_bytes(80 * GIB, compute_capability="9.0", tensor=ranks, version=version_of("0.33.0"))
        / GIB
        for ranks in (1, 2)
    )
    assert alone < pair
    for free, verdict in (
        (budget + pair + 0.01, Verdict.FITS),
        (budget + (alone + pair) / 2, Verdict.NO_FIT),
    ):
        made = planned(SMALL, host("a", "H100", 2, free={0: free, 1: free}), arguments=arguments)
        assert of(made, StrategyName.SINGLE_HOST).verdict is verdict


def told_share(made: Plan) -> float:
    """What the recommended command passes as --gpu-memory-utilization."""
    best = candidate_of(made)
    assert best is not None
    return float(best.vllm_args[best.vllm_args.index("--gpu-memory-utilization") + 1])


@pytest.mark.parametrize("free", [79.19, 40.0, 20.0])
def test_a_model_that_claims_its_need_tells_the_engine_so(free: float) -> None:
    """Without the flag the engine would want its default share, 0.92, to be free, and refuse to start."""
    made = planned(SMALL, host("a", "H100", 1, free={0: free}), utilization=None, context=4096)
    best = candidate_of(made)
    assert best is not None
    (card,) = best.placement[0].gpus
    budget = budget_bytes(card.total_bytes, told_share(made))
    assert card.claim_bytes <= budget <= card.allocatable_bytes
    assert best.engine.starts


def test_its_share_and_the_context_of_the_process_must_be_free() -> None:
    share = told_share(planned(SMALL, host("a", "H100", 1), utilization=None, context=4096))
    total = host("a", "H100", 1).gpus[0].total_bytes or 0
    needs = (
        budget_bytes(total, share)
        + start_overhead_bytes(total, compute_capability="9.0", tensor=1, version=version_of("0.33.0"))
    ) / GIB
    for free, verdict in ((needs + 0.01, Verdict.FITS), (needs - 0.01, Verdict.NO_FIT)):
        made = planned(SMALL, host("a", "H100", 1, free={0: free}), utilization=None, context=4096)
        assert of(made, StrategyName.SINGLE_GPU).verdict is verdict


@given(need=st.integers(0, 2**38), total=st.integers(2**30, 2**38))
def test_the_least_share_holds_the_need(need: int, total: int) -> None:
    share = least_utilization(need, total)
    assert 0.01 <= share <= 1
    assert budget_bytes(total, share) >= min(need, total)
    assert share == 0.01 or total * (round(share * 100) - 1) < need * 100


# -- unified memory -----------------------------------------------------


def spark(available: float) -> Host:
    total = int(121.69 * GIB)
    return Host(
        name="spark",
        gpus=(Gpu(index=0, name="NVIDIA GB10", compute_capability="12.1", total_bytes=total, unified=True),),
        ram_total_bytes=total,
        ram_available_bytes=int(available * GIB),
    )


def test_unified_memory_passes_the_check_by_what_the_host_has_available() -> None:
    made = planned(LARGE, spark(101.5))
    fact = busy_fact(made, StrategyName.SINGLE_GPU)
    assert fact.figures["have_bytes"] == int(101.5 * GIB)
    # of 101.5 GiB the engine's own processes and context leave 98.8 when it looks
    assert fact.figures["passing_utilization"] == 0.81


@pytest.mark.parametrize(
    ("share", "severity"), [(0.9, Severity.WARNING), (0.76, Severity.WARNING), (0.75, Severity.INFO)]
)
def test_utilization_is_no_upper_bound_on_unified_memory(share: float, severity: Severity) -> None:
    made = planned(SMALL, spark(120), arguments=at(share))
    candidate = of(made, StrategyName.SINGLE_GPU).candidates[0]
    (fact,) = [fact for fact in candidate.facts if fact.code == "GP211"]
    assert fact.severity is severity
    assert ("0.75 or less" in str(word(fact).hint)) is (severity is Severity.WARNING)


def test_cards_with_memory_of_their_own_have_no_such_note() -> None:
    made = planned(SMALL, host("a", "H100", 1))
    assert "GP211" not in {fact.code for fact in of(made, StrategyName.SINGLE_GPU).candidates[0].facts}
