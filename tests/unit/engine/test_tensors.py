"""Tensors of parts add up to what the parts weigh."""

import pytest

from gpuplan.domain.model import Experts, GroupedInteger, Linear
from gpuplan.engine.tensors import part_tensors
from gpuplan.engine.weights import Split, part_bytes
from tests.fleets import profile

MODELS = (
    "Qwen__Qwen3-32B",
    "Qwen__Qwen3-30B-A3B-FP8",
    "Qwen__Qwen2.5-7B-Instruct-AWQ",
    "openai__gpt-oss-20b",
    "deepseek-ai__DeepSeek-R1",
    "nvidia__MiniMax-M2.5-NVFP4",
    "google__gemma-3-4b-it",
)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "split", [Split(), Split(tensor=2, expert_tensor=2), Split(tensor=4, expert_ranks=4, expert_rank=3)]
)
def test_nothing_is_lost(name: str, split: Split) -> None:
    model = profile(name)
    parts = [part for layer in model.layer_kinds for part in layer.parts]
    parts += [resident.part for resident in model.parts if resident.tensor_parallel and not resident.tower]
    for part in parts:
        sizes = part_tensors(part, split)
        assert sum(sizes) == part_bytes(part, split)
        assert all(size >= 0 for size in sizes)


def test_zero_points_stand_alone() -> None:
    layer = profile("Qwen__Qwen2.5-7B-Instruct-AWQ").layer_kinds[0]
    down = next(part for part in layer.parts if isinstance(part, Linear) and part.name.endswith("down_proj"))
    assert isinstance(down.scheme, GroupedInteger)
    groups = 18944 // 128
    assert part_tensors(down, Split()) == (18944 * 3584 // 2, groups * 3584 // 2, groups * 3584 * 2)


def test_experts_are_two_matrices_and_what_scales_them() -> None:
    layer = profile("Qwen__Qwen3-30B-A3B-FP8").layer_kinds[0]
    experts = next(part for part in layer.parts if isinstance(part, Experts))
    up, of_up, down, of_down = part_tensors(experts, Split())
    assert (up, down) == (128 * 2 * 768 * 2048, 128 * 768 * 2048)
    assert of_up == 2 * of_down == 128 * 2 * 6 * 16 * 4
