"""S0.10 and its corrections: one replica over several hosts, whole, partial and uneven ones.

Two ways are searched: whole hosts of equal GPU counts, the fewest that do in every combination while there are few
(TP inside a host, PP over hosts), and TP groups of t GPUs packed into as few hosts as hold enough stages, over all
cards and over those of at least each size.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice

from gpuplan.domain.fact import Fact
from gpuplan.domain.plan import Candidate, Parallelism, StrategyName, StrategyResult
from gpuplan.domain.workload import ExecutorChoice
from gpuplan.planning import partition, refusals
from gpuplan.planning.judge import Assessment, Judge
from gpuplan.planning.offers import Device, HostOffer, Offer, Supply, whole_cards
from gpuplan.planning.placing import candidate, ram_claim, ram_fits
from gpuplan.planning.shapes import MOST_TENSOR, base, buildable, user_world
from gpuplan.planning.strategies.outcome import result, skipped

MOST_COMBINATIONS = 64
MOST_STAGES = 64
NEXT_STAGES = 4
"""Stages beyond the fewest that are looked at for equal numbers of GPUs per host."""
MOST_SIZES = 8
"""Card sizes that are tried as the least one taken."""


@dataclass(frozen=True, slots=True)
class _Room:
    """Free GPUs of one host, most allocatable first."""

    host: HostOffer
    offers: tuple[Offer, ...]

    def taken(self, count: int) -> tuple[Offer, ...]:
        """The `count` emptiest, in the order of their indexes: ranks follow it."""
        return tuple(sorted(self.offers[:count], key=lambda offer: offer.index))


def _taken(chosen: Iterable[tuple[_Room, int]]) -> tuple[Offer, ...]:
    """The GPUs of a layout, host by host, one per rank."""
    return tuple(offer for room, count in chosen for offer in room.taken(count))


def evaluate(judge: Judge, supply: Supply) -> StrategyResult:
    """The cheapest way over at least two hosts, and whole equal hosts beside it."""
    workload = judge.request.workload
    if not workload.allow_distributed:
        return skipped(StrategyName.MULTI_HOST, "--no-distributed keeps a replica on one host")
    if user_world(workload.engine) == 1:
        return skipped(StrategyName.MULTI_HOST, "the given parallel sizes take one GPU")
    if len({host.host for host in supply.hosts}) < 2:
        return skipped(StrategyName.MULTI_HOST, "the fleet has fewer than two usable hosts")
    candidates: list[Candidate] = []
    facts: list[Fact] = []
    for backend in sorted({host.backend for host in supply.hosts}):
        rooms = _rooms(judge, supply, backend, facts)
        if len(rooms) < 2:
            facts.append(_no_second_host(backend, len(rooms), supply))
            continue
        ready = [room for room in rooms if room.host.launchable]
        if 2 <= len(ready) < len(rooms):
            candidates.extend(_search(judge, ready).candidates)
        found = _search(judge, rooms)
        candidates.extend(found.candidates)
        if not found.candidates:
            facts.extend(_refusal(judge, found, rooms))
    return result(StrategyName.MULTI_HOST, _unique(candidates), facts, judge)


def _refusal(judge: Judge, found: "_Found", rooms: list[_Room]) -> Iterator[Fact]:
    """What stood against the placement that came closest."""
    if found.busy is not None:
        yield found.busy
    elif found.closest is not None:
        names = [room.host.host for room in rooms[:3]]
        subject = {"hosts": names, "more": max(0, len(rooms) - 3), "backend": rooms[0].host.backend}
        yield refusals.refusal(found.closest, found.devices, subject)
    else:
        broken = judge.broken_rules(Parallelism(pipeline=2))
        subject = {"hosts": [room.host.host for room in rooms[:3]], "more": max(0, len(rooms) - 3)}
        if broken:
            assessment = Assessment(parallelism=Parallelism(pipeline=2), violations=broken)
            yield refusals.broken_rule(assessment, subject)


def _rooms(judge: Judge, supply: Supply, backend: str, facts: list[Fact]) -> list[_Room]:
    rooms = []
    for offered in supply.hosts:
        if offered.backend != backend:
            continue
        host, slices = whole_cards(offered)
        if not host.offers:
            facts.append(refusals.only_slices(judge, host.host, slices, Parallelism(pipeline=2)))
            continue
        checked = [(offer, judge.free_enough(offer, tensor=2)) for offer in host.offers]
        free = tuple(offer for offer, enough in checked if enough)
        busy = [offer for offer, enough in checked if not enough]
        if busy:
            facts.append(refusals.busy(judge, host.host, busy, tensor=2))
        if not ram_fits(judge, host, max(1, len(free))):
            facts.append(refusals.too_little_ram(host, ram_claim(judge, max(1, len(free)))))
        elif free:
            rooms.append(_Room(host, free))
    return sorted(rooms, key=_roomiest)


def _no_second_host(backend: str, usable: int, supply: Supply) -> Fact:
    total = sum(1 for host in supply.hosts if host.backend == backend)
    return refusals.too_few_hosts(backend, total, usable)


class _Found:
    """Candidates of a search, and what came closest when there are none."""

    __slots__ = ("busy", "candidates", "closest", "devices")

    def __init__(self) -> None:
        self.candidates: list[Candidate] = []
        self.closest: Assessment | None = None
        self.devices: tuple[Device, ...] = ()
        self.busy: Fact | None = None
        """A placement that would fit, were its GPUs free."""

    def note(self, assessment: Assessment, devices: tuple[Device, ...]) -> None:
        if self.closest is None or _gap(assessment) < _gap(self.closest):
            self.closest, self.devices = assessment, devices


def _gap(assessment: Assessment) -> tuple[bool, int]:
    return (assessment.shortfall is None, assessment.shortfall.gap_bytes if assessment.shortfall else 0)


def _search(judge: Judge, rooms: list[_Room]) -> _Found:
    found = _Found()
    even_only = judge.request.workload.executor is ExecutorChoice.MP
    for chosen, shape in _layouts(judge, rooms):
        if even_only and len({count for _, count in chosen}) > 1:
            continue  # vLLM's own multi-node gives every host as many ranks
        offers = _taken(chosen)
        assessment = partition.assess(judge, shape, tuple(offer.device for offer in offers))
        if not assessment.fits:
            found.note(assessment, tuple(offer.device for offer in offers))
        elif _free(judge, assessment, offers):
            groups = [(room.host.host, room.taken(count)) for room, count in chosen]
            found.candidates.append(candidate(judge, assessment, groups))
        elif found.busy is None:
            tensor = shape.speaking
            held = [offer for offer in offers if not judge.free_enough(offer, assessment, tensor=tensor)]
            found.busy = refusals.busy(
                judge,
                held[0].host,
                [offer for offer in held if offer.host == held[0].host],
                tensor=tensor,
                assessment=assessment,
                trial=refusals.Trial(shape=assessment.parallelism, offers=offers),
            )
    return found


def _free(judge: Judge, assessment: Assessment, offers: Sequence[Offer]) -> bool:
    tensor = assessment.parallelism.speaking
    return all(judge.free_enough(offer, assessment, tensor=tensor) for offer in offers)


def _holds(judge: Judge, shape: Parallelism | None, offers: tuple[Offer, ...]) -> bool:
    """Whether the shape fits on these GPUs as they are now."""
    if shape is None:
        return False
    devices = tuple(offer.device for offer in offers)
    assessment = judge.assess(shape, devices)
    if not assessment.fits:
        assessment = partition.assess(judge, shape, devices)
    return assessment.fits and _free(judge, assessment, offers)


Layout = tuple[tuple[tuple[_Room, int], ...], Parallelism]


def _layouts(judge: Judge, rooms: list[_Room]) -> Iterator[Layout]:
    """Every (hosts with their GPU counts, shape) worth judging, each once."""
    yield from _whole_hosts(judge, rooms)
    for least in sorted({offer.total_bytes for room in rooms for offer in room.offers})[:MOST_SIZES]:
        large = _of_size(rooms, least)
        for tensor in _tensor_sizes(judge, large) if len(large) > 1 else ():
            yield from _packed(judge, large, tensor)


def _of_size(rooms: list[_Room], least: int) -> list[_Room]:
    """The rooms with only their cards of at least `least` bytes, most cards first."""
    kept = [
        _Room(room.host, tuple(offer for offer in room.offers if offer.total_bytes >= least))
        for room in rooms
    ]
    return sorted((room for room in kept if room.offers), key=_roomiest)


def _roomiest(room: _Room) -> tuple[int, int, str]:
    return -len(room.offers), -sum(offer.allocatable_bytes for offer in room.offers), room.host.host


def _largest_least(judge: Judge, room: _Room) -> tuple[int, str]:
    """Hosts whose smallest card is largest come first: it limits what every rank may hold."""
    if judge.request.utilization is None:
        return -min(offer.allocatable_bytes for offer in room.offers), room.host.host
    return -min(offer.total_bytes for offer in room.offers), room.host.host


def _fixed(judge: Judge) -> Parallelism | None:
    engine = judge.request.workload.engine
    if user_world(engine) is None:
        return None
    return replace(base(engine), tensor=engine.tensor_parallel_size, pipeline=engine.pipeline_parallel_size)


def _whole_hosts(judge: Judge, rooms: list[_Room]) -> Iterator[Layout]:
    """All GPUs of k hosts with equal counts (S2.8): TP inside the host, PP over the hosts."""
    fixed = _fixed(judge)
    counts = sorted({len(room.offers) for room in rooms}, reverse=True)
    for count in counts:
        group = [room for room in rooms if len(room.offers) == count and len(room.host.offers) == count]
        group.sort(key=lambda room: _largest_least(judge, room))
        for hosts in _enough(judge, group, count, fixed):
            shape = fixed if fixed is not None else _whole_shape(judge, count, hosts)
            if shape is None or shape.world_size != count * hosts:
                continue
            for chosen in islice(combinations(group, hosts), MOST_COMBINATIONS):
                yield tuple((room, count) for room in chosen), shape


def _whole_shape(judge: Judge, count: int, hosts: int) -> Parallelism | None:
    return buildable(judge, replace(base(judge.request.workload.engine), tensor=count, pipeline=hosts))


def _enough(judge: Judge, group: Sequence[_Room], count: int, fixed: Parallelism | None) -> Iterator[int]:
    """How many equal hosts to try: the user's number, or the fewest that hold the model."""
    if fixed is not None:
        hosts, rest = divmod(fixed.world_size, count)
        if not rest and 2 <= hosts <= len(group):
            yield hosts
        return

    def fits(hosts: int) -> bool:
        offers = _taken([(room, count) for room in group[:hosts]])
        return _holds(judge, _whole_shape(judge, count, hosts), offers)

    yield from _fewest(2, min(len(group), MOST_STAGES), fits)


