"""`gpuplan sweep -o json`: every deployment with what became of it, the shape scripts depend on (`schema_version` 1)."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import Host
from gpuplan.domain.idle import Judgement, Outcome, Why
from gpuplan.present.plan_document import FindingDocument, finding_document
from gpuplan.present.status_document import SilentDocument
from gpuplan.present.sweep_text import reason

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RemovedDocument:
    """A container that is gone."""

    host: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SweptDocument:
    """One deployment."""

    name: str
    outcome: Outcome
    why: Why
    reason: str
    """The same in words."""
    keep_alive_seconds: int | None
    """That counted; null: it has none."""
    idle_seconds: int | None
    """At least so long; null: not measured."""
    remaining_seconds: int | None
    """Until a sweep may stop it, if no request comes."""
    running: int | None
    """Requests."""
    waiting: int | None
    removed: tuple[RemovedDocument, ...]
    findings: tuple[FindingDocument, ...]
    logs: tuple[str, ...]
    """Files that were saved."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class SweepDocument:
    """All that a sweep tells."""

    schema_version: int
    dry_run: bool
    complete: bool
    """False: the stop of something failed or was not confirmed."""
    deployments: tuple[SweptDocument, ...]
    silent_hosts: tuple[SilentDocument, ...]


def swept_document(
    judgement: Judgement,
    removed: Sequence[tuple[str, str]] = (),
    facts: Sequence[Fact] = (),
    logs: Sequence[str] = (),
) -> SweptDocument:
    """One deployment; `removed`: host and container."""
    return SweptDocument(
        name=judgement.name,
        outcome=judgement.outcome,
        why=judgement.why,
        reason=reason(judgement),
        keep_alive_seconds=judgement.keep_alive_seconds,
        idle_seconds=judgement.idle_seconds,
        remaining_seconds=judgement.remaining_seconds,
        running=judgement.load.running,
        waiting=judgement.load.waiting,
        removed=tuple(RemovedDocument(host=host, container=container) for host, container in removed),
        findings=tuple(finding_document(fact) for fact in facts),
        logs=tuple(logs),
    )


def sweep_document(
    deployments: Sequence[SweptDocument], silent: Sequence[Host], *, dry_run: bool, complete: bool
) -> SweepDocument:
    """Deployments in order of names, hosts in that of the inventory."""
    return SweepDocument(
        schema_version=SCHEMA_VERSION,
        dry_run=dry_run,
        complete=complete,
        deployments=tuple(deployments),
        silent_hosts=tuple(
            SilentDocument(name=host.name, stage=host.failure.stage, detail=host.failure.detail)
            for host in silent
            if host.failure is not None
        ),
    )
