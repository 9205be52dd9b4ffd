"""Packings found quickly: item by item into the cheapest place, in several orders, then improved step by step."""

from collections.abc import Callable, Iterable, Sequence

from gpuplan.planning.packing.bounds import Bounds
from gpuplan.planning.packing.room import Room
from gpuplan.planning.packing.values import Cost, Home, Item, Layout, Part, Place, Problem

MOST_TRIALS, TRIED_CARDS = 400, 80_000
"""Steps of improvement that are tried: fewer on many cards."""
LEAST_SHAKES, MOST_SHAKES, SHAKEN_CARDS = 60, 2000, 80_000
"""How often some items are placed anew: the fewer cards the more often."""
MANY_CARDS = 512
"""With more of them the first orders alone are tried."""
Key = tuple[int, int, int, int, int, float]
"""What a place costs: cards, memory, starts, waits, hosts beyond one, and the bytes of those cards it leaves free."""


class Draft:
    """A packing under way."""

    def __init__(self, problem: Problem, bounds: Bounds, *, roomy: bool = False) -> None:
        self.problem = problem
        self.roomy = roomy
        """Of empty cards the one with most room to spare is taken, for others to join; else the smallest."""
        self.bounds = bounds
        self.room = Room(problem)
        self.homes: dict[str, tuple[Home, ...]] = {}
        self._hosts: dict[str, dict[str, list[tuple[int, Layout]]]] = {}

    @property
    def all_homes(self) -> tuple[Home, ...]:
        return tuple(home for placed in self.homes.values() for home in placed)

    @property
    def cost(self) -> Cost:
        """Counted anew: a card's memory counts once, whoever came first."""
        room = self.room
        used = [number for number, count in enumerate(room.used) if count]
        homes = [home for placed in self.homes.values() for home in placed]
        return (
            sum(item.priority for item in self.problem.items if item.name not in self.homes),
            len(used),
            sum(room.cards[number].total_bytes for number in used),
            sum(home.stays is None for home in homes),
            sum(map(room.waits, homes)),
            sum(len(home.hosts) - 1 for home in homes),
        )

    def place(self, item: Item, among: frozenset[str] | None = None) -> bool:
        """All copies in the cheapest places found one after the other, or none; `among`: only on these hosts."""
        placed: list[Home] = []
        while len(placed) < item.copies:
            home = self._cheapest(item, placed, among)
            if home is None:
                for one in placed:
                    self.room.give_back(one)
                return False
            self.room.take(home)
            placed.append(home)
        self.homes[item.name] = tuple(placed)
        return True

    def remove(self, name: str) -> tuple[Home, ...]:
        homes = self.homes.pop(name)
        for home in homes:
            self.room.give_back(home)
        return homes

    def restore(self, name: str, homes: tuple[Home, ...]) -> None:
        for home in homes:
            self.room.take(home)
        self.homes[name] = homes

    def _cheapest(self, item: Item, placed: Sequence[Home], among: frozenset[str] | None) -> Home | None:
        best: tuple[Key, Home] | None = None
        for home in self.room.stays(item, placed):
            if among is None or among.issuperset(home.hosts):
                best = _better(best, (self._key(home.cards, stays=home.stays), home))
        best = _better(best, self._on_one_host(item, among))
        if best is None:
            best = self._over_hosts(item, among)
        return None if best is None else best[1]

    def _on_one_host(self, item: Item, among: frozenset[str] | None) -> tuple[Key, Home] | None:
        best: tuple[Key, int, Layout, list[tuple[Place, int]]] | None = None
        seen: set[object] = set()
        for host, layouts in self._possible(item).items():
            if (among is not None and host not in among) or not self.room.admits(item.name, host):
                continue
            signature = self.room.signature(host)
            if signature in seen:
                continue
            seen.add(signature)
            for number, layout in layouts:
                cards = self._tightest(item, host, layout.hosts[0], layout.ram_bytes)
                if cards is not None:
                    key = self._key(cards)
                    if best is None or key < best[0]:
                        best = key, number, layout, cards
        return None if best is None else (best[0], _home(item, *best[1:]))

    def _possible(self, item: Item) -> dict[str, list[tuple[int, Layout]]]:
        """Hosts with the layouts they have the cards for."""
        known = self._hosts.get(item.name)
        if known is None:
            counts = {place: len(numbers) for place, numbers in self.room.kinds.items()}
            known = {}
            for host in self.room.hosts:
                here = [
                    (number, layout)
                    for number, layout in enumerate(item.layouts)
                    if len(layout.hosts) == 1
                    and all(counts.get((host, part.kind), 0) >= part.count for part in layout.parts)
                ]
                if here:
                    known[host] = here
            self._hosts[item.name] = known
        return known

    def _tightest(
        self, item: Item, host: str, parts: tuple[Part, ...], ram_bytes: int
    ) -> list[tuple[Place, int]] | None:
        """Cards in use first, the fullest of them: what is empty stays whole."""
        room = self.room
        if room.ram[host] < ram_bytes:
            return None
        chosen: list[tuple[Place, int]] = []
        for part in parts:
            numbers = room.open_cards(item, host, part)
            if len(numbers) < part.count:
                return None
            numbers.sort(key=lambda number: (not room.used[number], room.left[number]))
            chosen += [(room.cards[number].place, part.bytes) for number in numbers[: part.count]]
        return chosen

    def _over_hosts(self, item: Item, among: frozenset[str] | None) -> tuple[Key, Home] | None:
        """For want of one host: the cheapest hosts for each layout over several."""
        best: tuple[Key, Home] | None = None
        for number, layout in enumerate(item.layouts):
            cards = self._spread(item, layout, among) if len(layout.hosts) > 1 else None
            if cards is not None:
                best = _better(best, (self._key(cards), _home(item, number, layout, cards)))
        return best

    def _spread(
        self, item: Item, layout: Layout, among: frozenset[str] | None
    ) -> list[tuple[Place, int]] | None:
        chosen: list[tuple[Place, int]] = []
        taken: set[str] = set()
        for parts in layout.hosts:
            best: tuple[Key, str, list[tuple[Place, int]]] | None = None
            for host in self.room.hosts if among is None else sorted(among):
                if host in taken or not self.room.admits(item.name, host):
                    continue
                cards = self._tightest(item, host, parts, layout.ram_bytes)
                if cards is not None:
                    key = self._key(cards)
                    if best is None or key < best[0]:
                        best = key, host, cards
            if best is None:
                return None
            taken.add(best[1])
            chosen += best[2]
        return chosen

    def _key(self, taken: Sequence[tuple[Place, int]], *, stays: str | None = None) -> Key:
        room = self.room
        cards = memory = left = 0
        for place, size in taken:
            number = room.number[place]
            left += room.left[number] - size
            if not room.used[number]:
                cards += 1
                memory += room.cards[number].total_bytes
        home = Home(item="", cards=tuple(taken), stays=stays)
        rest = int(stays is None), int(room.waits(home)), len(home.hosts) - 1
        if self.roomy and cards:
            return cards, -left, *rest, memory
        return cards, memory, *rest, left


