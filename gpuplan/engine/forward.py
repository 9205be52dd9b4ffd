"""Memory of one forward pass over a full batch with attention skipped (`_dummy_run` of the profile run).

Per token and rank the widest moment of a layer counts: residual and hidden states with their normalised copies, and what
the widest linear holds beside them (input and output; a gated MLP's halves and their product). Mixture-of-experts layers
add the fused kernel's two intermediate caches: tokens × top_k × (max(2 I, H) + I) inside `fused_experts`, from 0.14
tokens × top_k × (max(2 I, H) + max(I, H)) in a workspace that is kept (fused_moe/modular_kernel.py
`_allocate_buffers`, `workspace_shapes`, v1/worker/workspace.py). Latent attention simulates the up-projection of its
prefill workspace (v1/attention/backends/mla/common.py `determine_chunked_prefill_workspace_size`).

Indexers of sparse attention gather 40 × max_model_len keys of 132 bytes in the same kept workspace, from 0.13
(v1/attention/backends/mla/indexer.py `get_max_prefill_buffer_size`), and from 0.19 simulate logits of 512 MiB
(VLLM_SPARSE_INDEXER_MAX_LOGITS_MB). Logged: GLM-5.2 at 819,200 tokens 6.31 GiB, 4.03 of them this (0.26). FlashMLA's
sparse kernel reserves there, for an 8-bit cache, 5 × max_model_len latents and the batch's queries in 16 bits; it does so
when layers are built, so the log books that under the weights (flashmla_sparse.py `get_prefill_workspace_size`).
"""

from dataclasses import dataclass
from functools import lru_cache

from gpuplan.domain.model import CacheKind, Experts, GroupedInteger, Layer, Linear, ModelProfile, Shard
from gpuplan.engine.expert_parallel import batched_elements, gathered_bytes
from gpuplan.engine.rank_setting import HOPPER, RankSetting
from gpuplan.engine.versions import EngineVersion
from gpuplan.engine.weights import UP_PROJECTION, Indivisible, local_units, stage_layers
from gpuplan.units import MIB, ceil_div

STREAMS = 4
"""Residual, hidden states, normalised input and output, each of the hidden size."""
WORKSPACE_KEPT_SINCE = EngineVersion(0, 14)
INTEGER_WORKSPACE_KEPT_SINCE = EngineVersion(0, 24)
LATENT_TOKENS = 64 * 1024
PAGE = 64
INDEXER_GATHERS_SINCE = EngineVersion(0, 13)
INDEXER_LOGITS_SINCE = EngineVersion(0, 19)
INDEXER_LENGTHS = 40
INDEXER_BYTES = 132
INDEXER_LOGITS = 512 * MIB
SPARSE_LENGTHS = 5
SPARSE_BYTES = 576 * 2
CHUNK = 32768
"""VLLM_FUSED_MOE_CHUNK_SIZE up to 0.17: the caches hold no more tokens than this."""
WHOLE_SINCE = EngineVersion(0, 18)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardMemory:
    """Bytes on a rank: `peak` while the pass runs, beside `kept` which stays; `output` is what sampling finds alive."""

    peak: int
    kept: int
    output: int
    width: int


def forward_memory(profile: ModelProfile, setting: RankSetting) -> ForwardMemory:
    """One pass of max_num_batched_tokens tokens through the layers of this rank's pipeline stage."""
    parallelism, itemsize = setting.parallelism, profile.itemsize
    tokens = setting.max_num_batched_tokens
    first, last = stage_layers(profile.layer_count, parallelism.pipeline, parallelism.layer_partition)[
        setting.stage
    ]
    kinds = {profile.layer_order[index] for index in range(first, last)}
    layers = [profile.layer_kinds[kind] for kind in sorted(kinds)]
    width = max((_widest(layer, parallelism.tensor) for layer in layers), default=0)
    wide = STREAMS * profile.hidden + width
    experts = [part for layer in layers for part in layer.parts if isinstance(part, Experts)]
    routed = max((_experts(part, setting) for part in experts), default=0) * itemsize
    keeps = any(_keeps(part, setting.version) for part in experts)
    stages = 2 * tokens * profile.hidden * itemsize if parallelism.pipeline > 1 else 0
    streams = STREAMS * tokens * profile.hidden * itemsize
    gathered, logits = _indexer(profile, layers, setting)
    return ForwardMemory(
        peak=max(
            tokens * wide * itemsize,
            streams + (0 if keeps else routed) + gathered_bytes(profile, setting),
            streams + _latent(profile, layers, setting),
            streams + logits,
        ),
        kept=max(routed if keeps else 0, gathered) + stages,
        output=tokens * profile.hidden * itemsize,
        width=wide,
    )


