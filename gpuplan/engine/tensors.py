"""The single tensors a part's parameters are kept in, in the order in which vLLM's `create_weights` makes them.

What a part weighs is `engine.weights`; the allocator rounds tensor by tensor.
"""

from functools import lru_cache
from typing import assert_never

from gpuplan.domain.model import (
    Embedding,
    Experts,
    Float4,
    Float8,
    GroupedInteger,
    Integer8,
    Linear,
    MicroscaledFloat8,
    Part,
    Scheme,
    Shard,
    Tensor,
    Unquantized,
)
from gpuplan.engine.mxfp4 import padded_experts
from gpuplan.engine.quantization import zero_point_bytes
from gpuplan.engine.weights import Split, experts_on_rank, local_units, part_bytes
from gpuplan.units import round_up


@lru_cache(maxsize=8192)
def part_tensors(part: Part, split: Split) -> tuple[int, ...]:
    """Bytes of each tensor of one part on one rank; together they are `part_bytes`. Raises Indivisible."""
    whole = part_bytes(part, split)
    match part:
        case Linear():
            return _linear_tensors(part, split, whole)
        case Experts():
            return _expert_tensors(part, split, whole)
        case Embedding():
            rows = round_up(part.rows, part.padding) // split.tensor if part.sharded else part.rows
            return _with_rest(whole, _values(part.scheme, rows * part.width, part.itemsize))
        case Tensor():
            return (whole,)
    assert_never(part)


def _with_rest(whole: int, values: int) -> tuple[int, ...]:
    """The matrix, and scales, zero points and bias behind it."""
    return (values, whole - values) if whole > values else (whole,)


def _linear_tensors(part: Linear, split: Split, whole: int) -> tuple[int, ...]:
    """The matrix, its zero points, and scales and bias behind them."""
    rows, inputs = local_shape(part, split)
    found = _with_rest(whole, _values(part.scheme, rows * inputs, part.itemsize))
    if len(found) < 2 or not isinstance(part.scheme, GroupedInteger):
        return found
    zeros = min(found[1], zero_point_bytes(part.scheme, rows, inputs))
    return (found[0], zeros, found[1] - zeros) if zeros else found


def _expert_tensors(part: Experts, split: Split, whole: int) -> tuple[int, ...]:
    """Gate+up and down matrices of all local experts, then what belongs to either in proportion."""
    local = experts_on_rank(part.count + split.redundant_experts, split.expert_ranks, split.expert_rank)
    share = max(part.intermediate // split.expert_tensor, part.least_share if split.expert_tensor > 1 else 0)
    hidden, width = padded_experts(part, share, split.compute_capability)
    matrices = 2 if part.gated else 1
    up = _values(part.scheme, local * matrices * width * hidden, part.itemsize)
    down = _values(part.scheme, local * width * hidden, part.itemsize)
    rest = whole - up - down
    if rest <= 0:
        return up, whole - up
    of_up = rest * matrices // (matrices + 1)
    return up, of_up, down, rest - of_up


def local_shape(part: Linear, split: Split) -> tuple[int, int]:
    """Outputs and inputs of a linear layer on one rank. Raises Indivisible."""
    ranks = 1 if part.token_parallel and split.token_sharded_experts else split.tensor
    inputs, outputs = part.inputs.size, sum(p.size for p in part.outputs)
    if part.shard is Shard.COLUMN:
        outputs = sum(local_units(part.name, p, ranks) * p.unit_size for p in part.outputs)
    elif part.shard is Shard.ROW:
        inputs = local_units(part.name, part.inputs, ranks) * part.inputs.unit_size
    return round_up(outputs, part.alignment), inputs


def _values(scheme: Scheme, elements: int, itemsize: float) -> int:
    """Bytes of the values of a weight, without scales."""
    match scheme:
        case Unquantized():
            return int(elements * itemsize)
        case Float8() | Integer8() | MicroscaledFloat8():
            return elements
        case GroupedInteger():
            return elements * scheme.bits // 8
        case Float4():
            return elements // 2
    assert_never(scheme)