Found = tuple[Key, Home]


def _better(best: Found | None, other: Found | None) -> Found | None:
    return other if best is None or (other is not None and other[0] < best[0]) else best


def _home(item: Item, number: int, layout: Layout, cards: list[tuple[Place, int]]) -> Home:
    return Home(item=item.name, cards=tuple(sorted(cards)), layout=number, ram_bytes=layout.ram_bytes)


Order = Callable[[Item], tuple[float, ...]]


def orders(problem: Problem, bounds: Bounds) -> tuple[Order, ...]:
    """Ways to line up the items: worth first, size first, those with the fewest cards to choose from first."""

    size = bounds.size
    choice = {
        item.name: sum(
            1
            for card in problem.cards
            if item.may_use(card.place)
            and any(card.kind == part.kind for layout in item.layouts for part in layout.parts)
        )
        for item in problem.items
    }
    return (
        lambda item: (-item.priority, -size(item), choice[item.name]),
        lambda item: (choice[item.name], -size(item), -item.priority),
        lambda item: (-size(item), choice[item.name], -item.priority),
        lambda item: (-item.priority / (item.copies * size(item) or 1.0), choice[item.name]),
    )


def drafted(problem: Problem, bounds: Bounds, goal: Cost) -> Draft:
    """The best of the orders, improved until it costs the goal or nothing tried helps any more."""
    best = Draft(problem, bounds)
    for roomy in (False, True):
        for order in orders(problem, bounds)[: 4 if len(problem.cards) <= MANY_CARDS else 2]:
            draft = Draft(problem, bounds, roomy=roomy)
            for item in sorted(problem.items, key=lambda one: (*order(one), one.name)):
                draft.place(item)
            if draft.cost < best.cost:
                best = draft
            if best.cost <= goal:
                return best
    _improve(best, goal)
    return best


