"""What building and loading a model adds on a rank beside its parameters and buffers.

Latent attention keeps a copy of its up-projection where the checkpoint's is quantized: `W_UK_T` and `W_UV` are views
of the dequantized `kv_b_proj`; of an unquantized one they are views of the parameter itself and cost nothing
(vLLM 0.32 vllm/model_executor/layers/attention/mla_attention.py, `process_weights_after_loading`). From 0.11.1 to
0.24 choosing its backend imports FlashInfer's, which allocates a workspace (v1/attention/backends/mla/flashinfer_mla.py
`g_fi_workspace`); before, only Blackwell's does. Sparse attention allocates the buffers its indexers write to when
layers are built (vllm/models/deepseek_v32/nvidia/model.py and, from 0.30,
vllm/v1/attention/backends/mla/index_group.py). Gemma 3n and 4 keep the per-layer embeddings of a whole batch
(models/gemma4_mm.py), and before 0.30 Gemma 4 had key and value projections on layers that share their cache (logged:
gemma-4-E4B 15.16 GiB, 0.19). What the kernels of quantized layers change is `engine.repacking`.
"""

from collections import Counter

from gpuplan.domain.model import CacheKind, Embedding, Layer, Linear, ModelProfile, Tensor, Unquantized
from gpuplan.engine.architectures.rotary import MROPE_TIMES
from gpuplan.engine.capability import capability
from gpuplan.engine.repacking import BLACKWELL, repacked_bytes
from gpuplan.engine.versions import DEFAULT, EngineVersion
from gpuplan.engine.weights import UP_PROJECTION, Split, layers_on_stage, local_units, part_bytes
from gpuplan.units import MIB

INDEX_BYTES = 4
INDEX_GROUPS_SINCE = EngineVersion(0, 30)
ABSORBED = "dequantized latent projections"
CHOICE = "buffer of the sparse attention's choice"
GROUPS = "sparse attention's index buffers of every indexer"
REPACKED = "padding, scales and zero points of the kernels"
DEEP = "inputs of the deep-stack layers"
OLDER_ROTARY = "rotary cache of four times the positions"
SHORT_ROTARY_SINCE = EngineVersion(0, 32)
SHORT_ROTARY = ("Qwen3VL", "Qwen3_5")
PER_LAYER = "per-layer embeddings of a batch"
PER_LAYER_TABLE = "embed_tokens_per_layer"
SHARED_KEYS = "key and value projections of layers that share a cache"
QUERY_ONLY_SINCE = EngineVersion(0, 30)
WORKSPACE = "workspace of FlashInfer's latent attention"
WORKSPACE_BYTES = 128 * MIB
WORKSPACE_SINCE = EngineVersion(0, 10)
WORKSPACE_EVERYWHERE_SINCE = EngineVersion(0, 11, 1)
WORKSPACE_LATER_SINCE = EngineVersion(0, 25)
"""From here on it is allocated with the first pass."""
LATENT = (CacheKind.LATENT, CacheKind.SLIDING_LATENT)


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
    counts = Counter(layers_on_stage(profile, stage, stages, layer_partition, draft_layers))
    absorbed = sum(_absorbed(kind, split, profile.itemsize) * count for kind, count in counts.items())
    choice, groups = _index_buffers(
        profile, counts, batched_tokens, min(batched_tokens, sequences * decode_tokens)
    )
    if version < INDEX_GROUPS_SINCE:
        groups = 0
    repacked = sum(repacked_bytes(kind, split, version) * count for kind, count in counts.items())
    found = (
        (ABSORBED, absorbed),
        (WORKSPACE, _workspace(counts, split, version)),
        (CHOICE, choice),
        (GROUPS, groups),
        (REPACKED, repacked),
        (DEEP, _deep_stack(profile, split, batched_tokens)),
        (PER_LAYER, _per_layer(profile, batched_tokens)),
        (SHARED_KEYS, _shared_keys(profile, counts, split) if version < QUERY_ONLY_SINCE else 0),
        (OLDER_ROTARY, _older_rotary(profile) if version < SHORT_ROTARY_SINCE else 0),
    )
    return tuple((name, size) for name, size in found if size)


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


def _workspace(counts: dict[Layer, int], split: Split, version: EngineVersion) -> int:
    """FlashInfer's workspace for latent attention, one for all layers."""
    if not any(cache.kind in LATENT for layer in counts for cache in layer.caches):
        return 0
    everywhere = version >= WORKSPACE_EVERYWHERE_SINCE
    chosen = (
        version >= WORKSPACE_SINCE and (capability(split.compute_capability) or 0) // 10 == BLACKWELL // 10
    )
    return WORKSPACE_BYTES if (everywhere or chosen) and version < WORKSPACE_LATER_SINCE else 0


def _per_layer(profile: ModelProfile, batched: int) -> int:
    """Embeddings of every layer for each batched token, where towers may replace them."""
    if not profile.encoders:
        return 0
    widths = (
        resident.part.width
        for resident in profile.parts
        if isinstance(resident.part, Embedding) and resident.part.name.endswith(PER_LAYER_TABLE)
    )
    return batched * sum(widths) * profile.itemsize


def _shared_keys(profile: ModelProfile, counts: dict[Layer, int], split: Split) -> int:
    """What stacked projections weigh beyond the queries alone, on layers of Gemma 4 that have no cache of their own."""
    if not profile.architecture.startswith("Gemma4"):
        return 0
    stacked = {
        part.outputs[0].size: part_bytes(part, split)
        for layer in profile.layer_kinds
        for part in layer.parts
        if isinstance(part, Linear) and part.name.endswith("qkv_proj")
    }
    return sum(
        count * (stacked[part.outputs[0].size] - part_bytes(part, split))
        for layer, count in counts.items()
        for part in layer.parts
        if isinstance(part, Linear) and part.name.endswith("q_proj") and part.outputs[0].size in stacked
    )


def _absorbed(layer: Layer, split: Split, itemsize: int) -> int:
    """Bytes of the dequantized up-projections of one layer."""
    if not any(cache.kind in LATENT for cache in layer.caches):
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
