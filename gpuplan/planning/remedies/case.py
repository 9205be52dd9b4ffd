"""A refused strategy, and all that is needed to try it again under a changed request within a bound of work.

A trial evaluates the strategy as the planner does: what it accepts, the planner accepts. Before that a change is
screened on the few shapes and GPUs that came closest, which takes a hundredth of the time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gpuplan.domain.memory import MemoryEstimate
from gpuplan.domain.plan import Candidate, Parallelism, StrategyName, StrategyResult, Verdict
from gpuplan.domain.workload import EngineArguments
from gpuplan.planning.judge import Assessment, Judge
from gpuplan.planning.offers import Device, HostOffer, Supply, supply_of
from gpuplan.planning.question import SHORTEST_USEFUL_CONTEXT, asked_length
from gpuplan.planning.remedies.ladder import Ladder, with_workload
from gpuplan.planning.request import PlanRequest

Evaluate = Callable[[Judge, Supply], StrategyResult]


class Balance(NamedTuple):
    """Bytes on the ranks of a shape that are worst off."""

    need: int
    """KV cache for what was asked."""
    have: int
    """KV cache there is; negative where not even the weights fit."""
    loading: int
    """Short of while the weights are loaded; negative: so much is left."""

    @property
    def short(self) -> int:
        return max(0, self.need - self.have) + max(0, self.loading)


MOST_HOSTS = 32
MOST_TOGETHER = 12
"""Hosts looked at for one replica over several: layouts of many stages take long to judge."""
LIKE_HOSTS = 4
"""Hosts of one kind that are looked at: more of them change nothing but the choice among equals."""
NEAREST = 3
"""Shapes that are screened, by each of two measures of how close they came."""
WORK = 400
"""Assessments one strategy's remedies may take, about a millisecond each."""
STAGES_PER_WORK = 4
OFFERS_PER_ASSESSMENT = 8


@dataclass(frozen=True, slots=True)
class Near:
    """A shape on GPUs that does not fit, and what it lacks."""

    shape: Parallelism
    devices: tuple[Device, ...]
    memory: MemoryEstimate

    @property
    def balance(self) -> Balance:
        return balance_of(self.memory)

    @property
    def share(self) -> float:
        """Bytes of KV cache asked for over those there are."""
        return self.balance.need / max(self.balance.have, 1)


def balance_of(memory: MemoryEstimate) -> Balance:
    """The rank that is furthest short of its cache, and the one that is while loading."""
    worst = max(memory.ranks, key=lambda rank: rank.kv_needed_bytes - rank.kv_cache_low)
    loading = max(rank.loading_bytes - rank.total_bytes for rank in memory.ranks)
    return Balance(worst.kv_needed_bytes, worst.kv_cache_low, loading)


def work_of(shape: Parallelism) -> int:
    """What an assessment takes, about a millisecond each."""
    return 1 + shape.pipeline // STAGES_PER_WORK


