"""The keys of a plan file that a launch reads; `present.plan_document` writes them, `gpuplan schema plan` prints them all."""

from typing import Annotated, Literal, NotRequired

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from gpuplan.domain.fleet import Basis
from gpuplan.domain.plan import Owner, Role, StrategyName, Verdict
from gpuplan.domain.workload import Category, ExecutorChoice, Placement
from gpuplan.sources.snapshot_schema import Bytes, Flag, Index, Name, Number, Text, schema_number

SCHEMA_VERSION = 1
Size = Annotated[int, Field(strict=True, ge=1, le=2**20)]
FIRST_FAULT = Field(fail_fast=True)
Texts = Annotated[list[Text], FIRST_FAULT]
Names = Annotated[list[Name], FIRST_FAULT]
OPEN = ConfigDict(extra="allow")


@with_config(OPEN)
class RequestKeys(TypedDict):
    model: Name
    reference: Name
    category: Category
    image: Name | None
    vllm_version: Name
    context: Annotated[int, Field(strict=True, ge=1, lt=2**31)] | Literal["max"] | None
    concurrency: Size
    replicas: Size
    placement: Placement
    executor: ExecutorChoice
    no_distributed: Flag
    vram_claim_bytes: Bytes | None
    ram_claim_bytes: Bytes | None
    strategies: Names
    hosts: Names
    labels: Names
    gpus: Names
    allow_overcommit: Flag
    no_calibration: NotRequired[Flag]
    engine_args: Texts


@with_config(OPEN)
class HoldingKeys(TypedDict):
    owner: Owner
    bytes: Bytes | None
    name: NotRequired[Text]
    container: NotRequired[Text | None]
    user: NotRequired[Text | None]
    pid: NotRequired[Number | None]
    basis: NotRequired[Basis]


@with_config(OPEN)
class PlacedGpuKeys(TypedDict):
    index: Index
    uuid: Name | None
    claim_bytes: Bytes
    allocatable_bytes: Bytes
    total_bytes: Bytes
    held: NotRequired[Annotated[list[HoldingKeys], FIRST_FAULT]]


@with_config(OPEN)
class PlacedHostKeys(TypedDict):
    host: Name
    role: Role
    gpus: Annotated[list[PlacedGpuKeys], Field(fail_fast=True, min_length=1)]
    ram_claim_bytes: NotRequired[Bytes]
    driver_version: NotRequired[Name | None]
    cpu_offload_gib: NotRequired[Annotated[int, Field(strict=True, ge=0, le=2**20)]]


@with_config(OPEN)
class ParallelismKeys(TypedDict):
    tensor: Size
    pipeline: Size
    data: Size
    expert: Flag
    decode_context: Size
    prefill_context: Size
    layer_partition: Annotated[list[Number], Field(fail_fast=True, min_length=1)] | None


@with_config(OPEN)
class FreedKeys(TypedDict):
    host: Name
    index: Index
    bytes: Bytes


@with_config(OPEN)
class EvictionKeys(TypedDict):
    deployment: Name
    gpus: Annotated[list[FreedKeys], FIRST_FAULT]
    running_requests: NotRequired[Number | None]
    keep_alive_seconds: NotRequired[Annotated[int, Field(strict=True, gt=-(2**62), lt=2**62)] | None]


@with_config(OPEN)
class CandidateKeys(TypedDict):
    verdict: Verdict
    parallelism: ParallelismKeys
    placement: Annotated[list[PlacedHostKeys], Field(fail_fast=True, min_length=1)]
    vllm_args: Texts
    env: dict[str, Text]
    evicts: NotRequired[Annotated[list[EvictionKeys], FIRST_FAULT]]


@with_config(OPEN)
class StrategyKeys(TypedDict):
    strategy: StrategyName
    candidates: Annotated[list[CandidateKeys], FIRST_FAULT]


@with_config(OPEN)
class RecommendedKeys(TypedDict):
    strategy: StrategyName
    candidate: Index


@with_config(OPEN)
class FleetKeys(TypedDict):
    basis: Basis


@with_config(OPEN)
class PlanKeys(TypedDict):
    schema_version: Annotated[Literal[1], BeforeValidator(schema_number)]
    request: RequestKeys
    fleet: FleetKeys
    strategies: Annotated[list[StrategyKeys], FIRST_FAULT]
    recommended: RecommendedKeys | None


PLAN: TypeAdapter[PlanKeys] = TypeAdapter(PlanKeys)
