"""What the probe found on the chosen hosts that stands against a deploy, or is told beside it."""

from collections.abc import Sequence

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet
from gpuplan.operations.stopped import NotReady
from gpuplan.planning.launchable import blocking

CLOCK_SECONDS = 5.0
"""By which a clock may be off."""


def require_ready(fleet: Fleet, hosts: Sequence[str]) -> None:
    """Raise NotReady where Docker, the driver or the toolkit of a chosen host is not in order (GP809)."""
    facts = []
    for host in fleet.hosts:
        if host.name not in hosts:
            continue
        backend = host.gpus[0].backend if host.gpus else "cuda"
        codes = blocking(host, backend)
        if codes:
            facts.append(
                Fact(
                    code="GP809",
                    severity=Severity.ERROR,
                    subject={"host": host.name},
                    figures={"codes": codes},
                )
            )
            facts.extend(fact for fact in host.facts.conditions if fact.code in codes)
    if facts:
        raise NotReady(facts)


def clocks_off(fleet: Fleet, hosts: Sequence[str]) -> tuple[Fact, ...]:
    """Clocks that are off by more than `CLOCK_SECONDS` (GP824)."""
    return tuple(
        Fact(
            code="GP824",
            severity=Severity.WARNING,
            subject={"host": host.name},
            figures={"seconds": round(host.facts.clock_offset_seconds or 0.0)},
        )
        for host in fleet.hosts
        if host.name in hosts and abs(host.facts.clock_offset_seconds or 0.0) > CLOCK_SECONDS
    )
