"""Rounding of torch's caching allocator, which "Model loading took" counts.

A tensor of 10 MiB and more gets a segment rounded up to 2 MiB; a rest of up to 1 MiB is not split off and counts as
allocated (c10/cuda/CUDACachingAllocator.cpp: kMinLargeAlloc, kRoundLarge, kSmallSize). Qwen2.5-3B: 1 MiB on each of 36
down projections, the 36 MiB by which its logged 5.79 GiB exceed parameters and buffers.
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
    Layer,
    Linear,
    MicroscaledFloat8,
    ModelProfile,
    Part,
    ResidentPart,
    Scheme,
    Shard,
    Tensor,
    Unquantized,
)
from gpuplan.engine.mxfp4 import padded_experts
from gpuplan.engine.weights import Split, experts_on_rank, holds, local_units, stage_layers, stands_whole
from gpuplan.units import MIB, round_up

LARGE = 10 * MIB
SEGMENT = 2 * MIB
UNSPLIT = MIB


def slack(size: int) -> int:
    """Bytes counted beyond `size` for one tensor."""
    rest = -size % SEGMENT
    return rest if size >= LARGE and rest <= UNSPLIT else 0


def rounding_bytes(
    profile: ModelProfile,
    split: Split,
    *,
    stage: int = 0,
    stages: int = 1,
    layer_partition: tuple[int, ...] | None = None,
) -> int:
    """Bytes the allocator counts beyond the parameters of a rank of pipeline stage `stage`. Raises Indivisible."""
    first, last = stage_layers(profile.layer_count, stages, layer_partition)[stage]
    layers = sum(_layer_slack(profile.layer_kinds[kind], split) for kind in profile.layer_order[first:last])
    held = tuple(resident for resident in profile.parts if holds(resident.residence, stage, stages))
    return layers + _outside_slack(held, split)


@lru_cache(maxsize=4096)
def _layer_slack(layer: Layer, split: Split) -> int:
    return sum(part_slack(part, split) for part in layer.parts)


@lru_cache(maxsize=1024)
def _outside_slack(parts: tuple[ResidentPart, ...], split: Split) -> int:
    kept = (resident for resident in parts if not (resident.tower and split.language_model_only))
    return sum(_resident_slack(resident, split) for resident in kept)


def _resident_slack(resident: ResidentPart, split: Split) -> int:
    if stands_whole(resident, split):
        split = Split(compute_capability=split.compute_capability)
    return part_slack(resident.part, split)


def part_slack(part: Part, split: Split) -> int:
    """Rounding of the large tensors of one part on one rank."""
    match part:
        case Linear():
            return slack(_matrix(part.scheme, _elements(part, split.tensor), part.itemsize))
        case Experts():
            local = experts_on_rank(
                part.count + split.redundant_experts, split.expert_ranks, split.expert_rank
            )
            share = part.intermediate // split.expert_tensor
            hidden, share = padded_experts(part, share, split.compute_capability)
            up = local * share * hidden * (2 if part.gated else 1)
            return slack(_matrix(part.scheme, up, part.itemsize)) + slack(
                _matrix(part.scheme, local * share * hidden, part.itemsize)
            )
        case Tensor():
            units = part.partition.units
            if part.sharded:
                units = local_units(part.name, part.partition, split.tensor)
            return slack(int(round_up(units, part.alignment) * part.partition.unit_size * part.itemsize))
        case Embedding():
            rows = round_up(part.rows, part.padding) // split.tensor if part.sharded else part.rows
            return slack(_matrix(part.scheme, rows * part.width, part.itemsize))
    assert_never(part)


def _elements(part: Linear, ranks: int) -> int:
    inputs, outputs = part.inputs.size, sum(p.size for p in part.outputs)
    if part.shard is Shard.COLUMN:
        outputs = sum(local_units(part.name, p, ranks) * p.unit_size for p in part.outputs)
    elif part.shard is Shard.ROW:
        inputs = local_units(part.name, part.inputs, ranks) * part.inputs.unit_size
    return inputs * round_up(outputs, part.alignment)


def _matrix(scheme: Scheme, elements: int, itemsize: float) -> int:
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
