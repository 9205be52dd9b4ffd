"""Random packing problems, and their optimum found by looking at everything."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations
from random import Random

from gpuplan.planning.packing.values import (
    NOTHING,
    Card,
    Cost,
    Item,
    Layout,
    Part,
    Place,
    Problem,
    Stay,
    added,
)

Taken = tuple[tuple[Place, int], ...]
State = tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...], tuple[frozenset[str], ...]]
"""Bytes left and slots left by card, cards in use as bits, RAM left and residents by host."""


Gone = frozenset[str | Place]
"""Deployments in which a copy of the item stays, and cards it is on."""


class BruteForce:
    """Every placement of every item on every set of cards; of equal states the cheaper, and nothing cleverer."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.hosts = list(dict.fromkeys(card.host for card in problem.cards))
        self.number = {card.place: number for number, card in enumerate(problem.cards)}

    def optimum(self) -> Cost:
        cards = self.problem.cards
        start: State = (
            tuple(card.room_bytes for card in cards),
            tuple(card.slots for card in cards),
            0,
            tuple(self.problem.ram.get(host, 0) for host in self.hosts),
            tuple(frozenset() for _ in self.hosts),
        )
        states: dict[State, Cost] = {start: NOTHING}
        for item in self.problem.items:
            after: dict[State, Cost] = {}
            for state, cost in states.items():
                _keep(after, state, added(cost, (item.priority, 0, 0, 0, 0, 0)))
            within: dict[tuple[State, Gone], Cost] = {
                (state, frozenset()): cost for state, cost in states.items()
            }
            for _ in range(item.copies):
                following: dict[tuple[State, Gone], Cost] = {}
                for (state, stays), cost in within.items():
                    for reached, more, gone in self._one_more(item, state, stays):
                        key = (reached, gone)
                        total = added(cost, more)
                        if key not in following or total < following[key]:
                            following[key] = total
                within = following
            for (state, _), cost in within.items():
                _keep(after, state, cost)
            states = after
        return min(states.values())

    def _one_more(self, item: Item, state: State, gone: Gone) -> Iterator[tuple[State, Cost, Gone]]:
        for layout in item.layouts:
            for taken in self._sets(item, layout):
                if gone.isdisjoint(place for place, _ in taken):
                    reached = self._taken(item, state, taken, layout.ram_bytes, started=1)
                    if reached is not None:
                        yield *reached, gone | {place for place, _ in taken}
        for stay in item.stays:
            places = {place for place, _ in stay.cards}
            if stay.fit and stay.deployment not in gone and gone.isdisjoint(places):
                reached = self._taken(item, state, stay.cards, stay.ram_bytes, started=0)
                if reached is not None:
                    yield *reached, gone | {stay.deployment} | places

    def _sets(self, item: Item, layout: Layout) -> Iterator[Taken]:
        found = set()
        for hosts in permutations(self.hosts, len(layout.hosts)):
            for taken in self._filled(item, list(zip(hosts, layout.hosts, strict=True))):
                found.add(tuple(sorted(taken)))
        yield from sorted(found)

    def _filled(self, item: Item, wanted: list[tuple[str, tuple[Part, ...]]]) -> Iterator[Taken]:
        if not wanted:
            yield ()
            return
        host, parts = wanted[0]
        if not parts:
            yield from self._filled(item, wanted[1:])
            return
        part = parts[0]
        own = [
            card.place
            for card in self.problem.cards
            if card.host == host and card.kind == part.kind and item.may_use(card.place)
        ]
        for places in combinations(own, part.count):
            for rest in self._filled(item, [(host, parts[1:]), *wanted[1:]]):
                yield (*((place, part.bytes) for place in places), *rest)

    def _taken(
        self, item: Item, state: State, taken: Taken, ram_bytes: int, *, started: int
    ) -> tuple[State, Cost] | None:
        left, slots, used, ram, residents = (
            list(state[0]),
            list(state[1]),
            state[2],
            list(state[3]),
            list(state[4]),
        )
        cards = memory = 0
        for place, size in taken:
            number = self.number[place]
            left[number] -= size
            slots[number] -= 1
            if left[number] < 0 or slots[number] < 0:
                return None
            if not used >> number & 1:
                cards, memory = cards + 1, memory + self.problem.cards[number].total_bytes
            used |= 1 << number
        hosts = {place[0] for place, _ in taken}
        by_name = {one.name: one for one in self.problem.items}
        for number, host in enumerate(self.hosts):
            if host in hosts:
                ram[number] -= ram_bytes
                if ram[number] < 0:
                    return None
                if any(
                    other in item.apart or item.name in by_name[other].apart for other in residents[number]
                ):
                    return None
                residents[number] |= {item.name}
        reached = (tuple(left), tuple(slots), used, tuple(ram), tuple(residents))
        waits = started and any(self._busy(place, size) for place, size in taken)
        return reached, (0, cards, memory, started, int(waits), len(hosts) - 1)

    def _busy(self, place: Place, size: int) -> bool:
        """Whether what runs on a card leaves no room for so much."""
        there = [
            held
            for item in self.problem.items
            for stay in item.stays
            for where, held in stay.cards
            if where == place
        ]
        card = self.problem.cards[self.number[place]]
        return card.room_bytes - sum(there) < size or card.slots <= len(there)


