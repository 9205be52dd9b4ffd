"""Layers over pipeline stages: no other split has a poorest stage with more KV blocks (every split tried)."""

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pytest

from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import EMPTY_WORKLOAD
from gpuplan.engine.architectures import describe
from gpuplan.engine.kv_cache import model_geometry
from gpuplan.engine.weights import stage_layers
from gpuplan.planning import partition
from gpuplan.planning.batch import batch_of
from gpuplan.planning.estimate import cache_settings
from gpuplan.planning.judge import Assessment, Judge
from gpuplan.planning.offers import Device
from gpuplan.planning.partition import GAIN, most_blocks
from gpuplan.planning.request import PlanRequest
from gpuplan.present.findings import word
from gpuplan.units import GIB

CONFIGS = Path(__file__).parents[2] / "data" / "configs"
CARDS = (
    Device(name="NVIDIA RTX A4000", total_bytes=int(15.7 * GIB), compute_capability="8.6"),
    Device(name="NVIDIA L4", total_bytes=22 * GIB, compute_capability="8.9"),
    Device(name="NVIDIA A100-SXM4-40GB", total_bytes=int(39.4 * GIB), compute_capability="8.0"),
    Device(name="NVIDIA H100 80GB HBM3", total_bytes=int(79.2 * GIB), compute_capability="9.0"),
)
KINDS: tuple[tuple[str, dict[str, object]], ...] = (
    ("Qwen/Qwen3-8B", {"num_hidden_layers": 12}),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"num_hidden_layers": 12}),
    ("deepseek-ai/DeepSeek-V2-Lite", {}),
    ("google/gemma-2-9b", {"num_hidden_layers": 11}),
    ("openai/gpt-oss-20b", {"num_hidden_layers": 13, "layer_types": None}),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {}),
)
"""Dense, recurrent states beside attention, dense layers before experts, windows; few enough layers to try every split."""
MOST_SPLITS = 200


def judge_of(name: str, changes: dict[str, object]) -> Judge:
    config = json.loads((CONFIGS / f"{name.replace('/', '__')}.json").read_text())
    config |= {key: value for key, value in changes.items() if value is not None}
    for key in (key for key, value in changes.items() if value is None):
        config.pop(key)
    return Judge(PlanRequest(fleet=Fleet(hosts=()), profile=describe(name, config), utilization=0.9))


