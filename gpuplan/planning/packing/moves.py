"""From what runs now to a packing: an order of starts and stops that keeps every model served where that is possible.

A copy that moves starts at its new place before it stops at the old one. Where moves wait for each other in a circle one
of them makes a detour over a free place; where there is none, the one that is worth least stops first, and that is said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gpuplan.planning.packing.room import Room
from gpuplan.planning.packing.values import Home, Item, Packing, Place, Problem


class Action(StrEnum):
    KEEP = "keep"
    START = "start"
    STOP = "stop"


class Reason(StrEnum):
    """Why a step is where it is."""

    STAYS = "stays"
    NEW = "new"
    MOVES = "moves"
    """It starts at its new place, or stops at the old one, the new one serving."""
    SURPLUS = "surplus"
    """More copies run than are asked for."""
    DROPPED = "dropped"
    """Its GPUs are given to models worth more."""
    DETOUR = "detour"
    """Out of the way of others for a while."""
    OTHERS_SERVE = "others_serve"
    """Stopped before its new place starts; other copies of the model serve meanwhile."""
    DOWNTIME = "downtime"
    """Stopped before its new place starts: nobody serves the model meanwhile."""
    LEFT = "left"
    """Runs on although there is no place for all its copies: nobody needs its GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A deployment of an item as it runs now."""

    item: str
    deployment: str
    cards: tuple[tuple[Place, int], ...]
    """With the bytes it holds."""
    ram_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do, or to leave as it is."""

    action: Action
    reason: Reason
    item: str
    deployment: str
    cards: tuple[tuple[Place, int], ...]
    layout: int | None = None
    instead_of: str | None = None
    """The deployment it takes over from."""


@dataclass(slots=True)
class _Copy:
    """A place that is still to be started, and the deployment it takes over from."""

    home: Home
    old: Running | None
    detoured: bool = False


