"""What loading leaves allocated, against logged starts on cards where nothing else is added."""

import pytest

from gpuplan.engine.allocator import rounding_bytes
from gpuplan.engine.versions import EngineVersion
from gpuplan.engine.weights import Split, rank_weights
from gpuplan.units import MIB
from tests.fleets import profile

V09, V022, V030 = EngineVersion(0, 9, 2), EngineVersion(0, 22), EngineVersion(0, 30)
HALF_A_HUNDREDTH = 0.005 * 1024


def loaded(name: str, tensor: int, version: EngineVersion) -> float:
    """MiB of parameters, buffers and rounding."""
    model, split = profile(name), Split(tensor=tensor, expert_tensor=tensor)
    weights = rank_weights(model, split)
    rounding = rounding_bytes(model, split, version=version)
    return (weights.parameters + weights.buffers + rounding) / MIB


@pytest.mark.parametrize(
    ("name", "tensor", "version", "logged"),
    [
        ("Qwen__Qwen2.5-1.5B-Instruct", 1, V09, 2.8876),
        ("Qwen__Qwen3-32B", 8, V09, 7.6871),
    ],
)
def test_four_decimals_of_older_releases(
    name: str, tensor: int, version: EngineVersion, logged: float
) -> None:
    assert loaded(name, tensor, version) == pytest.approx(logged * 1024, abs=0.5)


@pytest.mark.parametrize(
    ("name", "version", "logged"),
    [
        ("Qwen__Qwen2.5-1.5B-Instruct", V030, 2.98),
        ("google__gemma-3-1b-it", V022, 1.96),
    ],
)
def test_segments_are_not_split_from_0_21_on(name: str, version: EngineVersion, logged: float) -> None:
    assert loaded(name, 1, version) == pytest.approx(logged * 1024, abs=HALF_A_HUNDREDTH)
    assert loaded(name, 1, version) > loaded(name, 1, V09) + 40


def test_amd_cards_split_as_before() -> None:
    model = profile("Qwen__Qwen2.5-1.5B-Instruct")
    rocm = rounding_bytes(model, Split(), version=V030, backend="rocm")
    assert rocm == rounding_bytes(model, Split(), version=V09)


def test_every_stage_rounds_its_own_tensors() -> None:
    model = profile("Qwen__Qwen2.5-1.5B-Instruct")
    split = Split(tensor=2, expert_tensor=2)
    whole = rounding_bytes(model, split, version=V030)
    stages = [rounding_bytes(model, split, version=V030, stage=stage, stages=2) for stage in (0, 1)]
    assert all(0 < stage < whole for stage in stages)
    assert sum(stages) == pytest.approx(whole, rel=0.2)
