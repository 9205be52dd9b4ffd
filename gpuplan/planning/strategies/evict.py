"""S4.6: nothing fits beside what runs. Which deployments of ours to stop so that it does; nobody is stopped here.

Of all sets that make room the one is named that stops the least: no requests in flight before requests nobody could
count before some in flight; then the fewest deployments; then the shortest keep-alives, those without one last. Never
one that is pinned (negative keep-alive) or still starting, and never a process that is not ours.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet, Host
from gpuplan.domain.plan import Candidate, Eviction, Owner, StrategyName, StrategyResult, Verdict
from gpuplan.planning.evictable import Busy, Names, Running, deployments, evictions, without
from gpuplan.planning.judge import Judge
from gpuplan.planning.offers import HostOffer, Offer, Supply, supply_of
from gpuplan.planning.ranking import sort_key
from gpuplan.planning.strategies.evaluating import Evaluate
from gpuplan.planning.strategies.outcome import result, skipped

__all__ = ["Busy", "Running", "deployments", "evaluate"]

MOST_EXACT = 12
"""Deployments of which every set is weighed."""
MOST_TRIES = 300
"""Sets that are planned with; after them what was dropped one by one stands."""
MOST_HOSTS = 64
"""Hosts with room to make that are looked at closely."""
MOST_COMPANIONS = 32
LIKE_COMPANIONS = 4
MOST_NAMED = 8
"""Processes of others named in a refusal, those that hold most first."""
NAME = StrategyName.EVICT


def evaluate(
    judge: Judge,
    fitting: Sequence[StrategyName],
    strategies: Mapping[StrategyName, Evaluate],
) -> StrategyResult:
    """The best placement once the named deployments are stopped. `strategies`: those that place it whole."""
    if fitting:
        return skipped(NAME, "the model fits beside what runs")
    running = deployments(judge.request.fleet)
    if not running:
        nobody = skipped(NAME, "no deployment of gpuplan's holds a GPU here")
        return replace(nobody, facts=tuple(_others(judge, judge.request.fleet)))
    stoppable = [one for one in running if one.stoppable]
    left_alone = tuple(_left_alone(one) for one in running if not one.stoppable)
    if not stoppable:
        reason = "every deployment of gpuplan's is pinned or still starting"
        return result(NAME, (), (*left_alone, *_others(judge, judge.request.fleet)), judge, reason=reason)
    room = _Room(judge=judge, strategies=strategies, order=tuple(stoppable))
    found = room.least()
    if found is None:
        not_even = _not_even([one.name for one in stoppable], room.closest)
        return result(NAME, (), (not_even, *left_alone, *_others(judge, room.emptied)), judge)
    names, candidate = found
    chosen = tuple(evictions(judge.request.fleet, [one for one in stoppable if one.name in names]))
    told = replace(candidate, evicts=chosen, facts=(*candidate.facts, _stopped_first(chosen)))
    return result(NAME, (told,), (), judge)


@dataclass(slots=True)
class _Room:
    """Plans on the fleet with some deployments gone, each made once."""

    judge: Judge
    strategies: Mapping[StrategyName, Evaluate]
    order: tuple[Running, ...]
    """Whom to stop first."""
    closest: Fact | None = None
    """With all gone, the refusal that is least short."""
    emptied: Fleet = field(default_factory=lambda: Fleet(hosts=()))
    """The fleet with all gone."""
    _hosts: dict[str, Host] = field(default_factory=dict)
    _on: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the stoppable ones by host."""
    _looked_at: tuple[str, ...] = ()
    _companions: tuple[Host, ...] = ()
    _gone: dict[tuple[str, Names], Host] = field(default_factory=dict)
    _known: dict[Names, Candidate | None] = field(default_factory=dict)
    _fewest: int = 1
    """GPUs that a placement takes at least."""

    def __post_init__(self) -> None:
        self._hosts = {host.name: host for host in self.judge.request.fleet.hosts}
        for one in self.order:
            for host in one.hosts:
                self._on[host] = (*self._on.get(host, ()), one.name)
        self._looked_at = tuple(sorted(self._on))
        self._companions = self._others_of_a_kind()

    def least(self) -> tuple[Names, Candidate] | None:
        """The set that stops the least, and the placement it makes possible."""
        everyone = frozenset(one.name for one in self.order)
        placed = self._all_gone(everyone)
        if placed is None:
            return None
        if len(self.order) > MOST_EXACT:
            placed, everyone = self._first_that_fit(everyone, placed)
        return self._fewer(everyone, placed)

    def _all_gone(self, everyone: Names) -> Candidate | None:
        """The best placement with everybody stopped; the hosts where there is one are looked at from here on."""
        supply = self._supply(everyone)
        results = [evaluate(self.judge, supply) for evaluate in self.strategies.values()]
        self.emptied = Fleet(hosts=tuple(self._host(name, everyone) for name in self._hosts))
        fitting = [one for found in results for one in found.candidates if one.verdict is Verdict.FITS]
        if not fitting:
            refused = [fact for found in results for fact in found.facts if fact.severity is Severity.ERROR]
            self.closest = min(refused, key=_short_by, default=None)
            return None
        self._fewest = min(one.score.gpus for one in fitting)
        if len(self._looked_at) > MOST_HOSTS:
            self._look_closely(fitting)
        return min(fitting, key=self._rank)

    def _look_closely(self, fitting: Sequence[Candidate]) -> None:
        """Keep the hosts whose placements ask the least."""
        position = {one.name: number for number, one in enumerate(self.order)}
        cost: dict[str, int] = {}
        for one in fitting:
            hosts = [placed.host for placed in one.placement]
            worst = max((position[name] for host in hosts for name in self._on.get(host, ())), default=0)
            for host in hosts:
                cost[host] = min(cost.get(host, worst), worst)
        kept = sorted(cost, key=lambda host: (cost[host], host))[:MOST_HOSTS]
        self._looked_at = tuple(sorted(kept))
        self._known.clear()

    def _first_that_fit(self, everyone: Names, placed: Candidate) -> tuple[Candidate, Names]:
        """The shortest beginning of the order that makes room, less those away from the placement."""
        names = [one.name for one in self.order if any(host in self._looked_at for host in one.hosts)]
        low, high = 0, len(names)
        while high - low > 1:
            middle = (low + high) // 2
            found = self._placed(frozenset(names[:middle]))
            if found is None:
                low = middle
            else:
                high, placed = middle, found
        hosts = {one.host for one in placed.placement}
        here = frozenset(name for host in hosts for name in self._on.get(host, ()))
        kept = here & frozenset(names[:high])
        self._looked_at = tuple(sorted(hosts))
        self._known.clear()
        return placed, kept if self._placed(kept) is not None else here & everyone

    def _fewer(self, names: Names, placed: Candidate) -> tuple[Names, Candidate]:
        """What is needed of a set that makes room: the cheapest of all its parts where they are few."""
        best, kept = placed, names
        for one in reversed(self.order):
            found = self._placed(kept - {one.name}) if one.name in kept else None
            if found is not None:
                kept, best = kept - {one.name}, found
        if len(names) > MOST_EXACT:
            return kept, best
        limit = self._cost(kept)
        tries = 0
        failed: list[Names] = [names - {name} for name in names if self._placed(names - {name}) is None]
        for chosen in sorted(_parts(names), key=self._cost):
            if self._cost(chosen) >= limit or tries >= MOST_TRIES:
                break
            if any(chosen <= less for less in failed) or not self._enough_free(chosen):
                continue
            tries += 1
            found = self._placed(chosen)
            if found is not None:
                return chosen, found
            failed.append(chosen)
        return kept, best

    def _cost(self, names: Names) -> tuple[object, ...]:
        """What stopping them loses; smaller is better."""
        own = [(number, one) for number, one in enumerate(self.order) if one.name in names]
        return (
            sum(one.busy is Busy.IN_FLIGHT for _, one in own),
            sum(one.busy is Busy.UNKNOWN for _, one in own),
            len(own),
            tuple(sorted((number for number, _ in own), reverse=True)),
        )

    def _placed(self, names: Names) -> Candidate | None:
        """The best placement with these gone; None where nothing fits."""
        if names not in self._known:
            supply = self._supply(names)
            found = [
                one
                for evaluate in self.strategies.values()
                for one in evaluate(self.judge, supply).candidates
                if one.verdict is Verdict.FITS
            ]
            self._known[names] = min(found, key=self._rank, default=None)
        return self._known[names]

    def _rank(self, one: Candidate) -> tuple[float, ...]:
        return sort_key(one, self.judge.request.workload.placement)

    def _enough_free(self, names: Names) -> bool:
        """Whether so many GPUs have the budget free at all: planning is dear."""
        free = sum(self.judge.free_enough(offer) for offer in self._supply(names).offers)
        return free >= self._fewest

    def _supply(self, names: Names) -> Supply:
        hosts = (*(self._host(name, names) for name in self._looked_at), *self._companions)
        return supply_of(Fleet(hosts=tuple(hosts)))

    def _host(self, name: str, names: Names) -> Host:
        """A host with those of these that run on it gone."""
        gone = names & frozenset(self._on.get(name, ()))
        key = (name, gone)
        if key not in self._gone:
            self._gone[key] = without(self._hosts[name], gone)
        return self._gone[key]

    def _others_of_a_kind(self) -> tuple[Host, ...]:
        """Hosts with nothing to stop that may be part of a placement: a few of each kind, and the selected ones."""
        selected = {item.host for item in self.judge.request.workload.selection}
        if selected:
            return tuple(host for name, host in self._hosts.items() if name in selected - self._on.keys())
        rest = Fleet(hosts=tuple(host for name, host in self._hosts.items() if name not in self._on))
        seen: dict[tuple[object, ...], int] = {}
        kept: list[HostOffer] = []
        for offered in supply_of(rest).hosts:
            free = tuple(self.judge.free_enough(offer) for offer in offered.offers)
            if not any(free):
                continue
            kind = (free, *(offer.device for offer in offered.offers))
            seen[kind] = seen.get(kind, 0) + 1
            if seen[kind] <= LIKE_COMPANIONS:
                kept.append(offered)
        kept.sort(key=lambda one: (-sum(offer.allocatable_bytes for offer in one.offers), one.host))
        names = dict.fromkeys(one.host for one in kept[:MOST_COMPANIONS])
        return tuple(self._hosts[name] for name in sorted(names))