def _keep(states: dict[State, Cost], state: State, cost: Cost) -> None:
    if state not in states or cost < states[state]:
        states[state] = cost


def problem_of(random: Random, *, most_items: int, most_cards: int) -> Problem:
    """Up to so many items on up to so many cards of two kinds, with pins, RAM, copies and items to be kept apart."""
    cards: list[Card] = []
    number = 0
    while len(cards) < most_cards:
        number += 1
        count = min(random.choice((1, 2, 4)), most_cards - len(cards))
        kind, total = random.choice((("large", 80), ("small", 24)))
        cards += [
            Card(
                host=f"h{number}",
                index=index,
                kind=kind,
                room_bytes=total - random.choice((0, 0, 0, 10)),
                total_bytes=total,
            )
            for index in range(count)
        ]
        if random.random() < 0.15:
            break
    names = [f"m{index}" for index in range(random.randint(2, most_items))]
    places = [card.place for card in cards]
    items = [
        Item(
            name=name,
            layouts=_layouts(random),
            copies=random.choice((1, 1, 1, 2)),
            priority=random.choice((1, 1, 2, 5)),
            cards=frozenset(random.sample(places, random.randint(1, len(places))))
            if random.random() < 0.25
            else None,
            apart=frozenset(random.sample(names, 1)) if random.random() < 0.3 else frozenset(),
        )
        for name in names
    ]
    return Problem(
        cards=tuple(cards),
        items=tuple(_running(random, item, cards) for item in items),
        ram={f"h{index}": random.choice((0, 8, 64)) for index in range(number + 1)},
    )


def _layouts(random: Random) -> tuple[Layout, ...]:
    size = random.choice((6, 12, 20, 30, 40, 60, 75, 140, 200))
    ram = random.choice((0, 0, 0, 6))
    found = []
    for kind, total in (("large", 80), ("small", 24)):
        for count in (1, 2, 4):
            share = -(-size // count) + 1
            if share <= total:
                found.append(Layout(hosts=((Part(kind=kind, count=count, bytes=share),),), ram_bytes=ram))
                break
    if random.random() < 0.3:
        half = -(-size // 2) + 2
        one = (Part(kind="large", count=1, bytes=min(half, 80)),)
        found.append(Layout(hosts=(one, one), ram_bytes=ram))
    return tuple(found)


def _running(random: Random, item: Item, cards: list[Card]) -> Item:
    """Some run already, somewhere: a copy may stay there or must not."""
    if random.random() < 0.6:
        return item
    stays = tuple(
        Stay(
            deployment=f"{item.name}-{number}",
            cards=((random.choice(cards).place, random.choice((10, 20, 60))),),
            fit=random.random() < 0.8,
        )
        for number in range(random.choice((1, 1, 2)))
    )
    return replace(item, stays=stays)
