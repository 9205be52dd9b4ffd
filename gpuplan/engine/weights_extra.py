"""What building and loading a model adds on a rank beside its parameters and buffers.

Latent attention keeps a copy of its up-projection where the checkpoint's is quantized: `W_UK_T` and `W_UV` are views
of the dequantized `kv_b_proj`; of an unquantized one they are views of the parameter itself and cost nothing
(vLLM 0.32 vllm/model_executor/layers/attention/mla_attention.py, `process_weights_after_loading`). Sparse attention
allocates the buffers its indexers write to when layers are built (vllm/models/deepseek_v32/nvidia/model.py and, from
0.30, vllm/v1/attention/backends/mla/index_group.py). MXFP4 experts of gpt-oss are padded again by the kernel that runs
them: Triton's layout on Hopper pads the inputs of both matrices to 256 values (logged: gpt-oss-120b 64.38 GiB on H100,
0.14), Marlin the width to 128 and the hidden size to 256 (65.97 GiB on H100 up to 0.11, 17.22 per rank of four A100).
Other repacking (Marlin, TRT-LLM) keeps the size of the weights.
"""

from gpuplan.domain.model import CacheKind, Experts, Float4, Layer, Linear, ModelProfile, Tensor, Unquantized
from gpuplan.engine.architectures.rotary import MROPE_TIMES
from gpuplan.engine.mxfp4 import MARLIN, padded_experts
from gpuplan.engine.versions import DEFAULT, EngineVersion
from gpuplan.engine.weights import Split, experts_on_rank, local_units, stage_layers
from gpuplan.units import round_up

UP_PROJECTION = "kv_b_proj"
INDEX_BYTES = 4
INDEX_GROUPS_SINCE = EngineVersion(0, 30)
ABSORBED = "dequantized latent projections"
CHOICE = "buffer of the sparse attention's choice"
GROUPS = "sparse attention's index buffers of every indexer"
REPACKED = "MXFP4 experts padded by their kernel"
DEEP = "inputs of the deep-stack layers"
OLDER_ROTARY = "rotary cache of four times the positions"
SHORT_ROTARY_SINCE = EngineVersion(0, 32)
SHORT_ROTARY = ("Qwen3VL", "Qwen3_5")
TRITON_MXFP4_SINCE = EngineVersion(0, 12)
TRITON_INPUTS = 256


def extra_bytes(
    profile: ModelProfile,
    split: Split,
    *,
    stage: int = 0,
    stages: int = 1,
    layer_partition: tuple[int, ...] | None = None,
    draft_layers: int = 0,
    batched_tokens: int = 0,
    sequences: int = 0,
    decode_tokens: int = 1,
    version: EngineVersion = DEFAULT,
) -> tuple[tuple[str, int], ...]:
    """(what, bytes) on one rank of pipeline stage `stage`; empty for a model that adds nothing.

    `batched_tokens` and `sequences` are max_num_batched_tokens and max_num_seqs, `decode_tokens` one more than
    the speculative tokens; with zero batched tokens the index buffers are left out. Raises Indivisible.
    """
    counts = _counts(profile, stage, stages, layer_partition, draft_layers)
    absorbed = sum(_absorbed(kind, split, profile.itemsize) * count for kind, count in counts.items())
    choice, groups = _index_buffers(
        profile, counts, batched_tokens, min(batched_tokens, sequences * decode_tokens)
    )
    if version < INDEX_GROUPS_SINCE:
        groups = 0
    repacked = sum(_repacked(kind, split, version) * count for kind, count in counts.items())
    found = (
        (ABSORBED, absorbed),
        (CHOICE, choice),
        (GROUPS, groups),
        (REPACKED, repacked),
        (DEEP, _deep_stack(profile, split, batched_tokens)),
        (OLDER_ROTARY, _older_rotary(profile) if version < SHORT_ROTARY_SINCE else 0),
    )
    return tuple((name, size) for name, size in found if size)


