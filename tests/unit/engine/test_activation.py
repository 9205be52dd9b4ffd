"""The peak of the profile run against figures engines printed."""

from dataclasses import replace

import pytest

from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import NO_ARGUMENTS
from gpuplan.engine.activation import activation_term, cuda_graph_term, non_torch_term
from gpuplan.engine.forward import forward_memory
from tests.unit.engine.memory_models import (
    H100,
    LLAMA_8B,
    QWEN2_VL,
    QWEN_30B,
    RTX_4080,
    V026,
    V031,
    V033,
    gib,
)


def test_peaks_of_vllm_0_19_on_h100() -> None:
    """Accuracy report of vLLM 0.19.0 at 1024 sequences: 1.89 and 2.68 GiB."""
    assert gib(activation_term(LLAMA_8B, H100).bytes) == pytest.approx(1.89, abs=0.03)
    assert gib(activation_term(QWEN_30B, H100).bytes) == pytest.approx(2.68, abs=0.03)


def test_the_first_pipeline_stage_samples_nothing() -> None:
    """1.10 GiB on the first of two stages, 1.05 of four."""
    first = replace(H100, parallelism=Parallelism(pipeline=2))
    term = activation_term(LLAMA_8B, first)
    assert gib(term.bytes) == pytest.approx(1.08, abs=0.04)
    assert dict(term.inputs)["phase"] == "forward"
    assert dict(activation_term(LLAMA_8B, replace(first, stage=1)).inputs)["phase"] == "sampler"


def test_a_tower_can_set_the_peak() -> None:
    """Qwen2-VL-2B on an RTX 4080, 0.10.2: 2.65 GiB."""
    term = activation_term(QWEN2_VL, RTX_4080)
    assert gib(term.bytes) == pytest.approx(2.65, abs=0.05)
    assert dict(term.inputs)["phase"] == "tower"


def test_ranges_hold_the_value() -> None:
    for setting in (H100, RTX_4080, replace(H100, compute_capability=None), replace(H100, version=V033)):
        for model in (LLAMA_8B, QWEN_30B, QWEN2_VL):
            for make in (activation_term, non_torch_term, cuda_graph_term):
                term = make(model, setting)
                assert 0 <= term.least <= term.bytes <= term.most


def test_an_unnamed_card_may_have_the_small_limits() -> None:
    unnamed = replace(H100, compute_capability=None, device_name="custom")
    stated = replace(unnamed, engine=replace(NO_ARGUMENTS, max_num_seqs=1024, max_num_batched_tokens=8192))
    assert activation_term(LLAMA_8B, unnamed).least < activation_term(LLAMA_8B, stated).least


def test_a_second_table_may_stand_beside_the_pass_of_the_second_runner() -> None:
    """Llama-3.1-8B on A100, 0.31: 1.2 GiB while profiling, of which the pass explains 0.23."""
    a100 = replace(
        H100, compute_capability="8.0", max_num_batched_tokens=2048, max_num_seqs=256, version=V031
    )
    newer, older = (activation_term(LLAMA_8B, replace(a100, version=version)) for version in (V031, V026))
    table = 128256 * 4096 * 2
    assert newer.most >= table + forward_memory(LLAMA_8B, a100).peak
    assert gib(newer.least) < 0.4
    assert older.bytes < newer.bytes
