"""Why a model is not placed: who holds the GPUs it could have had, and the least that would let it in, each tried."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from gpuplan.planning.packing.bounds import Bounds
from gpuplan.planning.packing.greedy import Draft
from gpuplan.planning.packing.values import Card, Item, Packing, Place, Problem

NEW_HOST = "a further host"
"""Stands for a host that would have to be added."""


class Why(StrEnum):
    NEVER = "never"
    """No layout on any kind of card of the fleet."""
    PINNED = "pinned"
    """It would fit elsewhere; where it is pinned to it does not, though no other model of the file were there."""
    FULL = "full"
    """Not even alone: what the file does not name holds the GPUs, or there are too few."""
    APART = "apart"
    """But for the hosts it must not share."""
    BLOCKED = "blocked"
    """Other models of the file are where it could be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """An item, and how many of the cards that the blocked one could have had it is on."""

    item: str
    cards: int
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """One item that is left out."""

    item: str
    why: Why
    blockers: tuple[Blocker, ...] = ()
    """Those on most of its cards first."""
    without: tuple[str, ...] = ()
    """Any one of these left out would let it in, the one worth least first."""
    without_all: tuple[str, ...] = ()
    """Where none does alone: these together."""
    stopping: tuple[str, ...] = ()
    """Any one of these deployments, which the file does not name, stopped would let it in."""
    more: tuple[Hashable, int] | None = None
    """A kind of card and how many more, on one further host, would do."""
    copies: int = 0
    """So many of its copies there is room for."""
    unpinned: bool = False
    """Without its pins it has room."""
    together: bool = False
    """Allowed to share hosts it has room."""


MOST_EXPLAINED = 20
"""Models left out for which ways in are tried; of the others it is only said who blocks them."""
MOST_TRIED = 40
"""Models or deployments that are tried as if they were gone."""
Others = Mapping[str, tuple[tuple[Place, int], ...]]
"""Deployments that are not in the file, with what they hold on each card."""


def blocked(problem: Problem, packing: Packing, others: Others) -> tuple[Blocked, ...]:
    """A reason for every item that was left out, in the problem's order; ways in for those worth most."""
    bounds = Bounds(problem)
    out = [item for item in problem.items if item.name in packing.left_out]
    dear = {item.name for item in sorted(out, key=lambda one: -one.priority)[:MOST_EXPLAINED]}
    return tuple(
        _reason(_Case(problem, packing, bounds), item, others, tried=item.name in dear) for item in out
    )


@dataclass(frozen=True, slots=True)
class _Case:
    problem: Problem
    packing: Packing
    bounds: Bounds

    def draft(self, problem: Problem | None = None, *, alone: bool = False) -> Draft:
        """The packing, or nothing yet, on the cards of the problem or of a changed one."""
        draft = Draft(problem or self.problem, self.bounds)
        for item in () if alone else draft.problem.items:
            if homes := self.packing.of(item.name):
                draft.restore(item.name, homes)
        return draft

    def fits(self, item: Item, problem: Problem | None = None, *, alone: bool = False) -> bool:
        """Whether the item, changed, has a place beside the packing, or alone."""
        base = problem or self.problem
        items = tuple(item if one.name == item.name else one for one in base.items)
        return self.draft(replace(base, items=items), alone=alone).place(item)


def _reason(case: _Case, item: Item, others: Others, *, tried: bool) -> Blocked:
    if not item.layouts:
        return Blocked(item=item.name, why=Why.NEVER)
    free = replace(item, cards=None)
    alone = case.fits(item, alone=True)
    pinned = item.cards is not None and not alone and case.fits(free, alone=True)
    why = Why.BLOCKED if alone else Why.PINNED if pinned else Why.FULL
    beside = case.draft()
    found = Blocked(item=item.name, why=why, blockers=_blockers(beside, item) if alone else ())
    if not tried:
        return found
    without = _without(beside, item) if alone else ()
    together = bool(_foes(case.problem, item)) and case.fits(
        replace(item, apart=frozenset()), _without_apart(case.problem, item)
    )
    return replace(
        found,
        why=Why.APART if alone and together and not without else why,
        without=without,
        without_all=_without_all(beside, item) if alone and not without else (),
        stopping=_stopping(case, item, others),
        more=_more(case, item),
        copies=_copies(beside, item),
        unpinned=item.cards is not None and case.fits(free),
        together=together,
    )


