"""What is left on the cards while items are placed one by one, and every way to place one more copy, alike ones once."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations

from gpuplan.planning.packing.values import Card, Cost, Home, Item, Part, Place, Problem
from gpuplan.planning.usable import MOST_DEPLOYMENTS

Signature = tuple[object, ...]
State = tuple[int, int, int, bool, int, int, tuple[str, ...]]


class Room:
    """Cards, RAM and residents; `take` and `give_back` undo each other exactly."""

    def __init__(self, problem: Problem) -> None:
        self.cards: tuple[Card, ...] = problem.cards
        self.items = {item.name: item for item in problem.items}
        self.number = {card.place: number for number, card in enumerate(problem.cards)}
        self.left = [card.room_bytes for card in problem.cards]
        self.slots = [card.slots for card in problem.cards]
        self.used = [0] * len(problem.cards)
        self.copies: list[tuple[str, ...]] = [()] * len(problem.cards)
        """Items of several copies that are on a card: a second copy goes elsewhere."""
        self.ram = {card.host: problem.ram.get(card.host, 0) for card in problem.cards}
        self.hosts: dict[str, list[int]] = {}
        for number, card in enumerate(problem.cards):
            self.hosts.setdefault(card.host, []).append(number)
        self.residents: dict[str, Counter[str]] = {host: Counter() for host in self.hosts}
        self.kinds: dict[tuple[str, Hashable], list[int]] = {}
        for number, card in enumerate(problem.cards):
            self.kinds.setdefault((card.host, card.kind), []).append(number)
        self._conflicts = _conflicts(problem.items)
        self._apart = frozenset(name for name, others in self._conflicts.items() if others)
        self._marks = _marks(problem)
        self._signatures: dict[str, Signature] = {}
        self._running = _running(problem)
        self._sums = _sums(problem)
        self._kind_numbers = {
            kind: number for number, kind in enumerate(dict.fromkeys(c.kind for c in problem.cards))
        }

    def take(self, home: Home) -> Cost:
        """Occupy the cards; what it adds to the cost."""
        cards = memory = 0
        for place, taken in home.cards:
            number = self.number[place]
            if not self.used[number]:
                cards += 1
                memory += self.cards[number].total_bytes
            self.used[number] += 1
            self.left[number] -= taken
            self.slots[number] -= 1
            if self.items[home.item].copies > 1:
                self.copies[number] = tuple(sorted((*self.copies[number], home.item)))
        self._moved(home, 1)
        return 0, cards, memory, int(home.stays is None), int(self.waits(home)), len(home.hosts) - 1

    def waits(self, home: Home) -> bool:
        """Whether a new home has no room beside what runs there now."""
        if home.stays is not None or not self._running:
            return False
        return any(
            place in self._running
            and (
                self.cards[self.number[place]].room_bytes - self._running[place][0] < taken
                or self.cards[self.number[place]].slots <= self._running[place][1]
            )
            for place, taken in home.cards
        )

    def give_back(self, home: Home) -> None:
        for place, taken in home.cards:
            number = self.number[place]
            self.used[number] -= 1
            self.left[number] += taken
            self.slots[number] += 1
            if home.item in self.copies[number]:
                there = list(self.copies[number])
                there.remove(home.item)
                self.copies[number] = tuple(there)
        self._moved(home, -1)

    def _moved(self, home: Home, sign: int) -> None:
        for host in home.hosts:
            self.ram[host] -= sign * home.ram_bytes
            self.residents[host][home.item] += sign
            self._signatures.pop(host, None)

    def fits(self, home: Home) -> bool:
        """Whether the very place is free for it."""
        return (
            all(
                place in self.number
                and self.slots[self.number[place]] > 0
                and self.left[self.number[place]] >= taken
                and home.item not in self.copies[self.number[place]]
                for place, taken in home.cards
            )
            and all(self.ram[host] >= home.ram_bytes for host in home.hosts)
            and self._welcome(home)
        )

    def _welcome(self, home: Home) -> bool:
        return all(self.admits(home.item, host) for host in home.hosts)

    def admits(self, item: str, host: str) -> bool:
        """Whether nobody on the host is to be apart from the item."""
        there = self.residents[host]
        return all(not there[other] for other in self._conflicts[item])

    def signature(self, host: str) -> Signature:
        """Hosts of equal signature are interchangeable for whatever is placed from now on."""
        known = self._signatures.get(host)
        if known is None:
            cards = sorted(self._state(number) for number in self.hosts[host])
            apart = tuple(
                sorted(name for name, count in self.residents[host].items() if count and name in self._apart)
            )
            known = self._signatures[host] = (tuple(cards), self.ram[host], apart)
        return known

    def _state(self, number: int) -> State:
        return (
            self._kind_numbers[self.cards[number].kind],
            self._fill(number),
            self.slots[number],
            self.used[number] > 0,
            self.cards[number].total_bytes,
            self._marks[number],
            self.copies[number],
        )

    def _fill(self, number: int) -> int:
        """Bytes left, as the most that parts of the items could fill of them: cards that hold the same are alike."""
        sums = self._sums.get(self.cards[number].kind)
        left = self.left[number]
        if sums is None:
            return left
        held = sums[min(max(self.slots[number], 0), len(sums) - 1)]
        place = bisect_right(held, left)
        return held[place - 1] if place else left

    def stays(self, item: Item, taken: Sequence[Home]) -> Iterator[Home]:
        """Running deployments a copy can stay in."""
        gone = {home.stays for home in taken}
        for stay in item.stays:
            if stay.fit and stay.deployment not in gone:
                home = Home(item=item.name, cards=stay.cards, stays=stay.deployment, ram_bytes=stay.ram_bytes)
                if self.fits(home):
                    yield home

    def choices(self, item: Item) -> Iterator[Home]:
        """Every new place for a copy; of interchangeable ones the first."""
        groups: dict[Signature, list[str]] = {}
        for host in self.hosts:
            if self.admits(item.name, host):
                groups.setdefault(self.signature(host), []).append(host)
        for number, layout in enumerate(item.layouts):
            for hosts in _host_sets(list(groups.values()), len(layout.hosts)):
                if any(self.ram[host] < layout.ram_bytes for host in hosts):
                    continue
                for places in self._on_hosts(item, hosts, layout.hosts):
                    yield Home(
                        item=item.name,
                        cards=tuple(sorted(places)),
                        layout=number,
                        ram_bytes=layout.ram_bytes,
                    )

    def _on_hosts(
        self, item: Item, hosts: Sequence[str], parts: Sequence[tuple[Part, ...]]
    ) -> Iterator[list[tuple[Place, int]]]:
        if not hosts:
            yield []
            return
        for first in self._on_host(item, hosts[0], parts[0]):
            for rest in self._on_hosts(item, hosts[1:], parts[1:]):
                yield first + rest

    def _on_host(self, item: Item, host: str, parts: tuple[Part, ...]) -> Iterator[list[tuple[Place, int]]]:
        if not parts:
            yield []
            return
        part = parts[0]
        classes: dict[State, list[int]] = {}
        for number in self.open_cards(item, host, part):
            classes.setdefault(self._state(number), []).append(number)
        for numbers in _picks(list(classes.values()), part.count):
            first = [(self.cards[number].place, part.bytes) for number in numbers]
            for rest in self._on_host(item, host, parts[1:]):
                yield first + rest

    def open_cards(self, item: Item, host: str, part: Part) -> list[int]:
        """Cards of a host that could be of a part."""
        left, slots = self.left, self.slots
        return [
            number
            for number in self.kinds.get((host, part.kind), ())
            if left[number] >= part.bytes
            and slots[number] > 0
            and (item.cards is None or self.cards[number].place in item.cards)
            and item.name not in self.copies[number]
        ]


def _conflicts(items: Sequence[Item]) -> dict[str, frozenset[str]]:
    """Apart holds both ways."""
    found: dict[str, set[str]] = {item.name: set() for item in items}
    for item in items:
        for other in item.apart:
            if other in found:
                found[item.name].add(other)
                found[other].add(item.name)
    return {name: frozenset(others) for name, others in found.items()}


def _marks(problem: Problem) -> list[int]:
    """A number for each card, equal where the same items may use it and no deployment stays there."""
    known: dict[object, int] = {}
    staying: dict[Place, list[tuple[str, str]]] = {}
    for item in problem.items:
        for stay in item.stays:
            for place, _ in stay.cards:
                staying.setdefault(place, []).append((item.name, stay.deployment))
    pinned = [item for item in problem.items if item.cards is not None]
    marks = []
    for card in problem.cards:
        who = tuple(item.name for item in pinned if item.may_use(card.place))
        marks.append(known.setdefault((who, tuple(staying.get(card.place, ()))), len(known)))
    return marks


MOST_SIZES = 48
"""Of parts on one kind of card; with more, cards are alike only where as many bytes are left."""


def _sums(problem: Problem) -> dict[Hashable, list[list[int]]]:
    """For each kind of card what up to 0, 1, 2, … parts on one card come to, sorted."""
    sizes: dict[Hashable, set[int]] = {card.kind: set() for card in problem.cards}
    kinds = {card.place: card.kind for card in problem.cards}
    for item in problem.items:
        for part in (part for layout in item.layouts for part in layout.parts):
            sizes.setdefault(part.kind, set()).add(part.bytes)
        for place, taken in (one for stay in item.stays for one in stay.cards):
            if place in kinds:
                sizes[kinds[place]].add(taken)
    most = max((card.slots for card in problem.cards), default=0)
    found = {}
    for kind, held in sizes.items():
        if len(held) <= MOST_SIZES and most <= MOST_DEPLOYMENTS:
            sums = [{0}]
            for _ in range(most):
                sums.append(sums[-1] | {before + size for before in sums[-1] for size in held})
            found[kind] = [sorted(one) for one in sums]
    return found


def _running(problem: Problem) -> dict[Place, tuple[int, int]]:
    """Bytes and number of the deployments of the items that run now, by card."""
    held: dict[Place, tuple[int, int]] = {}
    for item in problem.items:
        for stay in item.stays:
            for place, taken in stay.cards:
                size, number = held.get(place, (0, 0))
                held[place] = (size + taken, number + 1)
    return held


def _picks(classes: list[list[int]], count: int) -> Iterator[list[int]]:
    """`count` of them all, equals taken from the front."""
    if count == 0:
        yield []
        return
    if not classes:
        return
    first, rest = classes[0], classes[1:]
    if sum(map(len, classes)) < count:
        return
    for taken in range(min(count, len(first)), -1, -1):
        for others in _picks(rest, count - taken):
            yield first[:taken] + others


def _host_sets(groups: list[list[str]], count: int) -> Iterator[tuple[str, ...]]:
    """Sets of hosts, of interchangeable ones the first."""
    if count == 1:
        for group in groups:
            yield (group[0],)
        return
    heads = [host for group in groups for host in group[:count]]
    group_of = {host: number for number, group in enumerate(groups) for host in group[:count]}
    seen = set()
    for chosen in combinations(heads, count):
        key = tuple(sorted(group_of[host] for host in chosen))
        if key not in seen:
            seen.add(key)
            yield chosen
