"""What the kernels of quantized layers add to the parameters as they were created, or free, when a model is loaded.

`process_weights_after_loading` of vLLM 0.8 to 0.33, by the kernel a layer gets:

- MXFP4 experts of gpt-oss, Hopper: Triton keeps the loaded scales beside a swizzled copy padded to 256 rows, and its
  biases in float32 (oracle/mxfp4.py, third_party/triton_kernels HopperMXScaleLayout; logged: gpt-oss-120b 64.38 GiB on
  H100, 0.14). Before 0.12 Marlin ran there (65.97 GiB). TRT-LLM on Blackwell padded the width to 256 before 0.27.
- NVFP4 experts without a gate, Blackwell: the width is padded to 128 (flashinfer_fp4_moe.py).
- fp8 blocks below compute capability 8.9: Marlin repeats the scales for every output (marlin_utils_fp8.py).
- Packed integers (kernels/linear/mixed_precision): Machete, on Hopper, unpacks zero points to the model's type; Marlin
  drops those of GPTQ, which are constant.

Other repacking (Marlin, Machete, TRT-LLM, DeepGEMM) keeps the size of the weights.
"""

from gpuplan.domain.model import Experts, Float4, Float8, GroupedInteger, Layer, Linear
from gpuplan.engine.capability import capability
from gpuplan.engine.mxfp4 import MARLIN, padded_experts
from gpuplan.engine.quantization import experts_bytes, zero_point_bytes
from gpuplan.engine.tensors import local_shape
from gpuplan.engine.versions import EngineVersion
from gpuplan.engine.weights import Split, experts_on_rank
from gpuplan.units import GIB, ceil_div, round_up

FLOAT32 = 4
TRITON_MXFP4_SINCE = EngineVersion(0, 12)
SWIZZLED_ROWS = 256
MXFP4_GROUP = 32
TRTLLM_WIDTH = 256
TRTLLM_NARROW_SINCE = EngineVersion(0, 27)
UNGATED_NVFP4 = 128
NATIVE_FLOAT8 = 89
HOPPER = 90
BLACKWELL = 100
MACHETE_BLOCK = (64, 128)
"""Inputs and outputs that Machete needs whole (machete_utils.py)."""
MACHETE_GROUPS = (-1, 64, 128)
MACHETE_BITS = (4, 8)
SMALLEST_HOPPER = 79 * GIB
LARGEST_OF_ITS_TIME = 100 * GIB
SMALLEST_LARGE_HOPPER = 130 * GIB
SMALLEST_BLACKWELL = 150 * GIB
AWQ_KERNELS_SINCE = EngineVersion(0, 19)
"""AWQ layers choose among the kernels of packed integers; before, they always ran on Marlin."""


def repacked_bytes(layer: Layer, split: Split, version: EngineVersion) -> int:
    """Bytes that the kernels of one layer add on a rank; negative where they free more. Raises Indivisible.

    A GPU whose compute capability is not known is taken for a Hopper.
    """
    card = capability(split.compute_capability) or HOPPER
    total = 0
    for part in layer.parts:
        match part:
            case Experts(scheme=Float4(kernels="gpt_oss")):
                total += _mxfp4(part, split, card, version)
            case Experts(scheme=Float4(variety="nvfp4"), gated=False) if card >= BLACKWELL:
                width = _share(part, split)
                total += _padded_by(part, split, part.hidden, round_up(width, UNGATED_NVFP4))
            case Experts(scheme=Float8(granularity="block") as blocks) if card < NATIVE_FLOAT8:
                total += _float8_experts(part, blocks, split)
            case Linear(scheme=Float8(granularity="block") as blocks) if card < NATIVE_FLOAT8:
                total += _float8_linear(part, blocks, split)
            case Linear(scheme=GroupedInteger() as packed):
                total += _zero_points(part, packed, split, card, version)
            case _:
                pass
    return total


def _share(part: Experts, split: Split) -> int:
    share = part.intermediate // split.expert_tensor
    return max(share, part.least_share) if split.expert_tensor > 1 else share


def _local(part: Experts, split: Split) -> int:
    return experts_on_rank(part.count + split.redundant_experts, split.expert_ranks, split.expert_rank)


