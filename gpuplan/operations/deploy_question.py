"""The planner's question behind a deploy, and its answer: on the fleet as it will be once what has to stop has stopped."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Candidate, Eviction, Parallelism, PlacedHost, Plan, StrategyName, Verdict
from gpuplan.domain.saved_plan import SavedCandidate
from gpuplan.operations.deploy_request import Wanted, narrowed
from gpuplan.operations.plan import plan_model, request_for
from gpuplan.operations.replan import breaks, candidate_at, changes
from gpuplan.operations.stopped import FleetChanged, NeverFits, NothingFits, UnaskedEviction
from gpuplan.planning.emptied import emptied
from gpuplan.planning.planner import candidate_of
from gpuplan.planning.released import released
from gpuplan.planning.request import PlanRequest

_LAST_RESORTS = frozenset({StrategyName.OFFLOAD, StrategyName.EVICT})


def question_on(fleet: Fleet, wanted: Wanted, name: str, evicts: Iterable[Eviction] = ()) -> PlanRequest:
    """What is asked once the deployment of that name, and those that are evicted, are stopped."""
    for one in (name, *(eviction.deployment for eviction in evicts)):
        fleet = released(fleet, one)
    return _asked(narrowed(fleet, wanted), wanted)


def _asked(fleet: Fleet, wanted: Wanted) -> PlanRequest:
    return request_for(wanted.model, fleet, wanted.workload, wanted.version, wanted.asked)


def chosen(
    wanted: Wanted, question: PlanRequest, there: tuple[tuple[PlacedHost, ...], Parallelism] | None
) -> Candidate:
    """The candidate where the deployment is, if that fits, else the recommended one (S4.9).

    Raises NothingFits; also where the only way is to stop others and nobody asked for that (`--strategy evict`).
    """
    if there is not None and not wanted.workload.selection:
        candidate = candidate_at(question, *there)
        if candidate is not None and candidate.verdict is Verdict.FITS:
            return candidate
    made = plan_model(wanted.model, question.fleet, wanted.workload, wanted.version, wanted.asked)
    candidate = candidate_of(made)
    may_evict = StrategyName.EVICT.value in wanted.workload.strategies
    if may_evict and (candidate is None or candidate.evicts):
        candidate = _beside_others(wanted, question) or candidate
    if candidate is None or (candidate.evicts and not may_evict):
        raise _nothing(made, may_evict=may_evict)
    return candidate


def _nothing(made: Plan, *, may_evict: bool) -> NothingFits:
    """That nothing fits; who would have to be stopped, where that is the way and nobody asked for it."""
    offered = [one for result in made.strategies for one in result.candidates if one.evicts]
    if may_evict or not offered:
        return NothingFits(made)
    return UnaskedEviction(made, tuple(one.deployment for one in offered[0].evicts))


def _beside_others(wanted: Wanted, question: PlanRequest) -> Candidate | None:
    """`--strategy evict` allows a stop, it does not ask for one: where it fits beside the others they run on."""
    asked = tuple(name for name in wanted.workload.strategies if name != StrategyName.EVICT.value)
    whole = tuple(name.value for name in StrategyName if name not in _LAST_RESORTS)
    workload = replace(wanted.workload, strategies=asked or whole)
    return candidate_of(plan_model(wanted.model, question.fleet, workload, wanted.version, wanted.asked))


def unchanged(before: Candidate | SavedCandidate, question: PlanRequest) -> Candidate:
    """What was planned, judged again as it stands. Raises FleetChanged."""
    found = changes(before, question)
    if breaks(found):
        raise _grave(found)
    candidate = candidate_at(question, before.placement, before.parallelism)
    if candidate is None:
        raise _grave(found)
    return replace(candidate, evicts=before.evicts)


def require_ever(fleet: Fleet, wanted: Wanted) -> None:
    """Returns where it would fit with nothing at all running on the fleet; there is something to wait for.

    Raises NeverFits with the plan for the empty fleet, FleetChanged where a saved plan does not hold on it, and what
    planning raises.
    """
    if StrategyName.EVICT.value in wanted.workload.strategies:  # there is nobody to evict
        wanted = replace(wanted, workload=replace(wanted.workload, strategies=()))
    question = _asked(narrowed(emptied(fleet), wanted), wanted)
    if wanted.saved is not None:
        unchanged(wanted.saved.candidate, question)
        return
    try:
        chosen(wanted, question, None)
    except NothingFits as nothing:
        raise NeverFits(nothing.plan) from None


def _grave(facts: Sequence[Fact]) -> FleetChanged:
    return FleetChanged([fact for fact in facts if fact.severity is Severity.ERROR] or facts)
