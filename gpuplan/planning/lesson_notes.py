"""What a plan says of the earlier starts whose measurements are in it."""

from collections.abc import Iterator

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Candidate, Plan
from gpuplan.planning.likeness import day
from gpuplan.planning.request import PlanRequest


def about_lessons(request: PlanRequest, plan: Plan) -> tuple[Fact, ...]:
    """Which terms of the placements that are shown rest on measurements, of how many starts, the last of them when (GP505)."""
    if not request.lessons.all:
        return ()
    corrected: dict[str, None] = {}
    ids: set[str] = set()
    for candidate in _shown(plan):
        for rank in candidate.memory.ranks if candidate.memory is not None else ():
            for term in rank.terms:
                if term.starts:
                    corrected[term.name] = None
                    ids |= set(term.starts)
    lessons = request.lessons.named(frozenset(ids))
    if not lessons:
        return ()
    return (
        Fact(
            code="GP505",
            severity=Severity.INFO,
            subject={"model": request.profile.name},
            figures={
                "terms": list(corrected),
                "starts": len(lessons),
                "last": day(lessons[0].at),
                "origin": lessons[0].origin,
                "ids": [lesson.id for lesson in lessons],
            },
        ),
    )


def _shown(plan: Plan) -> Iterator[Candidate]:
    """The recommended placement, else the best of each strategy."""
    if plan.recommended is not None:
        name, index = plan.recommended
        yield from (one.candidates[index] for one in plan.strategies if one.strategy is name)
        return
    yield from (one.candidates[0] for one in plan.strategies if one.candidates)
