"""The user's arguments against each other at the sizes of a shape: what the engine would refuse is no shape (S3)."""

from dataclasses import replace

from gpuplan.domain.model import CacheKind
from gpuplan.domain.plan import Parallelism
from gpuplan.engine.divisibility import Rule, Violation
from gpuplan.engine.parallel_config import Circumstances, RuleCode, check
from gpuplan.planning.request import PlanRequest

TOLD_BY_DIVISIBILITY = frozenset({RuleCode.ATTENTION_HEADS, RuleCode.NO_EXPERTS, RuleCode.NO_PIPELINE})
OF_ONE_PROCESS = frozenset(
    {
        RuleCode.NODES_DIVIDE_WORLD,
        RuleCode.NODE_RANK,
        RuleCode.HEADLESS_SERVERS,
        RuleCode.HEADLESS_HYBRID,
        RuleCode.EXTERNAL_RANK_AMBIGUOUS,
        RuleCode.EXTERNAL_NEEDS_DATA,
        RuleCode.EXTERNAL_NEEDS_RANK,
    }
)
"""What only a process on its host can break; a deployment decides these flags itself (`deploying.contradictions`)."""
BACKENDS = ("rocm", "cuda")
"""Of a fleet with several the one that takes most: ROCm, then CUDA."""
TRIED = (1, 2, 4, 8, 16)
"""Tensor-parallel sizes at one of which arguments that are refused at all others may be taken."""


def contradictions(request: PlanRequest, shape: Parallelism) -> tuple[Violation, ...]:
    """The rules of `ParallelConfig` that the user's arguments break on a replica of this shape; most serious first."""
    engine = request.workload.engine
    if not engine.user_set:
        return ()
    placed = replace(
        engine,
        tensor_parallel_size=shape.tensor,
        pipeline_parallel_size=shape.pipeline,
        enable_expert_parallel=shape.expert,
    )
    return tuple(
        Violation(
            rule=Rule.ARGUMENTS,
            part=broken.code.value,
            value=0,
            ranks=shape.world_size,
            line=broken.message,
            hint=broken.hint,
        )
        for broken in check(placed, _circumstances(request))
        if broken.code not in TOLD_BY_DIVISIBILITY | OF_ONE_PROCESS
    )


def always_broken(request: PlanRequest, shape: Parallelism) -> Violation | None:
    """What stands against the arguments whatever tensor-parallel size is chosen; `shape` has what the user fixed."""
    fixed = request.workload.engine.parallel_sizes_set
    tried = [shape] if fixed else [replace(shape, tensor=size) for size in TRIED]
    found = [contradictions(request, each) for each in tried]
    return found[0][0] if all(found) else None


def _circumstances(request: PlanRequest) -> Circumstances:
    profile = request.profile
    present = {gpu.backend for host in request.fleet.hosts for gpu in host.gpus}
    known = [name for name in BACKENDS if name in present] or sorted(present) or ["cuda"]
    caches = [cache for layer in profile.layer_kinds for cache in layer.caches]
    return Circumstances(
        backend=known[0],
        moe=bool(profile.expert_count),
        attention_heads=profile.attention_heads or None,
        kv_heads=profile.kv_heads or None,
        mla=any(cache.kind is CacheKind.LATENT for cache in caches),
    )
