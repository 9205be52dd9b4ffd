"""Containers of ours as they are on the hosts, by deployment and generation: read from labels, nothing else."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from gpuplan.deploying.observed import Container, Place, container_of, listed, place_of
from gpuplan.domain import labels
from gpuplan.domain.plan import Candidate, Parallelism, PlacedGpu, PlacedHost, Role
from gpuplan.operations.across import Outcome, on_each

if TYPE_CHECKING:
    from gpuplan.operations.probe import OpenFleet

OLD = "-old-"
"""In the name of a container that was set aside."""
LIST_SECONDS = 30.0
"""A host has this long to list our containers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The containers one deploy made."""

    id: str
    spec_hash: str
    containers: tuple[Container, ...]

    @property
    def expected(self) -> frozenset[Place]:
        """Every place its labels name; those of the containers at hand where they name none."""
        for container in self.containers:
            if members := listed(container):
                return frozenset(place_of(member) for member in members)
        return frozenset(container.place for container in self.containers)

    @property
    def complete(self) -> bool:
        """Every container it was made of is there."""
        return self.expected <= {container.place for container in self.containers}

    @property
    def began(self) -> bool:
        """Every container of it was started once."""
        return all(container.state != "created" for container in self.containers)

    @property
    def meant_to_run(self) -> bool:
        """It runs, or a deploy that was broken off has set it aside, wholly or in part, to come back to it."""
        return any(container.state == "running" or OLD in container.name for container in self.containers)

    @property
    def running(self) -> bool:
        """Complete, and every container runs."""
        return self.complete and all(container.state == "running" for container in self.containers)

    @property
    def aside(self) -> bool:
        """Complete, and set aside by a deploy that did not come to its end."""
        return self.complete and all(OLD in container.name for container in self.containers)

    @property
    def serving(self) -> bool:
        """Running, and no container with a check is other than healthy."""
        return self.running and all(container.health in {None, "healthy"} for container in self.containers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """What there is of one deployment."""

    generations: tuple[Generation, ...] = ()
    """The best to go back to first: one that serves, one that was set aside because it had served, one that runs."""
    silent: Mapping[str, str] | None = None
    """Hosts that could not be asked, and why."""

    @property
    def containers(self) -> tuple[Container, ...]:
        return tuple(found for generation in self.generations for found in generation.containers)

    @property
    def label(self) -> Mapping[str, str]:
        """Labels of a container of the foremost generation; the one that serves, where there is one."""
        for generation in self.generations:
            served = [found for found in generation.containers if labels.ENDPOINT in found.labels]
            for found in (*served, *generation.containers):
                return found.labels
        return {}


def list_containers(opened: "OpenFleet", host: str, deployment: str) -> tuple[Container, ...]:
    """Those of a deployment on one host; helpers are of the deployment "". Raises HostCallFailed."""
    from gpuplan.remote.containers import list_ours

    return tuple(
        container_of(host, document) for document in list_ours(opened.engine_of(host), deployment=deployment)
    )


def existing(opened: "OpenFleet", deployment: str, hosts: Collection[str]) -> Existing:
    """All containers of a deployment on these hosts. Never raises for a host: it is then silent."""
    outcomes = on_each(
        {host: partial(list_containers, opened, host, deployment) for host in hosts}, LIST_SECONDS
    )
    found: dict[str, list[Container]] = {}
    silent: dict[str, str] = {}
    for host, outcome in outcomes.items():
        if isinstance(outcome, Outcome):
            silent[host] = outcome.why
            continue
        for container in outcome:
            found.setdefault(container.generation, []).append(container)
    generations = [
        Generation(
            id=name,
            spec_hash=containers[0].labels.get(labels.SPEC_HASH, ""),
            containers=tuple(sorted(containers, key=lambda one: one.place)),
        )
        for name, containers in found.items()
    ]
    generations.sort(
        key=lambda one: (not one.serving, not one.aside, not one.running, not one.complete, one.id)
    )
    return Existing(generations=tuple(generations), silent=silent)


def placement_label(candidate: Candidate) -> dict[str, Any]:
    """Where a candidate is and how it is divided, for the request label of its containers."""
    return {
        "parallelism": {
            field.name: getattr(candidate.parallelism, field.name) for field in fields(Parallelism)
        },
        "placed": [
            {
                "host": placed.host,
                "role": placed.role.value,
                "gpus": [[gpu.index, gpu.uuid] for gpu in placed.gpus],
            }
            for placed in candidate.placement
        ],
    }


def placement_of(found: Existing) -> tuple[tuple[PlacedHost, ...], Parallelism] | None:
    """The placement a deployment was made for, as its request label says; None where no label does."""
    document = _json(found.label.get(labels.REQUEST, ""))
    if not isinstance(document, dict):
        return None
    try:
        sizes = dict(document["parallelism"])
        partition = sizes.pop("layer_partition", None)
        parallelism = Parallelism(**sizes, layer_partition=tuple(partition) if partition else None)
        return tuple(_placed(entry) for entry in document["placed"]), parallelism
    except (KeyError, TypeError, ValueError):
        return None


def _placed(entry: Mapping[str, Any]) -> PlacedHost:
    return PlacedHost(
        host=str(entry["host"]),
        role=Role(entry["role"]),
        gpus=tuple(
            PlacedGpu(index=int(index), uuid=uuid, claim_bytes=0, allocatable_bytes=0, total_bytes=0)
            for index, uuid in entry["gpus"]
        ),
    )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def names_of(hosts: Iterable[Any]) -> dict[str, tuple[str, ...]]:
    """Deployments seen by a probe: name to the hosts they are on."""
    names: dict[str, list[str]] = {}
    for host in hosts:
        for container in host.facts.docker.containers if host.facts.docker is not None else ():
            if container.deployment and host.name not in names.setdefault(container.deployment, []):
                names[container.deployment].append(host.name)
    return {name: tuple(places) for name, places in names.items()}