def _without_apart(problem: Problem, item: Item) -> Problem:
    return replace(problem, items=tuple(replace(one, apart=one.apart - {item.name}) for one in problem.items))


def _foes(problem: Problem, item: Item) -> frozenset[str]:
    return item.apart | {one.name for one in problem.items if item.name in one.apart}


def _blockers(draft: Draft, item: Item) -> tuple[Blocker, ...]:
    kinds = {part.kind for layout in item.layouts for part in layout.parts}
    room = draft.room
    found = []
    for other in draft.problem.items:
        places = {place for home in draft.homes.get(other.name, ()) for place, _ in home.cards}
        held = [p for p in places if item.may_use(p) and room.cards[room.number[p]].kind in kinds]
        if held:
            found.append(Blocker(item=other.name, cards=len(held), priority=other.priority))
    return tuple(sorted(found, key=lambda one: (-one.cards, one.item)))


def _without(draft: Draft, item: Item) -> tuple[str, ...]:
    names = []
    near = {one.item for one in _blockers(draft, item)} | _foes(draft.problem, item)
    others = [one for one in draft.problem.items if one.name in near and one.name in draft.homes]
    for other in sorted(others, key=lambda one: (one.priority, one.name))[:MOST_TRIED]:
        if other.name in draft.homes:
            homes = draft.remove(other.name)
            if draft.place(item):
                draft.remove(item.name)
                names.append(other.name)
            draft.restore(other.name, homes)
    return tuple(names)


def _without_all(draft: Draft, item: Item) -> tuple[str, ...]:
    """As few as it takes, taken from those worth least; empty where even that does not help."""
    removed = {}
    order = sorted(draft.problem.items, key=lambda one: (one.priority, one.name))
    for other in order:
        if other.name in draft.homes:
            removed[other.name] = draft.remove(other.name)
            if draft.place(item):
                draft.remove(item.name)
                break
    for name in list(removed):
        draft.restore(name, removed[name])
        if draft.place(item):
            draft.remove(item.name)
            del removed[name]
        else:
            draft.remove(name)
    names = tuple(removed)
    for name, homes in removed.items():
        draft.restore(name, homes)
    return names


def _copies(draft: Draft, item: Item) -> int:
    for number in range(item.copies - 1, 0, -1):
        if draft.place(replace(item, copies=number)):
            draft.remove(item.name)
            return number
    return 0


def _stopping(case: _Case, item: Item, others: Others) -> tuple[str, ...]:
    problem, names = case.problem, []
    near = [name for name in sorted(others) if any(item.may_use(place) for place, _ in others[name])]
    for name in near[:MOST_TRIED]:
        back = dict(others[name])
        cards = tuple(
            replace(card, room_bytes=card.room_bytes + back[card.place], slots=card.slots + 1)
            if card.place in back
            else card
            for card in problem.cards
        )
        if case.fits(item, replace(problem, cards=cards)):
            names.append(name)
    return tuple(names)


def _more(case: _Case, item: Item) -> tuple[Hashable, int] | None:
    """The fewest cards of one kind, on one further host, that would let it in."""
    best: tuple[int, int, Hashable] | None = None
    sizes: dict[Hashable, int] = {}
    for card in case.problem.cards:
        sizes[card.kind] = max(sizes.get(card.kind, 0), card.total_bytes)
    for layout in item.layouts:
        if len(layout.hosts) != 1 or len(layout.parts) != 1 or layout.parts[0].kind not in sizes:
            continue
        kind = layout.parts[0].kind
        for copies in range(1, item.copies + 1):
            count = copies * layout.gpus
            if best is not None and (count, sizes[kind]) >= best[:2]:
                break
            if _fits_with(case, item, kind, count, sizes[kind]):
                best = count, sizes[kind], kind
                break
    return None if best is None else (best[2], best[0])


def _fits_with(case: _Case, item: Item, kind: Hashable, count: int, size: int) -> bool:
    problem = case.problem
    cards = tuple(
        Card(host=NEW_HOST, index=index, kind=kind, room_bytes=size, total_bytes=size)
        for index in range(count)
    )
    ram = max((layout.ram_bytes for layout in item.layouts), default=0) * count
    grown = replace(problem, cards=problem.cards + cards, ram={**problem.ram, NEW_HOST: ram})
    own = None if item.cards is None else item.cards | {card.place for card in cards}
    return case.fits(replace(item, cards=own), grown)
