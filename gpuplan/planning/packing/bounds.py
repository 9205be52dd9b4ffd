"""What no packing of the items can beat: counting on all cards and on every set of cards some item is confined to.

An item takes a share of each of its cards: the bytes over the room of the roomiest card of that kind. Shares on a card
add up to at most 1, and so do the values of any dual feasible function of them (Fekete and Schepers 2001): here the share
itself, "more than half" and "more than a third or two", means of those, and 1 / most deployments of a card.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuplan.planning.packing.room import Room
from gpuplan.planning.packing.values import Cost, Item, Layout, Problem

SLACK = 1e-9
"""Rounding of sums of shares: a bound is never raised by it."""


class Measure(NamedTuple):
    """A dual feasible function."""

    value: Callable[[float], float]
    """Of the share of a card that is taken."""
    rest: Callable[[float], float]
    """The most that all who fit into a share that is left come to."""
    weighted: bool = False
    """A small card counts less, by its room: what is much of it is little of a large one."""


def _thirds(share: float) -> float:
    """Two that take more than a third fill a card, and so does one that takes more than two."""
    return 1.0 if 3 * share > 2 + SLACK else 0.5 if 3 * share > 1 + SLACK else 0.0


def _half(share: float) -> float:
    return 1.0 if 2 * share > 1 + SLACK else 0.0


def _plain(share: float) -> float:
    return share


def _rest_of_thirds(share: float) -> float:
    return 1.0 if 3 * share > 2 else 0.5 if 3 * share > 1 else 0.0


def _rest_of_half(share: float) -> float:
    return 1.0 if 2 * share > 1 else 0.0


def _mean(*measures: Measure, weighted: bool = False) -> Measure:
    return Measure(
        lambda share: sum(one.value(share) for one in measures) / len(measures),
        lambda share: sum(one.rest(share) for one in measures) / len(measures),
        weighted,
    )


PLAIN, HALF, THIRDS = (
    Measure(_plain, _plain),
    Measure(_half, _rest_of_half),
    Measure(_thirds, _rest_of_thirds),
)
ALIKE = Measure(_plain, _plain, weighted=True)
FEW = (PLAIN, HALF)
"""For every state of a search."""
MANY = (
    *(PLAIN, HALF, THIRDS, ALIKE),
    *(_mean(PLAIN, HALF), _mean(PLAIN, THIRDS), _mean(HALF, THIRDS), _mean(PLAIN, HALF, THIRDS)),
    *(_mean(HALF, weighted=True), _mean(PLAIN, HALF, weighted=True), _mean(PLAIN, THIRDS, weighted=True)),
)
"""For the problem as a whole: the mean of some is one more, and no item can please them all at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A set of cards and the items that can use no others."""

    cards: tuple[int, ...]
    items: frozenset[str]
    needs: dict[str, tuple[float, ...]]
    """For one copy, under each measure, and the fewest cards at the end."""


class Bounds:
    """Bounds from any state of the room, by what is computed once for the problem."""

    def __init__(self, problem: Problem, measures: Sequence[Measure] = FEW, most_families: int = 12) -> None:
        self.problem = problem
        self.measures = tuple(measures)
        self._roomiest: dict[Hashable, int] = {}
        self._priorities = {item.name: item.priority for item in problem.items}
        for card in problem.cards:
            self._roomiest[card.kind] = max(self._roomiest.get(card.kind, 0), card.room_bytes)
        self._weights = {kind: self._weight(kind) for kind in self._roomiest}
        self._bytes = {item.name: _least_bytes(item) for item in problem.items}
        self._totals = sorted({card.total_bytes for card in problem.cards})
        empty = Room(problem)
        self.needs = {item.name: self._needs(item) for item in problem.items if _ever(empty, item)}
        usable = {item.name: _usable(problem, item) for item in problem.items}
        sets = [frozenset(range(len(problem.cards))), *sorted(set(usable.values()), key=len)]
        self.families = tuple(
            Family(
                cards=tuple(sorted(cards)),
                items=frozenset(name for name, own in usable.items() if own <= cards and name in self.needs),
                needs=self.needs,
            )
            for cards in dict.fromkeys(sets[:most_families])
        )

    def _needs(self, item: Item) -> tuple[float, ...]:
        ways = [self._of_layout(layout) for layout in item.layouts]
        ways += [
            (*[0.0] * len(self.measures), float(len(stay.cards))) for stay in item.stays if stay.fit
        ]  # a card kept for a running one may be of any room
        return tuple(min(values) for values in zip(*ways, strict=True))

    def _of_layout(self, layout: Layout) -> tuple[float, ...]:
        shares = [
            (part.count, part.bytes / (self._roomiest.get(part.kind, 0) or 1), self._weight(part.kind))
            for part in layout.parts
        ]
        values = [
            sum(count * one.value(share) * (weight if one.weighted else 1) for count, share, weight in shares)
            for one in self.measures
        ]
        return (*values, float(layout.gpus))

    def memory(self, room: Room, copies: dict[str, int], cards: int) -> int:
        """Bytes of so many further cards, at least, if all these are placed: they hold what those in use have no room for."""
        left = sum(room.left[number] for number, count in enumerate(room.used) if count)
        need = sum(count * self._bytes[name] for name, count in copies.items()) - left
        return least_total(self._totals, cards, need)

    def _weight(self, kind: Hashable) -> float:
        """Room of the roomiest card of a kind, to that of the roomiest of all."""
        return self._roomiest.get(kind, 0) / (max(self._roomiest.values(), default=0) or 1)

    def size(self, item: Item) -> float:
        """How much of the fleet one copy takes, for lining items up."""
        needs = self.needs.get(item.name)
        return 0.0 if needs is None else max(needs[0], needs[1], needs[-1] / 8)

    def _capacities(self, room: Room, cards: Sequence[int], *, used_only: bool) -> list[float]:
        """Under each measure, what the cards can still give; at the end copies they can still take."""
        totals = [0.0] * (len(self.measures) + 1)
        for number in cards:
            left, slots = room.left[number], room.slots[number]
            if (used_only and not room.used[number]) or slots <= 0 or left <= 0:
                continue
            card = room.cards[number]
            share, weight = left / card.room_bytes, self._weights[card.kind]
            for index, measure in enumerate(self.measures):
                totals[index] += measure.rest(share) * (weight if measure.weighted else 1)
            totals[-1] += slots
        return totals

    def may_share(self, item: Item) -> bool:
        """Whether some card of it may hold another copy that is not small beside it."""
        return bool(item.stays) or any(
            2 * part.bytes <= self._roomiest.get(part.kind, 0)
            for layout in item.layouts
            for part in layout.parts
        )

    def lost(self, room: Room, copies: dict[str, int]) -> int:
        """Priorities that cannot all be placed any more, of items with so many copies to go."""
        worst = 0
        for family in self.families:
            names = [name for name in copies if name in family.items]
            if not names:
                continue
            for number, capacity in enumerate(self._capacities(room, family.cards, used_only=False)):
                worst = max(worst, self._dropped(names, copies, number, capacity))
        return worst

    def _dropped(self, names: Sequence[str], copies: dict[str, int], number: int, capacity: float) -> int:
        """Fractional knapsack: the least priority to leave out so that the rest is within the capacity."""
        wanted = sum(copies[name] * self.needs[name][number] for name in names)
        over = wanted - capacity - SLACK
        if over <= 0:
            return 0
        weighed = [
            (self._priorities[name], copies[name] * self.needs[name][number])
            for name in names
            if self.needs[name][number] > 0
        ]
        lost = 0.0
        for priority, need in sorted(weighed, key=lambda one: one[0] / one[1]):
            if over <= 0:
                break
            lost += priority * min(1.0, over / need)
            over -= need
        return _ceil(lost)

    def cards(self, room: Room, copies: dict[str, int]) -> int:
        """Cards to be taken beside those in use, if all these are placed."""
        worst = 0
        for family in self.families:
            names = [name for name in copies if name in family.items]
            if not names:
                continue
            for number, rest in enumerate(self._capacities(room, family.cards, used_only=True)):
                need = sum(copies[name] * self.needs[name][number] for name in names) - rest
                most = 1.0 if number < len(self.measures) else float(_most_slots(room, family.cards))
                worst = max(worst, _ceil(need / most))
        return worst


def least_total(totals: Sequence[int], count: int, need: int) -> int:
    """The least that `count` cards of these sizes, together at least `need`, come to; of more than two sizes a bound."""
    if not totals or not count:
        return 0
    smallest, largest = totals[0], totals[-1]
    least = count * smallest
    if need <= least or smallest == largest:
        return least
    if len(totals) > 2:
        return min(need, count * largest)
    large = min(count, -(-(need - least) // (largest - smallest)))
    return least + large * (largest - smallest)


def _least_bytes(item: Item) -> int:
    ways = [sum(part.count * part.bytes for part in layout.parts) for layout in item.layouts]
    ways += [sum(taken for _, taken in stay.cards) for stay in item.stays if stay.fit]
    return min(ways, default=0)


def _ever(room: Room, item: Item) -> bool:
    """Whether it could be placed if it were alone: on enough hosts where its copies are to be apart."""
    alone = {place[0] for stay in item.stays if stay.fit for place, _ in stay.cards}
    several: set[str] = set()
    for layout in item.layouts:
        open_to = {
            host
            for host in room.hosts
            if room.ram[host] >= layout.ram_bytes
            and any(
                all(len(room.open_cards(item, host, part)) >= part.count for part in parts)
                for parts in layout.hosts
            )
        }
        if len(layout.hosts) == 1:
            alone |= open_to
        elif len(open_to) >= len(layout.hosts):
            several |= open_to
    return len(alone) + len(several) // 2 >= (item.copies if item.name in item.apart else 1)


def root_bound(problem: Problem, bounds: Bounds, room: Room) -> Cost:
    """What every packing costs at least; later parts are 0 where an earlier one leaves a choice of what is left out."""
    hopeless = sum(item.priority for item in problem.items if item.name not in bounds.needs)
    copies = {item.name: item.copies for item in problem.items if item.name in bounds.needs}
    lost = hopeless + bounds.lost(room, copies)
    if lost:
        forced = {
            item.name: item.copies
            for item in problem.items
            if item.name in copies and item.priority > lost - hopeless
        }
        return lost, bounds.cards(room, forced), 0, 0, 0, 0
    cards = bounds.cards(room, copies)
    starts = sum(max(0, item.copies - sum(1 for stay in item.stays if stay.fit)) for item in problem.items)
    return 0, cards, _memory(problem, bounds, room, cards), starts, 0, _spans(problem)


def _memory(problem: Problem, bounds: Bounds, room: Room, cards: int) -> int:
    """So many of the smallest cards; those of every item by itself where none can share and all take their fewest."""
    smallest = sorted(
        card.total_bytes for card in problem.cards if any(item.may_use(card.place) for item in problem.items)
    )
    copies = {item.name: item.copies for item in problem.items}
    least = max(sum(smallest[:cards]), bounds.memory(room, copies, cards))
    fewest = sum(item.copies * _fewest(item) for item in problem.items)
    if fewest == cards and not any(map(bounds.may_share, problem.items)):
        totals: dict[Hashable, int] = {}
        for card in problem.cards:
            totals[card.kind] = min(totals.get(card.kind, card.total_bytes), card.total_bytes)
        least = max(least, sum(item.copies * _least_memory(item, totals, problem) for item in problem.items))
    return least


def _fewest(item: Item) -> int:
    ways = [layout.gpus for layout in item.layouts] + [len(stay.cards) for stay in item.stays if stay.fit]
    return min(ways, default=0)


def _least_memory(item: Item, totals: dict[Hashable, int], problem: Problem) -> int:
    """Of the layouts with the fewest cards."""
    fewest = _fewest(item)
    size = {card.place: card.total_bytes for card in problem.cards}
    ways = [
        sum(part.count * totals.get(part.kind, 0) for part in layout.parts)
        for layout in item.layouts
        if layout.gpus == fewest
    ]
    ways += [
        sum(size.get(place, 0) for place, _ in stay.cards)
        for stay in item.stays
        if stay.fit and len(stay.cards) == fewest
    ]
    return min(ways, default=0)


def _spans(problem: Problem) -> int:
    return sum(
        item.copies
        * min(
            [len(layout.hosts) - 1 for layout in item.layouts]
            + [len({place[0] for place, _ in stay.cards}) - 1 for stay in item.stays if stay.fit],
            default=0,
        )
        for item in problem.items
    )


def _usable(problem: Problem, item: Item) -> frozenset[int]:
    kinds = {part.kind for layout in item.layouts for part in layout.parts}
    staying = {place for stay in item.stays if stay.fit for place, _ in stay.cards}
    return frozenset(
        number
        for number, card in enumerate(problem.cards)
        if (card.kind in kinds and item.may_use(card.place)) or card.place in staying
    )


def _most_slots(room: Room, cards: Iterable[int]) -> int:
    return max((room.cards[number].slots for number in cards), default=1) or 1


def _ceil(value: float) -> int:
    return max(0, math.ceil(value - SLACK))
