"""How layers with unlike caches share one pool of blocks.

vLLM 0.33 `v1/core/kv_cache_planning.py` (before: `kv_cache_utils.py`): get_kv_cache_groups,
_get_kv_cache_groups_uniform_page_size, unify_kv_cache_spec_page_size; latent windows in `engine.kv_latent_groups`.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from gpuplan.domain.model import CacheKind
from gpuplan.engine.kv_pages import Page
from gpuplan.engine.kv_rules import SLIDING_SPECS, chunks_known
from gpuplan.engine.versions import EngineVersion, group_padding_factor
from gpuplan.units import ceil_div

WHOLE_LENGTH = (CacheKind.FULL, CacheKind.LATENT, CacheKind.INDEXER)
WINDOWS = {CacheKind.SLIDING: CacheKind.FULL, CacheKind.SLIDING_LATENT: CacheKind.LATENT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Layers that share one block table."""

    kind: CacheKind
    block_size: int
    members: tuple[tuple[int, int], ...]
    """(layer, page bytes)."""
    window: int | None = None
    state_blocks: int = 1
    mode: str = "none"
    in_flight: int = 0
    padding: int = 0
    """Page slots that stand empty because other groups are larger (uniform pages)."""

    def on_layers(self, layers: Container[int]) -> "Group":
        """The group as a pipeline stage that holds `layers` sees it."""
        return replace(self, members=tuple(member for member in self.members if member[0] in layers))

    @property
    def page_bytes(self) -> int:
        return sum(size for _, size in self.members)

    def blocks_for(self, context: int, dcp: int = 1) -> int:
        """Blocks one request of `context` tokens takes from the pool."""
        match self.kind:
            case CacheKind.STATE:
                kept = ceil_div(context, self.block_size) if self.mode == "all" else 0
                return kept + self.state_blocks
            case CacheKind.SLIDING | CacheKind.SLIDING_LATENT:
                kept = min((self.window or 1) - 1 + self.in_flight, context)
                return ceil_div(kept, self.block_size) + 1
            case CacheKind.CHUNKED:
                return ceil_div(min((self.window or 1) + self.in_flight, context), self.block_size)
            case CacheKind.CROSS:
                return ceil_div(self.window or 1, self.block_size)
            case _:
                return ceil_div(ceil_div(context, dcp), self.block_size)


Entry = tuple[int, Page]


def settled(
    pages: Sequence[Sequence[Page]], version: EngineVersion, *, windows: bool = True, chunks: bool = True
) -> list[Entry]:
    """(layer, page) of the whole model; windows and chunks that the release or the arguments do not save stay whole.

    Only beside full attention: a model of windows alone keeps them (`unify_hybrid_kv_cache_specs`).
    """
    entries = [(layer, page) for layer, held in enumerate(pages) for page in held]
    if not chunks_known(version):
        entries = [
            (layer, _whole(page) if page.kind is CacheKind.CHUNKED else page) for layer, page in entries
        ]
    whole = [page for _, page in entries if page.kind in WHOLE_LENGTH]
    if version < SLIDING_SPECS:
        return [(layer, _whole(page)) for layer, page in entries]
    if not whole or (windows and chunks):
        return entries
    return [
        (layer, page)
        if (chunks and page.kind is CacheKind.CHUNKED) or (windows and page.kind is not CacheKind.CHUNKED)
        else (layer, _whole(page))
        for layer, page in entries
    ]


def uniform_groups(entries: Sequence[Entry], version: EngineVersion) -> tuple[Group, ...]:
    """Groups over the whole model, unlike pages made equal."""
    if not entries:
        return ()
    if one_kind([page for _, page in entries]):
        return (group_of(entries),)
    if len({page.page_bytes for _, page in entries}) > 1:
        entries = _unified(entries)
    return _even(entries, group_padding_factor(version))


def block_bytes(groups: Sequence[Group]) -> int:
    """Bytes of one block of the pool: the largest group decides."""
    return max((group.page_bytes for group in groups), default=0)


def _whole(page: Page) -> Page:
    if page.kind is CacheKind.CHUNKED:
        return replace(page, kind=CacheKind.FULL, window=None, in_flight=0)
    if page.kind in WINDOWS:
        return replace(page, kind=WINDOWS[page.kind], window=None, in_flight=0)
    return page


def one_kind(pages: Sequence[Page]) -> bool:
    """Whether all pages always need the same number of token slots."""
    if all(page.kind in WHOLE_LENGTH for page in pages):
        return len({page.block for page in pages}) == 1
    first = pages[0]
    return all(
        (page.kind, page.block, page.window) == (first.kind, first.block, first.window) for page in pages
    ) and (first.kind is not CacheKind.STATE or len({page.page_bytes for page in pages}) == 1)


def group_of(entries: Sequence[Entry]) -> Group:
    """One group of these layers, which caches as its first one does."""
    page = entries[0][1]
    return Group(
        kind=page.kind,
        block_size=page.block,
        members=tuple((layer, each.page_bytes) for layer, each in entries),
        window=page.window,
        state_blocks=page.state_blocks,
        mode=page.mode,
        in_flight=page.in_flight,
    )


def _unified(entries: Sequence[Entry]) -> list[Entry]:
    """Pages made equal: smaller ones get longer blocks where they divide the largest, else are padded."""
    largest = max(page.page_bytes for _, page in entries)
    unified = []
    for layer, page in entries:
        ratio, rest = divmod(largest, page.page_bytes)
        if page.kind is CacheKind.STATE or rest:
            unified.append((layer, replace(page, page_bytes=largest)))
        else:
            unified.append((layer, replace(page, page_bytes=largest, block=page.block * ratio)))
    return unified


def _even(entries: Sequence[Entry], factor: float) -> tuple[Group, ...]:
    """Groups of equal size: the rarest kind's count, or the commonest's when they are close."""
    buckets: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        page = entry[1]
        key = (page.kind, page.block, page.window, page.separate, page.shape)
        buckets.setdefault(key, []).append(entry)
    sizes = [len(bucket) for bucket in buckets.values()]
    size = max(sizes) if max(sizes) < min(sizes) * factor else min(sizes)
    groups = []
    for bucket in buckets.values():
        count = ceil_div(len(bucket), size)
        for number in range(count):
            group = group_of(bucket[number::count])
            groups.append(replace(group, padding=size - len(group.members)))
    return tuple(groups)
