"""What building and loading a model adds on a rank beside its parameters and buffers.

Latent attention keeps a copy of its up-projection where the checkpoint's is quantized: `W_UK_T` and `W_UV` are views
of the dequantized `kv_b_proj`; of an unquantized one they are views of the parameter itself and cost nothing
(vLLM 0.32 vllm/model_executor/layers/attention/mla_attention.py, `process_weights_after_loading`). Sparse attention
allocates the buffers its indexers write to when layers are built (vllm/models/deepseek_v32/nvidia/model.py and, from
0.30, vllm/v1/attention/backends/mla/index_group.py). Repacking for other kernels (Marlin, TRT-LLM) keeps the size of
the weights and is not counted.
"""

from gpuplan.domain.model import CacheKind, Layer, Linear, ModelProfile, Unquantized
from gpuplan.engine.versions import DEFAULT, EngineVersion
from gpuplan.engine.weights import Split, local_units, stage_layers

UP_PROJECTION = "kv_b_proj"
INDEX_BYTES = 4
INDEX_GROUPS_SINCE = EngineVersion(0, 30)
ABSORBED = "dequantized latent projections"
CHOICE = "buffer of the sparse attention's choice"
GROUPS = "sparse attention's index buffers of every indexer"


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
    first, last = stage_layers(profile.layer_count, stages, layer_partition)[stage]
    kinds = [profile.layer_kinds[kind] for kind in profile.layer_order[first:last]]
    if stage == stages - 1 and draft_layers:
        kinds += [profile.draft_kinds[kind] for kind in profile.draft_order[:draft_layers]]
    counts: dict[Layer, int] = {}
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
    absorbed = sum(_absorbed(kind, split, profile.itemsize) * count for kind, count in counts.items())
    choice, groups = _index_buffers(
        profile, counts, batched_tokens, min(batched_tokens, sequences * decode_tokens)
    )
    if version < INDEX_GROUPS_SINCE:
        groups = 0
    return tuple(
        (name, size) for name, size in ((ABSORBED, absorbed), (CHOICE, choice), (GROUPS, groups)) if size
    )


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
