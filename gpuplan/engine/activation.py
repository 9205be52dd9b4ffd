"""What the profile run, the CUDA context and the graphs take on a rank, beside weights and KV cache."""

from dataclasses import dataclass

from gpuplan.domain.fleet import Basis
from gpuplan.domain.memory import Term
from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.versions import EngineVersion, GraphAccounting, graph_accounting
from gpuplan.units import GIB, MIB, round_up


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSetting:
    """Everything the non-weight terms of a rank depend on."""

    version: EngineVersion
    engine: EngineArguments
    parallelism: Parallelism
    stage: int
    total_bytes: int
    device_name: str
    compute_capability: str | None
    backend: str
    unified: bool
    max_num_batched_tokens: int
    max_num_seqs: int


SAMPLER_BYTES_PER_LOGIT = 15.46


def activation_term(profile: ModelProfile, setting: RankSetting) -> Term:
    """Peak of the profile run: the widest layer over a full batch, or the sampler over a full set of sequences."""
    tokens, tensor = setting.max_num_batched_tokens, setting.parallelism.tensor
    widest = max((kind.intermediate for kind in profile.layer_kinds), default=0)
    layer = int(tokens * profile.itemsize * (2 * profile.hidden + 3 * widest / tensor))
    rows = min(setting.max_num_seqs, tokens)
    last = setting.stage == setting.parallelism.pipeline - 1 and not profile.pooling
    sampler = int(rows * round_up(profile.vocabulary, 64) * SAMPLER_BYTES_PER_LOGIT) if last else 0
    peak = max(layer, sampler)
    return Term(
        name="activation",
        bytes=peak,
        low=int(peak * 0.8),
        high=int(peak * 1.2),
        basis=Basis.COMPUTED,
        formula="max(tokens × width of the widest layer, sequences × vocabulary × bytes per logit)",
        inputs=(
            ("max_num_batched_tokens", tokens),
            ("max_num_seqs", rows),
            ("layer", layer),
            ("sampler", sampler),
        ),
    )


def non_torch_term(profile: ModelProfile, setting: RankSetting) -> Term:
    """Memory taken outside the allocator while profiling."""
    del profile
    size = 250 * MIB if setting.parallelism.world_size == 1 else 600 * MIB
    return Term(
        name="non-torch",
        bytes=size,
        basis=Basis.ASSUMED,
        formula="measured on like start-ups",
        low=size // 2,
        high=size,
    )


def cuda_graph_term(profile: ModelProfile, setting: RankSetting) -> Term:
    """What the engine sets aside for CUDA graphs before it sizes the KV cache."""
    del profile
    counted = (
        graph_accounting(setting.version) is GraphAccounting.SUBTRACTED and not setting.engine.enforce_eager
    )
    size = 300 * MIB if counted else 0
    return Term(
        name="CUDA graphs",
        bytes=size,
        basis=Basis.ASSUMED,
        formula="estimate of the engine's own profiling",
        low=size // 2,
        high=size * 2,
    )


def start_overhead_bytes(
    total: int, *, compute_capability: str | None, tensor: int, version: EngineVersion
) -> int:
    """Memory of the CUDA context, communicators and libraries before the engine looks at what is free."""
    del total, compute_capability, version
    return int(0.5 * GIB) if tensor == 1 else int(1.2 * GIB)
