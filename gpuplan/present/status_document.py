"""`gpuplan status -o json`: the deployments, and the hosts on which some may be that nobody could ask."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuplan.domain.deployment import Deployment
from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import Host
from gpuplan.present.deployment_document import SCHEMA_VERSION, DeploymentDocument, document_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SilentDocument:
    """A host that did not answer: what runs there is not known."""

    name: str
    stage: str
    """resolve, connect, authenticate, command, …; `docker`: its engine did not answer."""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StatusDocument:
    """All that `status` tells."""

    schema_version: int
    deployments: tuple[DeploymentDocument, ...]
    silent_hosts: tuple[SilentDocument, ...]


def status_document(
    seen: Sequence[tuple[Deployment, Sequence[Fact]]], silent: Sequence[Host]
) -> StatusDocument:
    """Deployments in order of names, hosts in that of the inventory."""
    return StatusDocument(
        schema_version=SCHEMA_VERSION,
        deployments=tuple(document_of(deployment, facts) for deployment, facts in seen),
        silent_hosts=tuple(
            SilentDocument(name=host.name, stage=host.failure.stage, detail=host.failure.detail)
            for host in silent
            if host.failure is not None
        ),
    )
