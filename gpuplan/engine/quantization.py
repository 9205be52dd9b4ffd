"""Bytes of a linear layer's parameters on one rank, as each quantization method of vLLM creates them.

Shapes are those of vLLM's `create_weights` (vllm/model_executor/layers/quantization, 0.32), before kernels repack them.
"""

from typing import assert_never

from gpuplan.domain.model import (
    Float4,
    Float8,
    GroupedInteger,
    Integer8,
    MicroscaledFloat8,
    Scheme,
    Unquantized,
)
from gpuplan.units import ceil_div

WORD_BYTES = 4
SHAPE_BYTES = 16
"""compressed-tensors keeps the unpacked shape as two int64."""


def matrix_bytes(scheme: Scheme, outputs: tuple[int, ...], inputs: int, itemsize: float, *, whole_inputs: int) -> int:
    """Bytes of one stacked weight of `outputs` rows (one entry per logical matrix) and `inputs` columns on a rank.

    `whole_inputs` is the unsplit input width, which rules the scales of a GPTQ checkpoint with act-order.
    Bias not included.
    """
    rows = sum(outputs)
    match scheme:
        case Unquantized():
            return int(rows * inputs * itemsize)
        case Float8():
            return rows * inputs + _float8_scales(scheme, outputs, inputs)
        case Integer8():
            static = len(outputs) * 4 * (2 if scheme.asymmetric_input else 1) if scheme.static_input else 0
            return rows * inputs + rows * scheme.scale_bytes + static
        case GroupedInteger():
            return _grouped_bytes(scheme, rows, inputs, whole_inputs)
        case Float4():
            scales = rows * ceil_div(inputs, scheme.group_size)
            return ceil_div(rows * inputs, 2) + scales + len(outputs) * scheme.global_scales * 4
        case MicroscaledFloat8():
            return rows * inputs + rows * ceil_div(inputs, scheme.group_size)
    assert_never(scheme)


def _float8_scales(scheme: Float8, outputs: tuple[int, ...], inputs: int) -> int:
    static = len(outputs) * scheme.input_scale_bytes if scheme.static_input else 0
    match scheme.granularity:
        case "block":
            rows, columns = scheme.block
            return ceil_div(sum(outputs), rows) * ceil_div(inputs, columns) * scheme.scale_bytes + static
        case "channel":
            return sum(outputs) * scheme.scale_bytes + static
        case _:
            return len(outputs) * scheme.scale_bytes + static


def _grouped_bytes(scheme: GroupedInteger, rows: int, inputs: int, whole_inputs: int) -> int:
    packed = ceil_div(32, scheme.bits) if 32 % scheme.bits else 32 // scheme.bits
    group = inputs if scheme.group_size == -1 else scheme.group_size
    groups = ceil_div(whole_inputs if scheme.reorder else inputs, group)
    total = inputs * rows * WORD_BYTES // packed + groups * rows * scheme.scale_bytes
    match scheme.layout:
        case "awq":
            return total + groups * rows * WORD_BYTES // packed
        case "gptq":
            return total + groups * rows * WORD_BYTES // packed + inputs * WORD_BYTES
        case _:
            zeros = groups * rows * WORD_BYTES // packed if scheme.zero_points else 0
            order = inputs * WORD_BYTES if scheme.reorder else 0
            return total + zeros + order + SHAPE_BYTES


def experts_bytes(
    scheme: Scheme, local: int, hidden: int, intermediate: int, itemsize: float, *, gated: bool, bias: bool
) -> int:
    """Bytes of `local` experts of width `intermediate` on a rank: stacked gate+up (or up) and down weights, with biases."""
    up = (2 if gated else 1) * intermediate
    biases = int(local * (up + hidden) * itemsize) if bias else 0
    up_matrices = 2 if gated else 1
    match scheme:
        case Unquantized():
            return int(local * (up * hidden + hidden * intermediate) * itemsize) + biases
        case Float8():
            return local * (up * hidden + hidden * intermediate) + biases + local * _expert_float8_scales(
                scheme, up_matrices, intermediate, hidden
            )
        case Integer8():
            return local * (up * hidden + hidden * intermediate + (up + hidden) * scheme.scale_bytes) + biases
        case GroupedInteger():
            return local * _expert_grouped(scheme, up, hidden, intermediate) + biases
        case Float4():
            weights = ceil_div(up * hidden, 2) + ceil_div(hidden * intermediate, 2)
            scales = up * ceil_div(hidden, scheme.group_size) + hidden * ceil_div(intermediate, scheme.group_size)
            return local * (weights + scales + (up_matrices + 1) * scheme.global_scales * 4) + biases
        case MicroscaledFloat8():
            weights = up * hidden + hidden * intermediate
            scales = up * ceil_div(hidden, scheme.group_size) + hidden * ceil_div(intermediate, scheme.group_size)
            return local * (weights + scales) + biases
    assert_never(scheme)


def _expert_float8_scales(scheme: Float8, up_matrices: int, intermediate: int, hidden: int) -> int:
    static = 2 * scheme.input_scale_bytes if scheme.static_input else 0
    match scheme.granularity:
        case "block":
            rows, columns = scheme.block
            up = up_matrices * ceil_div(intermediate, rows) * ceil_div(hidden, columns)
            down = ceil_div(hidden, rows) * ceil_div(intermediate, columns)
            return (up + down) * scheme.scale_bytes + static
        case "channel":
            return (up_matrices * intermediate + hidden) * scheme.scale_bytes + static
        case _:
            return (up_matrices + 1) * scheme.scale_bytes + static


def _expert_grouped(scheme: GroupedInteger, up: int, hidden: int, intermediate: int) -> int:
    total = 0
    for rows, inputs in ((up, hidden), (hidden, intermediate)):
        total += _grouped_bytes(scheme, rows, inputs, inputs)
    return total


