"""Towers in the profile run."""

from dataclasses import replace

import pytest

from gpuplan.domain.workload import NO_ARGUMENTS, EngineArguments
from gpuplan.engine.encoder_profile import encoder_memory, towers_left_out
from gpuplan.engine.versions import EngineVersion
from tests.unit.engine.memory_models import H100, QWEN2_VL, RTX_4080, V012, V013, V019


@pytest.mark.parametrize(
    "engine",
    [
        replace(NO_ARGUMENTS, language_model_only=True),
        replace(NO_ARGUMENTS, skip_mm_profiling=True),
        replace(NO_ARGUMENTS, limit_mm_per_prompt={"image": 0, "video": 0}),
        replace(NO_ARGUMENTS, limit_mm_per_prompt={"image": {"count": 0}, "video": {"count": 0}}),
    ],
)
def test_towers_that_are_not_profiled(engine: EngineArguments) -> None:
    setting = replace(RTX_4080, engine=engine)
    assert encoder_memory(QWEN2_VL, setting).peak == 0


def test_one_modality_left_keeps_the_tower() -> None:
    engine = replace(NO_ARGUMENTS, limit_mm_per_prompt={"video": 0})
    assert encoder_memory(QWEN2_VL, replace(RTX_4080, engine=engine)).peak > 0
    assert not towers_left_out(QWEN2_VL, engine, V019)
    nothing = replace(NO_ARGUMENTS, limit_mm_per_prompt={"image": 0, "video": 0})
    assert towers_left_out(QWEN2_VL, nothing, EngineVersion(0, 15))
    assert not towers_left_out(QWEN2_VL, nothing, EngineVersion(0, 14, 1))


def test_embeddings_fill_the_budget_in_0_11_and_0_12() -> None:
    """Qwen3-VL: 153,600 tokens of four levels are kept."""
    (encoder,) = QWEN2_VL.encoders
    deep = replace(encoder, output_levels=4, formatted_tokens_per_item=153600)
    model = replace(QWEN2_VL, encoders=(deep,), hidden=2048)
    kept = encoder_memory(model, replace(H100, version=V012)).kept
    assert kept == (153600 + 16384) * 2048 * 4 * 2 + 2 * 1176 * 65536
    assert encoder_memory(model, replace(H100, version=V013)).kept < kept
