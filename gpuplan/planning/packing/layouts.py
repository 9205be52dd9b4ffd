"""The layouts of one model on the kinds of cards of a fleet, asked of the same judge every strategy asks.

Kinds of cards are judged, not hosts: equal cards of one host, the fewest that do (and larger numbers where cards are
shared: each then gives less), unlike cards of one host, and as many equal cards on each of several hosts.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from gpuplan.domain.plan import Parallelism
from gpuplan.planning import partition
from gpuplan.planning.judge import Assessment, Judge
from gpuplan.planning.offers import Device, HostOffer, Offer, Supply, whole_cards
from gpuplan.planning.packing.values import Layout, Part
from gpuplan.planning.placing import ram_claim
from gpuplan.planning.shapes import shapes, user_world

MOST_GPUS = 64
MOST_HOSTS = 8
MOST_MIXED = 48
"""Mixes of unlike cards that are judged on one kind of host."""
MOST_STEPS = 5
"""Hundredths of a card a derived share may have to grow by before the estimate agrees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A layout, and what it is for the engine."""

    layout: Layout
    parallelism: Parallelism
    share: float | None = None
    """gpu_memory_utilization that was derived from the need; None: as the request has it."""


def ways(judge: Judge, supply: Supply, *, shared: bool) -> tuple[Way, ...]:
    """Every way worth trying; `shared`: the engine gets the share of a card that its need comes to.

    Of `judge` the request's own share counts otherwise.
    """
    asked = replace(judge.request, utilization=None) if shared else judge.request
    search = _Search(Judge(asked), shared=shared)
    counts = _most_on_a_host(supply)
    found = [way for device, most in counts.items() for way in search.equal(device, most)]
    found += search.mixed(supply, found)
    if judge.request.workload.allow_distributed:
        found += search.over_hosts(supply, counts)
    return tuple(dict.fromkeys(found))


class _Search:
    def __init__(self, judge: Judge, *, shared: bool) -> None:
        self.judge = judge
        self.shared = shared
        self.world = user_world(judge.request.workload.engine)

    @property
    def divisible(self) -> bool:
        """Whether more cards take less of each."""
        return self.judge.request.utilization is None

    def equal(self, device: Device, most: int) -> Iterator[Way]:
        """Cards of one kind on one host: the fewest, then twice as many and so on where each then gives less."""
        least = None
        for count in self._counts(1 if device.slice else most):
            if least is not None and not (self.divisible and count in (2 * least, 4 * least, 8 * least)):
                continue
            way = self._way(((device, count),), 1)
            if way is not None:
                least = least or count
                yield way

    def _counts(self, most: int) -> Iterable[int]:
        if self.world is not None:
            return (self.world,) if self.world <= most else ()
        return range(1, min(most, MOST_GPUS) + 1)

    def mixed(self, supply: Supply, found: Sequence[Way]) -> list[Way]:
        """Unlike cards of one host, where none of them that are alike would do."""
        enough: list[dict[Hashable, int]] = [dict(_kinds(way.layout.hosts[0])) for way in found]
        seen: set[object] = set()
        made: list[Way] = []
        for offered in supply.hosts:
            host, _ = whole_cards(offered)
            kinds = Counter(offer.device for offer in sorted(host.offers, key=lambda offer: offer.index))
            key = tuple(sorted((kind.name, kind.total_bytes, count) for kind, count in kinds.items()))
            if len(kinds) < 2 or key in seen:
                continue
            seen.add(key)
            for chosen in _mixes(kinds, self.world):
                held: dict[Hashable, int] = dict(chosen)
                if any(all(held.get(kind, 0) >= n for kind, n in smaller.items()) for smaller in enough):
                    continue
                way = self._way(chosen, 1)
                if way is not None:
                    enough.append(held)
                    made.append(way)
        return made

    def over_hosts(self, supply: Supply, counts: dict[Device, int]) -> list[Way]:
        """As many equal cards on each of several hosts: of each number on a host the fewest hosts that do."""
        made: list[Way] = []
        for device, most in counts.items():
            if device.slice:
                continue
            for each in _doubled(most):
                hosts = sum(1 for host in supply.hosts if _count(host, device) >= each)
                for number in range(2, min(hosts, MOST_HOSTS) + 1):
                    if self.world is not None and self.world != each * number:
                        continue
                    way = self._way(((device, each),), number)
                    if way is not None:
                        made.append(way)
                        break
        fewest = min((way.layout.gpus for way in made), default=0)
        return [way for way in made if way.layout.gpus <= 2 * fewest]

    def _way(self, kinds: tuple[tuple[Device, int], ...], hosts: int) -> Way | None:
        """The first shape that fits on such cards of each of so many hosts."""
        each = sum(count for _, count in kinds)
        devices = tuple(device for device, count in kinds for _ in range(count)) * hosts
        for shape in shapes(self.judge, each * hosts):
            if hosts > 1 and self.world is None and each % shape.tensor:
                continue
            fitting = self._fitting(shape, devices)
            if fitting is not None:
                judge, assessment, share = fitting
                parts = tuple(
                    Part(kind=device, count=count, bytes=taken_bytes(judge, device, assessment))
                    for device, count in kinds
                )
                if all(
                    part.bytes <= device.total_bytes for part, (device, _) in zip(parts, kinds, strict=True)
                ):
                    layout = Layout(hosts=(parts,) * hosts, ram_bytes=ram_claim(judge, each))
                    return Way(layout=layout, parallelism=assessment.parallelism, share=share)
        return None

    def _fitting(
        self, shape: Parallelism, devices: tuple[Device, ...]
    ) -> tuple[Judge, Assessment, float | None] | None:
        assessment = partition.assess(self.judge, shape, devices)
        if not assessment.fits:
            return None
        if not self.shared:
            return self.judge, assessment, None
        share = assessment.own_share
        if share is None:
            share = (assessment.need_bytes or 0) / min(device.total_bytes for device in devices)
        least = max(1, math.ceil(round(100 * share, 6)))
        for hundredths in range(least, min(100, least + MOST_STEPS) + 1):
            judge = self.judge.at_share(hundredths / 100)
            again = partition.assess(judge, shape, devices)
            if again.fits:
                return judge, again, hundredths / 100
        return None


def taken_bytes(judge: Judge, device: Device, assessment: Assessment) -> int:
    """What has to be free on a card when the engine starts, its own process included."""
    tensor = assessment.parallelism.speaking
    if judge.request.utilization is None:
        offer = Offer(host="", index=0, device=device, allocatable_bytes=0)
        return judge.need_free(offer, assessment, tensor)
    return max(judge.budget(device), judge.claim(device, assessment)) + judge.start_overhead(device, tensor)


def _kinds(parts: tuple[Part, ...]) -> Iterator[tuple[Hashable, int]]:
    for part in parts:
        yield part.kind, part.count


def _most_on_a_host(supply: Supply) -> dict[Device, int]:
    """Of each kind the largest number on one host, in the order of size."""
    most: dict[Device, int] = {}
    for host in supply.hosts:
        for device, count in Counter(offer.device for offer in host.offers).items():
            most[device] = max(most.get(device, 0), count)
    return dict(sorted(most.items(), key=lambda one: (one[0].total_bytes, one[0].name)))


def _count(host: HostOffer, device: Device) -> int:
    return sum(1 for offer in host.offers if offer.device == device)


def _doubled(most: int) -> list[int]:
    """1, 2, 4, … and the most."""
    sizes = [1]
    while sizes[-1] * 2 <= most:
        sizes.append(sizes[-1] * 2)
    return sizes if sizes[-1] == most else [*sizes, most]


def _mixes(kinds: Counter[Device], world: int | None) -> list[tuple[tuple[Device, int], ...]]:
    """Numbers of each kind, of two kinds at least, few cards first."""
    names = list(kinds)
    found = []
    for counts in product(*(range(kinds[kind] + 1) for kind in names)):
        chosen = tuple((kind, count) for kind, count in zip(names, counts, strict=True) if count)
        if len(chosen) > 1 and (world is None or sum(counts) == world):
            found.append(chosen)
    found.sort(key=lambda chosen: sum(count for _, count in chosen))
    return found[:MOST_MIXED]
