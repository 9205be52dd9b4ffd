"""What a remedy may change, in one form: a ladder of values, each a larger change than the one before it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuplan.planning.request import PlanRequest

Apply = Callable[[PlanRequest], PlanRequest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One value of a knob: what is typed, and the request as it then is."""

    change: Mapping[str, Any]
    """Options and arguments of vLLM by name, as `domain.plan.Remedy.change`."""
    figures: Mapping[str, Any]
    size: float
    apply: Apply


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The values of one knob, smallest change first; each frees at least as much memory as the one before."""

    kind: str
    count: int
    step: Callable[[int], Step]
    """The step at a position below `count`."""
    coarse: tuple[int, ...]
    """Positions that are tried together with another knob's, ascending; the last position is among them."""
    each: bool = False
    """Every step is tried in turn: a larger one may be refused for another reason (a share that is not free)."""


def ladder_of(kind: str, steps: tuple[Step, ...], *, each: bool = False) -> Ladder:
    """A ladder of few steps, all of which are tried in pairs, too."""
    return Ladder(
        kind=kind, count=len(steps), step=lambda at: steps[at], coarse=tuple(range(len(steps))), each=each
    )


def with_workload(request: PlanRequest, **changes: Any) -> PlanRequest:
    """The request with other options of ours."""
    return replace(request, workload=replace(request.workload, **changes))


def with_arguments(request: PlanRequest, **changes: Any) -> PlanRequest:
    """The request as if the user had written these arguments of vLLM."""
    engine = request.workload.engine
    changed = replace(engine, **changes, user_set=engine.user_set | set(changes))
    return with_workload(request, engine=changed)


def argument(name: str, value: Any, figures: Mapping[str, Any], size: float) -> Step:
    """A step that is one argument of vLLM, by its name with underscores."""
    return Step(
        change={f"--{name.replace('_', '-')}": value},
        figures=figures,
        size=size,
        apply=lambda request: with_arguments(request, **{name: value}),
    )
