"""What each strategy offers and refuses, on small fleets."""

import pytest

from gpuplan.domain.plan import Plan, Role, StrategyName, Verdict
from gpuplan.domain.workload import ExecutorChoice, GpuSelection, Placement
from gpuplan.errors import NoHostError, UsageError
from gpuplan.planning.planner import candidate_of
from gpuplan.units import GIB
from tests.fleets import host, of, planned

SMALL = "Qwen__Qwen3-4B"
LARGE = "Qwen__Qwen3-32B"
HUGE = "meta-llama__Meta-Llama-3.1-405B"


def places(made: Plan) -> list[tuple[str, tuple[int, ...]]]:
    """Where the recommended candidate goes."""
    best = candidate_of(made)
    assert best is not None
    return [(item.host, tuple(gpu.index for gpu in item.gpus)) for item in best.placement]


def test_smallest_card_that_does_is_recommended() -> None:
    made = planned(SMALL, host("big", "H100", 2), host("small", "4090", 2))
    assert places(made) == [("small", (0,))]


def test_claim_is_the_share_of_the_card_and_every_rank_is_held_against_its_own() -> None:
    made = planned(LARGE, host("a", "H100", 1))
    best = candidate_of(made)
    assert best is not None
    (card,) = best.placement[0].gpus
    assert card.claim_bytes == int(card.total_bytes * 0.92)
    assert best.memory is not None
    (rank,) = best.memory.ranks
    assert rank.kv_cache_bytes == rank.budget.bytes - sum(term.bytes for term in rank.terms)


def test_busy_card_is_refused_with_the_share_that_would_pass() -> None:
    made = planned(SMALL, host("a", "H100", 2, free={0: 19.6, 1: 79.19}))
    single = of(made, StrategyName.SINGLE_GPU)
    assert [item.placement[0].gpus[0].index for item in single.candidates] == [1]
    (refusal,) = [fact for fact in single.facts if fact.code == "GP201"]
    assert refusal.subject["gpus"] == [0]
    assert refusal.figures["gap_bytes"] == refusal.figures["need_bytes"] - refusal.figures["have_bytes"]
    share = refusal.figures["passing_utilization"]
    again = planned(
        SMALL, host("a", "H100", 1, free={0: 19.6}), arguments=f"--gpu-memory-utilization {share}"
    )
    assert not [fact for fact in of(again, StrategyName.SINGLE_GPU).facts if fact.code == "GP201"]


def test_unknown_memory_is_not_used() -> None:
    from dataclasses import replace

    blind = host("a", "H100", 2)
    blind = replace(blind, gpus=(replace(blind.gpus[0], total_bytes=None), blind.gpus[1]))
    made = planned(SMALL, blind)
    assert places(made) == [("a", (1,))]
    assert [fact.subject for fact in made.facts if fact.code == "GP401"] == [{"host": "a", "gpu": 0}]


def test_fleet_without_a_usable_gpu_is_an_error_that_counts() -> None:
    with pytest.raises(NoHostError, match="1 hosts with 0 GPUs"):
        planned(SMALL, host("a", "H100", 0))


def test_single_host_takes_the_fewest_cards() -> None:
    made = planned(LARGE, host("a", "L40S", 8))
    assert of(made, StrategyName.SINGLE_GPU).verdict is Verdict.NO_FIT
    best = candidate_of(made)
    assert best is not None
    assert best.parallelism.tensor == 2
    assert places(made) == [("a", (0, 1))]


def test_user_sizes_are_exact() -> None:
    made = planned(
        LARGE, host("a", "H100", 8), arguments="--tensor-parallel-size 2 --pipeline-parallel-size 2"
    )
    assert of(made, StrategyName.SINGLE_GPU).verdict is Verdict.SKIPPED
    best = candidate_of(made)
    assert best is not None
    assert (best.parallelism.tensor, best.parallelism.pipeline) == (2, 2)
    assert sum(len(item.gpus) for item in best.placement) == 4
    assert "--tensor-parallel-size" in best.vllm_args


def test_user_tensor_size_that_cannot_be_built_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="must be divisible by tensor parallel size") as caught:
        planned(LARGE, host("a", "H100", 8), arguments="--tensor-parallel-size 3")
    assert caught.value.hint is not None
    assert "1, 2, 4, 8" in caught.value.hint


def test_several_hosts_lead_with_one_and_stay_even() -> None:
    made = planned(HUGE, host("a", "H100", 8), host("b", "H100", 8))
    best = candidate_of(made)
    assert best is not None
    assert [item.role for item in best.placement] == [Role.LEADER, Role.FOLLOWER]
    assert len({len(item.gpus) for item in best.placement}) == 1
    whole = [item for item in of(made, StrategyName.MULTI_HOST).candidates if item.score.gpus == 16]
    sizes = [(item.parallelism.tensor, item.parallelism.pipeline) for item in whole]
    # three stages of TP 4 would do, but on unequal numbers of GPUs: four are offered beside them
    assert sizes == [(8, 2), (4, 4)]


