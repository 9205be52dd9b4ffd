"""Rounding of torch's caching allocator, which "Model loading took" counts.

The tensors of a rank are made in the order in which vLLM builds a model: towers, embedding, layers, head. A rotary table
is computed in float32 beside its first layer's attention (rotary_embedding/base.py `_compute_cos_sin_cache`), and packed
weights are copied and repacked layer by layer once all are loaded (`process_weights_after_loading`), which leaves gaps that
later tensors take. Logged: Qwen2.5-1.5B 2.8876 GiB, 4.4 MiB above its parameters and buffers; opt-125m 0.2389, 5.7 MiB.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from gpuplan.domain.model import (
    Embedding,
    Experts,
    Float4,
    GroupedInteger,
    Layer,
    Linear,
    ModelProfile,
    Part,
    ResidentPart,
)
from gpuplan.engine.caching_allocator import LEAST_BLOCK, SMALL, Block, CachingAllocator
from gpuplan.engine.repacking import AWQ_KERNELS_SINCE
from gpuplan.engine.tensors import part_tensors
from gpuplan.engine.versions import DEFAULT, EngineVersion
from gpuplan.engine.weights import Split, holds, layers_on_stage, stands_whole
from gpuplan.units import MIB, round_up

WHOLE_SEGMENTS_SINCE = EngineVersion(0, 21)
MOST_SPLIT = 20 * MIB
"""`max_split_size_mb` while a model is loaded (v1/worker/gpu_worker.py `_scoped_allocator_max_split`)."""
FLOAT32 = 4
REPACKING_COPIES = 2
"""A repacked tensor is transposed and laid out anew before the loaded one is let go."""


@lru_cache(maxsize=1024)
def rounding_bytes(
    profile: ModelProfile,
    split: Split,
    *,
    stage: int = 0,
    stages: int = 1,
    layer_partition: tuple[int, ...] | None = None,
    draft_layers: int = 0,
    version: EngineVersion = DEFAULT,
    backend: str = "cuda",
) -> int:
    """Bytes the allocator counts beyond the tensors of a rank of pipeline stage `stage`. Raises Indivisible."""
    whole = version >= WHOLE_SEGMENTS_SINCE and backend == "cuda"
    memory, requested = CachingAllocator(MOST_SPLIT if whole else None), 0
    loaded: list[tuple[Block, int]] = []
    layers = layers_on_stage(profile, stage, stages, layer_partition, draft_layers)
    held = [
        resident
        for resident in profile.parts
        if holds(resident.residence, stage, stages) and not (resident.tower and split.language_model_only)
    ]
    tables = [resident for resident in held if _is_table(resident)]
    for resident in (item for item in held if _comes_first(item)):
        requested += _place(memory, _sizes((resident.part,), _split_of(resident, split), version), loaded)
    for layer in layers:
        attention, rest = _layer_sizes(layer, split, version)
        requested += _place(memory, attention, loaded)
        if tables:
            requested += _tables(memory, tables, split, profile.itemsize)
            tables = []
        requested += _place(memory, rest, loaded)
    requested += _tables(memory, tables, split, profile.itemsize)
    for resident in held:
        if not _comes_first(resident) and not _is_table(resident):
            requested += _place(memory, _sizes((resident.part,), _split_of(resident, split), version), loaded)
    for block, size in loaded:
        copies = [memory.allocate(size) for _ in range(REPACKING_COPIES)]
        memory.allocate(size)
        for copy in copies:
            memory.release(copy)
        memory.release(block)
    return memory.allocated - requested


class _Sizes(NamedTuple):
    """Tensors of some parts, those that share segments of 2 MiB in one sum."""

    asked: int
    small: int
    """Bytes that all tensors of up to 1 MiB are counted with."""
    large: tuple[tuple[int, bool], ...]
    """The others, and whether a kernel repacks them."""


@lru_cache(maxsize=4096)
def _sizes(parts: tuple[Part, ...], split: Split, version: EngineVersion) -> _Sizes:
    tensors = [
        (size, is_repacked(part, version)) for part in parts for size in part_tensors(part, split) if size > 0
    ]
    return _Sizes(
        asked=sum(size for size, _ in tensors),
        small=sum(round_up(size, LEAST_BLOCK) for size, _ in tensors if size <= SMALL),
        large=tuple((size, repacked) for size, repacked in tensors if size > SMALL),
    )


@lru_cache(maxsize=4096)
def _layer_sizes(layer: Layer, split: Split, version: EngineVersion) -> tuple[_Sizes, _Sizes]:
    """What a layer makes before its rotary table, up to the output projection, and after it."""
    names = [part.name for part in layer.parts]
    ends = (place for place, name in enumerate(names) if name.endswith(("o_proj", "dense")))
    first = 1 + next(ends, 0)
    return _sizes(layer.parts[:first], split, version), _sizes(layer.parts[first:], split, version)


def _place(memory: CachingAllocator, sizes: _Sizes, loaded: list[tuple[Block, int]]) -> int:
    """Allocate tensors; those that will be repacked are put on `loaded`. Returns the bytes asked for."""
    memory.allocated += sizes.small
    for size, repacked in sizes.large:
        block = memory.allocate(size)
        if repacked:
            loaded.append((block, size))
    return sizes.asked


def is_repacked(part: Part, version: EngineVersion) -> bool:
    """Whether a kernel's own layout of the weights is a new tensor."""
    if not isinstance(part, (Linear, Experts)):
        return False
    match part.scheme:
        case GroupedInteger(layout="awq"):
            return isinstance(part, Experts) or version >= AWQ_KERNELS_SINCE
        case GroupedInteger() | Float4():
            return True
        case _:
            return False


def _split_of(resident: ResidentPart, split: Split) -> Split:
    return Split(compute_capability=split.compute_capability) if stands_whole(resident, split) else split


def _is_table(resident: ResidentPart) -> bool:
    return resident.buffer and resident.tower is None and "rotary" in resident.part.name


def _comes_first(resident: ResidentPart) -> bool:
    """Towers and the vocabulary's input table are made before the layers."""
    if resident.tower is not None:
        return True
    return isinstance(resident.part, Embedding) and "lm_head" not in resident.part.name


def _tables(memory: CachingAllocator, tables: list[ResidentPart], split: Split, itemsize: int) -> int:
    """Allocate the rotary tables, each with what computing it takes for a moment."""
    return sum(size for table in tables for size in _table(memory, table, split, itemsize))


def _table(memory: CachingAllocator, table: ResidentPart, split: Split, itemsize: int) -> Iterator[int]:
    for size in part_tensors(table.part, split):
        entries = size // itemsize
        angles, cosines, sines = (memory.allocate(entries // 2 * FLOAT32) for _ in range(3))
        both = memory.allocate(entries * FLOAT32)
        for block in (sines, cosines, angles):
            memory.release(block)
        if itemsize != FLOAT32:
            memory.allocate(size)
            memory.release(both)
        yield size
