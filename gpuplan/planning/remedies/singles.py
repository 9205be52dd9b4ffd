"""The first step of a ladder that flips the answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuplan.domain.plan import Candidate
from gpuplan.planning.remedies.case import Case, Near
from gpuplan.planning.remedies.ladder import Ladder, Step


@dataclass(frozen=True, slots=True)
class Found:
    """A step that was re-planned, and what fits then."""

    ladder: Ladder
    step: Step
    candidate: Candidate


def first_fitting(case: Case, ladder: Ladder, near: Sequence[Near]) -> Found | None:
    """The smallest change of a ladder that is accepted; the ladder rises, so it is halved on the screened shapes."""
    if not ladder.count:
        return None
    if ladder.each:
        passing = (at for at in range(ladder.count) if case.screened(case.after(ladder, at), near))
        return next((found for at in passing if (found := tried(case, ladder, at))), None)
    first = first_screened(case, ladder, near)
    if first is None:
        return None
    return tried(case, ladder, first) or _stronger(case, ladder, first)


def _stronger(case: Case, ladder: Ladder, refused: int) -> Found | None:
    """The first coarse step after a refused one that is accepted: the shape would fit, but not on what is free."""
    return _halved(case, ladder, [at for at in ladder.coarse if at > refused])


def tried(case: Case, ladder: Ladder, at: int) -> Found | None:
    """One step, planned again."""
    step = ladder.step(at)
    candidate = case.fitting(case.after(ladder, at))
    return None if candidate is None else Found(ladder, step, candidate)


def first_screened(case: Case, ladder: Ladder, near: Sequence[Near]) -> int | None:
    """The first position at which one of the shapes would fit, were its GPUs free."""
    alive = case.screened(case.after(ladder, ladder.count - 1), near)
    if not alive:
        return None
    low, high = -1, ladder.count - 1
    while high - low > 1:
        middle = (low + high) // 2
        kept = case.screened(case.after(ladder, middle), alive)
        low, high, alive = (low, middle, kept) if kept else (middle, high, alive)
    return high


def first_accepted(case: Case, ladder: Ladder) -> Found | None:
    """The first step that is accepted; nothing can be screened where other GPUs come into question."""
    if ladder.each or ladder.count < 2:
        return next((found for at in range(ladder.count) if (found := tried(case, ladder, at))), None)
    return _halved(case, ladder, list(range(ladder.count)))


def _halved(case: Case, ladder: Ladder, steps: Sequence[int]) -> Found | None:
    """The first accepted one of these steps, if the last is; each gives as much as the one before."""
    best = tried(case, ladder, steps[-1]) if steps else None
    if best is None:
        return None
    low, high = -1, len(steps) - 1
    while high - low > 1:
        middle = (low + high) // 2
        found = tried(case, ladder, steps[middle])
        low, high, best = (low, middle, found) if found is not None else (middle, high, best)
    return best
