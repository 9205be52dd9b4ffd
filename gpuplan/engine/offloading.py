"""Parameters that `--cpu-offload-gb` moves to host memory.

vLLM 0.33 model_executor/offloader/uva.py `_maybe_offload_to_cpu`: the parameters of the decoder layers, in order, until at
least as many bytes as asked for are moved; the last one is moved whole. (Up to 0.14 in model_executor/models/utils.py.)
They lie in pinned memory, which kernels read over the bus each time they need them.
"""

from functools import lru_cache

from gpuplan.domain.model import ModelProfile
from gpuplan.engine.tensors import part_tensors
from gpuplan.engine.weights import Split, layers_on_stage
from gpuplan.units import GIB

READS_HOST_MEMORY = frozenset({"cuda", "rocm"})
"""Backends on which kernels read pinned memory in place (vLLM `get_accelerator_view_from_cpu_tensor`; XPU is not planned)."""


@lru_cache(maxsize=256)
def offloaded_bytes(
    profile: ModelProfile,
    split: Split,
    asked_gib: float,
    *,
    stage: int = 0,
    stages: int = 1,
    layer_partition: tuple[int, ...] | None = None,
) -> int:
    """Bytes moved off one rank of pipeline stage `stage`; `asked_gib` is the option's value. Raises Indivisible."""
    moved = moved_tensors(
        profile, split, asked_gib, stage=stage, stages=stages, layer_partition=layer_partition
    )
    return sum(sum(sizes) for sizes in moved)


@lru_cache(maxsize=256)
def pinned_bytes(
    profile: ModelProfile,
    split: Split,
    asked_gib: float,
    *,
    stage: int = 0,
    stages: int = 1,
    layer_partition: tuple[int, ...] | None = None,
) -> int:
    """Host memory that one rank pins for them. Raises Indivisible.

    PyTorch's pinned allocator rounds every tensor up to a power of two (ATen/core/CachingHostAllocator.h): up to twice
    the bytes moved, 1.8 to 1.9 times in vLLM issue 56410.
    """
    moved = moved_tensors(
        profile, split, asked_gib, stage=stage, stages=stages, layer_partition=layer_partition
    )
    return sum(1 << (size - 1).bit_length() for sizes in moved for size in sizes if size)


@lru_cache(maxsize=256)
def moved_tensors(
    profile: ModelProfile,
    split: Split,
    asked_gib: float,
    *,
    stage: int = 0,
    stages: int = 1,
    layer_partition: tuple[int, ...] | None = None,
) -> tuple[tuple[int, ...], ...]:
    """Sizes (bytes) of the tensors moved, by layer of the stage; layers behind the last one moved are left out."""
    wanted, moved = asked_gib * GIB, 0
    found: list[tuple[int, ...]] = []
    for layer in layers_on_stage(profile, stage, stages, layer_partition):
        sizes: list[int] = []
        for part in layer.parts:
            for size in part_tensors(part, split):
                if moved >= wanted:
                    return (*found, tuple(sizes)) if sizes else tuple(found)
                moved += size
                sizes.append(size)
        found.append(tuple(sizes))
    return tuple(found)