def _padded_by(part: Experts, split: Split, hidden: int, width: int) -> int:
    """What other sizes of an expert add to those it was created with."""
    local, created = _local(part, split), padded_experts(part, _share(part, split), split.compute_capability)
    before, after = (
        experts_bytes(part.scheme, local, rows, wide, part.itemsize, gated=part.gated, bias=part.bias)
        for rows, wide in (created, (hidden, width))
    )
    return after - before


def _mxfp4(part: Experts, split: Split, card: int, version: EngineVersion) -> int:
    generation, width = card // 10, _share(part, split)
    if generation == BLACKWELL // 10:
        wide = round_up(width, TRTLLM_WIDTH)
        hidden, created = padded_experts(part, width, split.compute_capability)
        padding = _padded_by(part, split, hidden, wide) if version < TRTLLM_NARROW_SINCE else 0
        return padding + _wide_biases(part, split, hidden, wide if version < TRTLLM_NARROW_SINCE else created)
    if generation != HOPPER // 10:
        return 0
    if version < TRITON_MXFP4_SINCE:
        step, wide = (round_up(size, pad) for size, pad in zip((part.hidden, width), MARLIN, strict=True))
        return _padded_by(part, split, step, wide)
    hidden, width = padded_experts(part, width, split.compute_capability)
    up = (2 if part.gated else 1) * width
    swizzled = round_up(up, SWIZZLED_ROWS) * _even(hidden) + round_up(hidden, SWIZZLED_ROWS) * _even(width)
    return _local(part, split) * swizzled + _wide_biases(part, split, hidden, width)


def _even(inputs: int) -> int:
    """Scales of one row, an even number."""
    return round_up(inputs // MXFP4_GROUP, 2)


def _wide_biases(part: Experts, split: Split, hidden: int, width: int) -> int:
    if not part.bias:
        return 0
    values = _local(part, split) * ((2 if part.gated else 1) * width + hidden)
    return int(values * (FLOAT32 - part.itemsize))


def _float8_linear(part: Linear, scheme: Float8, split: Split) -> int:
    rows, inputs = local_shape(part, split)
    return _repeated_scales(scheme, rows, inputs, part.itemsize)


def _float8_experts(part: Experts, scheme: Float8, split: Split) -> int:
    width, matrices = _share(part, split), 2 if part.gated else 1
    one = _repeated_scales(scheme, matrices * width, part.hidden, part.itemsize)
    return _local(part, split) * (one + _repeated_scales(scheme, part.hidden, width, part.itemsize))


def _repeated_scales(scheme: Float8, rows: int, inputs: int, itemsize: float) -> int:
    high, wide = scheme.block
    groups = ceil_div(inputs, wide)
    return int(groups * (rows * itemsize - ceil_div(rows, high) * scheme.scale_bytes))


def _zero_points(
    part: Linear, scheme: GroupedInteger, split: Split, card: int, version: EngineVersion
) -> int:
    rows, inputs = local_shape(part, split)
    packed = zero_point_bytes(scheme, rows, inputs)
    machete = (
        card // 10 == HOPPER // 10
        and inputs % MACHETE_BLOCK[0] == 0
        and rows % MACHETE_BLOCK[1] == 0
        and scheme.group_size in MACHETE_GROUPS
        and scheme.bits in MACHETE_BITS
    )
    if scheme.layout == "gptq":
        return 0 if machete or scheme.reorder else -packed
    if not machete or not packed or (scheme.layout == "awq" and version < AWQ_KERNELS_SINCE):
        return 0
    values = packed * 8 // scheme.bits
    return int(values * part.itemsize) - packed


def assumed_capability(total_bytes: int) -> str:
    """Compute capability to reckon with where only the size of a card is known.

    No Hopper card has less than 79 GiB and no datacenter Blackwell less than 150; smaller cards run the kernels of Ampere
    and Ada, those of 100 to 130 GiB are GB10.
    """
    if total_bytes < SMALLEST_HOPPER:
        return "8.9"
    if LARGEST_OF_ITS_TIME < total_bytes < SMALLEST_LARGE_HOPPER:
        return "12.1"
    return "9.0" if total_bytes < SMALLEST_BLACKWELL else "10.0"
