"""How layers with unlike caches share one pool of blocks.

vLLM 0.33 `v1/core/kv_cache_planning.py`: get_kv_cache_groups, _get_kv_cache_groups_uniform_page_size,
unify_kv_cache_spec_page_size, _get_packed_kv_cache_groups.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from gpuplan.domain.model import CacheKind
from gpuplan.engine.kv_pages import Page
from gpuplan.engine.versions import EngineVersion, group_padding_factor
from gpuplan.units import ceil_div, round_up

PACKING = EngineVersion(0, 20, 1)
"""Groups of unlike pages are packed block by block from here."""
WHOLE_LENGTH = (CacheKind.FULL, CacheKind.LATENT, CacheKind.INDEXER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Layers that share one block table."""

    kind: CacheKind
    block_size: int
    members: tuple[tuple[int, int], ...]
    """(layer, page bytes)."""
    window: int | None = None
    state_blocks: int = 1
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
                return self.state_blocks
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


def grouped(
    pages: Sequence[Sequence[Page]], version: EngineVersion, *, hybrid: bool = True
) -> tuple[Group, ...]:
    """Groups over the whole model; `hybrid` False makes windows full attention (`--disable-hybrid-kv-cache-manager`)."""
    entries = [(layer, page) for layer, held in enumerate(pages) for page in held]
    if not hybrid:
        entries = [(layer, _whole_length(page)) for layer, page in entries]
    if not entries:
        return ()
    if _uniform([page for _, page in entries]):
        return (_group(entries),)
    if len({page.page_bytes for _, page in entries}) > 1:
        packed = _packed(entries) if version >= PACKING else None
        if packed is not None:
            return packed
        entries = _unified(entries)
    return _even(entries, group_padding_factor(version))


def block_bytes(groups: Sequence[Group]) -> int:
    """Bytes of one block of the pool: the largest group decides."""
    return max((group.page_bytes for group in groups), default=0)


def _whole_length(page: Page) -> Page:
    if page.kind in (CacheKind.SLIDING, CacheKind.CHUNKED):
        return replace(page, kind=CacheKind.FULL, window=None, in_flight=0)
    return page


def _uniform(pages: Sequence[Page]) -> bool:
    """Whether all pages always need the same number of token slots."""
    if all(page.kind in WHOLE_LENGTH for page in pages):
        return len({page.block for page in pages}) == 1
    first = pages[0]
    return all(
        (page.kind, page.block, page.window) == (first.kind, first.block, first.window) for page in pages
    ) and (first.kind is not CacheKind.STATE or len({page.page_bytes for page in pages}) == 1)


def _group(entries: Sequence[Entry]) -> Group:
    page = entries[0][1]
    return Group(
        kind=page.kind,
        block_size=page.block,
        members=tuple((layer, each.page_bytes) for layer, each in entries),
        window=page.window,
        state_blocks=page.state_blocks,
        in_flight=page.in_flight,
    )


def _buckets(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries that may share a group, in order of first appearance."""
    buckets: list[list[Entry]] = []
    for entry in entries:
        for bucket in buckets:
            if _uniform([bucket[0][1], entry[1]]):
                bucket.append(entry)
                break
        else:
            buckets.append([entry])
    return buckets


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
        key = (page.kind, page.block, page.window, page.separate)
        buckets.setdefault(key, []).append(entry)
    sizes = [len(bucket) for bucket in buckets.values()]
    size = max(sizes) if max(sizes) < min(sizes) * factor else min(sizes)
    groups = []
    for bucket in buckets.values():
        count = ceil_div(len(bucket), size)
        for number in range(count):
            group = _group(bucket[number::count])
            groups.append(replace(group, padding=size - len(group.members)))
    return tuple(groups)


def _packed(entries: Sequence[Entry]) -> tuple[Group, ...] | None:
    """Block-outermost packing: buckets stay whole, repeating patterns are split alike, states fill what is there."""
    buckets = _buckets(entries)
    shapes = [_by_page(bucket) for bucket in buckets]
    balanced = [len({len(layers) for layers in shape.values()}) == 1 for shape in shapes]
    repeats = _repeats(shapes, balanced)

    def splits(number: int) -> int:
        if repeats is not None and balanced[number]:
            return ceil_div(max(len(layers) for layers in shapes[number].values()), repeats)
        return 1

    def shrinks(number: int) -> bool:
        kind = buckets[number][0][1].kind
        return kind is CacheKind.STATE or (
            repeats is None and kind in (CacheKind.SLIDING, CacheKind.SLIDING_LATENT)
        )

    anchor = max(
        sum(
            ceil_div(len(layers), len(bucket) if shrinks(i) else splits(i)) * page
            for page, layers in shapes[i].items()
        )
        for i, bucket in enumerate(buckets)
    )
    groups: list[Group] = []
    for number, bucket in enumerate(buckets):
        count = splits(number)
        if shrinks(number):
            fitting = max(anchor // bucket[0][1].page_bytes, 1)
            count = max(count, ceil_div(len(bucket), fitting))
        if count == 1:
            groups.append(_group(bucket))
            continue
        pattern = list(zip(*shapes[number].values(), strict=False))
        groups.extend(
            _group([entry for repeat in pattern[start::count] for entry in repeat]) for start in range(count)
        )
    return tuple(groups)


def _by_page(bucket: Sequence[Entry]) -> dict[int, list[Entry]]:
    shape: dict[int, list[Entry]] = {}
    for entry in bucket:
        shape.setdefault(entry[1].page_bytes, []).append(entry)
    return shape


def _repeats(shapes: Sequence[dict[int, list[Entry]]], balanced: Sequence[bool]) -> int | None:
    """Pattern repeats per group that pad least; None when no balanced bucket mixes page sizes."""
    counts = [max(len(layers) for layers in shape.values()) for shape in shapes]
    least = max(
        (n for n, shape, even in zip(counts, shapes, balanced, strict=True) if even and len(shape) > 1),
        default=0,
    )
    if not least:
        return None
    values = [n for n, even in zip(counts, balanced, strict=True) if even]
    if least > max(values):
        return least
    return min(range(least, max(values) + 1), key=lambda d: (sum(round_up(n, d) - n for n in values), -d))
