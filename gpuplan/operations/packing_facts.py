"""What else is to be told of several models: why no GPU holds one of them, and hosts that did not answer."""

from collections.abc import Iterator
from dataclasses import replace

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet
from gpuplan.operations.packing_models import AskedModel
from gpuplan.planning.judge import Judge
from gpuplan.planning.offers import Supply
from gpuplan.planning.strategies import multi_host, single_gpu, single_host


def refusals(one: AskedModel, fleet: Fleet, supply: Supply) -> Iterator[Fact]:
    """What the planner says of a model for which no GPU of the fleet would do: the nearest miss."""
    judge = Judge(one.request(fleet))
    tried = (strategy.evaluate(judge, _emptied(supply)) for strategy in (single_gpu, single_host, multi_host))
    facts = [fact for result in tried for fact in result.facts if fact.severity is Severity.ERROR]
    if facts:
        yield min(facts, key=_miss)


def _emptied(supply: Supply) -> Supply:
    """The same GPUs with nobody on them."""
    return replace(
        supply,
        hosts=tuple(
            replace(
                host,
                offers=tuple(replace(one, allocatable_bytes=one.total_bytes, held=()) for one in host.offers),
            )
            for host in supply.hosts
        ),
    )


def _miss(fact: Fact) -> tuple[bool, int]:
    gap = fact.figures.get("gap_bytes")
    return gap is None, gap or 0


def unreached(fleet: Fleet) -> Iterator[Fact]:
    """GP402, as in every plan."""
    for host in fleet.hosts:
        if host.failure is not None:
            yield Fact(
                code="GP402",
                severity=Severity.WARNING,
                subject={"host": host.name},
                figures={
                    "stage": host.failure.stage,
                    "detail": host.failure.detail,
                    "address": host.address,
                },
            )
