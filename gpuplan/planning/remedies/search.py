"""The search for what flips a "no": single changes first, pairs where they are needed or smaller."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuplan.domain.plan import Candidate, Remedy, StrategyResult, Verdict
from gpuplan.planning.offers import Supply
from gpuplan.planning.remedies import engine_knobs, load_knobs, place_knobs, shape_knobs
from gpuplan.planning.remedies.case import Case, Evaluate, Near, few_of_each, most_hosts
from gpuplan.planning.remedies.costs import costs
from gpuplan.planning.remedies.ladder import Ladder, Step
from gpuplan.planning.remedies.pairs import FoundPair, best_pair
from gpuplan.planning.remedies.singles import Found, first_accepted, first_fitting
from gpuplan.planning.request import PlanRequest


def find_remedies(
    request: PlanRequest,
    supply: Supply,
    result: StrategyResult,
    evaluate: Evaluate,
    others: tuple[StrategyResult, ...],
) -> tuple[Remedy, ...]:
    """Remedies of a strategy that does not fit, smallest change first; empty when it fits or was skipped."""
    if result.verdict not in (Verdict.NO_FIT, Verdict.OVERCOMMIT):
        return ()
    case = Case(
        request=request,
        supply=few_of_each(supply, request, most_hosts(result.strategy)),
        strategy=result.strategy,
        evaluate=evaluate,
        codes=frozenset(fact.code for fact in result.facts),
    )
    near = case.tried(request).near
    knobs, places = ladders(case, near)
    found = [one for ladder in knobs if (one := first_fitting(case, ladder, near))]
    found += [one for ladder in places if (one := first_accepted(case, ladder))]
    remedies = [_remedy(case, one) for one in found if _runs(case, one.step, one.candidate)]
    remedies += [*shape_knobs.own_sizes(case), *shape_knobs.more_gpus(case)]
    remedies += [*shape_knobs.other_strategies(case, others), *shape_knobs.other_hosts(case)]
    bound = min((remedy.size for remedy in remedies), default=float("inf"))
    pair = best_pair(case, near, lambda close: knobs or list(_knobs(case, close)), places, bound)
    if pair is not None:
        remedies.append(_pair_remedy(case, pair))
    return tuple(sorted(remedies, key=lambda remedy: (remedy.size, remedy.kind, sorted(remedy.change))))


def ladders(case: Case, near: tuple[Near, ...]) -> tuple[list[Ladder], list[Ladder]]:
    """Every knob of a case: those of memory, and those that change which GPUs or shapes come into question."""
    return list(_knobs(case, near)), list(_places(case, near))


def _knobs(case: Case, near: Sequence[Near]) -> Iterator[Ladder]:
    """Those that free memory on the GPUs as they are; none where no shape can be built or only a claim is known."""
    if not near:
        return
    for ladder in (
        *load_knobs.context(case),
        *load_knobs.concurrency(case),
        *engine_knobs.sequences(case, near),
        *engine_knobs.batches(case, near),
        *engine_knobs.graphs(case, near),
        *engine_knobs.kv_dtype(case, near),
        *engine_knobs.utilization_up(case),
        *engine_knobs.lora(case),
        *engine_knobs.items(case),
        *engine_knobs.offload(case),
        *place_knobs.siblings(case),
    ):
        if ladder.count:
            yield ladder


def _places(case: Case, near: tuple[Near, ...]) -> Iterator[Ladder]:
    """Those after which other GPUs or other shapes come into question."""
    for ladder in (
        *place_knobs.utilization_down(case),
        *place_knobs.dtype(case),
        *place_knobs.experts(case),
        *load_knobs.replicas(case),
        *place_knobs.stopping(case),
        *place_knobs.ending(case),
        *(() if near else place_knobs.siblings(case)),
    ):
        if ladder.count:
            yield ladder


def _runs(case: Case, step: Step, candidate: Candidate) -> bool:
    """Whether the cards of a candidate have what the change asks of them."""
    if "--kv-cache-dtype" not in step.change:
        return True
    offers = {(offer.host, offer.index): offer.device for offer in case.supply.offers}
    return all(
        engine_knobs.has_fp8(offers[host.host, gpu.index])
        for host in candidate.placement
        for gpu in host.gpus
        if (host.host, gpu.index) in offers
    )


def _remedy(case: Case, found: Found) -> Remedy:
    figures = {**found.step.figures, **costs(case, found.step, found.candidate)}
    return _made(found.ladder.kind, found.step.change, figures, found.step.size)


def _pair_remedy(case: Case, pair: FoundPair) -> Remedy:
    first, second = pair.steps
    parts = tuple(
        _made(
            kind, step.change, {**step.figures, **costs(case, step, pair.candidate, alone=False)}, step.size
        )
        for kind, step in zip(pair.kinds, pair.steps, strict=True)
    )
    return _made("pair", {**first.change, **second.change}, {"parts": parts}, pair.size)


def _made(kind: str, change: Mapping[str, Any], figures: Mapping[str, Any], size: float) -> Remedy:
    return Remedy(kind=kind, change=change, figures=figures, size=size, verified=True)