@lru_cache(maxsize=4096)
def _widest(layer: Layer, ranks: int) -> int:
    """Elements per token that the widest linear of a layer holds on a rank."""
    widest = ceil_div(3 * layer.intermediate, ranks)
    for part in layer.parts:
        if isinstance(part, Linear) and not part.name.endswith(UP_PROJECTION):
            widest = max(widest, _held(part, ranks))
    return widest


def _held(part: Linear, ranks: int) -> int:
    inputs, outputs = part.inputs.size, [p.size for p in part.outputs]
    try:
        if part.shard is Shard.COLUMN:
            outputs = [local_units(part.name, p, ranks) * p.unit_size for p in part.outputs]
            inputs = 0
        elif part.shard is Shard.ROW:
            inputs = local_units(part.name, part.inputs, ranks) * part.inputs.unit_size
            outputs = []
    except Indivisible:
        return 0
    gated = len(outputs) == 2 and outputs[0] == outputs[1]
    return inputs + (ceil_div(3 * sum(outputs), 2) if gated else sum(outputs))


def _experts(part: Experts, setting: RankSetting) -> int:
    """Elements of the fused kernel's caches, over the rows of all replicas that hold the experts together."""
    batched = batched_elements(part, setting)
    if batched is not None:
        return batched
    parallelism = setting.parallelism
    tokens = setting.max_num_batched_tokens * parallelism.data
    if setting.version < WHOLE_SINCE:
        tokens = min(tokens, CHUNK)
    ranks = parallelism.tensor * parallelism.data
    share = part.intermediate if parallelism.expert and ranks > 1 else ceil_div(part.intermediate, ranks)
    up = share * (2 if part.gated else 1)
    second = max(share, part.hidden) if _keeps(part, setting.version) else share
    return tokens * part.top_k * (max(up, part.hidden) + second)


def _keeps(part: Experts, version: EngineVersion) -> bool:
    """Whether the caches live in the kept workspace: packed integers (Marlin) went there later."""
    since = INTEGER_WORKSPACE_KEPT_SINCE if isinstance(part.scheme, GroupedInteger) else WORKSPACE_KEPT_SINCE
    return version >= since


def _indexer(profile: ModelProfile, layers: list[Layer], setting: RankSetting) -> tuple[int, int]:
    """(workspace that stays, logits while the pass runs) of sparse attention's indexers."""
    shared = _tokens_per_key(layers)
    if not shared:
        return 0, 0
    gathered = INDEXER_LENGTHS * INDEXER_BYTES * _length(profile, setting) // shared
    if setting.generation == HOPPER and setting.engine.kv_cache_dtype.startswith("fp8") and shared == 1:
        heads = ceil_div(profile.attention_heads, setting.parallelism.tensor)
        queries = setting.max_num_batched_tokens * heads
        gathered = max(gathered, (queries + SPARSE_LENGTHS * _length(profile, setting)) * SPARSE_BYTES)
    return (
        gathered if setting.version >= INDEXER_GATHERS_SINCE else 0,
        INDEXER_LOGITS if setting.version >= INDEXER_LOGITS_SINCE else 0,
    )


def _tokens_per_key(layers: list[Layer]) -> int:
    """Tokens that share one key of the finest indexer that chooses for latent attention; 0 without such."""
    return min(
        (
            cache.tokens_per_state
            for layer in layers
            for cache in layer.caches
            if cache.kind is CacheKind.INDEXER and cache.chosen
        ),
        default=0,
    )


def decode_logits_bytes(profile: ModelProfile, setting: RankSetting, rows: int) -> int:
    """float32 logits that an indexer writes for `rows` decoding tokens, one per key of the longest context."""
    shared = _tokens_per_key(list(profile.layer_kinds))
    return 4 * rows * _length(profile, setting) // shared if shared else 0


def _length(profile: ModelProfile, setting: RankSetting) -> int:
    asked = setting.engine.max_model_len
    return asked if isinstance(asked, int) and asked > 0 else profile.longest_context or LATENT_TOKENS


def _latent(profile: ModelProfile, layers: list[Layer], setting: RankSetting) -> int:
    """The up-projected context of latent attention that the profile run allocates (not for sparse attention)."""
    if any(cache.kind is CacheKind.INDEXER for layer in profile.layer_kinds for cache in layer.caches):
        return 0
    widest = 0
    for layer in layers:
        if not any(cache.kind is CacheKind.LATENT for cache in layer.caches):
            continue
        for part in layer.parts:
            if isinstance(part, Linear) and part.name.endswith(UP_PROJECTION):
                widest = max(widest, ceil_div(sum(p.size for p in part.outputs), setting.parallelism.tensor))
    tokens = min(max(8 * _length(profile, setting), 4 * setting.max_num_seqs * PAGE), LATENT_TOKENS)
    return max(tokens, setting.max_num_seqs * PAGE) * widest * profile.itemsize
