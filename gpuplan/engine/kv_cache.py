"""KV-cache geometry as vLLM plans it: pages, groups, blocks, and what a request of a given length takes.

vLLM 0.33 `v1/kv_cache_interface.py` (pages, blocks per request) and `v1/core/kv_cache_planning.py` (groups, pool, checks);
older accounting by `engine.versions` and `engine.kv_rules`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpuplan.domain.model import CacheKind, ModelProfile
from gpuplan.engine.kv_groups import Group, group_of, settled
from gpuplan.engine.kv_latent_groups import checked_block_bytes, grouped, pool_bytes, weighed
from gpuplan.engine.kv_pages import CacheSettings, Page, page_lists
from gpuplan.engine.kv_rules import (
    StartNeed,
    chunks_saved,
    override_checked,
    override_counts,
    start_need,
    windows_saved,
)
from gpuplan.engine.versions import EngineVersion, TokensLine, null_block_reserved, tokens_line
from gpuplan.engine.weights import stage_layers
from gpuplan.units import ceil_div

__all__ = [
    "UNBOUNDED",
    "CacheSettings",
    "ModelGeometry",
    "Pool",
    "StageGeometry",
    "checked_bytes",
    "concurrency_curve",
    "geometry",
    "largest_context",
    "model_geometry",
    "pool",
    "usable_bytes",
]

SHORTEST_IN_CURVE = 4096
"""Tokens."""
UNBOUNDED = 2**24
"""Longest context considered where a config states none (tokens)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageGeometry:
    """The shared block pool on the ranks of one pipeline stage."""

    block_bytes: int
    """Bytes one block takes; 0 when the stage caches nothing."""
    block_size: int
    """Tokens of the smallest attention block."""
    groups: tuple[Group, ...]
    shards: int = 1
    """Ranks over which full attention divides a request."""
    weighed: bool = False
    """A group's blocks count by its pages, not one by one."""
    checked_block_bytes: int = 0
    """Bytes of a block as the start-up check counts it."""
    layers: tuple[tuple[Group, int], ...] = ()
    """Every kind of layer on its own with its number, as older start-up checks add them up."""

    def blocks_for(self, context: int) -> int:
        """Blocks one request of `context` tokens needs, summed over the groups."""
        counts = [group.blocks_for(context, self.shards) for group in self.groups]
        if not self.weighed:
            return sum(counts)
        pages = [group.page_bytes for group in self.groups]
        if not pages[0]:
            return sum(counts)
        return ceil_div(sum(count * size for count, size in zip(counts, pages, strict=True)), pages[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Blocks of the replica and what the engine says of them."""

    blocks: int
    tokens: int
    """The "GPU KV cache size" line."""
    concurrency: float
    """Requests of the context that fit at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGeometry:
    """The groups of the whole model, of which every stage sees its own layers."""

    version: EngineVersion
    shards: int
    block_size: int
    groups: tuple[Group, ...]
    pages: tuple[tuple[Page, ...], ...]
    """Of every decoder layer, draft layers last."""

    def block_bytes(self, held: range) -> int:
        """Bytes of one block of a stage that holds these layers."""
        return pool_bytes(tuple(group.on_layers(held) for group in self.groups), self.version)

    def on_layers(self, held: range) -> StageGeometry:
        """The pool of a stage that holds these layers."""
        local = tuple(group.on_layers(held) for group in self.groups)
        alone = Counter(page for layer in held for page in self.pages[layer])
        return StageGeometry(
            block_bytes=pool_bytes(local, self.version),
            block_size=self.block_size,
            groups=local,
            shards=self.shards,
            weighed=weighed(local, self.version),
            checked_block_bytes=checked_block_bytes(local, self.version),
            layers=tuple((group_of([(0, page)]), number) for page, number in alone.items()),
        )


def model_geometry(profile: ModelProfile, settings: CacheSettings) -> ModelGeometry:
    """Layers grouped over the whole model."""
    version, engine = settings.version, settings.engine
    pages = page_lists(profile, settings)
    entries = settled(
        pages,
        version,
        windows=windows_saved(version, engine),
        chunks=chunks_saved(version, engine),
    )
    groups = grouped(entries, version)
    return ModelGeometry(
        version=version,
        shards=settings.context_shards,
        block_size=min(
            (group.block_size for group in groups if group.kind is not CacheKind.STATE),
            default=settings.base_block,
        ),
        groups=groups,
        pages=tuple(pages),
    )


def geometry(
    profile: ModelProfile,
    settings: CacheSettings,
    *,
    stages: int,
    layer_partition: tuple[int, ...] | None = None,
) -> tuple[StageGeometry, ...]:
    """The pool of each pipeline stage: layers are grouped over the whole model, then each stage keeps its own."""
    whole = model_geometry(profile, settings)
    bounds = stage_layers(profile.layer_count, stages, layer_partition)
    return tuple(
        whole.on_layers(range(first, last if stage < stages - 1 else len(whole.pages)))
        for stage, (first, last) in enumerate(bounds)
    )


def usable_bytes(stage: StageGeometry, available: int, settings: CacheSettings) -> int:
    """Bytes the start-up checks count: from 0.29 one null block is left out."""
    return available - (stage.block_bytes if null_block_reserved(settings.version) else 0)


def checked_bytes(stage: StageGeometry, settings: CacheSettings, context: int) -> int:
    """Bytes the start-up check holds one request of `context` tokens to need; older releases leave some out."""
    match start_need(settings.version):
        case StartNeed.LAYERS:
            return sum(
                number * layer.blocks_for(context, stage.shards) * layer.page_bytes
                for layer, number in stage.layers
            )
        case StartNeed.FIRST_GROUP:
            held = next((group for group in stage.groups if group.members), None)
            return held.blocks_for(context, stage.shards) * stage.block_bytes if held else 0
        case _:
            counts = (group.blocks_for(context, stage.shards) for group in stage.groups)
            return sum(counts) * stage.checked_block_bytes


def _blocks(pairs: Sequence[tuple[StageGeometry, int]], settings: CacheSettings) -> int | None:
    """Blocks of the poorest rank; None when nothing is cached anywhere."""
    override = settings.engine.num_gpu_blocks_override
    counts = [max(0, available) // stage.block_bytes for stage, available in pairs if stage.block_bytes]
    if not counts:
        return None
    if override is not None and override_counts(settings.version):
        return override
    return min(counts)


def pool(pairs: Sequence[tuple[StageGeometry, int]], settings: CacheSettings, context: int) -> Pool:
    """The block pool of a replica, given (geometry, bytes available) of every rank, for requests of `context` tokens."""
    blocks = _blocks(pairs, settings)
    if blocks is None:
        return Pool(blocks=0, tokens=0, concurrency=float(settings.max_num_seqs))
    stage = _largest(pairs)
    concurrency = _at_once(blocks, stage, settings, context)
    match tokens_line(settings.version):
        case TokensLine.CONCURRENCY:
            tokens = int(concurrency * context)
        case TokensLine.GROUPS:
            size = min([stage.block_size, *_state_lengths(stage, context)])
            tokens = blocks // max(1, len(stage.groups)) * size * settings.context_shards
        case _:
            tokens = blocks * stage.block_size
            concurrency = tokens / context
    return Pool(blocks=blocks, tokens=tokens, concurrency=concurrency)


def _state_lengths(stage: StageGeometry, context: int) -> list[int]:
    """A state that is not cached by blocks counts as a block of the longest context."""
    return [context for group in stage.groups if group.kind is CacheKind.STATE and group.mode == "none"]


def _largest(pairs: Sequence[tuple[StageGeometry, int]]) -> StageGeometry:
    return max((stage for stage, _ in pairs), key=lambda item: item.block_bytes)


def _at_once(blocks: int, stage: StageGeometry, settings: CacheSettings, context: int) -> float:
    needed = stage.blocks_for(context)
    return blocks / needed if needed else float(settings.max_num_seqs)


def concurrency_curve(
    pairs: Sequence[tuple[StageGeometry, int]],
    settings: CacheSettings,
    longest: int,
    lengths: Sequence[int] = (),
) -> tuple[tuple[int, float], ...]:
    """(context, requests of it that fit at once) for 4k, doubled up to `longest`, and for `lengths` up to it."""
    blocks = _blocks(pairs, settings)
    stage = _largest(pairs)
    wanted, length = {longest, *(one for one in lengths if one <= longest)}, SHORTEST_IN_CURVE
    while length < longest:
        wanted.add(length)
        length *= 2
    return tuple(
        (
            length,
            float(settings.max_num_seqs) if blocks is None else _at_once(blocks, stage, settings, length),
        )
        for length in sorted(wanted)
    )


def largest_context(
    pairs: Sequence[tuple[StageGeometry, int]], settings: CacheSettings, limit: int, concurrency: int = 1
) -> int:
    """Longest context up to `limit` of which `concurrency` requests fit on every rank; 0 when not even one token does."""
    distinct: dict[StageGeometry, int] = {}
    for stage, available in pairs:
        if stage.block_bytes:
            distinct[stage] = min(available, distinct.get(stage, available))
    override = settings.engine.num_gpu_blocks_override if override_checked(settings.version) else None

    def fits(context: int) -> bool:
        for stage, available in distinct.items():
            room = (
                usable_bytes(stage, available, settings) if override is None else override * stage.block_bytes
            )
            if stage.blocks_for(context) * concurrency * stage.block_bytes > room:
                return False
        return True

    if not distinct:
        return limit
    if not fits(1):
        return 0
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
