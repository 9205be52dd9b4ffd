"""Names that containers will have, and containers that have them already without being ours to replace."""

from functools import partial
from typing import TYPE_CHECKING

from gpuplan.domain import labels
from gpuplan.domain.deployment import DeploymentSpec
from gpuplan.domain.fact import Fact, Severity
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.deployed import LIST_SECONDS
from gpuplan.remote.words import printable

if TYPE_CHECKING:
    from gpuplan.operations.probe import OpenFleet


def taken_names(opened: "OpenFleet", spec: DeploymentSpec) -> tuple[Fact, ...]:
    """Containers that are not of this deployment and have the name of one of its own (GP820): they are not touched."""

    def look(host: str) -> list[Fact]:
        from gpuplan.remote import containers as remote

        engine = opened.engine_of(host)
        found = []
        for name in (one.name for one in spec.containers if one.host == host):
            document = remote.inspect(engine, name)
            if document is None:
                continue
            given = (document.get("Config") or {}).get("Labels") or {}
            if not remote.is_ours(document) or given.get(labels.DEPLOYMENT) != spec.name:
                image = printable(str((document.get("Config") or {}).get("Image") or ""))
                found.append(_taken(host, name, image))
        return found

    outcomes = on_each({host: partial(look, host) for host in spec.hosts}, LIST_SECONDS)
    return tuple(
        fact for outcome in outcomes.values() if not isinstance(outcome, Outcome) for fact in outcome
    )


def _taken(host: str, name: str, image: str) -> Fact:
    return Fact(
        code="GP820",
        severity=Severity.ERROR,
        subject={"host": host, "container": name},
        figures={"image": image},
    )
