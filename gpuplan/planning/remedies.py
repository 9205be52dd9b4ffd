"""The smallest single change that makes a refused strategy fit; every one is re-planned before it is offered."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuplan.domain.memory import MemoryEstimate
from gpuplan.domain.plan import Candidate, Parallelism, Remedy, StrategyName, StrategyResult, Verdict
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.versions import EngineVersion
from gpuplan.engine.weights import Split, rank_weights
from gpuplan.planning.judge import Judge
from gpuplan.planning.offers import Device, Supply, whole_cards
from gpuplan.planning.passing_shares import shares_below, shares_that_pass
from gpuplan.planning.request import PlanRequest
from gpuplan.planning.shapes import shapes, user_world

Evaluate = Callable[[Judge, Supply], StrategyResult]

MOST_HOSTS = 32
LIKE_HOSTS = 4
"""Hosts of one kind that are looked at: more of them change nothing but the choice among equals."""
SEQUENCES = (512, 256, 128, 64, 32, 16, 8)
BATCHES = (4096, 2048, 1024)
MOST_UTILIZATION = 0.95
GPU_COUNTS = (2, 3, 4, 6, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A refused strategy with all that is needed to try it again."""

    request: PlanRequest
    supply: Supply
    strategy: StrategyName
    evaluate: Evaluate
    codes: frozenset[str]
    gap_bytes: int
    """Smallest gap among the refusals for memory: no knob that gives less can help."""
    activation_bytes: int
    """Largest activation peak among them."""

    def again(self, request: PlanRequest) -> Candidate | None:
        """The best fitting candidate under a changed request."""
        outcome = self.evaluate(Judge(request), self.supply)
        return next((item for item in outcome.candidates if item.verdict is Verdict.FITS), None)

    @property
    def arguments(self) -> EngineArguments:
        return self.request.workload.engine

    def with_workload(self, **changes: Any) -> PlanRequest:
        return replace(self.request, workload=replace(self.request.workload, **changes))

    def with_arguments(self, **changes: Any) -> PlanRequest:
        engine = replace(self.arguments, **changes, user_set=self.arguments.user_set | set(changes))
        return self.with_workload(engine=engine)


def find_remedies(
    request: PlanRequest,
    supply: Supply,
    result: StrategyResult,
    evaluate: Evaluate,
    others: tuple[StrategyResult, ...],
) -> tuple[Remedy, ...]:
    """Remedies of a strategy that does not fit, smallest change first; empty when it fits or was skipped."""
    if result.verdict not in (Verdict.NO_FIT, Verdict.OVERCOMMIT):
        return ()
    case = _Case(
        request=request,
        supply=_few_of_each(supply),
        strategy=result.strategy,
        evaluate=evaluate,
        codes=frozenset(fact.code for fact in result.facts),
        gap_bytes=min((f.figures["gap_bytes"] for f in result.facts if f.code in MEMORY_CODES), default=0),
        activation_bytes=max((f.figures.get("activation_bytes", 0) for f in result.facts), default=0),
    )
    found = [remedy for knob in _KNOBS for remedy in knob(case)]
    found += _other_strategies(case, others)
    return tuple(sorted(found, key=lambda remedy: (remedy.size, remedy.kind)))


def _few_of_each(supply: Supply) -> Supply:
    """At most LIKE_HOSTS hosts of each kind, and the MOST_HOSTS with most to give: a remedy needs one place, not all."""
    seen: dict[tuple[object, ...], int] = {}
    kept = []
    for host in supply.hosts:
        kind = (host.ram_available_bytes, *((offer.device, offer.allocatable_bytes) for offer in host.offers))
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= LIKE_HOSTS:
            kept.append(host)
    if len(kept) > MOST_HOSTS:
        kept.sort(key=lambda host: (-sum(offer.allocatable_bytes for offer in host.offers), host.host))
        kept = sorted(kept[:MOST_HOSTS], key=lambda host: host.host)
    return replace(supply, hosts=tuple(kept))


KV_CODES = {"GP204", "GP205", "GP206", "GP207"}
MEMORY_CODES = KV_CODES | {"GP203", "GP212"}


def _context(case: _Case) -> Iterator[Remedy]:
    asked = _asked_context(case.request)
    if asked is None or not case.codes & KV_CODES:
        return
    open_length = (
        case.with_arguments(max_model_len=None) if case.request.workload.context is None else case.request
    )
    free = case.again(replace(open_length, workload=replace(open_length.workload, context=None)))
    if free is None or free.memory is None or not 0 < free.memory.max_model_len < asked:
        return
    length = free.memory.max_model_len
    engine = replace(case.arguments, max_model_len=None)
    if case.again(case.with_workload(context=length, engine=engine)) is None:
        return
    change = (
        {"--context": length} if case.request.workload.context is not None else {"--max-model-len": length}
    )
    yield Remedy(
        kind="context",
        change=change,
        figures={"context": length, "asked": asked},
        size=math.log2(asked / length),
        verified=True,
    )