def _fewest(least: int, most: int, fits: Callable[[int], bool]) -> Iterator[int]:
    """The smallest number in [least, most] that fits, else `most`: small numbers one by one, then by halving."""
    if most < least:
        return
    for number in range(least, min(most, least + 6) + 1):
        if fits(number):
            yield number
            return
    low, high = min(most, least + 6), most
    if low == high or not fits(high):
        yield high
        return
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    yield high


def _tensor_sizes(judge: Judge, rooms: list[_Room]) -> list[int]:
    fixed = _fixed(judge)
    most = min(len(rooms[0].offers), MOST_TENSOR)
    if fixed is not None:
        return [fixed.tensor] if fixed.tensor <= most and fixed.prefill_context == 1 else []
    shape = base(judge.request.workload.engine)
    return [t for t in range(most, 0, -1) if buildable(judge, replace(shape, tensor=t)) is not None]


def _packed(judge: Judge, rooms: list[_Room], tensor: int) -> Iterator[Layout]:
    """TP groups of `tensor` GPUs, one per stage, packed into at least two hosts; where the fewest stages take unequal
    numbers of GPUs, which needs Ray, also the next number that does not."""
    capacities = [(room, len(room.offers) // tensor) for room in rooms if len(room.offers) >= tensor]
    most = min(
        sum(capacity for _, capacity in capacities), MOST_STAGES, max(judge.request.profile.layer_count, 2)
    )
    fixed = _fixed(judge)

    def shape_of(stages: int) -> Parallelism | None:
        return buildable(judge, replace(base(judge.request.workload.engine), tensor=tensor, pipeline=stages))

    def fits(stages: int) -> bool:
        return _holds(judge, shape_of(stages), _taken(_fill(capacities, stages, tensor)))

    if len(capacities) < 2:
        return
    numbers = [fixed.pipeline] if fixed is not None else list(_fewest(2, most, fits))
    if fixed is None and numbers and not _equal(_fill(capacities, numbers[0], tensor)):
        few = range(numbers[0] + 1, min(most, numbers[0] + NEXT_STAGES) + 1)
        numbers += [stages for stages in few if _equal(_fill(capacities, stages, tensor))][:1]
    for stages in numbers:
        shape = fixed if fixed is not None else shape_of(stages)
        if shape is not None and 2 <= stages <= most:
            yield _fill(capacities, stages, tensor), shape


def _equal(chosen: tuple[tuple[_Room, int], ...]) -> bool:
    """Whether every host gives as many GPUs."""
    return len({count for _, count in chosen}) == 1


def _fill(capacities: Sequence[tuple[_Room, int]], stages: int, tensor: int) -> tuple[tuple[_Room, int], ...]:
    """Stages packed into the roomiest hosts, evenly over the fewest that hold them, never all on one."""
    hosts, held = [], 0
    for room, capacity in capacities:
        hosts.append((room, capacity))
        held += capacity
        if held >= stages and len(hosts) >= 2:
            break
    left, chosen = stages, []
    for number, (room, capacity) in enumerate(hosts):
        share = min(capacity, -(-left // (len(hosts) - number)))
        rest = sum(c for _, c in hosts[number + 1 :])
        share = max(share, left - rest)
        chosen.append((room, share * tensor))
        left -= share
    return tuple((room, count) for room, count in chosen if count)


def _unique(candidates: list[Candidate]) -> list[Candidate]:
    seen: dict[object, Candidate] = {}
    for item in candidates:
        key = (item.parallelism, tuple((h.host, tuple(g.index for g in h.gpus)) for h in item.placement))
        seen.setdefault(key, item)
    return list(seen.values())
