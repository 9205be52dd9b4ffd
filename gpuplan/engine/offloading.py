"""Parameters that `--cpu-offload-gb` moves to host memory.

vLLM 0.33 model_executor/offloader/uva.py `_maybe_offload_to_cpu`: the parameters of the decoder layers, in order, until at
least as many bytes as asked for are moved; the last one is moved whole. (Up to 0.14 in model_executor/models/utils.py.)
"""

from functools import lru_cache

from gpuplan.domain.model import ModelProfile
from gpuplan.engine.tensors import part_tensors
from gpuplan.engine.weights import Split, layers_on_stage
from gpuplan.units import GIB


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
    wanted, moved = asked_gib * GIB, 0
    for layer in layers_on_stage(profile, stage, stages, layer_partition):
        for part in layer.parts:
            for size in part_tensors(part, split):
                if moved >= wanted:
                    return moved
                moved += size
    return moved
