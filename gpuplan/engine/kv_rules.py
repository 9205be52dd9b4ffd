"""How a release shares the KV cache among layers: what `engine.kv_pages` and `engine.kv_groups` ask of a version.

Read in the published wheels 0.8.0 to 0.33.0, every minor release and most patches: `v1/core/kv_cache_utils.py`
(from 0.33 `kv_cache_planning.py`), `v1/kv_cache_interface.py`, `model_executor/models/config.py`,
`platforms/interface.py`, `platforms/cuda.py`, `config/vllm.py`. A boundary is the first release with the rule.
"""

from enum import StrEnum

from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.versions import EngineVersion

V = EngineVersion
KERNELS_CHOOSE_BLOCKS = V(0, 20)
"""The hybrid block follows the attention backend's own sizes from here (`Platform._align_hybrid_block_size`)."""
SLIDING_SPECS = V(0, 8, 3)
"""Windows have a cache of their own from here; before, every layer was planned as full attention."""
FLASHINFER_STATES = V(0, 33)
MAMBA2_CHECKPOINTS = V(0, 32)
CHECKPOINT_ALIGNMENT = 64
"""Tokens: where FlashInfer's gated delta net can hand out a state in the middle of a prefill."""
KEPT_IN_ALL_MODE = frozenset({"mamba1", "mamba2"})
"""State types whose models cache every block's state (`SupportsMambaPrefixCaching`)."""


class LatentGroups(StrEnum):
    """How windows of latent caches (DeepSeek-V4) are grouped and what a block then takes."""

    TUPLES = "tuples"
    """0.20 to 0.22: every group takes the longest run of layers, times one page of each size."""
    SLOTS = "slots"
    """0.23 to 0.26: per page size the most layers a group has of it."""
    STACKED = "stacked"
    """0.27, 0.28: the largest group; windows keep their own page size."""
    PACKED = "packed"
    """From 0.29 (`_get_packed_kv_cache_groups`)."""


class StartNeed(StrEnum):
    """What the check "To serve at least one request" adds up."""

    LAYERS = "layers"
    """Up to 0.13: every layer on its own, ungrouped."""
    FIRST_GROUP = "first_group"
    """0.14 to 0.18: the blocks of the first group only, so hybrid models start that cannot hold a request."""
    GROUPS = "groups"
    """From 0.19: the blocks of all groups."""


def latent_groups(version: EngineVersion) -> LatentGroups:
    """`group_and_unify_kv_cache_specs`, `_pool_bytes_per_block`."""
    if version >= V(0, 29):
        return LatentGroups.PACKED
    if version >= V(0, 27):
        return LatentGroups.STACKED
    return LatentGroups.SLOTS if version >= V(0, 23) else LatentGroups.TUPLES


def start_need(version: EngineVersion) -> StartNeed:
    """`check_enough_kv_cache_memory`, from 0.14 `_max_memory_usage_bytes_from_groups`."""
    if version >= V(0, 19):
        return StartNeed.GROUPS
    return StartNeed.FIRST_GROUP if version >= V(0, 14) else StartNeed.LAYERS


def override_counts(version: EngineVersion) -> bool:
    """Whether `--num-gpu-blocks-override` sets the blocks: 0.9.1 only logs it (`get_num_blocks`)."""
    return not V(0, 9, 1) <= version < V(0, 9, 2)


def override_checked(version: EngineVersion) -> bool:
    """Whether start-up checks look at the override instead of the memory: from 0.20.1."""
    return version >= V(0, 20, 1)


def windows_saved(version: EngineVersion, engine: EngineArguments) -> bool:
    """Whether windows beside full attention keep only themselves (the hybrid KV cache manager, from 0.9.1).

    A KV connector switches it off up to 0.21, unless it is asked for (from 0.13); from 0.22 the connector decides,
    and the common ones allow it (`VllmConfig.__post_init__`, `KVConnectorFactory.supports_hma_config`).
    """
    if version < V(0, 9, 1) or engine.disable_hybrid_kv_cache_manager:
        return False
    wanted = engine.disable_hybrid_kv_cache_manager is False and version >= V(0, 13)
    return wanted or not engine.kv_transfer_config or version >= V(0, 22)


def chunks_known(version: EngineVersion) -> bool:
    """Whether chunked local attention (Llama 4) has a cache of its own: from 0.10.0."""
    return version >= V(0, 10)


def chunks_saved(version: EngineVersion, engine: EngineArguments) -> bool:
    """Whether chunked layers keep only their chunk: not in 0.10.1 to 0.13, where it cost latency
    (`VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE`), nor with EAGLE or MTP drafts.
    """
    if V(0, 10, 1) <= version < V(0, 14):
        return False
    return windows_saved(version, engine) and not _drafts_by_eagle(engine.speculative_method)


