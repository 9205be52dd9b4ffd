"""Memory of one forward pass over a full batch with attention skipped (`_dummy_run` of the profile run).

Per token and rank the widest moment of a layer counts: residual and hidden states with their normalised copies, and what
the widest linear holds beside them (input and output; a gated MLP's halves and their product). Mixture-of-experts layers
add the fused kernel's two intermediate caches: tokens × top_k × (max(2 I, H) + I) inside `fused_experts`, from 0.14
tokens × top_k × (max(2 I, H) + max(I, H)) in a workspace that is kept (fused_moe/modular_kernel.py
`_allocate_buffers`, `workspace_shapes`, v1/worker/workspace.py). Latent attention simulates the up-projection of its
prefill workspace (v1/attention/backends/mla/common.py `determine_chunked_prefill_workspace_size`).
"""

from dataclasses import dataclass
from functools import lru_cache

from gpuplan.domain.model import CacheKind, Experts, GroupedInteger, Layer, Linear, ModelProfile, Shard
from gpuplan.engine.rank_setting import RankSetting
from gpuplan.engine.versions import EngineVersion
from gpuplan.engine.weights import Indivisible, local_units, stage_layers
from gpuplan.units import ceil_div

STREAMS = 4
"""Residual, hidden states, normalised input and output, each of the hidden size."""
WORKSPACE_KEPT_SINCE = EngineVersion(0, 14)
INTEGER_WORKSPACE_KEPT_SINCE = EngineVersion(0, 24)
UP_PROJECTION = "kv_b_proj"
LATENT_TOKENS = 64 * 1024
PAGE = 64
CHUNK = 32768
"""VLLM_FUSED_MOE_CHUNK_SIZE up to 0.19: the caches hold no more tokens than this."""


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
    dense, sparse = (
        tokens * wide * itemsize,
        STREAMS * tokens * profile.hidden * itemsize + (0 if keeps else routed),
    )
    return ForwardMemory(
        peak=max(
            dense, sparse, tokens * STREAMS * profile.hidden * itemsize + _latent(profile, layers, setting)
        ),
        kept=(routed if keeps else 0) + stages,
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
    """Elements of the fused kernel's caches."""
    parallelism = setting.parallelism
    tokens = min(setting.max_num_batched_tokens, CHUNK)
    ranks = parallelism.tensor * parallelism.data
    share = part.intermediate if parallelism.expert and ranks > 1 else ceil_div(part.intermediate, ranks)
    if parallelism.data > 1:
        tokens = min(tokens * parallelism.data, CHUNK)
    up = share * (2 if part.gated else 1)
    second = max(share, part.hidden) if _keeps(part, setting.version) else share
    return tokens * part.top_k * (max(up, part.hidden) + second)


def _keeps(part: Experts, version: EngineVersion) -> bool:
    """Whether the caches live in the kept workspace: packed integers (Marlin) went there later."""
    since = INTEGER_WORKSPACE_KEPT_SINCE if isinstance(part.scheme, GroupedInteger) else WORKSPACE_KEPT_SINCE
    return version >= since


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
    asked = setting.engine.max_model_len
    length = asked if isinstance(asked, int) and asked > 0 else profile.longest_context or LATENT_TOKENS
    tokens = min(max(8 * length, 4 * setting.max_num_seqs * PAGE), LATENT_TOKENS)
    return max(tokens, setting.max_num_seqs * PAGE) * widest * profile.itemsize