@dataclass(slots=True)
class _Course:
    problem: Problem
    room: Room
    items: Mapping[str, Item]
    pending: list[_Copy]
    surplus: list[Running]
    dropped: list[Running]
    up: dict[str, int]
    """Deployments of each item that run."""
    names: set[str]
    reserved: frozenset[str]
    steps: list[Step] = field(default_factory=list)
    started: dict[Home, str] = field(default_factory=dict)

    def run(self) -> None:
        while self.pending:
            if not (
                self._start_one()
                or self._stop_one(self.surplus, Reason.SURPLUS)
                or self._drop_one()
                or self._stop_early(Reason.OTHERS_SERVE)
                or self._detour()
                or self._stop_early(Reason.DOWNTIME)
            ):
                self._start(self.pending[0], Reason.NEW)
        while self._stop_one(self.surplus, Reason.SURPLUS):
            pass
        for old in self.dropped:
            self.steps.append(_step(Action.KEEP, Reason.LEFT, old))

    def _start_one(self) -> bool:
        ready = next((copy for copy in self.pending if self._free(copy.home)), None)
        if ready is not None:
            self._start(ready, Reason.MOVES if ready.old else Reason.NEW)
        return ready is not None

    def _free(self, home: Home) -> bool:
        """By memory and number alone: that models share a host for the time of a move does no harm."""
        room = self.room
        return all(
            room.slots[room.number[place]] > 0 and room.left[room.number[place]] >= taken
            for place, taken in home.cards
        ) and all(room.ram[host] >= home.ram_bytes for host in home.hosts)

    def _start(self, copy: _Copy, reason: Reason) -> None:
        item = copy.home.item
        name = self._new_name(item)
        self.room.take(copy.home)
        self.up[item] = self.up.get(item, 0) + 1
        self.started[copy.home] = name
        self.steps.append(
            Step(
                action=Action.START,
                reason=reason,
                item=item,
                deployment=name,
                cards=copy.home.cards,
                layout=copy.home.layout,
                instead_of=copy.old.deployment if copy.old else None,
            )
        )
        self.pending.remove(copy)
        if copy.old is not None:
            self._stop(copy.old, Reason.MOVES)

    def _stop(self, old: Running, reason: Reason) -> None:
        self.room.give_back(_held(self.room, old))
        self.up[old.item] -= 1
        self.names.discard(old.deployment)
        self.steps.append(_step(Action.STOP, reason, old))

    def _stop_one(self, among: list[Running], reason: Reason) -> bool:
        if not among:
            return False
        self._stop(among.pop(0), reason)
        return True

    def _drop_one(self) -> bool:
        """The least worth of those whose cards somebody waits for."""
        wanted = {place for copy in self.pending for place, _ in copy.home.cards}
        for old in self.dropped:
            if any(place in wanted for place, _ in old.cards):
                self.dropped.remove(old)
                self._stop(old, Reason.DROPPED)
                return True
        return False

    def _stop_early(self, reason: Reason) -> bool:
        """The old place of a copy given up first: of a model that other copies serve, else of the one worth least."""
        waiting = [copy for copy in self.pending if copy.old is not None]
        if reason is Reason.OTHERS_SERVE:
            waiting = [copy for copy in waiting if self.up.get(copy.home.item, 0) > 1]
        waiting = [copy for copy in waiting if self._helps(copy)] or waiting
        if not waiting:
            return False
        copy = min(waiting, key=lambda one: (self.items[one.home.item].priority, one.home.item))
        if copy.old is not None:
            self._stop(copy.old, reason)
            copy.old = None
        return True

    def _helps(self, copy: _Copy) -> bool:
        """Whether somebody could start if its old place were free."""
        if copy.old is None:
            return False
        held = _held(self.room, copy.old)
        self.room.give_back(held)
        free = any(self._free(other.home) for other in self.pending)
        self.room.take(held)
        return free

    def _detour(self) -> bool:
        """One whose old place others wait for goes to a free place first."""
        for copy in self.pending:
            if copy.old is None or copy.detoured or not self._helps(copy):
                continue
            wanted = {place for other in self.pending for place, _ in other.home.cards}
            item = self.items[copy.home.item]
            free = [home for home in self.room.choices(item) if self._free(home)]
            aside = [home for home in free if not any(place in wanted for place, _ in home.cards)]
            if not aside:
                continue
            home = min(aside, key=lambda one: (len(one.cards), one.cards))
            name = self._new_name(item.name)
            self.room.take(home)
            self.up[item.name] += 1
            self.steps.append(
                Step(
                    action=Action.START,
                    reason=Reason.DETOUR,
                    item=item.name,
                    deployment=name,
                    cards=home.cards,
                    layout=home.layout,
                    instead_of=copy.old.deployment,
                )
            )
            self._stop(copy.old, Reason.MOVES)
            copy.old = Running(item=item.name, deployment=name, cards=home.cards, ram_bytes=home.ram_bytes)
            copy.detoured = True
            return True
        return False

    def _new_name(self, item: str) -> str:
        """The item's own, else with the first number that is free."""
        number = 1
        while True:
            name = item if number == 1 else f"{item}-{number}"
            if name not in self.names and (number == 1 or name not in self.reserved):
                self.names.add(name)
                return name
            number += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The steps in order, and the name of the deployment in each home."""

    steps: tuple[Step, ...]
    names: Mapping[Home, str]


def course(
    problem: Problem, packing: Packing, running: Sequence[Running], taken: Sequence[str] = ()
) -> Course:
    """How to get from what runs to the packing; `taken`: names of other deployments."""
    items = {item.name: item for item in problem.items}
    kept = {deployment_of(stay) for home in packing.homes if (stay := home.stays) is not None}
    room = Room(problem)
    for one in running:
        room.take(_held(room, one))
    leaving = [one for one in running if one.deployment not in kept]
    pending, surplus, dropped = _paired(packing, leaving, items)
    made = _Course(
        problem=problem,
        room=room,
        items=items,
        pending=pending,
        surplus=surplus,
        dropped=dropped,
        up={name: sum(1 for one in running if one.item == name) for name in items},
        names={*taken, *(one.deployment for one in running)},
        reserved=frozenset(items),
    )
    made.run()
    stays = tuple(_step(Action.KEEP, Reason.STAYS, one) for one in running if one.deployment in kept)
    names = {home: deployment_of(stay) for home in packing.homes if (stay := home.stays) is not None}
    return Course(steps=(*stays, *made.steps), names={**names, **made.started})


def deployment_of(stay: str) -> str:
    """Of the name of a stay: the copies of one deployment are `NAME#0`, `NAME#1`, …"""
    return stay.partition("#")[0]


def _paired(
    packing: Packing, leaving: Sequence[Running], items: Mapping[str, Item]
) -> tuple[list[_Copy], list[Running], list[Running]]:
    """Copies to start, each with one it takes over from while there are some; what is left over; what is dropped."""
    old: dict[str, list[Running]] = {}
    for one in leaving:
        old.setdefault(one.item, []).append(one)
    out = set(packing.left_out)
    dropped = [one for name in sorted(out, key=lambda n: (items[n].priority, n)) for one in old.pop(name, [])]
    pending = []
    for home in sorted(packing.homes, key=lambda one: (-items[one.item].priority, one.item, one.cards)):
        if home.stays is None:
            others = old.get(home.item, [])
            pending.append(_Copy(home=home, old=others.pop(0) if others else None))
    return pending, [one for rest in old.values() for one in rest], dropped


def _held(room: Room, one: Running) -> Home:
    """As a home on the cards that are known: a lost card holds nothing up."""
    return Home(
        item=one.item,
        cards=tuple((place, taken) for place, taken in one.cards if place in room.number),
        ram_bytes=one.ram_bytes,
    )


def _step(action: Action, reason: Reason, one: Running) -> Step:
    return Step(action=action, reason=reason, item=one.item, deployment=one.deployment, cards=one.cards)
