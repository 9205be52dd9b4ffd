"""Limits on a batch as the engine settles them: models that take a prompt whole need room for the longest one."""

import pytest

from gpuplan.domain.plan import StrategyName
from tests.fleets import CONFIGS, host, of, planned, profile

EMBEDDER = "BAAI__bge-m3"
LONGEST = 8194


def batch(name: str, card: str, arguments: str = "", version: str = "0.33.0") -> int:
    made = planned(name, host("h1", card, 1), arguments=arguments, version=version, utilization=None)
    memory = of(made, StrategyName.SINGLE_GPU).candidates[0].memory
    assert memory is not None
    return memory.max_num_batched_tokens


def test_the_embedder_is_of_the_kind() -> None:
    assert (CONFIGS / f"{EMBEDDER}.json").exists()
    assert profile(EMBEDDER).pooling
    assert profile(EMBEDDER).longest_context == LONGEST


@pytest.mark.parametrize("card", ["4090", "H100"])
@pytest.mark.parametrize("version", ["0.8.5", "0.18.0", "0.33.0"])
def test_a_model_that_attends_both_ways_takes_prompts_whole(card: str, version: str) -> None:
    assert batch(EMBEDDER, card, version=version) == LONGEST


def test_a_length_that_was_asked_for_is_enough() -> None:
    assert batch(EMBEDDER, "4090", "--max-model-len 512") == 2048
    assert batch(EMBEDDER, "4090", "--max-model-len 4096") == 4096


def test_a_batch_that_was_asked_for_stands() -> None:
    assert batch(EMBEDDER, "4090", "--max-num-batched-tokens 16384") == 16384


def test_a_model_that_writes_takes_prompts_in_chunks() -> None:
    assert batch("Qwen__Qwen3-4B", "4090") == 2048
