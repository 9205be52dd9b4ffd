"""Parameter bytes on each rank, exact to the parameter: tensor, pipeline and expert parallel.

Rules from vLLM 0.32 (vllm/model_executor/layers/linear.py, vocab_parallel_embedding.py, fused_moe/layer.py,
vllm/distributed/utils.py), checked against the parameters of vLLM's own model classes.
"""

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from gpuplan.domain.model import (
    Embedding,
    Experts,
    Layer,
    Linear,
    ModelProfile,
    Part,
    Partition,
    Residence,
    ResidentPart,
    Shard,
    Tensor,
)
from gpuplan.engine.mxfp4 import keeps_all_scales, padded_experts
from gpuplan.engine.quantization import experts_bytes, matrix_bytes
from gpuplan.errors import GpuplanError
from gpuplan.units import ceil_div, round_up

UP_PROJECTION = "kv_b_proj"
"""Last part of the name of the layer that makes keys and values of a latent."""


class Indivisible(GpuplanError):
    """A part cannot be divided by the tensor-parallel size; the text is the engine's reason."""

    def __init__(self, name: str, size: int, ranks: int) -> None:
        super().__init__(f"{name}: {size} is not divisible by {ranks}")
        self.name = name
        self.size = size
        self.ranks = ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How one replica's parameters are divided, seen from one rank."""

    tensor: int = 1
    expert_ranks: int = 1
    """Ranks that share whole experts (EP size); 1 without expert parallel."""
    expert_rank: int = 0
    expert_tensor: int = 1
    """Ranks that divide the width of each expert (tp × dp without expert parallel, else 1)."""
    redundant_experts: int = 0
    compute_capability: str | None = "9.0"
    """Rules which fused-MoE kernel pads MXFP4 experts."""
    language_model_only: bool = False
    towers_data_parallel: bool = False
    """`--mm-encoder-tp-mode data`."""
    token_sharded_experts: bool = False
    """Shared experts whole on every rank: expert parallel with DP > 1 and TP > 1 (`use_sequence_parallel_moe`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWeights:
    """Bytes on one rank; `parameters` is the sum of the named terms."""

    parameters: int
    buffers: int
    embedding: int
    layers: int
    experts: int
    """The part of `layers` that is routed experts."""
    towers: int
    other: int


def local_units(name: str, partition: Partition, ranks: int) -> int:
    """Units of a partition on one rank; Indivisible where vLLM asserts."""
    if partition.units % ranks == 0:
        return partition.units // ranks
    if partition.replicable and ranks % partition.units == 0:
        return 1
    if partition.uneven:
        return ceil_div(partition.units, ranks)
    raise Indivisible(name, partition.units, ranks)


def part_bytes(part: Part, split: Split) -> int:
    """Bytes of one part on one rank."""
    match part:
        case Linear():
            return _linear_bytes(
                part, 1 if part.token_parallel and split.token_sharded_experts else split.tensor
            )
        case Experts():
            return _experts_on_rank(part, split)
        case Tensor():
            units = (
                local_units(part.name, part.partition, split.tensor) if part.sharded else part.partition.units
            )
            return int(round_up(units, part.alignment) * part.partition.unit_size * part.itemsize)
        case Embedding():
            return _embedding_bytes(part, split.tensor)
    assert_never(part)


def _linear_bytes(part: Linear, ranks: int) -> int:
    inputs, outputs = part.inputs.size, tuple(p.size for p in part.outputs)
    match part.shard:
        case Shard.COLUMN:
            outputs = tuple(local_units(part.name, p, ranks) * p.unit_size for p in part.outputs)
        case Shard.ROW:
            inputs = local_units(part.name, part.inputs, ranks) * part.inputs.unit_size
        case Shard.REPLICATED:
            pass
    padding = -sum(outputs) % part.alignment
    outputs = (*outputs, padding) if padding else outputs
    bias = int(sum(outputs) * part.itemsize) if part.bias else 0
    return matrix_bytes(part.scheme, outputs, inputs, part.itemsize, whole_inputs=part.inputs.size) + bias


def experts_on_rank(total: int, ranks: int, rank: int) -> int:
    """Routed experts of one rank under linear placement: the first `total % ranks` ranks hold one more."""
    return total // ranks + (1 if rank < total % ranks else 0)


def _experts_on_rank(part: Experts, split: Split) -> int:
    local = experts_on_rank(part.count + split.redundant_experts, split.expert_ranks, split.expert_rank)
    if part.intermediate % split.expert_tensor:
        raise Indivisible(part.name, part.intermediate, split.expert_tensor)
    share = part.intermediate // split.expert_tensor
    if split.expert_tensor > 1:
        share = max(share, part.least_share)
    hidden, intermediate = padded_experts(part, share, split.compute_capability)
    return experts_bytes(
        part.scheme,
        local,
        hidden,
        intermediate,
        part.itemsize,
        gated=part.gated,
        bias=part.bias,
        total=part.count + split.redundant_experts if keeps_all_scales(split.compute_capability) else None,
    )


def _embedding_bytes(part: Embedding, ranks: int) -> int:
    rows = part.rows
    if part.sharded:
        rows = round_up(part.rows, part.padding)
        if rows % ranks:
            raise Indivisible(part.name, rows, ranks)
        rows //= ranks
    bias = int(rows * part.itemsize) if part.bias else 0
    return matrix_bytes(part.scheme, (rows,), part.width, part.itemsize, whole_inputs=part.width) + bias


@lru_cache(maxsize=4096)
def layer_bytes(layer: Layer, split: Split) -> tuple[int, int]:
    """(all parameters, routed experts alone) of one decoder layer on one rank."""
    experts = sum(part_bytes(part, split) for part in layer.parts if isinstance(part, Experts))
    rest = sum(part_bytes(part, split) for part in layer.parts if not isinstance(part, Experts))
    return experts + rest, experts


def stage_layers(
    layers: int, stages: int, partition: tuple[int, ...] | None = None
) -> tuple[tuple[int, int], ...]:
    """First and one-past-last decoder layer of each pipeline stage.

    Even split with the remainder given to the stages before the last, as vllm/distributed/utils.py `get_pp_indices`
    does; `partition` is `VLLM_PP_LAYER_PARTITION`. Raises GpuplanError when it does not add up.
    """
    if partition is not None:
        if len(partition) != stages or sum(partition) != layers or any(n < 0 for n in partition):
            written = ",".join(str(n) for n in partition)
            raise GpuplanError(
                f"layer partition {written} does not describe {layers} layers on {stages} pipeline stages",
                hint=f"give {stages} numbers that add up to {layers}",
            )
        counts = list(partition)
    else:
        counts = [layers // stages] * stages
        for extra in range(2, layers % stages + 2):
            counts[-extra] += 1
    bounds, start = [], 0
    for count in counts:
        bounds.append((start, start + count))
        start += count
    return tuple(bounds)


def layers_on_stage(
    profile: ModelProfile,
    stage: int,
    stages: int,
    partition: tuple[int, ...] | None = None,
    draft_layers: int = 0,
) -> list[Layer]:
    """Decoder layers of a pipeline stage in their order, and on the last the first `draft_layers` drafting ones.

    Raises GpuplanError for a `partition` that does not add up.
    """
    first, last = stage_layers(profile.layer_count, stages, partition)[stage]
    layers = [profile.layer_kinds[kind] for kind in profile.layer_order[first:last]]
    if stage == stages - 1:
        layers += [profile.draft_kinds[kind] for kind in profile.draft_order[:draft_layers]]
    return layers


def holds(residence: Residence, stage: int, stages: int) -> bool:
    """Whether pipeline stage `stage` of `stages` keeps a part of that residence."""
    match residence:
        case Residence.FIRST:
            return stage == 0
        case Residence.LAST:
            return stage == stages - 1
        case Residence.FIRST_AND_LAST:
            return stage in (0, stages - 1)
        case Residence.EVERY:
            return True
    assert_never(residence)


def rank_weights(
    profile: ModelProfile,
    split: Split,
    *,
    stage: int = 0,
    stages: int = 1,
    layer_partition: tuple[int, ...] | None = None,
    draft_layers: int = 0,
) -> RankWeights:
    """Parameter and buffer bytes of one rank of pipeline stage `stage`.

    `draft_layers` MTP layers are added on the last stage (speculative decoding). Raises Indivisible.
    """
    layers = experts = 0
    for kind, count in Counter(
        layers_on_stage(profile, stage, stages, layer_partition, draft_layers)
    ).items():
        whole, routed = layer_bytes(kind, split)
        layers += whole * count
        experts += routed * count
    outside = _outside_layers(profile.parts, split)
    held = [sizes for residence, sizes in outside if holds(residence, stage, stages)]
    embedding, towers, other, buffers = (sum(sizes[term] for sizes in held) for term in range(4))
    return RankWeights(
        parameters=layers + embedding + towers + other,
        buffers=buffers,
        embedding=embedding,
        layers=layers,
        experts=experts,
        towers=towers,
        other=other,
    )


@lru_cache(maxsize=1024)
def _outside_layers(
    parts: tuple[ResidentPart, ...], split: Split
) -> tuple[tuple[Residence, tuple[int, int, int, int]], ...]:
    """Per residence: bytes of embeddings, towers, other parameters and buffers on one rank."""
    sums: dict[Residence, list[int]] = {}
    for resident in parts:
        if resident.tower and split.language_model_only:
            continue
        if resident.buffer:
            term = 3
        elif resident.tower:
            term = 1
        else:
            term = 0 if isinstance(resident.part, Embedding) else 2
        sums.setdefault(resident.residence, [0, 0, 0, 0])[term] += _resident_bytes(resident, split)
    return tuple((residence, (a, b, c, d)) for residence, (a, b, c, d) in sums.items())


def stands_whole(resident: ResidentPart, split: Split) -> bool:
    """Whether every rank holds all of a part: towers under data parallel, or whose heads do not divide."""
    if not resident.tensor_parallel or (resident.tower is not None and split.towers_data_parallel):
        return True
    return resident.heads is not None and resident.heads % split.tensor != 0


def _resident_bytes(resident: ResidentPart, split: Split) -> int:
    if stands_whole(resident, split):
        split = Split(compute_capability=split.compute_capability)
    return part_bytes(resident.part, split)


def padded_vocabulary(rows: int) -> int:
    """Vocabulary rows after padding to 64, which is what must divide by the tensor-parallel size."""
    return ceil_div(rows, 64) * 64
