"""Two knobs turned together: where no single one helps, or where the two together are the smaller change.

What each step does to the shapes that came closest is measured once: what cache is needed shrinks by factors (context,
requests, bytes of a number), what there is grows by sums. Only pairs that should do by that are tried, the smallest first.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop

from gpuplan.domain.plan import Candidate
from gpuplan.planning.remedies.case import Balance, Case, Near
from gpuplan.planning.remedies.ladder import Ladder, Step

TOGETHER = 0.25
"""What the second change adds to the size of a pair beside its own."""
SHAPES = 2
"""Shapes on which effects are measured."""
TOLERANCE = 0.02
"""Of the cache: blocks are whole, and terms depend on each other a little."""
MOST_TRIED = 24
"""Pairs that are judged at most; each is a step of two ladders."""
MOST_PLACES = 10
"""Steps that change which GPUs can be taken, with each of which the other knobs are tried."""
KnobsOf = Callable[[Sequence[Near]], Sequence[Ladder]]
"""The knobs of memory there are for shapes that came close."""
SAME_LOAD = frozenset({"context", "concurrency"})
"""Both ask for less of one product: whichever is turned alone is the smaller change."""


@dataclass(frozen=True, slots=True)
class FoundPair:
    """Two steps that were re-planned together."""

    kinds: tuple[str, str]
    steps: tuple[Step, Step]
    size: float
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class _Effect:
    ladder: Ladder
    at: int
    step: Step
    then: Balance


def best_pair(
    case: Case, near: Sequence[Near], knobs_of: KnobsOf, places: Sequence[Ladder], bound: float
) -> FoundPair | None:
    """The smallest pair below `bound`: of two knobs, or of one of the `places` and a knob or another place."""
    best = _of_knobs(case, near, knobs_of(near), bound)
    if best is not None:
        bound = best.size
    return _with_place(case, knobs_of, places, bound) or best


def _of_knobs(case: Case, near: Sequence[Near], knobs: Sequence[Ladder], bound: float) -> FoundPair | None:
    tried = 0
    for one in sorted(near, key=lambda item: item.balance.short)[:SHAPES]:
        now = case.balance(case.request, one)
        if now is None:
            continue
        for first, second in _rising(_effects(case, one, now, knobs, bound), now, bound):
            if tried >= MOST_TRIED:
                return None
            tried += 1
            found = _accepted(case, one, first, second)
            if found is not None:
                return _finer(case, one, first, second, found)
    return None


def _effects(case: Case, near: Near, now: Balance, knobs: Sequence[Ladder], bound: float) -> list[_Effect]:
    """What the coarse steps of every knob do to a shape; of knobs that do too little even beside another one, nothing."""
    strongest: list[tuple[Ladder, Balance]] = []
    for ladder in knobs:
        last = case.balance(case.after(ladder, ladder.count - 1), near) if ladder.count else None
        if last is not None and last != now:
            strongest.append((ladder, last))
    made = []
    for ladder, most in strongest:
        if not any(_enough(now, most, other) for mate, other in strongest if mate is not ladder):
            continue
        for at in ladder.coarse:
            step = ladder.step(at)
            if step.size + TOGETHER >= bound:
                break
            then = case.balance(case.after(ladder, at), near)
            if then is not None:
                made.append(_Effect(ladder, at, step, then))
    return made


def _enough(now: Balance, one: Balance, other: Balance) -> bool:
    """Whether two changes should do together, by what each does alone."""
    need = one.need * other.need / now.need if now.need else 0.0
    have = one.have + other.have - now.have
    return need <= have * (1 + TOLERANCE) and one.loading + other.loading <= now.loading


def _rising(effects: Sequence[_Effect], now: Balance, bound: float) -> Iterator[tuple[_Effect, _Effect]]:
    """Pairs that may be enough, smallest first."""
    heap = [
        (one.step.size + other.step.size, number, place)
        for number, one in enumerate(effects)
        for place, other in enumerate(effects[:number])
        if one.ladder is not other.ladder
        and one.ladder.kind != other.ladder.kind
        and {one.ladder.kind, other.ladder.kind} != SAME_LOAD
        and one.step.size + other.step.size + TOGETHER < bound
        and _enough(now, one.then, other.then)
    ]
    heapify(heap)
    while heap:
        _, number, place = heappop(heap)
        yield effects[place], effects[number]


def _accepted(case: Case, near: Near, first: _Effect, second: _Effect) -> FoundPair | None:
    """The pair, if the shape would fit and the planner accepts it."""
    request = second.step.apply(case.after(first.ladder, first.at))
    if not case.screened(request, (near,)):
        return None
    candidate = case.fitting(request)
    if candidate is None:
        return None
    return _pair((first.ladder, second.ladder), (first.step, second.step), candidate)


def _pair(ladders: tuple[Ladder, Ladder], steps: tuple[Step, Step], candidate: Candidate) -> FoundPair:
    size = steps[0].size + steps[1].size + TOGETHER
    return FoundPair((ladders[0].kind, ladders[1].kind), steps, size, candidate)


def _finer(case: Case, near: Near, first: _Effect, second: _Effect, found: FoundPair) -> FoundPair:
    """Each of the two turned back as far as the other allows."""
    for one, other in ((first, second), (second, first)):
        fixed = other.step.apply
        coarse = one.ladder.coarse
        below = max((at for at in coarse if at < one.at), default=-1)
        low, high = below, one.at
        while high - low > 1:
            middle = (low + high) // 2
            request = one.ladder.step(middle).apply(fixed(case.request))
            low, high = (low, middle) if case.screened(request, (near,)) else (middle, high)
        if high == one.at:
            continue
        step = one.ladder.step(high)
        candidate = case.fitting(step.apply(fixed(case.request)))
        if candidate is not None:
            return _pair((one.ladder, other.ladder), (step, other.step), candidate)
    return found


def _with_place(case: Case, knobs_of: KnobsOf, places: Sequence[Ladder], bound: float) -> FoundPair | None:
    """The smallest pair of a step that changes the GPUs and any other step."""
    steps = sorted(
        ((ladder, ladder.step(at)) for ladder in places for at in _spread(ladder)),
        key=lambda item: item[1].size,
    )
    best: FoundPair | None = None
    for number, (ladder, place) in enumerate(steps[:MOST_PLACES]):
        if place.size + TOGETHER >= bound:
            break
        changed = place.apply(case.request)
        trial = case.tried(changed)
        if trial.fitting is not None:
            continue
        for knob in knobs_of(trial.near):
            found = _beside(case, (ladder, place), knob, trial.near, bound)
            if found is not None:
                best, bound = found, found.size
        for other, second in steps[:number]:
            if other.kind == ladder.kind == "gpu_memory_utilization":
                continue
            if place.size + second.size + TOGETHER < bound:
                candidate = case.fitting(second.apply(changed))
                if candidate is not None:
                    best = _pair((ladder, other), (place, second), candidate)
                    bound = best.size
    return best


def _spread(ladder: Ladder) -> list[int]:
    """The first, the last and a middle position of a ladder."""
    return sorted({0, ladder.count // 2, ladder.count - 1})


def _beside(
    case: Case, placed: tuple[Ladder, Step], knob: Ladder, near: Sequence[Near], bound: float
) -> FoundPair | None:
    """The first coarse step of a knob that helps beside a place."""
    ladder, place = placed
    if not knob.count or not near or knob.kind == ladder.kind:
        return None
    changed = place.apply(case.request)
    alive = case.screened(knob.step(knob.count - 1).apply(changed), near[:SHAPES])
    for at in knob.coarse if alive else ():
        step = knob.step(at)
        if place.size + step.size + TOGETHER >= bound:
            return None
        request = step.apply(changed)
        if case.screened(request, alive):
            candidate = case.fitting(request)
            if candidate is not None:
                return _pair((ladder, knob), (place, step), candidate)
    return None
