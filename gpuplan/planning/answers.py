"""What a plan comes to, so that two can be compared, and which of several changes accounts for another answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import Fleet, Host
from gpuplan.domain.plan import Candidate, Parallelism, Plan, StrategyName, Verdict
from gpuplan.domain.told_plan import ToldPlan
from gpuplan.planning.changes import NOTICEABLE

Place = tuple[tuple[str, tuple[int, ...]], ...]
"""Hosts with the indexes of their GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The recommendation, and the verdict of every strategy that was not skipped."""

    strategy: StrategyName | None = None
    """None: nothing is recommended."""
    place: Place = ()
    shape: Parallelism | None = None
    context: int | None = None
    """Tokens it is planned for; None where only a claim is known."""
    verdicts: tuple[tuple[StrategyName, Verdict], ...] = ()
    refusal: str | None = None
    """Why there is no plan at all."""

    @property
    def fits(self) -> bool:
        return self.strategy is not None


class Level(StrEnum):
    """In what two answers differ, the gravest of it."""

    FITS = "fits"
    PLACE = "place"
    CONTEXT = "context"
    VERDICTS = "verdicts"


def answer_of(plan: Plan) -> Answer:
    """What a plan comes to."""
    verdicts = tuple(
        (one.strategy, one.verdict) for one in plan.strategies if one.verdict is not Verdict.SKIPPED
    )
    chosen = recommended_of(plan)
    if chosen is None or plan.recommended is None:
        return Answer(verdicts=verdicts)
    return Answer(
        strategy=plan.recommended[0],
        place=tuple((host.host, tuple(gpu.index for gpu in host.gpus)) for host in chosen.placement),
        shape=chosen.parallelism,
        context=None if chosen.memory is None else chosen.memory.max_model_len,
        verdicts=verdicts,
    )


def recommended_of(plan: Plan) -> Candidate | None:
    """The recommended candidate."""
    if plan.recommended is None:
        return None
    name, index = plan.recommended
    return next(one.candidates[index] for one in plan.strategies if one.strategy is name)


def level(before: Answer, after: Answer) -> Level | None:
    """The gravest difference; None where there is none."""
    return next((one for one in Level if not same(one, before, after)), None)


def same(of: Level, first: Answer, second: Answer) -> bool:
    """Whether two answers agree in what is compared."""
    if first.fits != second.fits:
        return False
    match of:
        case Level.FITS:
            return True
        case Level.PLACE:
            return _place(first) == _place(second)
        case Level.CONTEXT:
            return first.context == second.context
        case Level.VERDICTS:
            return first.verdicts == second.verdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One change that can be taken back."""

    kind: str
    """asked, model, fleet, rules"""
    key: str
    """Of the request; the host of the fleet, empty for all of it."""
    undone: Callable[[], Answer]
    """The answer there would be without this change, all others kept."""


def _place(answer: Answer) -> tuple[object, ...]:
    """Where, in what shape, and at whose cost: an eviction or weights in host memory make it another placement."""
    costly = answer.strategy if answer.strategy in (StrategyName.OFFLOAD, StrategyName.EVICT) else None
    return answer.place, answer.shape, costly


class Conclusion(StrEnum):
    """How sure the cause of another answer is."""

    SAME = "same"
    """The answer is the same."""
    FOUND = "found"
    """Each of the causes alone, taken back, brings the former answer back."""
    TOGETHER = "together"
    """Only all of them taken back together do."""
    LEFT = "left"
    """Of what could not be taken back only this is different, and the rest does not account for it."""
    OPEN = "open"
    """One of them; which cannot be told from what is known."""
    HIDDEN = "hidden"
    """Nothing that is recorded accounts for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One thing that is different and may account for another answer."""

    kind: str
    """asked, model, fleet, rules"""
    key: str = ""
    """As a factor's; empty for all of the kind."""
    restores: bool | None = None
    """Whether the former answer came back without it; None: it could not be taken back."""
    then: Answer | None = None
    """The answer without it."""


def tried(before: Answer, after: Answer, factors: Sequence[Factor]) -> tuple[Cause, ...]:
    """Every factor taken back alone; nothing where the answers agree."""
    differs = level(before, after)
    if differs is None:
        return ()
    causes = []
    for factor in factors:
        answer = factor.undone()
        restores = same(differs, before, answer)
        causes.append(Cause(kind=factor.kind, key=factor.key, restores=restores, then=answer))
    return tuple(causes)


def concluded(
    before: Answer,
    after: Answer,
    causes: tuple[Cause, ...],
    left: Sequence[Cause],
    together: Answer | None = None,
) -> tuple[Conclusion, tuple[Cause, ...]]:
    """What accounts for another answer, the causes that do first.

    `causes` were taken back one by one, `left` could not be; `together` is the answer with all of `causes` taken back.
    """
    differs = level(before, after)
    if differs is None:
        return Conclusion.SAME, ()
    found = tuple(one for one in causes if one.restores)
    rest = tuple(one for one in causes if not one.restores)
    if found:
        return Conclusion.FOUND, (*found, *rest)
    if together is not None and same(differs, before, together):
        return Conclusion.TOGETHER, rest
    if not left:
        return Conclusion.HIDDEN, rest
    return Conclusion.LEFT if len(left) == 1 else Conclusion.OPEN, (*left, *rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A plan, what it was, and what came of taking changes back."""

    before: str
    """What the former one was read from."""
    after: str = ""
    """The same of the later one; empty for one just made."""
    then: ToldPlan | Plan | None
    """None: on the fleet of then there is no plan."""
    now: ToldPlan | Plan
    answers: tuple[Answer, Answer]
    causes: tuple[Cause, ...] = ()
    """Taken back one by one."""
    together: Answer | None = None
    """With all of them taken back; None where one alone was enough, or there are fewer than two."""
    turned: frozenset[str] = frozenset()
    """Kinds of which everything was taken back."""
    fleets: tuple[Fleet, Fleet] | None = None
    """Of then and now, where both are known."""
    place_then: tuple[Fact, ...] = ()
    """What became of the GPUs that were recommended then (GP802 to GP806)."""


def moved_hosts(before: Fleet, after: Fleet) -> tuple[str, ...]:
    """Hosts that came, went or are different in what plans rest on; free memory by `NOTICEABLE` at least."""
    then = {host.name: host for host in before.hosts}
    now = {host.name: host for host in after.hosts}
    return tuple(
        name
        for name in dict.fromkeys((*now, *then))
        if name not in then or name not in now or _moved(then[name], now[name])
    )


def _moved(before: Host, after: Host) -> bool:
    if _lasting(before) != _lasting(after):
        return True
    pairs = [(before.ram_available_bytes, after.ram_available_bytes)]
    pairs += [(then.free_bytes, now.free_bytes) for then, now in zip(before.gpus, after.gpus, strict=True)]
    return any(
        then != now if then is None or now is None else abs(then - now) >= NOTICEABLE for then, now in pairs
    )


def _lasting(host: Host) -> object:
    gpus = tuple(
        replace(gpu, free_bytes=None, processes=(), utilization_percent=None, temperature_celsius=None)
        for gpu in host.gpus
    )
    docker = host.facts.docker
    containers = (
        () if docker is None else tuple(sorted((one.name, one.state or "") for one in docker.containers))
    )
    conditions = tuple(sorted(fact.code for fact in host.facts.conditions))
    reserved = (host.labels, host.ram_total_bytes, host.ram_reserved_bytes, host.tariff)
    return host.status, gpus, reserved, host.link, host.facts.driver_version, containers, conditions
