"""What loading adds beside the parameters: copies of absorbed projections, repacking and workspaces."""

from gpuplan.domain.model import ModelProfile
from gpuplan.engine.weights import Split


def extra_bytes(
    profile: ModelProfile,
    split: Split,
    *,
    stage: int = 0,
    stages: int = 1,
    layer_partition: tuple[int, ...] | None = None,
) -> tuple[tuple[str, int], ...]:
    """(what, bytes) on one rank of a stage."""
    del profile, split, stage, stages, layer_partition
    return ()
