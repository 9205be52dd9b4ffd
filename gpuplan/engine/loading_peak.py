"""What loading a model takes for a moment beyond what it leaves allocated.

Quantization while loading keeps the checkpoint's own type on the card first: all layers of it up to 0.15, where the
weights are quantized once everything is loaded, one layer at a time from 0.16 on, where they are made on the meta device
(layers/quantization/fp8.py, `uses_meta_device`). A kernel that repacks has the loaded tensor and two copies beside the new
one (`engine.allocator`).
"""

from dataclasses import replace
from functools import lru_cache

from gpuplan.domain.model import UNQUANTIZED, Experts, Layer, Linear, ModelProfile, Unquantized
from gpuplan.engine.allocator import REPACKING_COPIES, is_repacked
from gpuplan.engine.tensors import part_tensors
from gpuplan.engine.versions import EngineVersion
from gpuplan.engine.weights import Split, part_bytes, stage_layers

LAYER_BY_LAYER_SINCE = EngineVersion(0, 16)


@lru_cache(maxsize=512)
def loading_peak(
    profile: ModelProfile,
    split: Split,
    version: EngineVersion,
    *,
    stage: int = 0,
    stages: int = 1,
    layer_partition: tuple[int, ...] | None = None,
) -> int:
    """Bytes allocated on a rank of pipeline stage `stage` at the worst moment, beyond the end. Raises Indivisible."""
    first, last = stage_layers(profile.layer_count, stages, layer_partition)[stage]
    order = profile.layer_order[first:last]
    kinds = {kind: profile.layer_kinds[kind] for kind in set(order)}
    copies = max((_copies(layer, split, version) for layer in kinds.values()), default=0)
    if not profile.quantized_while_loading:
        return copies
    wider = {kind: _unquantized_beyond(layer, split) for kind, layer in kinds.items()}
    if version >= LAYER_BY_LAYER_SINCE:
        return max(copies, *(wider.values())) if wider else copies
    return sum(wider[kind] for kind in order)


def _unquantized_beyond(layer: Layer, split: Split) -> int:
    """What a layer weighs in its own type beyond what it weighs quantized."""
    return sum(
        part_bytes(replace(part, scheme=UNQUANTIZED), split) - part_bytes(part, split)
        for part in layer.parts
        if isinstance(part, (Linear, Experts)) and not isinstance(part.scheme, Unquantized)
    )


def _copies(layer: Layer, split: Split, version: EngineVersion) -> int:
    """Copies of the largest tensor that a kernel repacks, with the one that replaces it."""
    sizes = (size for part in layer.parts if is_repacked(part, version) for size in part_tensors(part, split))
    return (1 + REPACKING_COPIES) * max(sizes, default=0)
