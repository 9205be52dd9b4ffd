"""The plan asked backwards: for so many users at such a context, the fewest GPUs of each kind that serve them.

On the fleet as it is, on the fleet were nothing else running, and on cards that need not exist. Each answer is a placement
that the planner's own strategies accept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.plan import Candidate, Parallelism, StrategyName, StrategyResult, Verdict
from gpuplan.planning.judge import Judge
from gpuplan.planning.offers import Device, Supply, supply_of
from gpuplan.planning.placing import candidate
from gpuplan.planning.planner import STRATEGIES, candidate_of, model_summary, plan
from gpuplan.planning.request import PlanRequest
from gpuplan.planning.shapes import base, buildable, shapes, user_world
from gpuplan.planning.speeds import Speeds

COUNTS = (1, 2, 4, 8)
"""GPUs of one host that are sold."""
MOST_HOSTS = 8
LIKE_HOSTS = 16
"""Hosts of the fleet with equal cards that are looked at: the emptiest."""
GRAIN = 16
LONGEST = 1 << 20
"""Tokens, where a model states no longest context."""
MOST_USERS = 1 << 16
SHORTEST = 256
"""Tokens at which the curve ends."""
ONE_REPLICA = (StrategyName.SINGLE_GPU, StrategyName.SINGLE_HOST, StrategyName.MULTI_HOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The placement of fewest GPUs that serves what was asked."""

    strategy: StrategyName
    candidate: Candidate

    @property
    def gpus(self) -> int:
        return sum(len(host.gpus) for host in self.candidate.placement)

    @property
    def hosts(self) -> int:
        return len({host.host for host in self.candidate.placement})

    @property
    def total_bytes(self) -> int:
        return sum(gpu.total_bytes for host in self.candidate.placement for gpu in host.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class KindNeed:
    """What one kind of GPU of the fleet would serve it with."""

    device: str
    card_bytes: int
    gpus: int
    """Usable ones in the fleet."""
    hosts: int
    now: tuple[Need, ...]
    """Fewest GPUs first, one per strategy; empty: not as the fleet is now."""
    idle: tuple[Need, ...]
    """The same, were nothing else running; asked only where `now` is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far the recommended placement goes, each of its replicas."""

    strategy: StrategyName
    candidate: Candidate
    context: int
    """Tokens at most for each of the requests asked for."""
    concurrency: int | None
    """Requests at most at the context asked for; None where none was."""
    curve: tuple[tuple[int, int], ...]
    """(requests at once, tokens each at most)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A kind of GPU that one can get, by the number a host of it has."""

    name: str
    gpus: tuple[Gpu, ...]
    link: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardNeed:
    """The fewest of one kind of card that serve one replica, on hosts of their own."""

    name: str
    card_bytes: int
    need: Need


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The whole answer."""

    request: Mapping[str, Any]
    model: Mapping[str, Any]
    fleet: tuple[KindNeed, ...] | None
    """None: there is no fleet to ask about."""
    fleet_note: str | None
    reach: Reach | None
    """None: nothing fits on the fleet as it is."""
    cards: tuple[CardNeed, ...]
    """Those of one host first, then by memory in all and number of GPUs."""
    too_small: tuple[str, ...]
    """Cards of which not even MOST_HOSTS hosts do."""

    @property
    def found(self) -> bool:
        return bool(self.cards or any(kind.now or kind.idle for kind in self.fleet or ()))


def solve(request: PlanRequest, cards: Sequence[Card], *, fleet_note: str | None = None) -> Solution:
    """Ask the fleet (where it has GPUs) and the cards. Raises UsageError for sizes the model cannot be built with."""
    request = replace(request, workload=replace(request.workload, selection=(), strategies=()))
    on_fleet = bool(request.fleet.hosts)
    found = [(card, card_need(request, card)) for card in cards]
    needs = [CardNeed(name=card.name, card_bytes=_size(card), need=need) for card, need in found if need]
    return Solution(
        request=request.echo,
        model=model_summary(request.profile),
        fleet=fleet_needs(request) if on_fleet else None,
        fleet_note=fleet_note,
        reach=reach(request) if on_fleet else None,
        cards=tuple(sorted(needs, key=_cheapest)),
        too_small=tuple(card.name for card, need in found if need is None),
    )


def _cheapest(one: CardNeed) -> tuple[bool, int, int, str]:
    return one.need.hosts > 1, one.need.total_bytes, one.need.gpus, one.name


def _size(card: Card) -> int:
    return card.gpus[0].total_bytes or 0


# ---------------------------------------------------------------------- the fleet


def fleet_needs(request: PlanRequest) -> tuple[KindNeed, ...]:
    """Each kind of usable GPU by itself, the kind that does with least memory first; those that never do, last."""
    supply, emptied = supply_of(request.fleet), idle(request.fleet)
    idle_supply = supply_of(emptied)
    kinds = dict.fromkeys(offer.device for offer in idle_supply.offers)
    found = [_kind(request, device, supply, replace(request, fleet=emptied), idle_supply) for device in kinds]
    return tuple(sorted(found, key=_least))


def _least(kind: KindNeed) -> tuple[int, int, int, str]:
    best = next(iter((*kind.now, *kind.idle)), None)
    rank = 0 if kind.now else 1 if kind.idle else 2
    return rank, best.total_bytes if best else 0, best.gpus if best else 0, kind.device


def _kind(
    request: PlanRequest, device: Device, supply: Supply, idle_request: PlanRequest, idle_supply: Supply
) -> KindNeed:
    now = _fewest(request, of_kind(supply, device))
    emptied = of_kind(idle_supply, device, most=None)
    return KindNeed(
        device=device.name,
        card_bytes=device.total_bytes,
        gpus=len(emptied.offers),
        hosts=len(emptied.hosts),
        now=now,
        idle=() if now else _fewest(idle_request, of_kind(idle_supply, device)),
    )


def idle(fleet: Fleet) -> Fleet:
    """The fleet, were nothing running on it: no deployment, no process, all memory of the GPUs free."""
    return replace(fleet, hosts=tuple(_emptied(host) for host in fleet.hosts))


def _emptied(host: Host) -> Host:
    docker = host.facts.docker
    facts = host.facts if docker is None else replace(host.facts, docker=replace(docker, containers=()))
    gpus = tuple(
        replace(gpu, processes=(), free_bytes=None if gpu.free_bytes is None else gpu.total_bytes)
        for gpu in host.gpus
    )
    return replace(host, gpus=gpus, facts=facts)


def of_kind(supply: Supply, device: Device, *, most: int | None = LIKE_HOSTS) -> Supply:
    """The GPUs of one kind, on the emptiest hosts."""
    hosts = [
        replace(host, offers=offers)
        for host in supply.hosts
        if (offers := tuple(offer for offer in host.offers if offer.device == device))
    ]
    hosts.sort(key=lambda host: (-sum(offer.allocatable_bytes for offer in host.offers), host.host))
    return replace(supply, hosts=tuple(sorted(hosts[:most], key=lambda host: host.host)))


def _fewest(request: PlanRequest, supply: Supply) -> tuple[Need, ...]:
    """Of each strategy the placement of fewest GPUs."""
    workload = request.workload
    several = workload.replicas * max(workload.engine.data_parallel_size, 1) > 1
    found = []
    for name in (StrategyName.DATA_PARALLEL,) if several else ONE_REPLICA:
        if not supply.offers:
            break
        outcome = STRATEGIES[name](Judge(request), supply)
        needs = [Need(strategy=name, candidate=_told(request, name, one)) for one in _smallest(outcome)]
        found += needs
    return tuple(sorted(found, key=lambda need: (need.gpus, need.hosts)))


def _smallest(outcome: StrategyResult) -> list[Candidate]:
    fitting = [one for one in outcome.candidates if one.verdict is Verdict.FITS]
    return sorted(fitting, key=lambda one: one.score.gpus)[:1]


def _told(request: PlanRequest, strategy: StrategyName, chosen: Candidate) -> Candidate:
    """The placement with its tokens per second, where its cards are known."""
    whole = StrategyResult(
        strategy=strategy, verdict=Verdict.FITS, reason=None, candidates=(chosen,), facts=(), remedies=()
    )
    return Speeds(request=request).told(whole).candidates[0]


# ---------------------------------------------------------------------- how far a placement goes


def reach(request: PlanRequest) -> Reach | None:
    """The largest context and the most requests that the recommended placement holds; None without one, or a claim alone."""
    made = plan(request)
    best = candidate_of(made)
    if best is None or best.memory is None or made.recommended is None:
        return None
    shape = replace(best.parallelism, data=1)
    offers = {(offer.host, offer.index): offer.device for offer in supply_of(request.fleet).offers}
    places = [(host.host, gpu.index) for host in best.placement for gpu in host.gpus]
    devices = tuple(offers[place] for place in places)[: shape.world_size]

    def holds(context: int | None, users: int) -> bool:
        return Judge(_load(request, context, users)).assess(shape, devices).fits

    users = request.workload.concurrency or 1
    longest = request.profile.longest_context or LONGEST
    asked = best.memory.max_model_len
    stated = request.workload.context is not None or request.workload.engine.max_model_len is not None
    return Reach(
        strategy=made.recommended[0],
        candidate=best,
        context=max(asked, GRAIN * _most(lambda units: holds(units * GRAIN, users), longest // GRAIN)),
        concurrency=_most(lambda number: holds(asked, number), MOST_USERS) if stated else None,
        curve=tuple(_curve(request, shape, devices, longest)),
    )


def _load(request: PlanRequest, context: int | None, users: int) -> PlanRequest:
    engine = replace(request.workload.engine, max_model_len=None)
    workload = replace(request.workload, context=context, concurrency=users, engine=engine)
    return replace(request, workload=workload)


def _most(holds: Callable[[int], bool], bound: int) -> int:
    """The largest number up to `bound` that holds, 0 if none does; what holds for a number holds for every smaller one."""
    low, high = 0, 1
    while high <= bound and holds(high):
        low, high = high, 2 * high
    high = min(high, bound + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _curve(
    request: PlanRequest, shape: Parallelism, devices: tuple[Device, ...], longest: int
) -> Iterator[tuple[int, int]]:
    users = 1
    while users <= MOST_USERS:
        memory = Judge(_load(request, None, users)).assess(shape, devices).memory
        if memory is None or memory.max_model_len < min(SHORTEST, longest):
            return
        yield users, memory.max_model_len
        users *= 2


# ---------------------------------------------------------------------- hardware that need not exist


def card_need(request: PlanRequest, card: Card) -> Need | None:
    """The fewest cards on one host of 1, 2, 4 or 8 that hold one replica, else the fewest whole hosts; None: none do."""
    several = MOST_HOSTS if request.workload.allow_distributed else 1
    for hosts, count in [
        *((1, count) for count in COUNTS if count <= len(card.gpus)),
        *((hosts, len(card.gpus)) for hosts in range(2, several + 1)),
    ]:
        found = _on(request, card, hosts, count)
        if found is not None:
            return found
    return None


def _on(request: PlanRequest, card: Card, hosts: int, count: int) -> Need | None:
    """One replica on all of `count` cards of so many hosts."""
    judge = Judge(request)
    supply = supply_of(_hosts(card, hosts, count))
    offers = tuple(
        offer for host in supply.hosts for offer in sorted(host.offers, key=lambda offer: offer.index)
    )
    devices = tuple(offer.device for offer in offers)
    if len(devices) != hosts * count or judge.least_bytes(len(devices)) > devices[0].total_bytes:
        return None
    for shape in _shapes(judge, hosts, count):
        made = judge.assess(shape, devices)
        tensor = shape.speaking
        if made.fits and all(judge.free_enough(offer, made, tensor=tensor) for offer in offers):
            groups = [(f"host-{number + 1}", offers[number * count :][:count]) for number in range(hosts)]
            name = ONE_REPLICA[min(len(offers) - 1, 1) if hosts == 1 else 2]
            placed = replace(request, fleet=_hosts(card, hosts, count))
            return Need(strategy=name, candidate=_told(placed, name, candidate(judge, made, groups)))
    return None


def _hosts(card: Card, hosts: int, count: int) -> Fleet:
    return Fleet(
        hosts=tuple(
            Host(name=f"host-{number + 1}", gpus=card.gpus[:count], link=card.link) for number in range(hosts)
        )
    )


def _shapes(judge: Judge, hosts: int, count: int) -> Iterator[Parallelism]:
    """On one host those of the planner; over several, tensor parallel inside a host and stages over them."""
    engine = judge.request.workload.engine
    world = user_world(engine)
    if world is not None and world != hosts * count:
        return
    if hosts == 1:
        yield from shapes(judge, count)
        return
    if world is not None:
        yield replace(
            base(engine), tensor=engine.tensor_parallel_size, pipeline=engine.pipeline_parallel_size
        )
        return
    for tensor in (size for size in (count, count // 2, count // 4) if size):
        shape = buildable(judge, replace(base(engine), tensor=tensor, pipeline=hosts * count // tensor))
        if shape is not None:
            yield shape
            return
