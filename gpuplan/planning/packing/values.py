"""Several models on one fleet, as a packing problem: cards with room, items with layouts, homes that were chosen.

Bytes add up on a card: what an engine asks to be free when it starts and what its own process takes before it looks, of
all that share the card. So a packing holds in whatever order its members start.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from gpuplan.planning.usable import MOST_DEPLOYMENTS

Place = tuple[str, int]
"""Host and GPU index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One usable GPU."""

    host: str
    index: int
    kind: Hashable
    """Cards of one kind hold a layout alike."""
    room_bytes: int
    """Free for the items."""
    total_bytes: int
    slots: int = MOST_DEPLOYMENTS
    """Further deployments it may take (S4.10)."""

    @property
    def place(self) -> Place:
        return self.host, self.index


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Equal cards on one host, each with equally many bytes taken."""

    kind: Hashable
    count: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One way to serve one copy: the parts on each of its hosts. Parts of one host are of different kinds."""

    hosts: tuple[tuple[Part, ...], ...]
    ram_bytes: int = 0
    """On every one of its hosts."""

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(part for parts in self.hosts for part in parts)

    @property
    def gpus(self) -> int:
        return sum(part.count for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A deployment that runs: a copy may stay where it is."""

    deployment: str
    cards: tuple[tuple[Place, int], ...]
    """With the bytes to be kept for it."""
    ram_bytes: int = 0
    fit: bool = True
    """False: it runs where or how the item may not be; it can only be stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One model: all of its copies are placed, or none."""

    name: str
    layouts: tuple[Layout, ...]
    copies: int = 1
    """On cards of their own: no two share one."""
    priority: int = 1
    """Worth as many models of priority 1."""
    cards: frozenset[Place] | None = None
    """Pinned to these; None: to none."""
    apart: frozenset[str] = frozenset()
    """Items no copy shares a host with; its own name: nor do its copies."""
    stays: tuple[Stay, ...] = ()

    def may_use(self, place: Place) -> bool:
        return self.cards is None or place in self.cards


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is to be packed, and where."""

    cards: tuple[Card, ...]
    items: tuple[Item, ...]
    ram: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Bytes free on each host; a host that is not named has none to give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where one copy of an item is."""

    item: str
    cards: tuple[tuple[Place, int], ...]
    """Sorted, with the bytes taken on each."""
    layout: int | None = None
    """Which of the item's; None where it stays."""
    stays: str | None = None
    """The deployment that runs there already."""
    ram_bytes: int = 0

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(host for (host, _), _ in self.cards))


Cost = tuple[int, int, int, int, int, int]
"""Compared in this order, smaller first: priorities of the items left out, cards used, their memory (bytes), copies to be
started, those of them that wait for what runs there now, hosts beyond one for each copy."""
NOTHING: Cost = (0, 0, 0, 0, 0, 0)


def added(cost: Cost, more: Cost) -> Cost:
    return (
        cost[0] + more[0],
        cost[1] + more[1],
        cost[2] + more[2],
        cost[3] + more[3],
        cost[4] + more[4],
        cost[5] + more[5],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """An answer with its cost and what no answer can beat."""

    homes: tuple[Home, ...]
    """By item in the problem's order."""
    left_out: tuple[str, ...]
    cost: Cost
    bound: Cost
    """No packing costs less; equal to `cost` where that is proved to be the least."""
    nodes: int = 0
    """Looked at by the exact search."""

    @property
    def optimal(self) -> bool:
        return self.cost <= self.bound

    def of(self, item: str) -> tuple[Home, ...]:
        return tuple(home for home in self.homes if home.item == item)