def _improve(draft: Draft, goal: Cost) -> None:
    trials = min(MOST_TRIALS, max(LEAST_SHAKES, TRIED_CARDS // max(1, len(draft.problem.cards))))
    better = True
    while better and trials > 0 and draft.cost > goal:
        better = False
        for group in _neighbourhoods(draft):
            trials -= 1
            if trials <= 0 or draft.cost <= goal:
                return
            if _repacked(draft, group):
                better = True


def _neighbourhoods(draft: Draft) -> Iterable[list[str]]:
    """Items to be taken out and placed again: with each item that is left out, one that is in; the residents of a host;
    those of two hosts with few."""
    items = draft.problem.items
    out = sorted((item for item in items if item.name not in draft.homes), key=lambda one: -one.priority)
    for item in out:
        yield [item.name]
        for other in sorted(items, key=lambda one: one.priority):
            if other.name in draft.homes:
                yield [item.name, other.name]
    hosts = _residents(draft)
    for _, names in hosts:
        yield [*names, *(item.name for item in out)]
    light = [names for _, names in hosts[:8]]
    for number, first in enumerate(light):
        for second in light[number + 1 :]:
            yield list(dict.fromkeys([*first, *second]))


def _residents(draft: Draft) -> list[tuple[str, list[str]]]:
    """Hosts in use with the items on them, fewest first."""
    there = {
        host: sorted(name for name, count in residents.items() if count)
        for host, residents in draft.room.residents.items()
    }
    return sorted(((host, names) for host, names in there.items() if names), key=lambda one: len(one[1]))


def _repacked(draft: Draft, names: Sequence[str]) -> bool:
    """Take these out, place them again the largest first and the dearest first; keep what costs less."""
    before = draft.cost
    held = {name: draft.remove(name) for name in names if name in draft.homes}
    items = [item for item in draft.problem.items if item.name in set(names)]
    for order in orders_of(items, draft.bounds):
        for item in order:
            draft.place(item)
        if draft.cost < before:
            return True
        for name in [item.name for item in items if item.name in draft.homes]:
            draft.remove(name)
    for name, homes in held.items():
        draft.restore(name, homes)
    return False


def resumed(problem: Problem, bounds: Bounds, homes: Iterable[Home]) -> Draft:
    """A draft that has these homes."""
    draft = Draft(problem, bounds)
    by_item: dict[str, list[Home]] = {}
    for home in homes:
        by_item.setdefault(home.item, []).append(home)
    for name, own in by_item.items():
        draft.restore(name, tuple(own))
    return draft


class _Dice:
    """Numbers without pattern, the same every time."""

    def __init__(self) -> None:
        self._state = 1

    def below(self, most: int) -> int:
        """The generator of Numerical Recipes, its upper half."""
        self._state = (self._state * 1664525 + 1013904223) % 2**32
        return (self._state >> 16) % most


def shake(draft: Draft, goal: Cost) -> None:
    """Take a few items out, place them again in another order; what costs no more is gone on from."""
    problem, dice = draft.problem, _Dice()
    items = [item for item in problem.items if item.name in draft.bounds.needs]
    if len(items) < 2:
        return
    cost = draft.cost
    for _ in range(max(LEAST_SHAKES, min(MOST_SHAKES, SHAKEN_CARDS // max(1, len(problem.cards))))):
        if cost <= goal:
            return
        chosen = _some(draft, items, 2 + dice.below(min(6, len(items) - 1)), dice)
        held = {item.name: draft.remove(item.name) for item in chosen if item.name in draft.homes}
        draft.roomy = not dice.below(2)
        for item in chosen:
            draft.place(item)
        now = draft.cost
        if now <= cost:
            cost = now
            continue
        for item in chosen:
            if item.name in draft.homes:
                draft.remove(item.name)
        for name, homes in held.items():
            draft.restore(name, homes)


def _some(draft: Draft, items: Sequence[Item], count: int, dice: _Dice) -> list[Item]:
    """Items that are left out, and some of the others, in any order."""
    pool = sorted(items, key=lambda item: item.name in draft.homes)
    out = sum(item.name not in draft.homes for item in items)
    chosen = [pool.pop(dice.below(out))] if out and dice.below(2) else []
    while pool and len(chosen) < count:
        chosen.insert(dice.below(len(chosen) + 1), pool.pop(dice.below(len(pool))))
    return chosen


def orders_of(items: Sequence[Item], bounds: Bounds) -> Iterable[list[Item]]:
    """Few lines of few items."""

    def size(item: Item) -> float:
        return item.copies * bounds.size(item)

    yield sorted(items, key=lambda item: (-item.priority, -size(item), item.name))
    if len(items) > 1:
        yield sorted(items, key=lambda item: (-size(item), item.name))
