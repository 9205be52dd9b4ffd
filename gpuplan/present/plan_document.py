"""The plan as JSON: the shape scripts depend on (`schema_version` 1), built from a Plan.

The dataclasses here are the schema: `gpuplan schema plan` is generated from them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from gpuplan.domain.fact import Fact
from gpuplan.domain.memory import MemoryEstimate, RankMemory, Term
from gpuplan.domain.plan import Candidate, Eviction, FunnelStep, Plan, Remedy, StrategyResult
from gpuplan.domain.secret_text import masked_words
from gpuplan.domain.throughput import NoThroughput
from gpuplan.present.cost_document import CostDocument, cost_document
from gpuplan.present.findings import word
from gpuplan.present.placement_document import PlacedHostDocument, placed_host
from gpuplan.present.remedies import word_remedy
from gpuplan.present.throughput_document import ThroughputDocument, throughput_document

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FindingDocument:
    """A finding."""

    code: str
    severity: str
    subject: Mapping[str, Any]
    headline: str
    because: tuple[str, ...]
    hint: str | None
    figures: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RemedyDocument:
    """A change that makes a strategy fit."""

    kind: str
    change: Mapping[str, Any]
    headline: str
    cost: str
    verified: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ParallelismDocument:
    """How ranks divide the model."""

    tensor: int
    pipeline: int
    data: int
    expert: bool
    decode_context: int
    prefill_context: int
    layer_partition: tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TermDocument:
    """One term of a GPU's memory with what it rests on."""

    name: str
    bytes: int
    low_bytes: int
    high_bytes: int
    basis: str
    formula: str
    inputs: Mapping[str, Any]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class GpuMemoryDocument:
    """Where the memory of one GPU goes, in bytes; null where only a claim is known."""

    host: str
    index: int
    rank: int
    replica: int
    total_bytes: int
    held_bytes: int
    """Held by others and kept back: total less what may be claimed."""
    budget_bytes: int | None
    weights_bytes: int | None
    weights_extra_bytes: int | None
    activation_bytes: int | None
    non_torch_bytes: int | None
    cuda_graph_bytes: int | None
    kv_cache_bytes: int | None
    kv_needed_bytes: int | None
    headroom_bytes: int | None
    terms: tuple[TermDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MemoryDocument:
    """Memory GPU by GPU."""

    per_gpu: tuple[GpuMemoryDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class EngineDocument:
    """Whether the engine would start, and the line it would print."""

    starts: bool
    error: str | None
    check: str | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FreedDocument:
    """What comes back on one GPU."""

    host: str
    index: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class EvictionDocument:
    """A deployment to be stopped first."""

    deployment: str
    gpus: tuple[FreedDocument, ...]
    running_requests: int | None
    """In flight or waiting; null: it did not tell."""
    keep_alive_seconds: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CandidateDocument:
    """One placement."""

    verdict: str
    parallelism: ParallelismDocument
    placement: tuple[PlacedHostDocument, ...]
    memory: MemoryDocument
    ranges: Mapping[str, tuple[int, int]]
    kv_cache_tokens: int | None
    max_concurrency: float | None
    max_model_len: int | None
    largest_max_model_len: int | None
    concurrency_at: Mapping[str, float]
    block_size: int | None
    throughput: ThroughputDocument | None
    throughput_unknown: str | None
    """Why there is no estimate; null where there is one, and for what cannot run."""
    cost: CostDocument | None
    """By the prices and the power of the inventory; null where it has none."""
    engine: EngineDocument
    vllm_args: tuple[str, ...]
    env: Mapping[str, str]
    score: Mapping[str, Any]
    findings: tuple[FindingDocument, ...]
    evicts: tuple[EvictionDocument, ...]
    """Deployments of gpuplan's to stop before it starts; empty but for the strategy `evict`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StrategyDocument:
    """One strategy."""

    strategy: str
    verdict: str
    reason: str | None
    candidates: tuple[CandidateDocument, ...]
    findings: tuple[FindingDocument, ...]
    remedies: tuple[RemedyDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RecommendedDocument:
    """The recommendation: strategy, index of the candidate, reasons."""

    strategy: str
    candidate: int
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FunnelDocument:
    """How many hosts and GPUs a filter left."""

    name: str
    hosts: int
    gpus: int
    taken: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FleetDocument:
    """What the picture of the fleet rests on. Not when: equal fleets give equal bytes, whenever they were read."""

    basis: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PlanDocument:
    """`gpuplan plan -o json`."""

    schema_version: int
    request: Mapping[str, Any]
    model: Mapping[str, Any]
    fleet: FleetDocument
    strategies: tuple[StrategyDocument, ...]
    recommended: RecommendedDocument | None
    funnel: tuple[FunnelDocument, ...]
    findings: tuple[FindingDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class EstimateDocument:
    """`gpuplan estimate -o json`."""

    schema_version: int
    model: Mapping[str, Any]
    hardware: Mapping[str, Any]
    candidate: CandidateDocument
    findings: tuple[FindingDocument, ...]
    remedies: tuple[RemedyDocument, ...]


def plan_document(plan: Plan) -> PlanDocument:
    """The whole plan as data."""
    recommended = None
    if plan.recommended is not None:
        name, index = plan.recommended
        recommended = RecommendedDocument(
            strategy=name.value, candidate=index, because=plan.recommended_because
        )
    return PlanDocument(
        schema_version=SCHEMA_VERSION,
        request=plan.request,
        model=plan.model,
        fleet=FleetDocument(basis=plan.fleet_basis),
        strategies=tuple(strategy_document(result) for result in plan.strategies),
        recommended=recommended,
        funnel=tuple(_funnel(step) for step in plan.funnel),
        findings=tuple(finding_document(fact) for fact in plan.facts),
    )


def strategy_document(result: StrategyResult) -> StrategyDocument:
    return StrategyDocument(
        strategy=result.strategy.value,
        verdict=result.verdict.value,
        reason=result.reason,
        candidates=tuple(candidate_document(candidate) for candidate in result.candidates),
        findings=tuple(finding_document(fact) for fact in result.facts),
        remedies=tuple(remedy_document(remedy) for remedy in result.remedies),
    )


def finding_document(fact: Fact) -> FindingDocument:
    finding = word(fact)
    return FindingDocument(
        code=finding.code,
        severity=finding.severity.value,
        subject=finding.subject,
        headline=finding.headline,
        because=finding.because,
        hint=finding.hint,
        figures=finding.figures,
    )


def remedy_document(remedy: Remedy) -> RemedyDocument:
    headline, cost = word_remedy(remedy)
    return RemedyDocument(
        kind=remedy.kind, change=remedy.change, headline=headline, cost=cost, verified=remedy.verified
    )


def candidate_document(candidate: Candidate) -> CandidateDocument:
    """A candidate as data; with a claim alone, everything the claim does not say is null."""
    memory, shape = candidate.memory, candidate.parallelism
    return CandidateDocument(
        verdict=candidate.verdict.value,
        parallelism=ParallelismDocument(
            tensor=shape.tensor,
            pipeline=shape.pipeline,
            data=shape.data,
            expert=shape.expert,
            decode_context=shape.decode_context,
            prefill_context=shape.prefill_context,
            layer_partition=shape.layer_partition,
        ),
        placement=tuple(placed_host(host) for host in candidate.placement),
        memory=MemoryDocument(per_gpu=tuple(_per_gpu(candidate))),
        ranges={} if memory is None else _ranges(memory),
        kv_cache_tokens=None if memory is None else memory.kv_cache_tokens,
        max_concurrency=None if memory is None else round(memory.max_concurrency, 3),
        max_model_len=None if memory is None else memory.max_model_len,
        largest_max_model_len=None if memory is None else memory.largest_max_model_len,
        concurrency_at={}
        if memory is None
        else {str(length): round(n, 3) for length, n in memory.concurrency_at},
        block_size=None if memory is None else memory.block_size,
        throughput=throughput_document(candidate.throughput),
        throughput_unknown=candidate.throughput.reason
        if isinstance(candidate.throughput, NoThroughput)
        else None,
        cost=cost_document(candidate.cost),
        engine=EngineDocument(
            starts=candidate.engine.starts,
            error=candidate.engine.error,
            check=None if candidate.engine.check is None else candidate.engine.check.value,
        ),
        vllm_args=masked_words(candidate.vllm_args),
        env=dict(candidate.env),
        score=plain(candidate.score),
        findings=tuple(finding_document(fact) for fact in candidate.facts),
        evicts=tuple(_eviction(one) for one in candidate.evicts),
    )


def _eviction(one: Eviction) -> EvictionDocument:
    return EvictionDocument(
        deployment=one.deployment,
        gpus=tuple(FreedDocument(host=host, index=index, bytes=size) for host, index, size in one.gpus),
        running_requests=one.running_requests,
        keep_alive_seconds=one.keep_alive_seconds,
    )


def _per_gpu(candidate: Candidate) -> Iterator[GpuMemoryDocument]:
    """Ranks laid over the placed GPUs in order, replica after replica."""
    memory = candidate.memory
    world = max(candidate.parallelism.world_size, 1)
    places = [(host.host, gpu) for host in candidate.placement for gpu in host.gpus]
    for position, (host, gpu) in enumerate(places):
        replica, rank = divmod(position, world)
        ranks = () if memory is None else memory.ranks
        known = ranks[rank] if rank < len(ranks) else None
        yield GpuMemoryDocument(
            host=host,
            index=gpu.index,
            rank=rank,
            replica=replica,
            total_bytes=gpu.total_bytes,
            held_bytes=gpu.total_bytes - gpu.allocatable_bytes,
            **_rank_figures(known),
        )


def _rank_figures(rank: RankMemory | None) -> dict[str, Any]:
    if rank is None:
        names = (
            "budget",
            "weights",
            "weights_extra",
            "activation",
            "non_torch",
            "cuda_graph",
            "kv_cache",
            "kv_needed",
            "headroom",
        )
        return {**{f"{name}_bytes": None for name in names}, "terms": ()}
    return {
        "budget_bytes": rank.budget.bytes,
        "weights_bytes": rank.weights.bytes,
        "weights_extra_bytes": rank.weights_extra.bytes,
        "activation_bytes": rank.activation.bytes,
        "non_torch_bytes": rank.non_torch.bytes,
        "cuda_graph_bytes": rank.cuda_graph.bytes,
        "kv_cache_bytes": rank.kv_cache_bytes,
        "kv_needed_bytes": rank.kv_needed_bytes,
        "headroom_bytes": rank.headroom_bytes,
        "terms": tuple(term_document(term) for term in (rank.budget, *rank.terms)),
    }


def term_document(term: Term) -> TermDocument:
    return TermDocument(
        name=term.name,
        bytes=term.bytes,
        low_bytes=term.least,
        high_bytes=term.most,
        basis=term.basis.value,
        formula=term.formula,
        inputs=dict(term.inputs),
        source=term.source,
    )


def _ranges(memory: MemoryEstimate) -> dict[str, tuple[int, int]]:
    poorest = min(memory.ranks, key=lambda rank: rank.kv_cache_bytes)
    return {
        "weights_bytes": (poorest.weights.least, poorest.weights.most),
        "activation_bytes": (poorest.activation.least, poorest.activation.most),
        "non_torch_bytes": (poorest.non_torch.least, poorest.non_torch.most),
        "cuda_graph_bytes": (poorest.cuda_graph.least, poorest.cuda_graph.most),
        "kv_cache_bytes": (poorest.kv_cache_low, poorest.kv_cache_high),
    }


def _funnel(step: FunnelStep) -> FunnelDocument:
    return FunnelDocument(name=step.name, hosts=step.hosts, gpus=step.gpus, taken=step.taken)


def plain(value: Any) -> Any:
    """Dataclasses, enums, tuples and mappings as what `json.dumps` writes."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


def estimate_document(
    model: Mapping[str, Any], hardware: Mapping[str, Any], result: StrategyResult, facts: tuple[Fact, ...]
) -> EstimateDocument:
    """`gpuplan estimate -o json`: one candidate and why it does or does not fit."""
    return EstimateDocument(
        schema_version=SCHEMA_VERSION,
        model=model,
        hardware=hardware,
        candidate=candidate_document(result.candidates[0]),
        findings=tuple(finding_document(fact) for fact in (*result.facts, *facts)),
        remedies=tuple(remedy_document(remedy) for remedy in result.remedies),
    )