def _drafts_by_eagle(method: str) -> bool:
    return method.startswith("eagle") or method.endswith("mtp")


def context_shards(version: EngineVersion, *, decode: int, prefill: int) -> int:
    """Ranks over which full attention divides a request's tokens.

    Decode context parallelism from 0.10.2, prefill context parallelism beside it from 0.12 to 0.25
    (`FullAttentionSpec.max_memory_usage_bytes`).
    """
    return decode * prefill if V(0, 12) <= version < V(0, 26) else decode


def caches_prefixes(version: EngineVersion, engine: EngineArguments, *, attention: bool) -> bool:
    """Whether a model with recurrent states caches prefixes.

    Never up to 0.11.0, on request up to 0.27, by default from 0.28 where it also has attention
    (`ModelConfig.is_prefix_caching_supported`, `EngineArgs._set_default_chunked_prefill_and_prefix_caching_args`).
    """
    if version < V(0, 11, 1):
        return False
    asked = engine.enable_prefix_caching
    return asked if asked is not None else attention and version >= V(0, 28)


def state_mode(version: EngineVersion, engine: EngineArguments, *, kind: str | None, attention: bool) -> str:
    """none, align or all: which states of a sequence are kept (`MambaModelConfig.verify_and_update_config`)."""
    if not caches_prefixes(version, engine, attention=attention):
        return "none"
    every = kind in KEPT_IN_ALL_MODE
    if version < V(0, 15):
        return "all" if every else "none"
    if version >= V(0, 32):
        return "align"
    asked = engine.mamba_cache_mode
    if asked in (None, "none"):
        drafts = bool(engine.speculative_config) and V(0, 20) <= version < V(0, 22)
        return "all" if every and version < V(0, 28) and not drafts else "align"
    return "align" if asked == "all" and not every else str(asked)


def checkpoint_blocks(version: EngineVersion, kind: str | None, capability: str | None) -> int:
    """Further states a request holds in `align` mode, exported in the middle of a prefill.

    Mamba-2 from 0.32 (`mamba_mixer2.py`); gated delta nets from 0.33 where FlashInfer prefills them: Hopper, and
    Blackwell with CUDA 13 (`qwen_gdn_linear_attn.py`).
    """
    if kind == "mamba2":
        return int(version >= MAMBA2_CHECKPOINTS)
    return int(kind == "gdn" and version >= FLASHINFER_STATES and flashinfer_states(capability))


def flashinfer_states(capability: str | None) -> bool:
    """Whether FlashInfer computes gated delta nets on this compute capability (None: as on Hopper)."""
    known = capability or "9.0"
    return known == "9.0" or known.partition(".")[0] in ("10", "12")


def latent_block(version: EngineVersion, capability: str | None, *, sparse: bool, one_byte: bool) -> int:
    """Tokens a block must have for the latent-attention kernel the engine takes by default (0: any).

    Up to 0.17 the platform forces a size (`CudaPlatformBase.check_and_update_config`): FlashMLA 64 on Hopper, CUTLASS
    128 on Blackwell from 0.10, FlashInfer 64 there from 0.15, sparse kernels 64. From 0.18 it is the backend's own:
    FlashInfer 32 on Blackwell, FlashMLA 64 for 8-bit caches on Hopper, else a multiple of 16.
    """
    major = (capability or "").partition(".")[0]
    if version >= V(0, 18):
        if major == "10":
            return 32
        return 64 if one_byte and major == "9" else 0
    if sparse or major == "9":
        return 64
    if major != "10" or version < V(0, 10):
        return 0
    return 64 if version >= V(0, 15) else 128


def state_alignment(
    version: EngineVersion, capability: str | None, *, latent: bool, head_size: int, block: int
) -> int:
    """Tokens the attention block of a model with recurrent states is a multiple of.

    16 up to 0.11.0; then 64 for latent attention, and 32 for heads of 256 on Blackwell up to 0.17
    (`HybridAttentionMambaModelConfig`); from 0.20 the block of the backend or the asked one, and at least 128 for
    latent attention from 0.27 (`Platform._align_hybrid_block_size`).
    """
    if version >= KERNELS_CHOOSE_BLOCKS:
        return max(block, 128) if latent and version >= V(0, 27) else block
    if version < V(0, 11, 1):
        return 16
    if latent:
        return 64
    family = (capability or "").startswith("10.") if version >= V(0, 13) else capability == "10.0"
    return 32 if family and head_size == 256 and version < V(0, 18) else 16