def test_unequal_cards_get_an_uneven_pipeline() -> None:
    made = planned(
        LARGE,
        host("big", "A100", 1),
        host("small", "4090", 1),
        arguments="--pipeline-parallel-size 2",
        version="0.19.0",
    )
    best = candidate_of(made)
    assert best is not None
    partition = best.parallelism.layer_partition
    assert partition is not None
    assert sum(partition) == 64
    assert partition[0] > partition[1]
    assert dict(best.env)["VLLM_PP_LAYER_PARTITION"] == ",".join(map(str, partition))


def test_distribution_can_be_switched_off() -> None:
    made = planned(HUGE, host("a", "H100", 8), host("b", "H100", 8), allow_distributed=False)
    assert of(made, StrategyName.MULTI_HOST).verdict is Verdict.SKIPPED
    assert made.recommended is None


@pytest.mark.parametrize(
    ("placement", "hosts"), [(Placement.SPREAD, {"a": 2, "b": 2}), (Placement.BINPACK, {"a": 4})]
)
def test_replicas_go_on_disjoint_cards(placement: Placement, hosts: dict[str, int]) -> None:
    made = planned(SMALL, host("a", "H100", 4), host("b", "H100", 4), replicas=4, placement=placement)
    taken = places(made)
    assert made.recommended is not None
    assert made.recommended[0] is StrategyName.DATA_PARALLEL
    assert len(taken) == len(set(taken)) == 4
    assert {name: sum(1 for item, _ in taken if item == name) for name, _ in taken} == hosts


def test_too_many_replicas_say_how_many_fit() -> None:
    made = planned(LARGE, host("a", "H100", 3), replicas=4)
    result = of(made, StrategyName.DATA_PARALLEL)
    assert result.verdict is Verdict.NO_FIT
    (fact,) = [fact for fact in result.facts if fact.code == "GP304"]
    assert (fact.figures["wanted"], fact.figures["placed"]) == (4, 3)


def test_selection_is_honoured_and_marked() -> None:
    chosen = (GpuSelection(host="small", devices=("0",)),)
    made = planned(LARGE, host("small", "4090", 2), host("big", "H100", 1), selection=chosen)
    manual = of(made, StrategyName.MANUAL)
    assert manual.verdict is Verdict.OVERCOMMIT
    assert [item.placement[0].host for item in manual.candidates] == ["small"]
    assert made.recommended is None
    allowed = planned(
        LARGE, host("small", "4090", 2), host("big", "H100", 1), selection=chosen, allow_overcommit=True
    )
    assert allowed.recommended == (StrategyName.MANUAL, 0)


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (GpuSelection(host="nowhere", devices=("0",)), "there is no host 'nowhere'"),
        (GpuSelection(host="a", devices=("9",)), "has no such GPU"),
        (GpuSelection(host="a", devices=("0", "0")), "is named twice"),
    ],
)
def test_selection_that_does_not_exist_is_an_error(selection: GpuSelection, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        planned(SMALL, host("a", "H100", 2), selection=(selection,))


def test_host_memory_is_checked_for_every_strategy() -> None:
    made = planned(SMALL, host("a", "H100", 2, ram=4), ram_claim_bytes=8 * GIB)
    for strategy in (StrategyName.SINGLE_GPU, StrategyName.SINGLE_HOST):
        result = of(made, strategy)
        assert result.verdict is Verdict.NO_FIT
        assert {fact.code for fact in result.facts} == {"GP302"}


def test_claim_is_divided_over_equal_ranks() -> None:
    made = planned(LARGE, host("a", "4090", 4), vram_claim_bytes=60 * GIB)
    best = candidate_of(made)
    assert best is not None
    assert best.memory is None
    assert places(made) == [("a", (0, 1, 2))]
    assert best.parallelism.pipeline == 3
    assert of(made, StrategyName.SINGLE_GPU).facts[0].code == "GP202"


def test_order_of_hosts_does_not_matter() -> None:
    hosts = [host("c", "H100", 2), host("a", "A100", 4), host("b", "4090", 8)]
    plans = [planned(LARGE, *order) for order in (hosts, hosts[::-1], [hosts[1], hosts[0], hosts[2]])]
    assert plans[0] == plans[1] == plans[2]


def test_executor_rules_which_placements_are_offered() -> None:
    hosts = (host("a", "H100", 8), host("b", "H100", 4))
    free = of(planned(HUGE, *hosts, version="0.17.0"), StrategyName.MULTI_HOST)
    even = of(planned(HUGE, *hosts, executor=ExecutorChoice.MP), StrategyName.MULTI_HOST)
    asked = of(
        planned(HUGE, host("a", "H100", 8), host("b", "H100", 8), executor=ExecutorChoice.RAY),
        StrategyName.MULTI_HOST,
    )
    assert any(len({len(item.gpus) for item in candidate.placement}) > 1 for candidate in free.candidates)
    assert all(len({len(item.gpus) for item in candidate.placement}) == 1 for candidate in even.candidates)
    first = asked.candidates[0]
    assert "ray" in first.vllm_args
    assert [fact.code for fact in first.facts if fact.code == "GP307"]


def test_replicas_may_each_take_several_hosts() -> None:
    made = planned(HUGE, *(host(name, "H100", 8) for name in "abcd"), replicas=2)
    best = candidate_of(made)
    assert best is not None
    assert best.parallelism.data == 2
    assert [item.role for item in best.placement].count(Role.LEADER) == 2
    assert len({item.host for item in best.placement}) == 4