def _asked_context(request: PlanRequest) -> int | None:
    context = request.workload.context
    if context == "max":
        return request.profile.longest_context or None
    if isinstance(context, int):
        return context
    length = request.workload.engine.max_model_len
    return length if isinstance(length, int) else None


def _concurrency(case: _Case) -> Iterator[Remedy]:
    asked = case.request.workload.concurrency or 1
    if asked < 2 or not case.codes & KV_CODES:
        return
    low, high = 0, asked
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if case.again(case.with_workload(concurrency=middle)) else (low, middle)
    if low:
        yield Remedy(
            kind="concurrency",
            change={"--concurrency": low},
            figures={"concurrency": low, "asked": asked},
            size=math.log2(asked / low),
            verified=True,
        )


def _sequences(case: _Case) -> Iterator[Remedy]:
    least = case.request.workload.concurrency or 1
    yield from _smaller(case, "max_num_seqs", "sequences", SEQUENCES, least)


def _batches(case: _Case) -> Iterator[Remedy]:
    yield from _smaller(case, "max_num_batched_tokens", "batched", BATCHES, 1)


def _smaller(case: _Case, name: str, figure: str, values: tuple[int, ...], least: int) -> Iterator[Remedy]:
    """The first smaller value of an engine limit that fits."""
    if not case.codes & MEMORY_CODES or case.gap_bytes > case.activation_bytes:
        return
    now = getattr(case.arguments, name)
    for value in values:
        if value < least or (now is not None and value >= now):
            continue
        fitting = case.again(case.with_arguments(**{name: value}))
        if fitting is None or fitting.memory is None:
            continue
        asked, gained = _limit_before(case, fitting, name)
        if value >= asked:
            continue
        yield Remedy(
            kind=name,
            change={f"--{name.replace('_', '-')}": value},
            figures={figure: value, "asked": asked, "gained_bytes": gained},
            size=0.2 * math.log2(asked / value),
            verified=True,
        )
        return


def _limit_before(case: _Case, fitting: Candidate, name: str) -> tuple[int, int]:
    """The limit as it was on the same GPUs, and the activation bytes the smaller one saves."""
    before = _same_gpus(case.request, fitting, case.supply)
    after = fitting.memory
    if before is None or after is None:
        return 1 << 30, 0
    gained = before.ranks[0].activation.bytes - after.ranks[0].activation.bytes
    return int(getattr(before, name)), max(0, gained)


def _same_gpus(request: PlanRequest, candidate: Candidate, supply: Supply) -> MemoryEstimate | None:
    """The estimate of a candidate's shape on its own GPUs under another request."""
    offers = {(offer.host, offer.index): offer.device for offer in supply.offers}
    devices = tuple(offers[host.host, gpu.index] for host in candidate.placement for gpu in host.gpus)
    shape = replace(candidate.parallelism, data=1)
    return Judge(request).assess(shape, devices[: shape.world_size]).memory


def _kv_dtype(case: _Case) -> Iterator[Remedy]:
    if (
        case.arguments.kv_cache_dtype != "auto"
        or case.request.profile.kv_cache_dtype
        or not case.codes & KV_CODES
    ):
        return
    fitting = case.again(case.with_arguments(kv_cache_dtype="fp8"))
    if fitting is None or not _has_fp8(fitting, case.supply):
        return
    yield Remedy(
        kind="kv_cache_dtype", change={"--kv-cache-dtype": "fp8"}, figures={}, size=1.0, verified=True
    )


def _has_fp8(candidate: Candidate, supply: Supply) -> bool:
    """fp8 KV caches need Ada, Hopper or newer on NVIDIA cards."""
    devices = {(offer.host, offer.index): offer.device for offer in supply.offers}
    for host in candidate.placement:
        for gpu in host.gpus:
            device = devices[host.host, gpu.index]
            if device.backend == "cuda" and not _at_least(device, EngineVersion(8, 9)):
                return False
    return True


def _at_least(device: Device, capability: EngineVersion) -> bool:
    major, _, minor = (device.compute_capability or "0.0").partition(".")
    return EngineVersion(int(major), int(minor or 0)) >= capability


def _utilization(case: _Case) -> Iterator[Remedy]:
    asked = case.request.utilization
    if asked is None or case.request.workload.vram_claim_bytes is not None:
        return
    up = [
        round(asked + step / 100, 2) for step in range(1, 20) if asked + step / 100 <= MOST_UTILIZATION + 1e-9
    ]
    largest = max((offer.total_bytes for offer in case.supply.offers), default=0)
    helps = case.codes & MEMORY_CODES and case.gap_bytes <= (MOST_UTILIZATION - asked) * largest
    own = case.strategy is StrategyName.MANUAL
    down = shares_below(case.request, case.supply, asked, own=own) if "GP201" in case.codes else []
    for share in (*(shares_that_pass(case.request, case.supply, up) if helps else []), *down):
        changed = case.with_arguments(gpu_memory_utilization=share)
        if case.again(replace(changed, utilization=share)) is not None:
            yield Remedy(
                kind="gpu_memory_utilization",
                change={"--gpu-memory-utilization": share},
                figures={"share": share, "asked": asked},
                size=5 * abs(share - asked),
                verified=True,
            )
            return