def _counts(
    profile: ModelProfile, stage: int, stages: int, layer_partition: tuple[int, ...] | None, draft_layers: int
) -> dict[Layer, int]:
    """Layers of each kind on a pipeline stage."""
    first, last = stage_layers(profile.layer_count, stages, layer_partition)[stage]
    kinds = [profile.layer_kinds[kind] for kind in profile.layer_order[first:last]]
    if stage == stages - 1 and draft_layers:
        kinds += [profile.draft_kinds[kind] for kind in profile.draft_order[:draft_layers]]
    counts: dict[Layer, int] = {}
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def _deep_stack(profile: ModelProfile, split: Split, batched: int) -> int:
    """Buffers a deep-stack tower's further levels are copied to, one row per batched token."""
    if split.language_model_only:
        return 0
    levels = max((encoder.output_levels for encoder in profile.encoders), default=1)
    return (levels - 1) * batched * profile.hidden * profile.itemsize


def _older_rotary(profile: ModelProfile) -> int:
    """Three quarters of the table of Qwen3-VL and Qwen3.5 up to 0.31 (rotary_embedding/mrope.py `positions_factor`)."""
    if not profile.architecture.startswith(SHORT_ROTARY):
        return 0
    tables = (resident.part for resident in profile.parts if resident.buffer and resident.tower is None)
    return sum(
        (MROPE_TIMES - 1) * int(part.partition.size * part.itemsize)
        for part in tables
        if isinstance(part, Tensor) and "rotary" in part.name
    )


def _repacked(layer: Layer, split: Split, version: EngineVersion) -> int:
    """What the kernel of MXFP4 experts adds to the parameters as they were created."""
    generation = (split.compute_capability or "").partition(".")[0]
    if generation not in ("", "9"):
        return 0
    total = 0
    for part in layer.parts:
        if (
            not isinstance(part, Experts)
            or not isinstance(part.scheme, Float4)
            or part.scheme.kernels != "gpt_oss"
        ):
            continue
        local = experts_on_rank(part.count + split.redundant_experts, split.expert_ranks, split.expert_rank)
        share = part.intermediate // split.expert_tensor
        hidden, width = padded_experts(part, share, split.compute_capability)
        ups = 2 if part.gated else 1
        if version < TRITON_MXFP4_SINCE:
            step, wide = (round_up(size, pad) for size, pad in zip((hidden, share), MARLIN, strict=True))
            added = (ups + 1) * (step * wide - hidden * width)
            total += local * (added // 2 + added // part.scheme.group_size)
        else:
            inputs = round_up(hidden, TRITON_INPUTS) - hidden, round_up(width, TRITON_INPUTS) - width
            total += local * (ups * width * inputs[0] + hidden * inputs[1]) // 2
    return total


def _absorbed(layer: Layer, split: Split, itemsize: int) -> int:
    """Bytes of the dequantized up-projections of one layer."""
    if not any(cache.kind in (CacheKind.LATENT, CacheKind.SLIDING_LATENT) for cache in layer.caches):
        return 0
    total = 0
    for part in layer.parts:
        if (
            isinstance(part, Linear)
            and part.name.endswith(UP_PROJECTION)
            and not isinstance(part.scheme, Unquantized)
        ):
            rows = sum(local_units(part.name, p, split.tensor) * p.unit_size for p in part.outputs)
            total += rows * part.inputs.size * itemsize
    return total


def _index_buffers(
    profile: ModelProfile, counts: dict[Layer, int], batched: int, decoding: int
) -> tuple[int, int]:
    """(one buffer for all layers, one buffer per indexer where attention reads through an index group)."""
    indexers = {
        layer: cache
        for layer in profile.layer_kinds
        for cache in layer.caches
        if cache.kind is CacheKind.INDEXER
    }
    chosen = max((cache.chosen for cache in indexers.values()), default=0)
    if not chosen or not batched:
        return 0, 0
    grouped = sum(
        count * (decoding + 1) * (cache.chosen + 1) * INDEX_BYTES
        for layer, count in counts.items()
        for cache in layer.caches
        if cache.kind is CacheKind.INDEXER and cache.tokens_per_state == 1
    )
    return batched * chosen * INDEX_BYTES, grouped
