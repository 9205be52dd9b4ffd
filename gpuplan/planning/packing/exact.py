"""Branch and bound over the items, one copy after the other; states that are alike are searched once.

Two states are alike when the same items are still to be placed and hosts of equal signature can be paired: whatever can
follow on one can follow on the other, so of equals only the cheaper is gone on from.
"""

from gpuplan.planning.packing.bounds import Bounds
from gpuplan.planning.packing.room import Room
from gpuplan.planning.packing.values import NOTHING, Cost, Home, Item, Problem, added

MOST_NODES = 40_000
MOST_STATES = 400_000
"""Remembered."""


class Search:
    """One search; `best` is the cheapest packing known, `complete` whether nothing cheaper can exist."""

    def __init__(
        self,
        problem: Problem,
        bounds: Bounds,
        best: Cost,
        homes: tuple[Home, ...],
        most_nodes: int = MOST_NODES,
    ) -> None:
        self.bounds = bounds
        self.best = best
        self.homes = homes
        self.nodes = 0
        self.complete = True
        self._most = most_nodes
        self._room = Room(problem)
        self._items = _ordered(problem, bounds)
        self._seen: dict[object, Cost] = {}

    def run(self) -> None:
        self._item(0, NOTHING, ())

    def _item(self, number: int, cost: Cost, placed: tuple[Home, ...]) -> None:
        if number == len(self._items):
            if cost < self.best:
                self.best, self.homes = cost, placed
            return
        if self._hopeless(number, 0, cost) or self._known(number, 0, cost, ()):
            return
        item = self._items[number]
        if item.name in self.bounds.needs:
            self._copies(number, 0, cost, placed, ())
        self._item(number + 1, added(cost, (item.priority, 0, 0, 0, 0, 0)), placed)

    def _copies(
        self, number: int, copy: int, cost: Cost, placed: tuple[Home, ...], own: tuple[Home, ...]
    ) -> None:
        item = self._items[number]
        if copy == item.copies:
            self._item(number + 1, cost, placed + own)
            return
        if copy and (self._hopeless(number, copy, cost) or self._known(number, copy, cost, own)):
            return
        room = self._room
        for home in self._ways(item, own):
            if self.nodes >= self._most:
                self.complete = False
                return
            self.nodes += 1
            more = room.take(home)
            self._copies(number, copy + 1, added(cost, more), placed, (*own, home))
            room.give_back(home)

    def _ways(self, item: Item, own: tuple[Home, ...]) -> list[Home]:
        """Cheapest first: a good packing early cuts the rest off."""
        room = self._room
        ways = (*room.stays(item, own), *room.choices(item))
        weighed = []
        for order, home in enumerate(ways):
            more = room.take(home)
            room.give_back(home)
            weighed.append((more, order, home))
        weighed.sort(key=lambda one: one[:2])
        return [home for _, _, home in weighed]

    def _hopeless(self, number: int, copy: int, cost: Cost) -> bool:
        """Nothing that can follow costs less than the best known."""
        copies = {item.name: item.copies for item in self._items[number:]}
        bound = self.bounds
        left = {name: count for name, count in copies.items() if name in bound.needs}
        lost = sum(item.priority for item in self._items[number:] if item.name not in bound.needs)
        if copy:
            left[self._items[number].name] -= copy
        lost += bound.lost(self._room, left)
        spare = self.best[0] - cost[0] - lost
        if spare < 0:
            return True
        if spare > 0:
            return False
        allowed = self.best[0] - cost[0]
        forced = {
            item.name: left[item.name]
            for item in self._items[number:]
            if item.name in left and (item.priority > allowed or (copy and item is self._items[number]))
        }
        cards = bound.cards(self._room, forced)
        starts = sum(
            max(0, forced[item.name] - sum(stay.fit for stay in item.stays))
            for item in self._items[number:]
            if item.name in forced
        )
        least = added(cost, (lost, cards, bound.memory(self._room, forced, cards), starts, 0, 0))
        return least >= self.best

    def _known(self, number: int, copy: int, cost: Cost, own: tuple[Home, ...]) -> bool:
        """Whether an alike state was searched at no higher cost."""
        room = self._room
        key = (
            number,
            copy,
            tuple(sorted(map(room.signature, room.hosts))),
            tuple(sorted(home.stays for home in own if home.stays is not None)),
        )
        known = self._seen.get(key)
        if known is not None and known <= cost:
            return True
        if len(self._seen) < MOST_STATES:
            self._seen[key] = cost
        return False


def _ordered(problem: Problem, bounds: Bounds) -> list[Item]:
    """Large and dear items first: they decide most."""

    def key(item: Item) -> tuple[float, ...]:
        return -item.priority, -item.copies * bounds.size(item), -len(item.layouts)

    return sorted(problem.items, key=lambda item: (*key(item), item.name))
