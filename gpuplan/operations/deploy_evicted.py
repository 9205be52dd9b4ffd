"""Deployments that are to be stopped to make room (S4.6): as they are, and whether that is what was agreed to.

What somebody agreed to is the stop of exactly these containers, at work or idle as they were shown. One that has begun
to work, was pinned or was deployed anew meanwhile is not stopped on an agreement about something else.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from gpuplan.deploying.observed import UNKNOWN, Container, Group, grouped
from gpuplan.deploying.state_rules import added, deployment_of
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Eviction
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.deployed import LIST_SECONDS, list_containers
from gpuplan.operations.stop import RUNS, loads_of
from gpuplan.operations.stopped import FleetChanged

if TYPE_CHECKING:
    from gpuplan.operations.probe import OpenFleet

MAKES_ROOM, NOT_AS_AGREED, GONE = "GP885", "GP886", "GP887"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """One that is to be stopped."""

    eviction: Eviction
    """With the requests in flight and the keep-alive that were seen last."""
    group: Group

    @property
    def name(self) -> str:
        return self.eviction.deployment

    @property
    def containers(self) -> frozenset[str]:
        """Ids of those that run, or are about to."""
        return frozenset(one.id for one in self.group.containers if one.state in RUNS)


def to_evict(opened: "OpenFleet", evictions: Iterable[Eviction]) -> tuple[Evicted, ...]:
    """Those that are still there, as they are now. Raises FleetChanged (GP886) for what the plan did not know of."""
    return tuple(one for one in (_looked_at(opened, eviction) for eviction in evictions) if one is not None)


def as_agreed(opened: "OpenFleet", agreed: Sequence[Evicted]) -> tuple[Evicted, ...]:
    """The same looked at again, those that are gone left out. Raises FleetChanged (GP886)."""
    found = []
    for before in agreed:
        now = _looked_at(opened, before.eviction)
        if now is None:
            continue
        if now.containers - before.containers:
            raise _changed(now.name, "others")
        found.append(now)
    return tuple(found)


def gone(evictions: Iterable[Eviction], evicted: Sequence[Evicted]) -> tuple[Fact, ...]:
    """GP887 for each that need not be stopped any more."""
    there = {one.name for one in evicted}
    return tuple(
        Fact(code=GONE, severity=Severity.INFO, subject={"deployment": one.deployment}, figures={})
        for one in evictions
        if one.deployment not in there
    )


def told(one: Evicted, name: str) -> Fact:
    """GP885: that it is stopped, and what for."""
    eviction = one.eviction
    return Fact(
        code=MAKES_ROOM,
        severity=Severity.WARNING,
        subject={"deployment": one.name},
        figures={
            "makes_room_for": name,
            "running": eviction.running_requests,
            "keep_alive_seconds": eviction.keep_alive_seconds,
            "gpus": [f"{host}:{index}" for host, index, _ in eviction.gpus],
        },
    )


def look_at(opened: "OpenFleet", name: str) -> tuple[Group, Mapping[str, str]]:
    """A deployment on all hosts that were reached, and why those that did not answer are silent."""
    outcomes = on_each(
        {host: partial(list_containers, opened, host, name) for host in opened.connections}, LIST_SECONDS
    )
    silent = {host: one.why for host, one in outcomes.items() if isinstance(one, Outcome)}
    found: list[Container] = [
        one for outcome in outcomes.values() if not isinstance(outcome, Outcome) for one in outcome
    ]
    groups = grouped(found, set(outcomes) - set(silent))
    return next(iter(groups), Group(name=name, current=())), silent


def _looked_at(opened: "OpenFleet", eviction: Eviction) -> Evicted | None:
    """None where nothing of it runs. Raises FleetChanged."""
    name = eviction.deployment
    group, silent = look_at(opened, name)
    for member in group.members:
        if member.state == UNKNOWN:
            raise _changed(
                name, "silent", host=member.host, why=silent.get(member.host, "it was not reached")
            )
    if not any(one.state in RUNS for one in group.containers):
        return None
    loads = loads_of(opened, group)
    keep_alive = deployment_of(group, loads=loads).keep_alive_seconds
    if keep_alive is not None and keep_alive < 0:
        raise _changed(name, "pinned")
    load = added(loads)
    told_all = len(loads) == len(group.endpoints) and load.running is not None
    running = (load.running or 0) + (load.waiting or 0) if told_all else None
    if running and eviction.running_requests == 0:
        raise _changed(name, "busy", running=running)
    seen = replace(
        eviction,
        running_requests=running,
        keep_alive_seconds=keep_alive,
    )
    return Evicted(eviction=seen, group=group)


def _changed(name: str, reason: str, **figures: object) -> FleetChanged:
    return FleetChanged(
        [
            Fact(
                code=NOT_AS_AGREED,
                severity=Severity.ERROR,
                subject={"deployment": name},
                figures={"reason": reason, **figures},
            )
        ]
    )
