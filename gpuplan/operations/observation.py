"""What runs on the hosts that were reached: our containers by deployment, what their servers answer, who is at work.

Labels are all there is to find deployments by; a host that does not answer leaves what runs there unknown, not gone.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpuplan.deploying.host_lock import Busy, Holder
from gpuplan.deploying.observed import Container, Endpoint, Group, container_of, grouped
from gpuplan.deploying.state_rules import Health
from gpuplan.deploying.timestamps import seconds
from gpuplan.domain.deployment import Load, Member
from gpuplan.domain.fleet import Gpu, HostFailure
from gpuplan.domain.secret_text import masked
from gpuplan.engine.metrics import load_of
from gpuplan.engine.model_list import served_names
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.host_locks import Reached, read_lock
from gpuplan.operations.reached import ReachedFleet

LIST_SECONDS = 30.0
ASK_SECONDS = 5.0
ENGINE = "docker"
"""The stage of a host that answered, while its engine did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A fleet's deployments as they were seen."""

    groups: tuple[Group, ...]
    silent: Mapping[str, HostFailure]
    """Hosts, or their engines, that did not answer."""
    holders: Mapping[str, Holder]
    """Hosts that are locked, and who works on them."""

    @property
    def why(self) -> dict[str, str]:
        """The silent hosts' reasons in words."""
        return {host: failure.detail for host, failure in self.silent.items()}

    def group(self, name: str) -> Group | None:
        return next((group for group in self.groups if group.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What one server said."""

    health: Health
    load: Load | None = None


def observe(fleet: ReachedFleet, only: Collection[str] | None = None) -> Observation:
    """List our containers and locks on every host that was reached (or on some), all at once. Never raises for a host."""
    asked = [name for name in fleet.connections if only is None or name in only]
    outcomes = on_each({name: partial(_look, fleet, name) for name in asked}, LIST_SECONDS)
    silent = dict(fleet.silent)
    found: list[Container] = []
    holders: dict[str, Holder] = {}
    for name, outcome in outcomes.items():
        if isinstance(outcome, Outcome):
            silent[name] = HostFailure(stage=ENGINE, detail=outcome.why)
            continue
        containers, holder = outcome
        found += containers
        if holder is not None:
            holders[name] = holder
    return Observation(groups=grouped(found, set(asked) - set(silent)), silent=silent, holders=holders)


def ask_servers(fleet: Reached, group: Group) -> dict[int, Answered]:
    """Health, names and load of every server whose container runs, through the connections; API keys are not needed."""
    running = {(one.member.host, one.member.server) for one in group.current if one.member.state == "running"}
    asked = {
        str(endpoint.server): partial(_ask, fleet, endpoint)
        for endpoint in group.endpoints
        if (endpoint.host, endpoint.server) in running
    }
    outcomes = on_each(asked, 4 * ASK_SECONDS)
    return {
        int(server): Answered(health=Health(why=outcome.why)) if isinstance(outcome, Outcome) else outcome
        for server, outcome in outcomes.items()
    }


def uptime(fleet: ReachedFleet, group: Group) -> int | None:
    """Seconds since the last of its members was started, by the clocks of their hosts."""
    began = [
        started - fleet.seen(one.member.host).clock_offset_seconds
        for one in group.current
        if one.member.started_at is not None and (started := seconds(one.member.started_at)) is not None
    ]
    return max(0, round(time.time() - max(began))) if began else None


def used_now(member: Member, gpus: tuple[Gpu, ...]) -> tuple[tuple[str, int, int], ...]:
    """Host, index and bytes on each GPU of a container: of its processes where they are told, else of everybody's."""
    used = []
    for gpu in gpus:
        if gpu.uuid not in member.gpus:
            continue
        mine = [
            process.used_bytes
            for process in gpu.processes
            if process.container == member.id and process.used_bytes is not None
        ]
        if mine:
            used.append((member.host, gpu.index, sum(mine)))
        elif gpu.total_bytes is not None and gpu.free_bytes is not None:
            used.append((member.host, gpu.index, gpu.total_bytes - gpu.free_bytes))
    return tuple(used)


def _look(fleet: ReachedFleet, name: str) -> tuple[list[Container], Holder | None]:
    from gpuplan.remote.containers import list_ours

    engine = fleet.engine_of(name)
    seen = fleet.seen(name)
    containers = [_with_indexes(container_of(name, one), seen.gpus) for one in list_ours(engine)]
    lock = read_lock(seen.connection, engine)
    return containers, lock.holder if isinstance(lock, Busy) else None


def _with_indexes(container: Container, gpus: tuple[Gpu, ...]) -> Container:
    """Labels hold UUIDs; people speak of indexes. What Docker said of a start is masked here, once."""
    member = container.member
    known = {gpu.uuid: gpu.index for gpu in gpus}
    return replace(
        container,
        member=replace(
            member,
            gpu_indexes=tuple(known[uuid] for uuid in member.gpus if uuid in known),
            message=masked(member.message) if member.message is not None else None,
        ),
    )


def _ask(fleet: Reached, endpoint: Endpoint) -> Answered:
    from gpuplan.remote.connection import HostCallFailed
    from gpuplan.remote.http import ask

    def get(path: str) -> Any:
        connection = fleet.connections[endpoint.host]
        return ask(connection, endpoint.address, endpoint.port, path=path, timeout=ASK_SECONDS)

    try:
        status = get("/health").status
    except HostCallFailed as failed:
        return Answered(health=Health(why=failed.detail))
    try:
        listed = get("/v1/models")
        metrics = get("/metrics")
    except HostCallFailed:
        return Answered(health=Health(status=status))
    return Answered(
        health=Health(status=status, models=served_names(listed.body) if listed.status == 200 else None),
        load=load_of(metrics.body.decode("utf-8", "replace")) if metrics.status == 200 else None,
    )
