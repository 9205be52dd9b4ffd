"""The keys of a plan file that a comparison reads, beside those of a launch; what an older release left out is absent."""

from typing import Annotated, Any, NotRequired

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from gpuplan.domain.fleet import Basis
from gpuplan.domain.plan import Verdict
from gpuplan.sources.plan_schema import FIRST_FAULT, OPEN, CandidateKeys, PlanKeys, StrategyKeys
from gpuplan.sources.snapshot_schema import Bytes, Flag, Name, Number, Text

Signed = Annotated[int, Field(strict=True, gt=-(2**60), lt=2**60)]
Positive = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


@with_config(OPEN)
class FindingKeys(TypedDict):
    code: Name
    severity: Name
    headline: Text
    subject: NotRequired[dict[str, Any]]
    figures: NotRequired[dict[str, Any]]


@with_config(OPEN)
class TermKeys(TypedDict):
    name: Name
    bytes: Signed
    basis: Basis
    formula: Text
    inputs: dict[str, int | float | str | None]


@with_config(OPEN)
class GpuMemoryKeys(TypedDict):
    rank: Number
    replica: Number
    total_bytes: Bytes
    kv_cache_bytes: Signed | None
    kv_needed_bytes: Signed | None
    terms: Annotated[list[TermKeys], FIRST_FAULT]
    """Budget, weights, weights beside them, activation, non-torch, CUDA graphs; none of a claim."""


@with_config(OPEN)
class MemoryKeys(TypedDict):
    per_gpu: Annotated[list[GpuMemoryKeys], FIRST_FAULT]


@with_config(OPEN)
class EngineKeys(TypedDict):
    starts: Flag
    error: Text | None


@with_config(OPEN)
class CostKeys(TypedDict):
    currency: Name | None
    gpus: Positive
    gpus_per_hour: Positive | None
    hosts_per_hour: Positive | None
    energy_per_hour: Positive | None


@with_config(OPEN)
class ToldCandidateKeys(CandidateKeys):
    memory: MemoryKeys
    kv_cache_tokens: Number | None
    max_concurrency: Positive | None
    max_model_len: Number | None
    largest_max_model_len: Number | None
    block_size: Number | None
    engine: EngineKeys
    cost: NotRequired[CostKeys | None]


@with_config(OPEN)
class ToldStrategyKeys(StrategyKeys):
    verdict: Verdict
    reason: Text | None
    candidates: Annotated[list[ToldCandidateKeys], FIRST_FAULT]  # type: ignore[misc]  # narrower: more keys are read
    findings: Annotated[list[FindingKeys], FIRST_FAULT]


@with_config(OPEN)
class FunnelKeys(TypedDict):
    name: Name
    hosts: Number
    gpus: Number
    taken: NotRequired[Annotated[list[Text], FIRST_FAULT]]


@with_config(OPEN)
class ToldPlanKeys(PlanKeys):
    model: dict[str, Any]
    strategies: Annotated[list[ToldStrategyKeys], FIRST_FAULT]  # type: ignore[misc]  # narrower: more keys are read
    funnel: Annotated[list[FunnelKeys], FIRST_FAULT]
    findings: Annotated[list[FindingKeys], FIRST_FAULT]


TOLD_PLAN: TypeAdapter[ToldPlanKeys] = TypeAdapter(ToldPlanKeys)
