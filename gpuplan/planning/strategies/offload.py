"""S4.3: nothing fits whole. The GPUs of one host hold as much of the model as they can, the rest stays in the host's RAM.

The engine is told in whole GiB per GPU (`--cpu-offload-gb`); the fewest that do are searched, as what stays there is read
over the bus in every step. RAM that nobody measured counts as none: pinned memory that is not there ends the process.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Candidate, Parallelism, StrategyName, StrategyResult
from gpuplan.domain.throughput import Throughput
from gpuplan.engine.divisibility import grouped, split_of
from gpuplan.engine.offloading import READS_HOST_MEMORY, offloaded_bytes
from gpuplan.planning import refusals
from gpuplan.planning.judge import Assessment, Judge
from gpuplan.planning.offers import HostOffer, Offer, Supply
from gpuplan.planning.placing import candidate, ram_claim, ram_fits
from gpuplan.planning.request import with_offload
from gpuplan.planning.shapes import base, shapes, user_world
from gpuplan.planning.strategies.outcome import result, skipped
from gpuplan.units import GIB, ceil_div

MOST_HOSTS = 32
"""Hosts looked at where no share of the card is claimed: every one differs in what is free."""
EVERYTHING = 2.0**20
"""GiB; more than any rank has."""
OWN_WAYS = frozenset(
    {
        "offload_backend",
        "offload_group_size",
        "offload_num_in_group",
        "offload_prefetch_step",
        "offload_params",
        "cpu_offload_params",
    }
)
"""Arguments that choose another way to offload, or which parameters."""
NAME = StrategyName.OFFLOAD


def evaluate(judge: Judge, supply: Supply, fitting: Sequence[StrategyName]) -> StrategyResult:
    """Per host the largest group of like GPUs, and one GPU alone; `fitting`: strategies that hold the model whole."""
    reason = _reason(judge, fitting)
    if reason is not None:
        return skipped(NAME, reason)
    search = _Search(judge=judge)
    candidates: list[Candidate] = []
    facts: list[Fact] = []
    whole = 0
    for host in _hosts(judge, supply):
        if host.backend not in READS_HOST_MEMORY or host.offers[0].device.unified:
            facts.append(_no_use(host))
            continue
        found = _of_host(search, host)
        whole += found.whole
        candidates += found.candidates
        facts += found.facts
    if whole and not candidates and not facts:
        return skipped(NAME, "the model fits whole on the GPUs: there is nothing to offload")
    if facts and not candidates and all(fact.figures.get("why") == "busy" for fact in facts):
        return skipped(NAME, "no GPU has free what the engine takes at start, wherever the weights are")
    return result(NAME, candidates, facts, judge)


def priced(result: StrategyResult) -> StrategyResult:
    """The result with what the offload of its best candidate costs (GP220), once speeds are known."""
    if not result.candidates or result.strategy is not NAME:
        return result
    first, *rest = result.candidates
    return replace(result, candidates=(replace(first, facts=(*first.facts, _cost(first))), *rest))


def _reason(judge: Judge, fitting: Sequence[StrategyName]) -> str | None:
    """Why offload is not considered at all."""
    workload = judge.request.workload
    if workload.engine.cpu_offload_gb:
        return "--cpu-offload-gb is given: the other strategies count with it"
    if workload.engine.user_set & OWN_WAYS:
        return "the arguments given say themselves what stays in host memory"
    if judge.claim_only:
        return "with --vram-claim nobody knows which weights could stay in host memory"
    if not judge.request.profile.layer_order:
        return "the model's layers are not known, so nobody knows which weights could stay in host memory"
    if workload.selection:
        return "the selection decides; -- --cpu-offload-gb N beside it offloads there"
    if workload.replicas * max(workload.engine.data_parallel_size, 1) > 1:
        return "several replicas are placed whole"
    if fitting:
        return "the model fits whole"
    return None


def _hosts(judge: Judge, supply: Supply) -> Sequence[HostOffer]:
    if judge.request.utilization is not None or len(supply.hosts) <= MOST_HOSTS:
        return supply.hosts
    most = sorted(supply.hosts, key=lambda host: (-sum(o.allocatable_bytes for o in host.offers), host.host))
    return sorted(most[:MOST_HOSTS], key=lambda host: host.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Least:
    """The fewest GiB per GPU with which a shape fits, or how it fails with all that can be moved."""

    gib: int | None
    most_gib: int
    assessment: Assessment


@dataclass(slots=True)
class _Search:
    """Assessments by GiB left in host memory, each made once."""

    judge: Judge
    _judges: dict[int, Judge] = field(default_factory=dict)
    _known: dict[tuple[object, ...], _Least] = field(default_factory=dict)

    def at(self, gib: int) -> Judge:
        if not gib:
            return self.judge
        known = self._judges.get(gib)
        if known is None:
            known = self._judges[gib] = Judge(with_offload(self.judge.request, gib))
        return known

    def least(self, shape: Parallelism, offers: tuple[Offer, ...]) -> _Least:
        """More in host memory never needs more of the GPU: halving finds the fewest."""
        devices = tuple(offer.device for offer in offers)
        free = tuple(o.allocatable_bytes for o in offers) if self.judge.request.utilization is None else ()
        key = (shape, devices, free)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._least(shape, offers)
        return known

    def _least(self, shape: Parallelism, offers: tuple[Offer, ...]) -> _Least:
        unmoved = self._assessed(shape, offers, 0)
        if unmoved[1] or unmoved[0].violations:
            return _Least(gib=0 if unmoved[1] else None, most_gib=0, assessment=unmoved[0])
        most = self._most_gib(shape)
        best, fits = self._assessed(shape, offers, most)
        if not fits or not most:
            return _Least(gib=None, most_gib=most, assessment=best)
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            found, fits = self._assessed(shape, offers, middle)
            if fits:
                high, best = middle, found
            else:
                low = middle
        return _Least(gib=high, most_gib=most, assessment=best)

    def _assessed(self, shape: Parallelism, offers: tuple[Offer, ...], gib: int) -> tuple[Assessment, bool]:
        judge = self.at(gib)
        found = judge.assess(shape, tuple(offer.device for offer in offers))
        fits = found.fits and all(judge.free_enough(offer, found, tensor=shape.speaking) for offer in offers)
        return found, fits

    def _most_gib(self, shape: Parallelism) -> int:
        """All layers of the heaviest stage, in whole GiB."""
        profile, engine = self.judge.request.profile, self.judge.request.workload.engine
        split = split_of(grouped(shape, profile, engine), language_model_only=engine.language_model_only)
        moved = (
            offloaded_bytes(
                profile,
                split,
                EVERYTHING,
                stage=stage,
                stages=shape.pipeline,
                layer_partition=shape.layer_partition,
            )
            for stage in range(shape.pipeline)
        )
        return ceil_div(max(moved), GIB)


@dataclass(slots=True)
class _Found:
    candidates: list[Candidate] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    whole: bool = False
    """It fits there without moving anything."""


def _of_host(search: _Search, host: HostOffer) -> _Found:
    found = _Found()
    free = [offer for offer in host.offers if search.judge.free_enough(offer)]
    closest: Fact | None = None
    for offers in _groups(search.judge, free):
        shape = _shape(search.judge, len(offers))
        if shape is None:
            continue
        least = search.least(shape, offers)
        if least.gib == 0:
            found.whole = True
            return found
        if least.gib is None:
            closest = _nearer(closest, _too_much(host, offers, least))
            continue
        judge = search.at(least.gib)
        if not ram_fits(judge, host, len(offers), shape):
            fact = _too_little_ram(host, offers, least.gib, ram_claim(judge, len(offers), shape))
            closest = _nearer(closest, fact)
            continue
        placed = candidate(judge, least.assessment, [(host.host, offers)])
        if not any(len(one.placement[0].gpus) == len(offers) for one in found.candidates):
            found.candidates.append(placed)
    if not found.candidates:
        found.facts = [closest or _no_room(host, host.offers)]
    return found


def _groups(judge: Judge, free: Sequence[Offer]) -> Iterator[tuple[Offer, ...]]:
    """The largest groups that a shape exists for, then single GPUs; by index, as ranks lie."""
    world = user_world(judge.request.workload.engine)
    kinds: dict[object, list[Offer]] = {}
    for offer in free:
        kinds.setdefault(offer.device, []).append(offer)
    together = [[o for o in own if not o.device.slice] for own in kinds.values()]
    if len(together) > 1:
        together.append([offer for offer in free if not offer.device.slice])
    for own in sorted(together, key=lambda own: -sum(offer.total_bytes for offer in own)):
        counts = range(len(own), 1, -1) if world is None else (world,) if 1 < world <= len(own) else ()
        count = next((count for count in counts if _shape(judge, count) is not None), None)
        if count is not None:
            yield tuple(sorted(own[:count], key=lambda offer: offer.index))
    if world in (None, 1):
        for own in sorted(kinds.values(), key=lambda own: -own[0].total_bytes):
            yield (own[0],)


def _shape(judge: Judge, count: int) -> Parallelism | None:
    return base(judge.request.workload.engine) if count == 1 else next(shapes(judge, count), None)


def _nearer(one: Fact | None, other: Fact) -> Fact:
    """The refusal that is less short; too little RAM before too little of everything."""
    if one is None:
        return other
    return min(one, other, key=lambda fact: (fact.code != "GP221", fact.figures.get("gap_bytes") or 0))


def _too_little_ram(host: HostOffer, offers: Sequence[Offer], gib: int, need: int) -> Fact:
    have = host.ram_available_bytes
    return Fact(
        code="GP221",
        severity=Severity.ERROR,
        subject={"host": host.host, "gpus": sorted(offer.index for offer in offers)},
        figures={
            "offload_gib": gib,
            "gpus": len(offers),
            "need_bytes": need,
            "have_bytes": have,
            "gap_bytes": need - (have or 0),
        },
    )


def _too_much(host: HostOffer, offers: Sequence[Offer], least: _Least) -> Fact:
    subject = {"host": host.host, "gpus": sorted(offer.index for offer in offers)}
    assessment = least.assessment
    if assessment.violations:
        return refusals.broken_rule(assessment, subject)
    if assessment.shortfall is None:
        return _no_room(host, offers)
    found = refusals.shortfall(assessment, tuple(offer.device for offer in offers), subject)
    return Fact(
        code="GP222",
        severity=Severity.ERROR,
        subject=subject,
        figures={**found.figures, "lack": found.code, "offload_gib": least.most_gib},
    )


def _no_room(host: HostOffer, offers: Sequence[Offer]) -> Fact:
    """What the engine takes at start is not free, whatever weights are moved."""
    worst = min(offers, key=lambda offer: (offer.allocatable_bytes, offer.index))
    return Fact(
        code="GP223",
        severity=Severity.ERROR,
        subject={"host": host.host, "gpu": worst.index},
        figures={"why": "busy", "have_bytes": worst.allocatable_bytes, "total_bytes": worst.total_bytes},
    )


def _no_use(host: HostOffer) -> Fact:
    return Fact(
        code="GP223",
        severity=Severity.ERROR,
        subject={"host": host.host},
        figures={
            "why": "unified" if host.offers[0].device.unified else "backend",
            "backend": host.backend,
            "device": host.offers[0].device.name,
        },
    )


def _cost(placed: Candidate) -> Fact:
    """GP220: what stays in host memory, and what that makes of the speed."""
    host, told = placed.placement[0], placed.throughput
    figures: dict[str, object] = {
        "offload_gib": host.cpu_offload_gib,
        "gpus": len(host.gpus),
        "ram_bytes": host.ram_claim_bytes,
    }
    if isinstance(told, Throughput) and told.offload is not None:
        read, rate = told.offload.read_bytes, told.offload.bytes_per_second
        figures |= {
            "read_bytes": read,
            "bytes_per_second": rate,
            "bus": told.offload.bus,
            "step_seconds": round(read / rate, 4),
            "users": told.decode.users,
            "tokens_per_second": round(told.decode.per_user, 2),
            "whole_tokens_per_second": round(told.offload.whole_per_user, 2),
            "low": round(told.decode.per_user * told.low, 2),
            "high": round(told.decode.per_user * told.high, 2),
        }
    return Fact(code="GP220", severity=Severity.WARNING, subject={"host": host.host}, figures=figures)
