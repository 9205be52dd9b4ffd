"""Our deployments as those who may be asked to make room: how busy each is, whether it may be stopped, what comes back (S4.6)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from gpuplan.domain.deployment import ENDED
from gpuplan.domain.fleet import Fleet, Host
from gpuplan.domain.host_facts import OurContainer
from gpuplan.domain.plan import Eviction
from gpuplan.planning.released import released

HELPER = "helper"
SERVING = frozenset({"single", "leader", "replica", ""})
"""Roles of containers in which a server counts its requests."""
Names = frozenset[str]


class Busy(IntEnum):
    """How much is lost when a deployment is stopped; the least first."""

    IDLE = 0
    UNKNOWN = 1
    IN_FLIGHT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A deployment of ours that holds GPUs, over all hosts of the fleet."""

    name: str
    hosts: tuple[str, ...]
    keep_alive_seconds: int | None
    requests: int | None
    """In flight or waiting; None: not all of its servers told, and none told of any."""
    starting: bool
    """Some container of it is not past its start."""

    @property
    def pinned(self) -> bool:
        return self.keep_alive_seconds is not None and self.keep_alive_seconds < 0

    @property
    def stoppable(self) -> bool:
        return not (self.pinned or self.starting)

    @property
    def busy(self) -> Busy:
        if self.requests is None:
            return Busy.UNKNOWN
        return Busy.IN_FLIGHT if self.requests else Busy.IDLE

    @property
    def order(self) -> tuple[object, ...]:
        """Whom to stop first (S4.6)."""
        keep_alive = math.inf if self.keep_alive_seconds is None else self.keep_alive_seconds
        return (self.busy, keep_alive, self.requests or 0, self.name)


def deployments(fleet: Fleet) -> tuple[Running, ...]:
    """Those of ours that hold GPUs or are about to, in the order in which they would be stopped."""
    found: dict[str, list[tuple[str, OurContainer]]] = {}
    for host in fleet.hosts:
        docker = host.facts.docker
        for one in () if docker is None else docker.containers:
            if one.deployment and one.role != HELPER and one.state not in ENDED and (one.gpus or one.claims):
                found.setdefault(one.deployment, []).append((host.name, one))
    return tuple(sorted((_running(name, own) for name, own in found.items()), key=lambda one: one.order))


def _running(name: str, own: Sequence[tuple[str, OurContainer]]) -> Running:
    containers = [container for _, container in own]
    told = [one.keep_alive_seconds for one in containers if one.keep_alive_seconds is not None]
    return Running(
        name=name,
        hosts=tuple(dict.fromkeys(host for host, _ in own)),
        keep_alive_seconds=min(told, default=None),
        requests=_requests(containers),
        starting=any(one.loading or one.state not in ("running", "paused") for one in containers),
    )


def _requests(containers: Sequence[OurContainer]) -> int | None:
    counts = [
        None
        if one.running_requests is None
        else max(0, one.running_requests) + max(0, one.waiting_requests or 0)
        for one in containers
        if one.role in SERVING or one.running_requests is not None
    ]
    total = sum(count for count in counts if count is not None)
    return total if total or (counts and None not in counts) else None


def without(host: Host, names: Names) -> Host:
    """A host as it will be once these deployments are stopped."""
    fleet = Fleet(hosts=(host,))
    for name in sorted(names):
        fleet = released(fleet, name)
    return fleet.hosts[0]


def evictions(fleet: Fleet, chosen: Sequence[Running]) -> Iterator[Eviction]:
    """The chosen ones with what comes back of each, one after the other."""
    hosts = {host.name: host for host in fleet.hosts}
    for one in chosen:
        gpus: list[tuple[str, int, int]] = []
        for name in one.hosts:
            before, after = hosts[name], without(hosts[name], frozenset((one.name,)))
            gpus += _back(before, after, one.name)
            hosts[name] = after
        yield Eviction(
            deployment=one.name,
            gpus=tuple(gpus),
            running_requests=one.requests,
            keep_alive_seconds=one.keep_alive_seconds,
        )


def _back(before: Host, after: Host, name: str) -> Iterator[tuple[str, int, int]]:
    """GPU by GPU what a deployment holds: what its release frees, its claim where nobody reports what is free."""
    docker = before.facts.docker
    own = [one for one in docker.containers if one.deployment == name] if docker is not None else []
    claims: dict[str, int] = {}
    for container in own:
        if container.state not in ENDED:
            for uuid in container.gpus:
                claims.setdefault(uuid, 0)
            for uuid, claim in container.claims:
                claims[uuid] = claims.get(uuid, 0) + claim
    for then, now in zip(before.gpus, after.gpus, strict=True):
        if then.free_bytes is not None and now.free_bytes is not None:
            given = now.free_bytes - then.free_bytes
        else:
            given = claims.get(then.uuid or "", 0)
        if given or (then.uuid is not None and then.uuid in claims):
            yield before.name, then.index, given
