"""Bytes of a layer's parameters on one rank, as each quantization method of vLLM creates them.

Shapes are those of vLLM's `create_weights` (vllm/model_executor/layers/quantization, 0.32), before kernels
repack them.
"""

from dataclasses import replace
from math import gcd
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
SCALE_BYTES = 4
SHAPE_BYTES = 16
"""compressed-tensors keeps the unpacked shape of a linear layer as two int64."""
SMALLEST_BLOCK = 32
"""Expert scales of a block that does not divide are refined down to blocks of this size, no further."""


def matrix_bytes(
    scheme: Scheme, outputs: tuple[int, ...], inputs: int, itemsize: float, *, whole_inputs: int
) -> int:
    """Bytes of one stacked weight on a rank: `outputs` rows (one entry per logical matrix), `inputs` columns.

    `whole_inputs` is the unsplit input width, which rules the scales of a GPTQ checkpoint with act-order.
    Bias not included.
    """
    rows = sum(outputs)
    match scheme:
        case Unquantized():
            return int(rows * inputs * itemsize)
        case Float8():
            return rows * inputs + _float8_scales(scheme, outputs, inputs) + scheme.layer_bytes
        case Integer8():
            scales = len(outputs) if scheme.per_tensor else rows
            static = SCALE_BYTES + (1 if scheme.asymmetric_input else 0) if scheme.static_input else 0
            return rows * inputs + scales * scheme.scale_bytes + static
        case GroupedInteger():
            shape = SHAPE_BYTES if scheme.layout == "compressed" else 0
            return _grouped_bytes(scheme, rows, inputs, whole_inputs) + shape
        case Float4():
            scales = rows * (inputs // scheme.group_size)
            per_matrix = scheme.global_scales * SCALE_BYTES + int(scheme.narrow_scales * itemsize)
            return rows * (inputs // 2) + scales + len(outputs) * per_matrix
        case MicroscaledFloat8():
            return rows * inputs + rows * (inputs // scheme.group_size)
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
    """Packed weights, scales per whole group of inputs and zero points of one weight."""
    grouped = whole_inputs if scheme.reorder else inputs
    groups = 1 if scheme.group_size == -1 else max(1, grouped // scheme.group_size)
    scales = groups * rows * scheme.scale_bytes
    match scheme.layout:
        case "awq":
            packed = inputs * _words(rows, scheme.bits) + groups * _words(rows, scheme.bits)
        case "gptq":
            packed = _words(inputs, scheme.bits) * rows + groups * _words(rows, scheme.bits)
        case _:
            packed = _words(inputs, scheme.bits) * rows
            packed += groups * _words(rows, scheme.bits) if scheme.zero_points else 0
    return scales + packed * WORD_BYTES + (inputs * WORD_BYTES if scheme.reorder else 0)


def zero_point_bytes(scheme: GroupedInteger, rows: int, inputs: int) -> int:
    """Bytes of the zero points that a weight of `rows` by `inputs` on a rank is created with."""
    if scheme.layout == "compressed" and not scheme.zero_points:
        return 0
    groups = 1 if scheme.group_size == -1 else max(1, inputs // scheme.group_size)
    return groups * _words(rows, scheme.bits) * WORD_BYTES


def _words(values: int, bits: int) -> int:
    """32-bit words of `values` integers of `bits` each: whole ones, as vLLM's `// pack_factor` gives."""
    return values * bits // (WORD_BYTES * 8)


def experts_bytes(
    scheme: Scheme,
    local: int,
    hidden: int,
    intermediate: int,
    itemsize: float,
    *,
    gated: bool,
    bias: bool,
    total: int | None = None,
) -> int:
    """Bytes of `local` experts of width `intermediate` on a rank: gate+up (or up) and down weights, biases.

    `total` counts the experts of all ranks (None: `local`), whose input scales some kernels keep everywhere.
    """
    matrices = 2 if gated else 1
    up = matrices * intermediate
    biases = int(local * (up + hidden) * itemsize) if bias else 0
    elements = up * hidden + hidden * intermediate
    match scheme:
        case Unquantized():
            return int(local * elements * itemsize) + biases
        case Float8():
            return local * (elements + _expert_float8_scales(scheme, matrices, intermediate, hidden)) + biases
        case Integer8():
            return local * (elements + (up + hidden) * scheme.scale_bytes) + biases
        case GroupedInteger():
            return int(local * _expert_grouped(scheme, up, hidden, intermediate, itemsize, bias=bias))
        case Float4():
            size = up * (hidden // 2) + hidden * (intermediate // 2)
            size += up * (hidden // scheme.group_size) + hidden * (intermediate // scheme.group_size)
            size += (matrices + 1) * scheme.global_scales * SCALE_BYTES
            others = (total or local) - local if scheme.input_scales_of_all_experts else 0
            return local * size + others * (matrices + 1) * SCALE_BYTES + biases
        case MicroscaledFloat8():
            scales = up * (hidden // scheme.group_size) + hidden * (intermediate // scheme.group_size)
            return local * (elements + scales) + biases
    assert_never(scheme)


def _expert_grouped(
    scheme: GroupedInteger, up: int, hidden: int, intermediate: int, itemsize: float, *, bias: bool
) -> float:
    """One expert of packed integers.

    GPTQ's Marlin method always allocates biases; groups that a rank's share does not hold whole are halved
    until it does (AWQ and GPTQ, moe_wna16.py), there without biases and without zero points for GPTQ.
    """
    size = scheme.group_size
    fitting = scheme if scheme.layout == "compressed" else _halved(scheme, hidden, intermediate)
    packed = _grouped_bytes(fitting, up, hidden, hidden) + _grouped_bytes(
        fitting, hidden, intermediate, intermediate
    )
    shapes = 2 * 2 * itemsize if scheme.layout == "compressed" else 0
    if fitting.group_size != size:
        return packed
    return packed + shapes + ((up + hidden) * itemsize if bias or scheme.layout == "gptq" else 0)


def _halved(scheme: GroupedInteger, hidden: int, intermediate: int) -> GroupedInteger:
    size = scheme.group_size
    while size >= SMALLEST_BLOCK and (intermediate % size or hidden % size):
        size //= 2
    if size < SMALLEST_BLOCK or size == scheme.group_size:
        return scheme
    layout = scheme.layout if scheme.layout == "awq" else "compressed"
    return replace(scheme, group_size=size, layout=layout, zero_points=scheme.layout == "awq")


def _expert_float8_scales(scheme: Float8, matrices: int, intermediate: int, hidden: int) -> int:
    static = 2 * scheme.input_scale_bytes if scheme.static_input else 0
    match scheme.granularity:
        case "block":
            rows, columns = expert_block(scheme, intermediate, hidden)
            up = matrices * ceil_div(intermediate, rows) * ceil_div(hidden, columns)
            down = ceil_div(hidden, rows) * ceil_div(intermediate, columns)
            return (up + down) * scheme.scale_bytes + static
        case "channel":
            return (matrices * intermediate + hidden) * scheme.scale_bytes + static
        case _:
            return (matrices + 1) * scheme.scale_bytes + static


def expert_block(scheme: Float8, intermediate: int, hidden: int) -> tuple[int, int]:
    """Block of the experts' scales on a rank: refined where its share is no multiple of the checkpoint's.

    vLLM 0.32 layers/fused_moe/oracle/fp8.py `refine_fp8_moe_block_shape`.
    """
    rows, columns = scheme.block
    if intermediate % rows == 0 and intermediate % columns == 0:
        return rows, columns
    refined = gcd(gcd(rows, columns), gcd(intermediate, hidden))
    return (refined, refined) if refined >= SMALLEST_BLOCK else (rows, columns)


def linear_misfit(scheme: Scheme, outputs: tuple[int, ...], inputs: int, *, rows_split: bool) -> int:
    """Block size that a rank's share of a divided linear layer does not hold whole, 0 when it does.

    `validate_fp8_block_shape` (fp8_utils.py; a stacked weight may end inside a block),
    `verify_group_size_divides_partition` (marlin_utils.py), and the checks in modelopt.py.
    """
    match scheme:
        case Float8(granularity="block", block=(rows, columns)):
            if rows_split:
                return rows if len(outputs) == 1 and outputs[0] % rows else 0
            return columns if inputs % columns else 0
        case GroupedInteger(group_size=size) | Float4(group_size=size) | MicroscaledFloat8(group_size=size):
            return size if not rows_split and size > 0 and inputs % size else 0
        case _:
            return 0


def experts_misfit(scheme: Scheme, hidden: int, intermediate: int, *, refined: bool = True) -> int:
    """Block size that a rank's share of an expert does not hold whole; 0: it does, or they are refined.

    `refined`: whether the release refines blocks of float8 experts (from 0.29).
    """
    match scheme:
        case Float8(granularity="block", block=(rows, columns)):
            block = expert_block(scheme, intermediate, hidden) if refined else (rows, columns)
            return max(rows, columns) if intermediate % block[0] or intermediate % block[1] else 0
        case GroupedInteger(layout="compressed", group_size=size) | MicroscaledFloat8(group_size=size):
            return size if size > 0 and intermediate % size else 0
        case Float4(variety="nvfp4", group_size=size):
            return size if intermediate % size else 0
        case GroupedInteger(group_size=size):
            fitting = _halved(scheme, hidden, intermediate).group_size
            return size if size > 0 and (intermediate % fitting or hidden % fitting) else 0
        case _:
            return 0