def splits(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    for cuts in combinations(range(1, layers), stages - 1):
        bounds = (0, *cuts, layers)
        yield tuple(last - first for first, last in pairwise(bounds))


def safe_blocks(judge: Judge, assessment: Assessment, devices: tuple[Device, ...]) -> int:
    """Blocks of the poorest rank, from the estimate of the whole replica; -1 where something does not fit."""
    memory, shape = assessment.memory, assessment.parallelism
    assert memory is not None
    if any(rank.kv_cache_low < 0 or rank.loading_bytes > rank.total_bytes for rank in memory.ranks):
        return -1
    question = judge.question(shape, devices)
    length = question.profile.longest_context
    batch = batch_of(question, length, devices[0])
    whole = model_geometry(question.profile, cache_settings(question, batch, devices[0]))
    bounds = stage_layers(question.profile.layer_count, shape.pipeline, shape.layer_partition)
    sizes = [whole.block_bytes(range(first, last)) for first, last in bounds]
    return min(
        rank.kv_cache_low // sizes[rank.stage] if sizes[rank.stage] else 2**62 for rank in memory.ranks
    )


def tokens(assessment: Assessment) -> int:
    assert assessment.memory is not None
    return assessment.memory.kv_cache_tokens


def test_any_monotone_blocks_are_solved_exactly() -> None:
    """Random stages, layers and costs; every split tried."""
    random_ = random.Random(20261122)
    for _ in range(150):
        stages = random_.randint(2, 4)
        layers = random_.randint(stages, 11)
        weights = [random_.choice((3, 3, 10, 40)) for _ in range(layers)]
        caches = [random_.choice((0, 1, 1, 3)) for _ in range(layers)]
        rooms = [random_.randint(20, 400) for _ in range(stages)]

        def blocks(
            stage: int,
            first: int,
            last: int,
            of: tuple[list[int], list[int], list[int]] = (weights, caches, rooms),
        ) -> int:
            free = of[2][stage] - sum(of[0][first:last])
            size = sum(of[1][first:last])
            return -1 if free < 0 else free // size if size else 10_000

        def poorest(counts: tuple[int, ...]) -> int:
            bounds = stage_layers(sum(counts), len(counts), counts)
            return min(blocks(stage, first, last) for stage, (first, last) in enumerate(bounds))

        found = most_blocks(layers, stages, blocks)
        assert found.blocks == max(poorest(counts) for counts in splits(layers, stages))
        assert poorest(found.counts) == found.blocks
        assert sum(found.counts) == layers
        assert min(found.counts) >= 1


@pytest.mark.parametrize(
    ("name", "changes"), KINDS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_no_split_of_a_real_model_has_more_cache(name: str, changes: dict[str, object]) -> None:
    """Judged by the estimate that every plan shows, on random cards."""
    random_ = random.Random(f"seed 7 {name}")
    judge = judge_of(name, changes)
    layers = judge.request.profile.layer_count
    for stages in (2, 3) if layers < 20 else (2,):
        devices = tuple(random_.choice(CARDS) for _ in range(stages))
        if len(set(devices)) == 1:
            devices = (*devices[1:], next(card for card in CARDS if card != devices[0]))
        shape = Parallelism(pipeline=stages)
        every = list(splits(layers, stages))
        assert len(every) <= MOST_SPLITS
        judged = {counts: judge.assess(replace(shape, layer_partition=counts), devices) for counts in every}
        best = max(safe_blocks(judge, each, devices) for each in judged.values())
        chosen = partition.assess(judge, shape, devices)
        if not chosen.fits:
            assert not any(each.fits for each in judged.values())
            continue
        reached = safe_blocks(judge, chosen, devices)
        if chosen.parallelism.layer_partition is None:
            likely = [
                tokens(each) for each in judged.values() if safe_blocks(judge, each, devices) >= best - 1
            ]
            assert best < reached * (1 + GAIN) + 1 or min(likely) < tokens(chosen) * (1 + GAIN)
            continue
        even = judge.assess(shape, devices)
        assert not even.fits or reached >= safe_blocks(judge, even, devices) * (1 + GAIN)
        rotation = set(chosen.parallelism.layer_partition) <= {layers // stages, -(-layers // stages)}
        assert reached >= (best / (1 + GAIN) if rotation else best - 1)


def test_what_is_refused_fits_with_no_split() -> None:
    """Asked lengths and loads on small cards, groups of two ranks among them: refused only where every split is."""
    random_ = random.Random("seed 8")
    refused = 0
    for _ in range(30):
        judge = judge_of(*random_.choice(KINDS[:4]))
        workload = replace(
            EMPTY_WORKLOAD, context=random_.choice((None, 4096, 8192)), concurrency=random_.choice((1, 16))
        )
        judge = Judge(replace(judge.request, workload=workload))
        tensor = random_.choice((1, 2))
        cards = [
            replace(card, total_bytes=int(card.total_bytes * random_.choice((1, 0.5, 0.3))))
            for card in random_.choices(CARDS, k=2)
        ]
        devices = tuple(card for card in cards for _ in range(tensor))
        shape = Parallelism(tensor=tensor, pipeline=2)
        chosen = partition.assess(judge, shape, devices)
        refused += not chosen.fits
        assert chosen.fits or not any(
            judge.assess(replace(shape, layer_partition=counts), devices).fits
            for counts in splits(judge.request.profile.layer_count, 2)
        )
    assert 5 <= refused <= 25


def test_alike_stages_keep_the_engines_own_split() -> None:
    """Two equal cards, the embedding here and the head there: nothing to gain."""
    judge = judge_of("Qwen/Qwen3-8B", {})
    made = partition.assess(judge, Parallelism(pipeline=2), (CARDS[3],) * 2)
    assert made.parallelism.layer_partition is None
    assert made.instead_of is None


def test_odd_layers_go_where_there_is_room() -> None:
    """61 layers, the first three without experts: the odd one belongs to the first stage, not to the last but one."""
    judge = judge_of("deepseek-ai/DeepSeek-R1", {})
    made = partition.assess(judge, Parallelism(tensor=8, pipeline=3), (CARDS[3],) * 24)
    assert made.parallelism.layer_partition == (21, 20, 20)
    (fact,) = partition.notes(made, (CARDS[3],) * 24)
    assert fact.figures["even_layers"] == [20, 21, 20]
    assert fact.figures["tokens"] >= fact.figures["even_tokens"] * (1 + GAIN)
    headline = word(fact).headline
    assert "21+20+20" in headline
    assert "20+21+20" in headline


def test_a_refusal_becomes_a_fit_on_unlike_cards() -> None:
    judge = judge_of("Qwen/Qwen3-8B", {})
    devices = (CARDS[3], replace(CARDS[0], total_bytes=int(7.7 * GIB)))
    shape = Parallelism(pipeline=2)
    assert not judge.assess(shape, devices).fits
    made = partition.assess(judge, shape, devices)
    assert made.fits
    (fact,) = partition.notes(made, devices)
    assert fact.figures["even_tokens"] is None
    assert fact.figures["unlike_cards"]
    finding = word(fact)
    assert "make it fit" in finding.headline
    assert "A4000" in " ".join(finding.because)


def test_a_given_partition_is_kept() -> None:
    judge = judge_of("Qwen/Qwen3-8B", {})
    shape = Parallelism(pipeline=2, layer_partition=(30, 6))
    assert partition.assess(judge, shape, (CARDS[3], CARDS[2])).parallelism == shape


def test_equal_questions_are_answered_once() -> None:
    judge = judge_of("Qwen/Qwen3-8B", {})
    shape, devices = Parallelism(pipeline=2), (CARDS[3], CARDS[1])
    assert partition.assess(judge, shape, devices) is partition.assess(judge, shape, devices)
