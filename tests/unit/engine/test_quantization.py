"""Bytes per scheme against shapes worked out by hand from vLLM 0.32's `create_weights`."""

import pytest

from gpuplan.domain.model import (
    UNQUANTIZED,
    Experts,
    Float4,
    Float8,
    GroupedInteger,
    Integer8,
    MicroscaledFloat8,
    Scheme,
)
from gpuplan.engine.mxfp4 import keeps_all_scales, padded_experts
from gpuplan.engine.quantization import (
    expert_block,
    experts_bytes,
    experts_misfit,
    linear_misfit,
    matrix_bytes,
)

BLOCK = Float8(granularity="block")
AWQ = GroupedInteger(layout="awq", bits=4, group_size=128, zero_points=True)
GPTQ = GroupedInteger(layout="gptq", bits=4, group_size=128, zero_points=True)
PACKED = GroupedInteger(layout="compressed", bits=4, group_size=128, zero_points=False)
NVFP4 = Float4(variety="nvfp4", group_size=16)


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (UNQUANTIZED, 768 * 1024 * 2),
        (BLOCK, 768 * 1024 + 6 * 8 * 4),
        (Float8(granularity="tensor", static_input=True), 768 * 1024 + 2 * 4 + 2 * 4),
        (Float8(granularity="channel"), 768 * 1024 + 768 * 4),
        (Float8(granularity="channel", layer_bytes=4), 768 * 1024 + 768 * 4 + 4),
        (Integer8(), 768 * 1024 + 768 * 4),
        (Integer8(per_tensor=True, static_input=True, asymmetric_input=True), 768 * 1024 + 2 * 4 + 4 + 1),
        (AWQ, 768 * 1024 // 2 + 8 * 768 * 2 + 8 * 768 // 2),
        (GPTQ, 768 * 1024 // 2 + 8 * 768 * 2 + 8 * 768 // 2),
        (PACKED, 768 * 1024 // 2 + 8 * 768 * 2 + 16),
        (NVFP4, 768 * 1024 // 2 + 768 * 64 + 2 * 2 * 4),
        (MicroscaledFloat8(), 768 * 1024 + 768 * 32),
    ],
)
def test_a_stacked_matrix_weighs_what_its_parameters_do(scheme: Scheme, expected: int) -> None:
    assert matrix_bytes(scheme, (512, 256), 1024, 2, whole_inputs=1024) == expected


def test_odd_bit_widths_are_packed_without_waste() -> None:
    scheme = GroupedInteger(layout="compressed", bits=3, group_size=-1, zero_points=False)
    assert matrix_bytes(scheme, (64,), 1024, 2, whole_inputs=1024) == 64 * 96 * 4 + 64 * 2 + 16


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (UNQUANTIZED, 3 * 256 * 512 * 2),
        (BLOCK, 3 * 256 * 512 + (2 * 2 * 4 + 4 * 2) * 4),
        (Float8(granularity="tensor", static_input=True), 3 * 256 * 512 + 3 * 4 + 2 * 4),
        (NVFP4, 3 * 256 * 512 // 2 + 3 * 256 * 512 // 16 + 6 * 4),
        (GPTQ, 3 * 256 * 512 // 2 + (4 * 512 + 2 * 512) * 2 + (4 * 512 + 2 * 512) // 2 + (512 + 512) * 2),
        (PACKED, 3 * 256 * 512 // 2 + (4 * 512 + 2 * 512) * 2 + 8),
    ],
)
def test_an_expert_weighs_what_its_parameters_do(scheme: Scheme, expected: int) -> None:
    assert experts_bytes(scheme, 1, 512, 256, 2, gated=True, bias=False) == expected
    assert experts_bytes(scheme, 7, 512, 256, 2, gated=True, bias=False) == 7 * expected


def test_expert_scales_are_refined_where_the_share_is_no_whole_block() -> None:
    assert expert_block(BLOCK, 192, 4096) == (64, 64)
    assert expert_block(BLOCK, 256, 4096) == (128, 128)
    assert experts_misfit(BLOCK, 4096, 192) == 0
    assert experts_misfit(BLOCK, 4096, 200) == 128
    assert experts_misfit(BLOCK, 4096, 192, refined=False) == 128


def test_packed_experts_halve_their_groups_except_in_compressed_tensors() -> None:
    assert experts_misfit(AWQ, 2048, 192) == 0
    assert experts_misfit(PACKED, 2048, 192) == 128
    whole = experts_bytes(AWQ, 1, 2048, 192, 2, gated=True, bias=False)
    halved = GroupedInteger(layout="awq", bits=4, group_size=64, zero_points=True)
    assert whole == experts_bytes(halved, 1, 2048, 192, 2, gated=True, bias=False)


def test_a_divided_layer_must_hold_whole_blocks() -> None:
    assert linear_misfit(BLOCK, (512,), 192, rows_split=False) == 128
    assert linear_misfit(BLOCK, (192,), 512, rows_split=True) == 128
    assert linear_misfit(BLOCK, (192, 192), 512, rows_split=True) == 0
    assert linear_misfit(AWQ, (512,), 320, rows_split=False) == 128
    assert linear_misfit(UNQUANTIZED, (3,), 5, rows_split=False) == 0


def _experts(scheme: Scheme) -> Experts:
    return Experts(
        name="experts", count=32, top_k=4, hidden=2880, intermediate=2880, itemsize=2, scheme=scheme
    )


@pytest.mark.parametrize(
    ("kernels", "capability", "expected"),
    [
        ("gpt_oss", "8.0", (3072, 768)),
        ("gpt_oss", "9.0", (2880, 768)),
        ("gpt_oss", "10.0", (3072, 768)),
        ("gpt_oss", "12.0", (3072, 768)),
        ("deepseek_v4", "9.0", (3072, 768)),
        (None, "9.0", (2880, 720)),
    ],
)
def test_mxfp4_experts_are_padded_for_the_kernel(
    kernels: str | None, capability: str, expected: tuple[int, int]
) -> None:
    scheme = Float4(variety="mxfp4", group_size=32, global_scales=0, kernels=kernels)
    assert padded_experts(_experts(scheme), 720, capability) == expected


def test_unquantized_experts_are_padded_on_datacenter_blackwell_only() -> None:
    assert padded_experts(_experts(UNQUANTIZED), 96, "10.0") == (2880, 128)
    assert padded_experts(_experts(UNQUANTIZED), 96, "9.0") == (2880, 96)


def test_blackwell_keeps_the_input_scales_of_all_experts() -> None:
    scheme = Float4(variety="nvfp4", group_size=16, input_scales_of_all_experts=True)
    own = experts_bytes(scheme, 8, 512, 256, 2, gated=True, bias=False)
    assert experts_bytes(scheme, 8, 512, 256, 2, gated=True, bias=False, total=32) == own + 24 * 3 * 4
    assert keeps_all_scales("10.0")
    assert not keeps_all_scales("9.0")
    assert not keeps_all_scales(None)
