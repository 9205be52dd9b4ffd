"""The page every layer keeps in one block, on one rank.

Block sizes: vLLM 0.33 `platforms/interface.py` (hybrid alignment), attention backends' supported kernel block sizes.
"""

from dataclasses import dataclass
from math import lcm, prod

from gpuplan.domain.model import Cache, CacheKind, Layer, ModelProfile, StateShape
from gpuplan.domain.workload import NO_ARGUMENTS, EngineArguments
from gpuplan.engine import kv_rules
from gpuplan.engine.versions import EngineVersion, default_async_scheduling, in_flight_batches
from gpuplan.units import ceil_div, round_up

DEFAULT_BLOCK = 16
INDEXER_BLOCK = 64
ELEMENT_BYTES = {
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8_inc": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5625,
    "int4_per_token_head": 0.5,
    "bfloat16": 2.0,
    "float16": 2.0,
    "float32": 4.0,
}
PER_TOKEN_HEAD_SCALE = 4.0
ONE_BYTE = ("fp8", "int8")
LATENT_TOKEN_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
TURBOQUANT_BITS = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}
"""Bits of keys and values (`layers/quantization/turboquant/config.py`, from 0.20)."""
TURBOQUANT_EXEMPT = 2
"""Layers at either end of a model without recurrent states that TurboQuant leaves as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """Everything the geometry depends on besides the model."""

    version: EngineVersion
    engine: EngineArguments = NO_ARGUMENTS
    tensor: int = 1
    pipeline: int = 1
    decode_context: int = 1
    prefill_context: int = 1
    compute_capability: str | None = None
    backend: str = "cuda"
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    draft_layers: int = 0

    @property
    def base_block(self) -> int:
        return self.engine.block_size or DEFAULT_BLOCK

    @property
    def in_flight_tokens(self) -> int:
        """Tokens scheduled but not settled, which windows must keep beside their own length."""
        scheduling = self.engine.async_scheduling
        batches = in_flight_batches(
            self.version,
            async_scheduling=default_async_scheduling(self.version) if scheduling is None else scheduling,
            pipeline=self.pipeline,
        )
        return batches * self.max_num_batched_tokens

    @property
    def context_shards(self) -> int:
        """Ranks over which full attention divides a request."""
        return kv_rules.context_shards(self.version, decode=self.decode_context, prefill=self.prefill_context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One layer's share of a block."""

    kind: CacheKind
    block: int
    """Tokens; for a state, those of the attention block it is aligned to."""
    page_bytes: int
    window: int | None = None
    state_blocks: int = 1
    """State pages a request holds whatever its length."""
    mode: str = "none"
    """Which states of a sequence are kept: none (the last), align, all (one per block besides `state_blocks`)."""
    in_flight: int = 0
    separate: str | None = None
    shape: tuple[float, ...] = ()
    """What tells layers of one page size apart: heads, key and value width, bytes of a number."""


def element_bytes(profile: ModelProfile, asked: str) -> float:
    """Bytes of one cached number: `auto` follows the checkpoint's wish, else the model's dtype."""
    name = resolved_dtype(profile, asked)
    if name == "auto":
        return float(profile.itemsize)
    if name in ELEMENT_BYTES:
        return ELEMENT_BYTES[name]
    return 1.0 if name.startswith(ONE_BYTE) else float(profile.itemsize)


def resolved_dtype(profile: ModelProfile, asked: str) -> str:
    """The KV dtype after reading the checkpoint: `auto` may become fp8."""
    return profile.kv_cache_dtype or "auto" if asked == "auto" else asked


def page_lists(profile: ModelProfile, settings: CacheSettings) -> list[tuple[Page, ...]]:
    """Pages of every decoder layer in order, draft layers last."""
    block = block_size(profile, settings)
    known: dict[tuple[Layer, frozenset[CacheKind]], tuple[Page, ...]] = {}
    order = [profile.layer_kinds[kind] for kind in profile.layer_order]
    order += [profile.draft_kinds[kind] for kind in profile.draft_order[: settings.draft_layers]]
    padded = _padded_state_page(profile, settings, block)
    attention = _attention_bytes_per_token(profile, settings) > 0
    made = []
    for number, layer in enumerate(order):
        plain = _unquantized(layer, number, profile, settings)
        key = (layer, plain)
        if key not in known:
            known[key] = tuple(
                _state_page(cache, settings, block, padded, attention=attention)
                if cache.kind is CacheKind.STATE
                else _page(
                    cache, profile, settings, block, "bfloat16" if cache.kind in plain else _asked(settings)
                )
                for cache in layer.caches
            )
        made.append(known[key])
    return made


