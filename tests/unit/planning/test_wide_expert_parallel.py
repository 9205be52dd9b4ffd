"""A mixture of experts over the replicas of one server: all are placed, judged as ranks of the whole, or none."""

from typing import Any

import pytest

from gpuplan.domain.fleet import Host
from gpuplan.domain.memory import RankMemory
from gpuplan.domain.plan import Plan, StrategyName, Verdict
from gpuplan.domain.workload import GpuSelection
from gpuplan.planning.planner import candidate_of
from tests.fleets import host, of, planned

MODEL = "deepseek-ai__DeepSeek-R1"
WIDE = "--data-parallel-size 4 --tensor-parallel-size 8 --enable-expert-parallel"
REPLICAS = StrategyName.DATA_PARALLEL
ALONE = (StrategyName.SINGLE_GPU, StrategyName.SINGLE_HOST, StrategyName.MULTI_HOST)


def hosts(number: int, card: str) -> list[Host]:
    return [host(f"h{index}", card, 8) for index in range(number)]


def wide(number: int, arguments: str = WIDE, card: str = "H100", **asked: Any) -> Plan:
    return planned(MODEL, *hosts(number, card), arguments=arguments, **asked)


def first_rank(made: Plan) -> RankMemory:
    best = candidate_of(made)
    assert best is not None
    assert best.memory is not None
    return best.memory.ranks[0]


def test_server_fits_whose_single_replica_would_not() -> None:
    made = wide(4)
    assert made.recommended is not None
    assert made.recommended[0] is REPLICAS
    best = candidate_of(made)
    assert best is not None
    assert (best.parallelism.tensor, best.parallelism.data, best.parallelism.expert) == (8, 4, True)
    assert sorted(item.host for item in best.placement) == ["h0", "h1", "h2", "h3"]
    one = wide(1, "--tensor-parallel-size 8 --enable-expert-parallel")
    assert one.recommended is None


def test_rank_holds_its_share_of_the_whole_server_s_experts() -> None:
    inputs = dict(first_rank(wide(4)).weights.inputs)
    parts = dict(first_rank(wide(8, WIDE.replace("4", "8"))).weights.inputs)
    assert inputs["of which experts"] == 2 * int(parts["of which experts"])
    assert inputs["embedding and head"] == parts["embedding and head"]


def test_redundant_experts_are_held_too() -> None:
    redundant = " --enable-eplb --eplb-config.num_redundant_experts 32"
    inputs = dict(first_rank(wide(4, WIDE + redundant)).weights.inputs)
    assert (
        inputs["of which experts"]
        == int(dict(first_rank(wide(4)).weights.inputs)["of which experts"]) * 9 // 8
    )


def test_none_is_placed_where_not_all_can_be() -> None:
    made = wide(3)
    assert made.recommended is None
    result = of(made, REPLICAS)
    assert result.verdict is Verdict.NO_FIT
    assert not result.candidates
    (short,) = [fact for fact in result.facts if fact.code == "GP304"]
    assert (short.figures["wanted"], short.figures["placed"], short.figures["together"]) == (4, 3, 4)


def test_plan_says_what_a_rank_holds() -> None:
    best = candidate_of(wide(4))
    assert best is not None
    (spread,) = [fact for fact in best.facts if fact.code == "GP309"]
    assert (spread.figures["ranks"], spread.figures["held"], spread.figures["experts"]) == (32, 8, 256)


@pytest.mark.parametrize("strategy", ALONE)
def test_share_of_a_server_is_no_placement(strategy: StrategyName) -> None:
    assert of(wide(4), strategy).verdict is Verdict.SKIPPED


def test_selection_is_judged_so_too() -> None:
    chosen = tuple(
        GpuSelection(host=f"h{index}", devices=tuple(str(gpu) for gpu in range(8))) for index in range(4)
    )
    made = wide(4, selection=chosen)
    assert made.recommended is not None
    assert made.recommended[0] is StrategyName.MANUAL


def test_dense_replicas_share_nothing() -> None:
    made = planned("Qwen__Qwen3-32B", host("a", "H100", 4), arguments="--data-parallel-size 4")
    assert of(made, StrategyName.SINGLE_GPU).verdict is Verdict.FITS
    best = candidate_of(made)
    assert best is not None
    assert {fact.code for fact in best.facts} >= {"GP306"}
    alone = planned("Qwen__Qwen3-32B", host("a", "H100", 1))
    assert first_rank(made).weights.bytes == first_rank(alone).weights.bytes
