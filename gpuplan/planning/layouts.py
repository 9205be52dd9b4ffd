"""Ways to lay a model over the same GPUs, compared: tensor, pipeline, data and expert parallel (S3.2, S3.3).

Every layout takes all the GPUs and is judged like any placement: each rank's weights and cache, the cache of all replicas
together, the longest context of one request, tokens per second at one load for all. A replica of a mixture of experts is a
rank of one server that holds the experts once; a replica of a dense model is a copy of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.memory import EngineAnswer, MemoryEstimate
from gpuplan.domain.model import CacheKind, ModelProfile
from gpuplan.domain.plan import (
    Candidate,
    Parallelism,
    PlacedGpu,
    PlacedHost,
    Role,
    Score,
    StrategyName,
    StrategyResult,
    Verdict,
)
from gpuplan.domain.throughput import Throughput
from gpuplan.planning import partition
from gpuplan.planning.judge import Assessment, Judge
from gpuplan.planning.offers import Device, supply_of
from gpuplan.planning.request import PlanRequest
from gpuplan.planning.shapes import MOST_TENSOR, base
from gpuplan.planning.speeds import Speeds
from gpuplan.units import ceil_div

COMMON_CONTEXT = 8192
"""Tokens: speed and requests of all layouts are told for this length where none was asked for."""
MOST_GPUS = 256
MOST_STAGES = 8

Place = tuple[str, int]
"""Host and GPU index, in the order of the ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One way, and what it gives."""

    tensor: int
    pipeline: int
    data: int
    expert: bool
    separate: bool
    """Replicas are copies of their own, not ranks of one server."""
    over_hosts: bool
    """A tensor-parallel group spans hosts: every layer waits for the network."""
    chosen: bool
    """The plan's own."""
    fits: bool
    weights_bytes: int | None = None
    """On the fullest rank; None: the model cannot be built so."""
    kv_cache_bytes: int | None = None
    """On the poorest rank."""
    kv_cache_tokens: int = 0
    """Of all replicas."""
    largest_context: int = 0
    """Tokens one request may have."""
    requests: float = 0.0
    """Of the common context, over all replicas."""
    tokens_per_second: float | None = None
    """Of all users at the common load; None: not known."""
    per_user: float | None = None
    most_tokens_per_second: float | None = None
    """With as many users at once as the cache or the engine's batch holds."""
    most_users: int | None = None
    gap_bytes: int | None = None
    """What the rank that is furthest short is short of; None where that is a useful length of context."""
    reason: str | None = None
    """The engine's line where the sizes cannot be built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All layouts, and the load they were compared at."""

    gpus: int
    hosts: int
    context: int
    users: int
    latent: bool
    """The cache is of latents: tensor parallel repeats it on every rank."""
    kv_heads: int
    layouts: tuple[Layout, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    shape: Parallelism
    """`data`: the replicas."""
    separate: bool
    chosen: bool = False


def told(
    request: PlanRequest,
    results: tuple[StrategyResult, ...],
    recommended: tuple[StrategyName, int] | None,
) -> tuple[StrategyResult, ...]:
    """The results, the recommended candidate with what other layouts of its GPUs would give."""
    if recommended is None or not request.profile.expert_count:
        return results
    name, index = recommended
    return tuple(_with_layouts(request, one, index) if one.strategy is name else one for one in results)


def _with_layouts(request: PlanRequest, result: StrategyResult, index: int) -> StrategyResult:
    candidates = list(result.candidates)
    best = candidates[index]
    candidates[index] = replace(best, facts=(*best.facts, *about(request, best)))
    return replace(result, candidates=tuple(candidates))


def about(request: PlanRequest, candidate: Candidate) -> tuple[Fact, ...]:
    """GP312 on a placement of a mixture of experts over replicas or hosts: what other layouts of its GPUs would give."""
    hosts = {host.host for host in candidate.placement}
    spread = candidate.parallelism.data > 1 or len(hosts) > 1
    asked = "enable_expert_parallel" in request.workload.engine.user_set
    if candidate.verdict is not Verdict.FITS or candidate.memory is None or not request.profile.expert_count:
        return ()
    if not (spread or asked) or candidate.score.gpus > MOST_GPUS:
        return ()
    places = [(host.host, gpu.index) for host in candidate.placement for gpu in host.gpus]
    compared = compare(request, places, candidate.parallelism)
    return () if compared is None or len(compared.layouts) < 2 else (fact_of(compared),)


def fact_of(compared: Comparison) -> Fact:
    """GP312."""
    return Fact(
        code="GP312",
        severity=Severity.INFO,
        subject={"gpus": compared.gpus, "hosts": compared.hosts},
        figures=_plain(compared),
    )


def _plain(compared: Comparison) -> dict[str, Any]:
    made = asdict(compared)
    return {**made, "layouts": [dict(each) for each in made["layouts"]]}


def compare(
    request: PlanRequest, places: Sequence[Place], chosen: Parallelism | None = None
) -> Comparison | None:
    """Every layout of these GPUs, most cache first; None where one is not to be had now, or only a claim is known."""
    order = list(dict.fromkeys(host for host, _ in places))
    places = sorted(places, key=lambda place: order.index(place[0]))  # ranks fill host after host
    devices = _devices(request, places)
    if devices is None or request.workload.vram_claim_bytes is not None:
        return None
    engine = request.workload.engine
    copies = request.workload.replicas * max(engine.data_parallel_size, 1)
    context = _common_context(request)
    users = request.workload.concurrency * copies if request.workload.concurrency else len(places)
    per_host = min(sum(1 for place in places if place[0] == host) for host in order)
    speeds = _Bench(request=request, places=tuple(places), context=context, users=users)
    layouts = [
        _judged(request, way, devices, per_host, speeds) for way in _ways(request, len(places), chosen)
    ]
    layouts.sort(
        key=lambda each: (
            not each.fits,
            -each.kv_cache_tokens,
            -each.requests,
            each.weights_bytes is None,
            each.expert,
        )
    )
    return Comparison(
        gpus=len(places),
        hosts=len(order),
        context=context,
        users=users,
        latent=_latent(request.profile),
        kv_heads=request.profile.kv_heads,
        layouts=tuple(layouts),
    )


def _devices(request: PlanRequest, places: Sequence[Place]) -> tuple[Device, ...] | None:
    names = {host for host, _ in places}
    fleet = replace(request.fleet, hosts=tuple(host for host in request.fleet.hosts if host.name in names))
    offered = {(offer.host, offer.index): offer.device for offer in supply_of(fleet).offers}
    if any(place not in offered for place in places):
        return None
    return tuple(offered[place] for place in places)


def _common_context(request: PlanRequest) -> int:
    longest = request.profile.longest_context or COMMON_CONTEXT
    for asked in (request.workload.context, request.workload.engine.max_model_len):
        if isinstance(asked, int):
            return asked
        if asked == "max":
            return longest
    return min(COMMON_CONTEXT, longest)


def _latent(profile: ModelProfile) -> bool:
    return any(cache.kind is CacheKind.LATENT for layer in profile.layer_kinds for cache in layer.caches)


def _ways(request: PlanRequest, gpus: int, chosen: Parallelism | None) -> Iterator[_Way]:
    """Tensor × data parallel of the whole number, with expert parallel where there are experts, and tensor × pipeline.

    Sizes that the attention heads do not divide by are no way at all.
    """
    moe = request.profile.expert_count > 0
    fixed = base(request.workload.engine)
    seen = set()
    if chosen is not None:
        separate = chosen.data > 1 and not (moe and request.workload.engine.data_parallel_size > 1)
        first = replace(chosen, layer_partition=None)
        seen.add((first, separate))
        yield _Way(shape=first, separate=separate, chosen=True)
    for tensor in range(min(gpus, MOST_TENSOR), 0, -1):
        rest, left = divmod(gpus, tensor)
        if left or request.profile.attention_heads % tensor or fixed.prefill_context > 1:
            continue
        shapes = [replace(fixed, tensor=tensor, data=rest, expert=moe and gpus > 1)]
        if rest == 1 and moe:
            shapes.append(replace(shapes[0], expert=False))
        if 1 < rest <= min(MOST_STAGES, request.profile.layer_count):
            shapes.append(replace(fixed, tensor=tensor, pipeline=rest))
        for shape in shapes:
            way = _Way(shape=shape, separate=shape.data > 1 and not moe)
            if (way.shape, way.separate) not in seen:
                seen.add((way.shape, way.separate))
                yield way


def _judged(
    request: PlanRequest, way: _Way, devices: tuple[Device, ...], per_host: int, bench: "_Bench"
) -> Layout:
    """A layout by the worst of its replicas."""
    shape = way.shape
    asked = _request_of(request, way)
    judge, one = Judge(asked), replace(shape, data=1)
    size = one.world_size
    shares = dict.fromkeys(devices[start : start + size] for start in range(0, len(devices), size))
    found = [partition.assess(judge, one, share) for share in shares]
    worst = min(found, key=_worth)
    memory = worst.memory
    made = Layout(
        tensor=shape.tensor,
        pipeline=shape.pipeline,
        data=shape.data,
        expert=shape.expert,
        separate=way.separate,
        over_hosts=per_host % shape.tensor != 0,
        chosen=way.chosen,
        fits=all(each.fits for each in found),
        gap_bytes=worst.shortfall.gap_bytes if worst.shortfall and worst.shortfall.gap_bytes > 0 else None,
        reason=worst.violations[0].line if worst.violations else None,
    )
    if memory is None:
        return made
    made = replace(
        made,
        weights_bytes=max(rank.weights.bytes + rank.weights_extra.bytes for rank in memory.ranks),
        kv_cache_bytes=min(rank.kv_cache_bytes for rank in memory.ranks),
    )
    if not made.fits:
        return made
    speed = bench.speed(asked, replace(worst.parallelism, data=shape.data), memory)
    if speed is not None:
        busiest = max((speed.decode, *speed.others), key=lambda each: each.total)
        made = replace(
            made,
            tokens_per_second=speed.decode.total,
            per_user=speed.decode.per_user,
            most_tokens_per_second=busiest.total,
            most_users=busiest.users,
        )
    return replace(
        made,
        kv_cache_tokens=memory.kv_cache_tokens * shape.data,
        largest_context=memory.largest_max_model_len,
        requests=_at(memory, bench.context) * shape.data,
    )


def _worth(assessment: Assessment) -> tuple[bool, bool, int]:
    memory = assessment.memory
    return memory is not None, assessment.fits, 0 if memory is None else memory.kv_cache_tokens


def _request_of(request: PlanRequest, way: _Way) -> PlanRequest:
    """The request as a server of this layout gets it, its users spread over the replicas."""
    workload = request.workload
    shape = way.shape
    copies = workload.replicas * max(workload.engine.data_parallel_size, 1)
    users = None if workload.concurrency is None else ceil_div(workload.concurrency * copies, shape.data)
    engine = replace(
        workload.engine,
        tensor_parallel_size=shape.tensor,
        pipeline_parallel_size=shape.pipeline,
        data_parallel_size=1 if way.separate else shape.data,
        enable_expert_parallel=shape.expert,
    )
    return replace(
        request,
        workload=replace(workload, engine=engine, replicas=1, selection=(), concurrency=users),
    )


def _at(memory: MemoryEstimate, context: int) -> float:
    """Requests of `context` tokens that a replica holds."""
    if memory.max_model_len == context:
        return memory.max_concurrency
    known = dict(memory.concurrency_curve) | dict(memory.concurrency_at)
    return known.get(context, memory.kv_cache_tokens / max(context, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """One load for all layouts."""

    request: PlanRequest
    places: tuple[Place, ...]
    context: int
    users: int

    def speed(self, asked: PlanRequest, shape: Parallelism, memory: MemoryEstimate) -> Throughput | None:
        """How fast a layout is at the common load; None where that is not known."""
        load = replace(asked, workload=replace(asked.workload, concurrency=ceil_div(self.users, shape.data)))
        loaded = replace(memory, max_model_len=self.context, max_concurrency=_at(memory, self.context))
        told = Speeds(request=load).told(self._result(shape, loaded)).candidates[0].throughput
        return told if isinstance(told, Throughput) else None

    def _result(self, shape: Parallelism, memory: MemoryEstimate) -> StrategyResult:
        """The layout as a placement, as far as speeds need one."""
        groups: dict[str, list[int]] = {}
        for host, index in self.places:
            groups.setdefault(host, []).append(index)
        placement = tuple(
            PlacedHost(
                host=host,
                role=Role.REPLICA,
                gpus=tuple(
                    PlacedGpu(index=index, claim_bytes=0, allocatable_bytes=0, total_bytes=0)
                    for index in indexes
                ),
            )
            for host, indexes in groups.items()
        )
        made = Candidate(
            verdict=Verdict.FITS,
            parallelism=shape,
            placement=placement,
            memory=memory,
            engine=EngineAnswer(starts=True),
            score=Score(
                ray=False, gpus=len(self.places), hosts=len(groups), stages=1, total_bytes=0, free_bytes=0
            ),
        )
        return StrategyResult(
            strategy=StrategyName.MANUAL,
            verdict=Verdict.FITS,
            reason=None,
            candidates=(made,),
            facts=(),
            remedies=(),
        )
