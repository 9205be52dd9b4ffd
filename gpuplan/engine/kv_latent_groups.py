"""Groups of models whose latent caches have windows (DeepSeek-V4), and the bytes of their blocks.

vLLM 0.20 to 0.28 `v1/core/kv_cache_utils.py`: group_and_unify_kv_cache_specs, _get_kv_cache_groups_uniform_groups,
_pool_bytes_per_block; from 0.29 _get_packed_kv_cache_groups (0.33: `kv_cache_planning.py`). Only backends of such models
ask for blocks with the layers inside (`supported_kv_cache_layouts`), so no other model is packed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gpuplan.domain.model import CacheKind
from gpuplan.engine.kv_groups import (
    WHOLE_LENGTH,
    Entry,
    Group,
    block_bytes,
    group_of,
    one_kind,
    uniform_groups,
)
from gpuplan.engine.kv_rules import LatentGroups, latent_groups
from gpuplan.engine.versions import EngineVersion
from gpuplan.units import ceil_div, round_up

WINDOWS_SPLIT_SINCE = EngineVersion(0, 30)
"""Windows, too, fill what a block has room for from here (`is_state_bucket`)."""


def grouped(entries: Sequence[Entry], version: EngineVersion) -> tuple[Group, ...]:
    """Groups over the whole model."""
    if not latent_windows(entries) or one_kind([page for _, page in entries]):
        return uniform_groups(entries, version)
    if len({page.page_bytes for _, page in entries}) == 1 and version >= EngineVersion(0, 26):
        return uniform_groups(entries, version)
    if latent_groups(version) is LatentGroups.PACKED:
        return _packed(entries, version)
    return _tuples(entries, padded=latent_groups(version) is not LatentGroups.STACKED)


def latent_windows(entries: Sequence[Entry]) -> bool:
    """Whether the model has latent caches with windows."""
    return any(page.kind is CacheKind.SLIDING_LATENT for _, page in entries)


def pool_bytes(groups: Sequence[Group], version: EngineVersion) -> int:
    """Bytes of one block of the pool."""
    if not weighed(groups, version):
        return block_bytes(groups)
    if latent_groups(version) is LatentGroups.TUPLES:
        return _tuple_bytes(groups)
    shapes = [_sizes(group) for group in groups]
    sizes = {size for shape in shapes for size in shape}
    return sum(size * max(shape[size] for shape in shapes) for size in sizes)


def checked_block_bytes(groups: Sequence[Group], version: EngineVersion) -> int:
    """Bytes of a block as the start-up check counts it: up to 0.28 still by tuples."""
    if _unlike_windows(groups) and latent_groups(version) is not LatentGroups.PACKED:
        return _tuple_bytes(groups)
    return pool_bytes(groups, version)


def _sizes(group: Group) -> Counter[int]:
    return Counter(size for _, size in group.members)


def _tuple_bytes(groups: Sequence[Group]) -> int:
    """The most layers of one page size in a group, times one page of every size of the first group."""
    most = max((count for group in groups for count in _sizes(group).values()), default=0)
    return most * sum(_sizes(groups[0]))


def _unlike_windows(groups: Sequence[Group]) -> bool:
    return len(groups) > 1 and any(group.kind is CacheKind.SLIDING_LATENT for group in groups)


def weighed(groups: Sequence[Group], version: EngineVersion) -> bool:
    """Whether blocks of a request are weighed by the pages of their group (up to 0.26)."""
    return _unlike_windows(groups) and latent_groups(version) in (LatentGroups.TUPLES, LatentGroups.SLOTS)


def _tuples(entries: Sequence[Entry], *, padded: bool) -> tuple[Group, ...]:
    """All whole-length caches in one group; windows split into groups that repeat the pattern about as often.

    `padded`: a window's page is padded to the next size that whole-length caches have.
    """
    whole = [entry for entry in entries if entry[1].kind in WHOLE_LENGTH]
    windows: dict[tuple[int, int | None], list[Entry]] = {}
    for entry in entries:
        if entry[1].kind not in WHOLE_LENGTH:
            windows.setdefault((entry[1].block, entry[1].window), []).append(entry)
    repeats = [_most(held) for held in (whole, *windows.values())]
    chosen = _least_padding(repeats, repeats[0])
    sizes = sorted({page.page_bytes for _, page in whole})
    groups = [group_of(whole)]
    for held in windows.values():
        made = held
        if padded:
            made = [
                (
                    layer,
                    replace(
                        page, page_bytes=next((s for s in sizes if s >= page.page_bytes), page.page_bytes)
                    ),
                )
                for layer, page in held
            ]
        pattern = list(zip(*_by_page(made).values(), strict=False))
        count = ceil_div(len(pattern), chosen)
        groups.extend(
            group_of([entry for repeat in pattern[start::count] for entry in repeat])
            for start in range(count)
        )
    return tuple(groups)


def _packed(entries: Sequence[Entry], version: EngineVersion) -> tuple[Group, ...]:
    """Buckets stay whole, repeating patterns are split alike, states (and windows) fill what is there."""
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
        windows = kind in (CacheKind.SLIDING, CacheKind.SLIDING_LATENT)
        return kind is CacheKind.STATE or (windows and repeats is None and version >= WINDOWS_SPLIT_SINCE)

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
            groups.append(group_of(bucket))
            continue
        pattern = list(zip(*shapes[number].values(), strict=False))
        groups.extend(
            group_of([entry for repeat in pattern[start::count] for entry in repeat])
            for start in range(count)
        )
    return tuple(groups)


def _buckets(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries that may share a group, in order of first appearance."""
    buckets: list[list[Entry]] = []
    for entry in entries:
        for bucket in buckets:
            if one_kind([bucket[0][1], entry[1]]):
                bucket.append(entry)
                break
        else:
            buckets.append([entry])
    return buckets


def _by_page(bucket: Sequence[Entry]) -> dict[int, list[Entry]]:
    shape: dict[int, list[Entry]] = {}
    for entry in bucket:
        shape.setdefault(entry[1].page_bytes, []).append(entry)
    return shape


def _most(bucket: Sequence[Entry]) -> int:
    return max((len(layers) for layers in _by_page(bucket).values()), default=0)


def _repeats(shapes: Sequence[dict[int, list[Entry]]], balanced: Sequence[bool]) -> int | None:
    """Pattern repeats per group that pad least; None when no balanced bucket mixes page sizes."""
    counts = [max(len(layers) for layers in shape.values()) for shape in shapes]
    least = max(
        (n for n, shape, even in zip(counts, shapes, balanced, strict=True) if even and len(shape) > 1),
        default=0,
    )
    if not least:
        return None
    return _least_padding([n for n, even in zip(counts, balanced, strict=True) if even], least)


def _least_padding(values: Sequence[int], least: int) -> int:
    """The chunk, at least `least`, to whose multiples the values are padded least (`_approximate_gcd`)."""
    if least > max(values):
        return least
    return min(
        range(max(least, 1), max(values) + 1), key=lambda d: (sum(round_up(n, d) - n for n in values), -d)
    )