def _dtype(case: _Case) -> Iterator[Remedy]:
    """float16 where a card has no bfloat16."""
    if "GP111" not in case.codes or case.arguments.dtype != "auto":
        return
    halved = replace(
        case.with_arguments(dtype="float16"), profile=replace(case.request.profile, dtype="float16")
    )
    if case.again(halved) is not None:
        yield Remedy(kind="dtype", change={"--dtype": "float16"}, figures={}, size=0.5, verified=True)


def _own_sizes(case: _Case) -> Iterator[Remedy]:
    """The user fixed the parallel sizes: what the plan would choose instead."""
    if user_world(case.arguments) is None or case.request.workload.selection:
        return
    names = {"tensor_parallel_size", "pipeline_parallel_size"}
    engine = replace(
        case.arguments,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        user_set=case.arguments.user_set - names,
    )
    fitting = case.again(case.with_workload(engine=engine))
    if fitting is not None:
        replicas = max(case.request.workload.replicas, case.arguments.data_parallel_size)
        whole = replicas if case.strategy is StrategyName.DATA_PARALLEL else 1
        yield _shape_remedy(fitting, (user_world(case.arguments) or 1) * whole, {})


def _shape_remedy(candidate: Candidate, asked: int, change: Mapping[str, Any]) -> Remedy:
    shape = candidate.parallelism
    gpus = sum(len(host.gpus) for host in candidate.placement)
    sizes = {"--tensor-parallel-size": shape.tensor, "--pipeline-parallel-size": shape.pipeline}
    return Remedy(
        kind="shape",
        change=dict(change) or sizes,
        figures={
            "shape": f"TP {shape.tensor} × PP {shape.pipeline}",
            "where": ", ".join(list(dict.fromkeys(host.host for host in candidate.placement))[:3]),
            "gpus": gpus,
            "asked": asked,
        },
        size=1.5 + 0.25 * abs(gpus - asked) / max(asked, 1),
        verified=True,
    )


def _siblings(case: _Case) -> Iterator[Remedy]:
    weights = (
        rank_weights(case.request.profile, Split()).parameters if case.request.profile.layer_order else 0
    )
    for sibling in case.request.siblings():
        changed = replace(case.request, profile=sibling, model_path=sibling.name)
        if case.again(changed) is not None:
            lighter = rank_weights(sibling, Split()).parameters
            if weights and lighter >= weights:
                continue
            yield Remedy(
                kind="sibling",
                change={"model": sibling.name},
                figures={
                    "quantization": sibling.quantization or sibling.dtype,
                    "weights_bytes": lighter,
                    "asked_bytes": weights,
                },
                size=2.0 + (1 - lighter / weights if weights else 0),
                verified=True,
            )


def _more_gpus(case: _Case) -> Iterator[Remedy]:
    """The fewest GPUs of the best kind in the fleet that would do on one host, if no host has so many.

    Where one has, GPUs are not what is missing: what is held of them is.
    """
    if case.strategy in (StrategyName.MULTI_HOST, StrategyName.DATA_PARALLEL) or not case.supply.offers:
        return
    if user_world(case.arguments) is not None:
        return
    judge = Judge(case.request)
    whole = [whole_cards(host)[0] for host in case.supply.hosts]
    kinds = {offer.device for host in whole for offer in host.offers}
    if not kinds:
        return
    device = max(kinds, key=lambda kind: (kind.total_bytes, kind.name))
    here = max(sum(1 for offer in host.offers if offer.device == device) for host in whole)
    for gpus in (1, *GPU_COUNTS):
        for shape in shapes(judge, gpus):
            if judge.assess(shape, (device,) * gpus).fits:
                if gpus > here:
                    yield _more_remedy(device, shape, gpus, here)
                return


def _more_remedy(device: Device, shape: Parallelism, gpus: int, here: int) -> Remedy:
    return Remedy(
        kind="more_gpus",
        change={"gpus": gpus, "device": device.name},
        figures={
            "gpus": gpus,
            "more": gpus - here,
            "device": device.name,
            "shape": f"TP {shape.tensor} × PP {shape.pipeline}",
        },
        size=4.0 + math.log2(gpus),
        verified=True,
    )


def _other_strategies(case: _Case, others: tuple[StrategyResult, ...]) -> list[Remedy]:
    """Another strategy that fits the same request is a remedy of this one."""
    if not case.codes:
        return []
    fitting = [
        other
        for other in others
        if other.strategy not in (case.strategy, StrategyName.DATA_PARALLEL)
        and other.verdict is Verdict.FITS
        and other.candidates
    ]
    asked = sum(len(item.devices) for item in case.request.workload.selection) or 1
    return [
        _shape_remedy(other.candidates[0], asked, {"--strategy": other.strategy.value})
        for other in fitting[:1]
    ]


_KNOBS: tuple[Callable[[_Case], Iterator[Remedy]], ...] = (
    _context,
    _concurrency,
    _sequences,
    _batches,
    _kv_dtype,
    _dtype,
    _utilization,
    _own_sizes,
    _siblings,
    _more_gpus,
)
