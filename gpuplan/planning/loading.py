"""What loading a model takes on a rank beside its parameters, as a term with its range."""

from dataclasses import dataclass, replace

from gpuplan.domain.fleet import Basis
from gpuplan.domain.memory import Term
from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.allocator import rounding_bytes
from gpuplan.engine.expert_parallel import balancing_bytes
from gpuplan.engine.lora import lora_bytes
from gpuplan.engine.offloading import offloaded_bytes
from gpuplan.engine.versions import EngineVersion
from gpuplan.engine.weights import RankWeights, Split, rank_weights
from gpuplan.engine.weights_extra import extra_bytes

GENERATIONS = ("8.0", "9.0", "10.0", "12.0")
"""Compute capabilities whose kernels differ in what they make of weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """What decides what one rank of pipeline stage `stage` allocates while the model is loaded."""

    profile: ModelProfile
    engine: EngineArguments
    version: EngineVersion
    parallelism: Parallelism
    split: Split
    stage: int
    draft_layers: int
    batched_tokens: int
    sequences: int
    backend: str
    known_card: bool
    """Whether the split's compute capability is known and not assumed."""


def extra_term(loading: Loading, loaded: RankWeights) -> Term:
    """Buffers, what kernels add, LoRA slots and the allocator's rounding, less what is offloaded.

    Its range spans the kernels of all generations where the card is not known. Raises Indivisible.
    """
    parts = _parts(loading, loaded)
    size = sum(part for _, part in parts)
    sizes = {size}
    if not loading.known_card:
        sizes |= {_beside(loading, capability, loaded) for capability in GENERATIONS}
    return Term(
        name="weights, extra",
        bytes=size,
        low=min(sizes) if len(sizes) > 1 else None,
        high=max(sizes) if len(sizes) > 1 else None,
        basis=Basis.COMPUTED,
        formula="buffers + copies and padding made after loading",
        inputs=parts,
        source="process_weights_after_loading of the engine's layers",
    )


def _beside(loading: Loading, capability: str, loaded: RankWeights) -> int:
    """What a card of another generation holds beyond `loaded.parameters`."""
    other = replace(loading, split=replace(loading.split, compute_capability=capability))
    parallelism = loading.parallelism
    weights = rank_weights(
        loading.profile,
        other.split,
        stage=loading.stage,
        stages=parallelism.pipeline,
        layer_partition=parallelism.layer_partition,
        draft_layers=loading.draft_layers,
    )
    return weights.parameters - loaded.parameters + sum(size for _, size in _parts(other, weights))


def _parts(loading: Loading, loaded: RankWeights) -> tuple[tuple[str, int], ...]:
    profile, split, version = loading.profile, loading.split, loading.version
    stage, stages = loading.stage, loading.parallelism.pipeline
    partition = loading.parallelism.layer_partition
    added = extra_bytes(
        profile,
        split,
        stage=stage,
        stages=stages,
        layer_partition=partition,
        draft_layers=loading.draft_layers,
        batched_tokens=loading.batched_tokens,
        sequences=loading.sequences,
        decode_tokens=1 + loading.engine.speculative_tokens,
        version=version,
    )
    slots = lora_bytes(
        profile,
        split,
        loading.engine,
        stage=stage,
        stages=stages,
        layer_partition=partition,
        version=version,
    )
    rounding = rounding_bytes(
        profile,
        split,
        stage=stage,
        stages=stages,
        layer_partition=partition,
        draft_layers=loading.draft_layers,
        version=version,
        backend=loading.backend,
    )
    offloaded = offloaded_bytes(
        profile,
        split,
        loading.engine.cpu_offload_gb,
        stage=stage,
        stages=stages,
        layer_partition=partition,
    )
    balancing = balancing_bytes(
        profile,
        split,
        loading.engine,
        stage=stage,
        stages=stages,
        layer_partition=partition,
        version=version,
    )
    found = (
        ("LoRA slots", slots),
        ("EPLB's buffer of a layer's experts and its counts", balancing),
        ("rounding of the allocator", rounding),
        ("moved to host memory by --cpu-offload-gb", -offloaded),
    )
    return (
        ("rotary and other buffers", loaded.buffers),
        *added,
        *((name, size) for name, size in found if size or name.startswith("rounding")),
    )