@dataclass(slots=True)
class _Noting(Judge):
    """Remembers what was tried."""

    def near(self) -> list[Near]:
        """What does not fit; where no share of a GPU is claimed also what would, were so much of it free."""
        return [
            Near(shape, devices, found.memory)
            for (shape, devices), found in self._shapes.items()
            if found.memory is not None and not (found.fits and self.request.utilization is not None)
        ]

    @property
    def work(self) -> int:
        """Assessments that were made, those of many stages counted for more."""
        return sum(work_of(shape) for shape, _ in self._shapes)

    def has(self, near: Near) -> bool:
        """Whether a shape was assessed already."""
        return (near.shape, near.devices) in self._shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The strategy under a request: what fits, else what came closest."""

    request: PlanRequest
    fitting: Candidate | None
    near: tuple[Near, ...] = ()


@dataclass(slots=True, kw_only=True)
class Case:
    """One strategy's refusal."""

    request: PlanRequest
    supply: Supply
    """Few hosts of each kind."""
    strategy: StrategyName
    evaluate: Evaluate
    codes: frozenset[str]
    """Of what was said against it."""
    left: int = WORK
    _known: dict[int, Trial] = field(default_factory=dict)
    """By identity of the request, which the trial keeps alive."""
    _judges: dict[int, _Noting] = field(default_factory=dict)
    _steps: dict[tuple[int, int], tuple[Ladder, PlanRequest]] = field(default_factory=dict)

    @property
    def arguments(self) -> EngineArguments:
        return self.request.workload.engine

    @property
    def claim_only(self) -> bool:
        return self.request.workload.vram_claim_bytes is not None

    def tried(self, request: PlanRequest) -> Trial:
        """The strategy under a request; without an answer once the work that may be done is done."""
        known = self._known.get(id(request))
        if known is not None:
            return known
        if self.left <= 0:
            return Trial(request=request, fitting=None)
        supply = self._supply(request)
        judge = _Noting(request)
        outcome = self.evaluate(judge, supply)
        self.left -= judge.work + len(supply.offers) // OFFERS_PER_ASSESSMENT
        fitting = next((item for item in outcome.candidates if item.verdict is Verdict.FITS), None)
        near = () if fitting is not None else _nearest(judge.near())
        made = Trial(request=request, fitting=fitting, near=near)
        self._known[id(request)] = made
        return made

    def fitting(self, request: PlanRequest) -> Candidate | None:
        """The best candidate of a changed request that fits."""
        return self.tried(request).fitting

    def screened(self, request: PlanRequest, near: Iterable[Near]) -> list[Near]:
        """Those of the shapes that would fit under a changed request, were their GPUs free."""
        return [one for one in near if (found := self._assessed(request, one)) is not None and found.fits]

    def balance(self, request: PlanRequest, near: Near) -> Balance | None:
        """Of a shape under a changed request; None where it cannot be built or there is no work left."""
        found = self._assessed(of_length(request), near)
        return None if found is None or found.memory is None else balance_of(found.memory)

    def after(self, ladder: Ladder, at: int) -> PlanRequest:
        """The request under one step of a ladder, made once."""
        key = (id(ladder), at)
        if key not in self._steps:
            self._steps[key] = (ladder, ladder.step(at).apply(self.request))
        return self._steps[key][1]

    def _assessed(self, request: PlanRequest, near: Near) -> Assessment | None:
        judge = self._judges.get(id(request))
        if judge is None:
            judge = self._judges[id(request)] = _Noting(request)
        if not judge.has(near):
            if self.left <= 0:
                return None
            self.left -= work_of(near.shape)
        return judge.assess(near.shape, near.devices)

    def memory(self, candidate: Candidate) -> MemoryEstimate | None:
        """The estimate of a candidate's shape on its own GPUs as it was asked for."""
        offers = {(offer.host, offer.index): offer.device for offer in self.supply.offers}
        places = [(host.host, gpu.index) for host in candidate.placement for gpu in host.gpus]
        if not all(place in offers for place in places):
            return None
        shape = replace(candidate.parallelism, data=1)
        devices = tuple(offers[place] for place in places)[: shape.world_size]
        return Judge(self.request).assess(shape, devices).memory

    def _supply(self, request: PlanRequest) -> Supply:
        if request.fleet is self.request.fleet:
            return self.supply
        return few_of_each(supply_of(request.fleet), request, most_hosts(self.strategy))


def of_length(request: PlanRequest) -> PlanRequest:
    """The request with a length: the shortest useful one where none was asked for."""
    if request.workload.context is not None or asked_length(request.workload.engine) is not None:
        return request
    longest = request.profile.longest_context or SHORTEST_USEFUL_CONTEXT
    return with_workload(request, context=min(SHORTEST_USEFUL_CONTEXT, longest))


def _nearest(near: list[Near]) -> tuple[Near, ...]:
    """The closest by bytes, and by the share of the cache that is there."""
    by_bytes = sorted(near, key=lambda one: one.balance.short)[:NEAREST]
    by_share = sorted(near, key=lambda one: one.share)[:NEAREST]
    return tuple({id(one): one for one in (*by_bytes, *by_share)}.values())


def few_of_each(supply: Supply, request: PlanRequest, most: int = MOST_HOSTS) -> Supply:
    """At most LIKE_HOSTS hosts of each kind (as many as replicas, if more), and the `most` with most to give: a
    remedy needs one place, not all. Hosts that were selected stay.
    """
    selected = {item.host for item in request.workload.selection}
    copies = request.workload.replicas * max(request.workload.engine.data_parallel_size, 1)
    alike = max(LIKE_HOSTS, copies)
    seen: dict[tuple[object, ...], int] = {}
    kept: list[HostOffer] = []
    for host in supply.hosts:
        kind = (host.ram_available_bytes, *((offer.device, offer.allocatable_bytes) for offer in host.offers))
        seen[kind] = seen.get(kind, 0) + 1
        if seen[kind] <= alike or host.host in selected:
            kept.append(host)
    if len(kept) > most:
        first = sorted(kept, key=lambda host: (host.host not in selected, -_given(host), host.host))
        kept = sorted(first[: max(most, len(selected))], key=lambda host: host.host)
    return replace(supply, hosts=tuple(kept))


def most_hosts(strategy: StrategyName) -> int:
    """Hosts looked at for a strategy."""
    return MOST_TOGETHER if strategy is StrategyName.MULTI_HOST else MOST_HOSTS


def _given(host: HostOffer) -> int:
    return sum(offer.allocatable_bytes for offer in host.offers)