def _asked(settings: CacheSettings) -> str:
    return settings.engine.kv_cache_dtype


def _unquantized(
    layer: Layer, number: int, profile: ModelProfile, settings: CacheSettings
) -> frozenset[CacheKind]:
    """Kinds of caches of this layer that stay in the model's type (`--kv-cache-dtype-skip-layers`, from 0.19).

    Named by the layer's number or as `sliding_window`; TurboQuant adds the ends of a model.
    """
    skipped = set(settings.engine.kv_cache_dtype_skip_layers)
    if _asked(settings) in TURBOQUANT_BITS and not any(
        cache.kind is CacheKind.STATE for kind in profile.layer_kinds for cache in kind.caches
    ):
        ends = min(TURBOQUANT_EXEMPT, profile.layer_count // 2)
        if number < ends or profile.layer_count - ends <= number < profile.layer_count:
            skipped.add(str(number))
    if not skipped:
        return frozenset()
    kinds = {cache.kind for cache in layer.caches}
    if str(number) in skipped:
        return frozenset(kinds)
    return frozenset(kinds & {CacheKind.SLIDING} if "sliding_window" in skipped else ())


def _state_page(
    cache: Cache, settings: CacheSettings, block: int, padded: int | None, *, attention: bool
) -> Page:
    """A state: one per request; with prefix caching two, or one per block; more while drafting (from 0.15)."""
    version, engine = settings.version, settings.engine
    mode = kv_rules.state_mode(version, engine, kind=cache.state_type, attention=attention)
    drafts = engine.speculative_tokens if version >= EngineVersion(0, 15) else 0
    match mode:
        case "all":
            held = drafts if version >= EngineVersion(0, 22) else 0
        case "align":
            held = 2 + drafts
            held += kv_rules.checkpoint_blocks(version, cache.state_type, settings.compute_capability)
        case _:
            held = 1 + drafts
    return Page(
        kind=cache.kind,
        block=block,
        page_bytes=max(state_bytes(cache, settings), padded or 0),
        state_blocks=held,
        mode=mode,
        separate=cache.group,
    )


def _page(cache: Cache, profile: ModelProfile, settings: CacheSettings, block: int, asked: str) -> Page:
    own = cache.page_tokens or block
    heads = _local_heads(cache, settings.tensor)
    return Page(
        kind=cache.kind,
        block=own,
        page_bytes=round_up(attention_page_bytes(cache, profile, settings, own, asked), cache.page_alignment),
        window=cache.window,
        in_flight=settings.in_flight_tokens if cache.window is not None else 0,
        separate=cache.group,
        shape=(heads, cache.head_size, cache.head_size_v or cache.head_size, element_bytes(profile, asked)),
    )


def attention_page_bytes(
    cache: Cache, profile: ModelProfile, settings: CacheSettings, block: int, asked: str
) -> int:
    """Bytes of one page of an attention cache before padding."""
    return int(
        _local_heads(cache, settings.tensor)
        * (block / cache.tokens_per_state)
        * content_bytes(cache, profile, settings, asked)
    )


def content_bytes(cache: Cache, profile: ModelProfile, settings: CacheSettings, asked: str) -> float:
    """Bytes of one entry of one head: key and value, or the latent vector."""
    if cache.fixed_bytes_per_token is not None:
        return float(cache.fixed_bytes_per_token)
    name = resolved_dtype(profile, asked)
    element = element_bytes(profile, asked)
    if cache.kind in (CacheKind.LATENT, CacheKind.SLIDING_LATENT, CacheKind.INDEXER):
        if cache.packed_float8_bytes is not None and element == 1.0 and _packs_scales(settings):
            return float(cache.packed_float8_bytes)
        return float(LATENT_TOKEN_BYTES.get(name, cache.head_size * element))
    values = _value_size(cache, settings.version)
    if name in TURBOQUANT_BITS:
        return float(_turboquant_bytes(cache.head_size, name))
    scales = 2 * PER_TOKEN_HEAD_SCALE if name.endswith("_per_token_head") else 0.0
    return (cache.head_size + values) * element + scales


def _value_size(cache: Cache, version: EngineVersion) -> int:
    """Width of a value; as wide as the key up to 0.13, in windows up to 0.19 (`head_size_v` of the specs)."""
    since = EngineVersion(0, 20) if cache.kind is CacheKind.SLIDING else EngineVersion(0, 14)
    return cache.head_size if cache.head_size_v is None or version < since else cache.head_size_v


def _turboquant_bytes(width: int, name: str) -> int:
    """Key and value of one head: packed codes with a norm (keys below 8 bits) and a scale and zero (values)."""
    keys, values = TURBOQUANT_BITS[name]
    packed = width if keys == 8 else ceil_div(width * keys, 8) + 2
    return round_up(packed + ceil_div(width * values, 8) + 4, 2)


def _packs_scales(settings: CacheSettings) -> bool:
    """Whether sparse MLA keeps 8-bit latents with their scales beside them: Hopper and capability 12, not Blackwell's 10."""
    return not (settings.compute_capability or "9.0").startswith("10.")


def _local_heads(cache: Cache, tensor: int) -> int:
    if cache.kind in (CacheKind.LATENT, CacheKind.SLIDING_LATENT, CacheKind.INDEXER):
        return 1
    return max(1, cache.heads // tensor)


def state_bytes(cache: Cache, settings: CacheSettings) -> int:
    """Natural bytes of one recurrent state on a rank."""
    return sum(_state_tensor_bytes(state, settings) for state in cache.states)


def _state_tensor_bytes(state: StateShape, settings: CacheSettings) -> int:
    shape = state.on_rank(settings.tensor, settings.engine.speculative_tokens)
    return int(prod(shape) * _state_itemsize(state, settings.engine))


def _state_itemsize(state: StateShape, engine: EngineArguments) -> float:
    asked = engine.mamba_ssm_cache_dtype if state.dtype_setting == "ssm" else engine.mamba_cache_dtype
    if asked == "auto" and state.dtype_setting == "ssm" and engine.mamba_cache_dtype != "auto":
        asked = engine.mamba_cache_dtype
    return ELEMENT_BYTES.get(asked, state.itemsize)


def block_size(profile: ModelProfile, settings: CacheSettings) -> int:
    """Tokens of an attention block: the asked or default size, raised to what kernels and recurrent states need."""
    caches = [cache for layer in profile.layer_kinds for cache in layer.caches]
    block = max([settings.base_block, *(_kernel_block(cache, profile, settings) for cache in caches)])
    states = [cache for cache in caches if cache.kind is CacheKind.STATE]
    per_token = _attention_bytes_per_token(profile, settings)
    if not states or not per_token:
        return block
    align = kv_rules.state_alignment(
        settings.version,
        settings.compute_capability,
        latent=any(cache.kind is CacheKind.LATENT for cache in caches),
        head_size=profile.head_size,
        block=block,
    )
    mode = {
        kv_rules.state_mode(settings.version, settings.engine, kind=cache.state_type, attention=True)
        for cache in states
    }
    if mode == {"align"} and settings.version >= kv_rules.FLASHINFER_STATES:
        known = kv_rules.flashinfer_states(settings.compute_capability)
        if known and all(cache.state_type == "gdn" for cache in states):
            align = lcm(align, kv_rules.CHECKPOINT_ALIGNMENT)
    largest = max(state_bytes(cache, settings) for cache in states)
    return max(block, align * ceil_div(largest, align * per_token))


def _kernel_block(cache: Cache, profile: ModelProfile, settings: CacheSettings) -> int:
    """Smallest block the attention kernel of a cache takes."""
    if cache.page_tokens is not None:
        return cache.page_tokens
    if cache.kind is CacheKind.INDEXER:
        return cache.least_block or INDEXER_BLOCK
    if cache.kind is not CacheKind.LATENT or cache.least_block:
        return cache.least_block
    return kv_rules.latent_block(
        settings.version,
        settings.compute_capability,
        sparse=cache.packed_float8_bytes is not None,
        one_byte=element_bytes(profile, settings.engine.kv_cache_dtype) == 1.0,
    )


def _attention_bytes_per_token(profile: ModelProfile, settings: CacheSettings) -> int:
    """Bytes per token of one full-attention layer on a rank, the unit state pages are aligned to; 0 without attention."""
    kinds = (CacheKind.FULL, CacheKind.LATENT)
    sizes = [
        attention_page_bytes(cache, profile, settings, 1, settings.engine.kv_cache_dtype)
        for layer in profile.layer_kinds
        for cache in layer.caches
        if cache.kind in kinds
    ]
    return max(sizes, default=0)


def _padded_state_page(profile: ModelProfile, settings: CacheSettings, block: int) -> int | None:
    per_token = _attention_bytes_per_token(profile, settings)
    return block * per_token if per_token else None
