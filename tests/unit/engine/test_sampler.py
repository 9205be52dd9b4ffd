"""What sampling holds while the engine profiles itself."""

from dataclasses import replace

import pytest

from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import NO_ARGUMENTS
from gpuplan.engine.forward import forward_memory
from gpuplan.engine.sampler import flashinfer, sampler_memory
from gpuplan.engine.versions import EngineVersion
from tests.unit.engine.memory_models import (
    H100,
    LLAMA_8B,
    QWEN_30B,
    V010,
    V012,
    V019,
    V022,
    V024,
    V026,
    V027,
    V033,
    gib,
    profile,
)

LOGITS = 1024 * 128256


@pytest.mark.parametrize(("vocabulary", "logged"), [(151936, 5.57), (128256, 4.80), (201088, 7.38)])
def test_the_sorting_sampler_takes_38_bytes_per_logit(vocabulary: int, logged: float) -> None:
    made = sampler_memory(profile(4096, 14336, vocabulary), replace(H100, version=V012))
    assert gib(made.likely) == pytest.approx(logged, rel=0.05)


def test_few_rows_are_sorted_whole() -> None:
    """Qwen3-VL-30B on 0.12: 0.92 GiB between 64 and 256 sequences."""
    many, few = (
        sampler_memory(QWEN_30B, replace(H100, version=V012, max_num_seqs=rows)) for rows in (256, 64)
    )
    assert gib(many.likely - few.likely) == pytest.approx(0.92, abs=0.01)


def test_images_of_0_10_may_sample_with_flashinfer() -> None:
    made = sampler_memory(LLAMA_8B, replace(H100, version=V010))
    assert made.low < made.likely < made.high
    assert made.low == sampler_memory(LLAMA_8B, H100).likely


def test_the_second_runner_holds_logits_alone_until_it_warms_every_feature() -> None:
    assert sampler_memory(LLAMA_8B, replace(H100, version=V026)).likely == LOGITS * 2
    assert sampler_memory(LLAMA_8B, replace(H100, version=V033)).likely == LOGITS * 14


def test_before_0_29_the_first_runner_may_sample_after_all() -> None:
    assert sampler_memory(LLAMA_8B, replace(H100, version=V026)).high >= LOGITS * 14


def test_mixtures_stay_with_the_first_runner_until_0_29() -> None:
    assert sampler_memory(QWEN_30B, replace(H100, version=V026)).bytes_per_logit == 14


def test_gathering_copies_the_logits() -> None:
    pair = replace(H100, version=V026, parallelism=Parallelism(tensor=2))
    assert sampler_memory(LLAMA_8B, pair).likely == LOGITS * 5


def test_counts_of_every_token_count_from_0_27() -> None:
    """Before, they stand in torch's pool when profiling starts, and neither weights nor the peak have them."""
    older, newer = (sampler_memory(LLAMA_8B, replace(H100, version=v)).kept for v in (V026, V027))
    assert older == 0
    assert newer == int(LOGITS * 4.125)


def test_the_triton_sampler_keeps_a_row_per_multiprocessor() -> None:
    assert sampler_memory(LLAMA_8B, H100).kept == 132 * 128256 * 4
    assert sampler_memory(QWEN_30B, replace(H100, version=V022)).kept == 0


@pytest.mark.parametrize(
    ("version", "capability", "backend", "used"),
    [
        (V019, "9.0", "cuda", False),
        (V022, "9.0", "cuda", True),
        (V022, "7.5", "cuda", True),
        (V024, "7.5", "cuda", False),
        (V024, "8.0", "cuda", True),
        (V024, None, "cuda", True),
        (V024, None, "rocm", False),
    ],
)
def test_where_flashinfer_samples(
    version: EngineVersion, capability: str | None, backend: str, used: bool
) -> None:
    setting = replace(H100, version=version, compute_capability=capability, backend=backend)
    assert flashinfer(setting) is used


def test_pooling_models_have_no_sampler() -> None:
    assert sampler_memory(replace(LLAMA_8B, pooling=True), H100).likely == 0


def test_rows_are_bounded_by_the_batch() -> None:
    assert sampler_memory(LLAMA_8B, replace(H100, max_num_batched_tokens=512)).rows == 512


def test_logits_are_gathered_whole_on_every_rank() -> None:
    pair = replace(H100, parallelism=Parallelism(tensor=2))
    assert sampler_memory(LLAMA_8B, pair) == sampler_memory(LLAMA_8B, H100)
    assert forward_memory(LLAMA_8B, pair).peak < forward_memory(LLAMA_8B, H100).peak


def test_rejection_sampling_takes_two_rows_per_sequence() -> None:
    engine = replace(NO_ARGUMENTS, speculative_config={"method": "mtp", "num_speculative_tokens": 1})
    assert sampler_memory(QWEN_30B, replace(H100, engine=engine)).bytes_per_logit == 24
