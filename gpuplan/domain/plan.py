"""The answer: every strategy with its verdict, candidates, refusals and remedies."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gpuplan.domain.memory import MemoryEstimate


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


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedGpu:
    index: int
    claim_bytes: int
    """Booked on this GPU: floor(total × gmu), or the need without gmu."""
    allocatable_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedHost:
    host: str
    role: Role
    gpus: tuple[PlacedGpu, ...]
    ram_claim_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact worth telling. `figures` are the numbers behind the sentences."""

    code: str
    severity: Severity
    subject: Mapping[str, Any]
    headline: str
    because: tuple[str, ...] = ()
    hint: str | None = None
    figures: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change that was re-planned and makes the strategy fit."""

    kind: str
    change: Mapping[str, Any]
    headline: str
    cost: str
    size: float
    """How far it departs from what was asked; smaller first."""
    verified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Why a candidate is preferred; compared field by field, smaller first."""

    gpus: int
    hosts: int
    overhead: int = 0
    waste_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    verdict: Verdict
    parallelism: Parallelism
    placement: tuple[PlacedHost, ...]
    memory: MemoryEstimate | None
    """None when only a claim is known (`--vram-claim`)."""
    score: Score
    vllm_args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyResult:
    strategy: StrategyName
    verdict: Verdict
    reason: str | None
    candidates: tuple[Candidate, ...]
    findings: tuple[Finding, ...]
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
    request: Mapping[str, Any]
    model: Mapping[str, Any]
    strategies: tuple[StrategyResult, ...]
    recommended: tuple[StrategyName, int] | None
    """Strategy and index among its candidates."""
    recommended_because: tuple[str, ...]
    funnel: tuple[FunnelStep, ...]
    findings: tuple[Finding, ...]
    fleet_basis: str
    taken_at: str | None