def _parts(names: Names) -> Iterator[Names]:
    for size in range(1, len(names) + 1):
        for chosen in combinations(sorted(names), size):
            yield frozenset(chosen)


def _short_by(fact: Fact) -> tuple[bool, int]:
    gap = fact.figures.get("gap_bytes")
    return (gap is None, gap or 0)


def _stopped_first(chosen: Sequence[Eviction]) -> Fact:
    """GP230 on a candidate: what is stopped for it."""
    return Fact(
        code="GP230",
        severity=Severity.WARNING,
        subject={"deployments": [one.deployment for one in chosen]},
        figures={
            "evicts": [
                {
                    "deployment": one.deployment,
                    "requests": one.running_requests,
                    "keep_alive_seconds": one.keep_alive_seconds,
                    "bytes": sum(given for _, _, given in one.gpus),
                    "gpus": [f"{host}:{index}" for host, index, _ in one.gpus],
                }
                for one in chosen
            ]
        },
    )


def _not_even(names: Sequence[str], closest: Fact | None) -> Fact:
    """GP234: with all of them gone it does not fit either."""
    figures = {} if closest is None else dict(closest.figures)
    figures.pop("held", None)
    subject = {} if closest is None else dict(closest.subject)
    return Fact(
        code="GP234",
        severity=Severity.ERROR,
        subject={**subject, "deployments": list(names)},
        figures={**figures, "lack": None if closest is None else closest.code},
    )


