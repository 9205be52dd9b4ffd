"""The answer: every strategy with its verdict, candidates, refusals and remedies."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpuplan.domain.cost import Cost
from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import Basis
from gpuplan.domain.memory import EngineAnswer, MemoryEstimate
from gpuplan.domain.throughput import NoThroughput, Throughput


class Verdict(StrEnum):
    FITS = "fits"
    OVERCOMMIT = "overcommit"
    NO_FIT = "no_fit"
    SKIPPED = "skipped"


class StrategyName(StrEnum):
    MANUAL = "manual"
    SINGLE_GPU = "single_gpu"
    SINGLE_HOST = "single_host"
    MULTI_HOST = "multi_host"
    DATA_PARALLEL = "data_parallel"
    OFFLOAD = "offload"
    EVICT = "evict"


class Role(StrEnum):
    SINGLE = "single"
    LEADER = "leader"
    FOLLOWER = "follower"
    REPLICA = "replica"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """How ranks divide a model."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: bool = False
    decode_context: int = 1
    prefill_context: int = 1
    layer_partition: tuple[int, ...] | None = None

    @property
    def world_size(self) -> int:
        """Ranks of one replica (S0.2): tensor × pipeline × prefill context."""
        return self.tensor * self.pipeline * self.prefill_context

    @property
    def speaking(self) -> int:
        """Ranks of the largest group a rank opens channels to before it measures free memory: stages do so in pairs
        (vLLM `CudaCommunicator`, one communicator for each group of more than one rank)."""
        return max(self.tensor, 2 if self.world_size > 1 else 1)


class Owner(StrEnum):
    """Whose memory it is that cannot be claimed."""

    OURS = "ours"
    """A deployment of gpuplan's."""
    PROCESS = "process"
    UNKNOWN = "unknown"
    """In use, but no process or deployment accounts for it; the driver's own share is in it."""
    HOST = "host"
    """The same on memory that the GPU shares with its host: the programs that run there."""
    RESERVE = "reserve"
    """Kept back by the inventory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one owner holds of a GPU's memory, or will."""

    owner: Owner
    bytes: int | None
    """None: the owner is known, how much it holds is not; the bytes are then among the unknown ones."""
    name: str = ""
    """Of the deployment or process."""
    container: str | None = None
    user: str | None = None
    pid: int | None = None
    basis: Basis = Basis.MEASURED
    """COMPUTED for a deployment that is predicted to take more than it has; EXACT for a reserve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedGpu:
    """One GPU of a placement and what is booked on it."""

    index: int
    claim_bytes: int
    """Booked on this GPU: floor(total × gmu), or the need without gmu."""
    allocatable_bytes: int
    total_bytes: int
    held: tuple[Holding, ...] = ()
    """Who has the rest: the bytes add up to total - allocatable, unless more is booked than there is."""
    uuid: str | None = None
    """GPU or MIG UUID, which it keeps when indexes move; None where nobody told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedHost:
    """The GPUs of one host in a placement."""

    host: str
    role: Role
    gpus: tuple[PlacedGpu, ...]
    ram_claim_bytes: int = 0
    driver_version: str | None = None
    """Of the host as it was planned on."""
    cpu_offload_gib: int = 0
    """GiB of weights that each of these GPUs leaves in host memory, where the plan and not the user decided so (S4.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change that was re-planned and makes the strategy fit."""

    kind: str
    change: Mapping[str, Any]
    """Options and vLLM arguments to change, by name."""
    figures: Mapping[str, Any]
    size: float
    """How far it departs from what was asked; smaller first."""
    verified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a placement costs; compared in this order, smaller first."""

    ray: bool
    """Needs Ray, which the engine's official image of that version does not carry."""
    unready_hosts: int = 0
    """Hosts on which no container with GPUs can be started as they are."""
    gpus: int
    hosts: int
    stages: int
    """Pipeline stages: each adds latency."""
    total_bytes: int
    """Memory of all cards taken: the smallest cards that do are preferred."""
    free_bytes: int
    """Free now on those cards: spread prefers much, binpack little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A deployment of ours that is to be stopped first (S4.6)."""

    deployment: str
    gpus: tuple[tuple[str, int, int], ...]
    """Host, GPU index and the bytes that come back there."""
    running_requests: int | None = None
    """In flight when it was looked at; None: it did not tell."""
    keep_alive_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One placement with its verdict, memory and command."""

    verdict: Verdict
    parallelism: Parallelism
    placement: tuple[PlacedHost, ...]
    memory: MemoryEstimate | None
    """None when only a claim is known (`--vram-claim`)."""
    engine: EngineAnswer
    score: Score
    vllm_args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    facts: tuple[Fact, ...] = ()
    throughput: Throughput | NoThroughput | None = None
    """None: not asked, as of a candidate that cannot run."""
    cost: Cost | None = None
    """None: no host of it has a price or power."""
    evicts: tuple[Eviction, ...] = ()
    """To be stopped before it starts; the memory was judged as if they were gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyResult:
    """What one strategy offers, refuses and would need."""

    strategy: StrategyName
    verdict: Verdict
    reason: str | None
    candidates: tuple[Candidate, ...]
    facts: tuple[Fact, ...]
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunnelStep:
    """How many hosts and GPUs one filter left."""

    name: str
    hosts: int
    gpus: int
    taken: tuple[str, ...] = ()
    """Hosts or GPUs this filter took away, the first few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Every strategy, and the recommendation."""

    request: Mapping[str, Any]
    model: Mapping[str, Any]
    strategies: tuple[StrategyResult, ...]
    recommended: tuple[StrategyName, int] | None
    """Strategy and index among its candidates."""
    recommended_because: tuple[str, ...]
    funnel: tuple[FunnelStep, ...]
    facts: tuple[Fact, ...]
    fleet_basis: str
    taken_at: str | None
