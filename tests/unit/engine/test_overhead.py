"""Memory outside torch's allocator."""

from dataclasses import replace

import pytest

from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import NO_ARGUMENTS
from gpuplan.engine.overhead import fused_reduce_bytes, non_torch_term, start_overhead_bytes
from gpuplan.engine.versions import EngineVersion
from gpuplan.units import GIB, MIB
from tests.unit.engine.memory_models import H100, LLAMA_8B, QWEN_30B, V010, V012, V019, V022, V026, gib

GH200, GB200 = "NVIDIA GH200 480GB", "NVIDIA GB200"


@pytest.mark.parametrize(
    ("version", "tensor", "capability", "name", "logged"),
    [
        (V010, 1, "9.0", "NVIDIA H100 80GB HBM3", 0.07),
        (V019, 1, "9.0", "NVIDIA H100 80GB HBM3", 0.25),
        (V022, 1, "9.0", "NVIDIA H100 80GB HBM3", 0.15),
        (V010, 2, "9.0", "NVIDIA H200", 1.38),
        (V012, 2, "9.0", "NVIDIA H100 80GB HBM3", 0.55),
        (V019, 2, "9.0", "NVIDIA H100 80GB HBM3", 2.07),
        (V010, 4, "9.0", "NVIDIA H100 80GB HBM3", 2.08),
        (V019, 4, "9.0", "NVIDIA H100 80GB HBM3", 2.13),
        (V010, 8, "9.0", "NVIDIA H100 80GB HBM3", 2.33),
        (V010, 2, "8.0", "NVIDIA A100-SXM4-80GB", 0.17),
        (V022, 4, "9.0", GH200, 0.63),
        (V026, 4, "10.0", GB200, 0.95),
    ],
)
def test_memory_outside_the_allocator(
    version: EngineVersion, tensor: int, capability: str, name: str, logged: float
) -> None:
    setting = replace(
        H100,
        version=version,
        parallelism=Parallelism(tensor=tensor),
        compute_capability=capability,
        device_name=name,
    )
    term = non_torch_term(QWEN_30B if tensor == 1 else LLAMA_8B, setting)
    assert gib(term.least) <= logged <= gib(term.most)
    assert gib(term.bytes) == pytest.approx(logged, abs=0.13)


def test_an_unknown_card_has_the_wider_range() -> None:
    pair = replace(H100, parallelism=Parallelism(tensor=2))
    known, unknown = (
        non_torch_term(LLAMA_8B, setting) for setting in (pair, replace(pair, compute_capability=None))
    )
    assert unknown.least <= known.least
    assert unknown.most >= known.most


@pytest.mark.parametrize(
    ("tensor", "capability", "logged"),
    [
        (2, "9.0", 512),
        (4, "9.0", 32),
        (8, "9.0", 16),
        (4, "10.0", 512),
        (4, "10.3", 1024),
        (2, "8.0", 0),
        (3, "9.0", 0),
    ],
)
def test_the_fused_all_reduce_has_four_buffers_of_all_ranks_inputs(
    tensor: int, capability: str, logged: int
) -> None:
    setting = replace(H100, parallelism=Parallelism(tensor=tensor), compute_capability=capability)
    assert fused_reduce_bytes(LLAMA_8B, setting) == logged * MIB


def test_where_the_all_reduce_is_not_fused() -> None:
    pair = replace(H100, parallelism=Parallelism(tensor=2))
    staged = replace(H100, parallelism=Parallelism(tensor=2, pipeline=2))
    eager = replace(pair, engine=replace(NO_ARGUMENTS, enforce_eager=True))
    for setting in (replace(pair, version=V012), staged, eager, replace(pair, compute_capability=None)):
        assert fused_reduce_bytes(LLAMA_8B, setting) == 0
    assert fused_reduce_bytes(LLAMA_8B, replace(staged, version=V026)) > 0
    few = replace(pair, max_num_batched_tokens=1024)
    assert fused_reduce_bytes(LLAMA_8B, few) == 64 * MIB


def test_rocm_takes_more_outside_torch() -> None:
    """0.73 GiB on an RX 9070 XT, 0.14."""
    term = non_torch_term(LLAMA_8B, replace(H100, backend="rocm", compute_capability=None))
    assert gib(term.bytes) == pytest.approx(0.7, abs=0.05)


def test_start_overhead_grows_with_the_communicators() -> None:
    sizes = [
        start_overhead_bytes(80 * GIB, compute_capability="8.0", tensor=n, version=V019) for n in (1, 2, 4)
    ]
    assert sizes == sorted(set(sizes))
    assert gib(sizes[0]) < 0.6