def _left_alone(one: Running) -> Fact:
    """GP232: pinned; GP233: still starting."""
    return Fact(
        code="GP232" if one.pinned else "GP233",
        severity=Severity.INFO,
        subject={"deployment": one.name, "hosts": list(one.hosts)},
        figures={"keep_alive_seconds": one.keep_alive_seconds},
    )


def _others(judge: Judge, fleet: Fleet) -> Iterator[Fact]:
    """GP231: processes that are not ours on GPUs whose budget is not free, those that hold most first."""
    held = [
        (offer, holding)
        for offer in supply_of(fleet).offers
        if not _free(judge, offer)
        for holding in offer.held
        if holding.owner is Owner.PROCESS
    ]
    held.sort(key=lambda item: (-(item[1].bytes or 0), item[0].host, item[0].index, item[1].pid or 0))
    for offer, holding in held[:MOST_NAMED]:
        yield Fact(
            code="GP231",
            severity=Severity.ERROR,
            subject={"host": offer.host, "gpu": offer.index},
            figures={
                "pid": holding.pid,
                "name": holding.name,
                "user": holding.user,
                "container": holding.container,
                "bytes": holding.bytes,
                "more": max(0, len(held) - MOST_NAMED),
            },
        )


def _free(judge: Judge, offer: Offer) -> bool:
    """Whether the engine would find its budget; without a share of the card, whether nobody else is there."""
    return judge.request.utilization is not None and judge.free_enough(offer)
