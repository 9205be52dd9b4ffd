"""What earlier starts teach about a new one: terms of its estimate corrected by what like starts printed.

How alike decides how much is taken over. The same start on the same kind of card: every term as it was measured. The same
model with another batch: what loading takes, and what was printed of single terms. The same model on another card: what
loading takes. Other models on the same card: memory outside the allocator, where at least two of them agree. A correction
that rests on less than the same start leaves the safe end of a range where it is, or moves it to the safe side.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpuplan.domain.calibration import PRINTED, Lesson, Quantity, StageTerms, Start
from gpuplan.domain.fleet import Basis
from gpuplan.domain.memory import Term
from gpuplan.planning.likeness import Like, day
from gpuplan.units import GIB, plural
from gpuplan.version import __version__

SCATTER = int(0.02 * GIB)
"""Repeated starts print figures 0.01 GiB apart; rounding to two decimals leaves 0.005 open on budget and cache each."""
BLOCK_ENTRY = 4
"""Bytes of a block table's entry: one for each block of each sequence, for the longest length."""
SMALLEST_BLOCK = 16
OTHER_LIMITS = 256
"""Part of a card's memory by which starts differ that differ in their limits alone."""
AGREE = int(0.25 * GIB)
"""Residuals of different models that lie further apart say nothing about their common hardware."""

FiveTerms = tuple[Term, Term, Term, Term, Term]
"""Weights, what loading adds, activation, non-torch, CUDA graphs."""


def corrected(terms: FiveTerms, found: Like, stage: int) -> FiveTerms:
    """The terms of a rank as like starts measured them; unchanged where none did."""
    weights, extra, activation, non_torch, graphs = terms
    extra = _loading(weights, extra, found, stage)
    working = _as_measured(activation, non_torch, graphs, found, stage)
    if working is None:
        working = (
            _other_batch(activation, found, stage),
            _outside(non_torch, found, stage),
            graphs,
        )
    return (weights, extra, *working)


def _loading(weights: Term, extra: Term, found: Like, stage: int) -> Term:
    """What loading adds, so that both together are what was printed."""
    computed = weights.bytes + extra.bytes
    samples = _samples(found, (*found.same, *found.limits, *found.built), stage, Quantity.LOADING, computed)
    if all(abs(value - computed) <= PRINTED for _, value in samples):
        # confirmed: the log's two decimals know less than the count
        return extra
    values = [value - weights.bytes for _, value in samples]
    return replace(
        extra,
        bytes=values[0],
        low=min(values) - SCATTER // 2,
        high=max(values) + SCATTER // 2,
        basis=Basis.MEASURED,
        formula=f"as loaded: {extra.formula}",
        inputs=(
            *extra.inputs,
            ("computed", extra.bytes),
            ("measured less computed", values[0] - extra.bytes),
        ),
        source=_seen([lesson for lesson, _ in samples]),
        starts=tuple(lesson.id for lesson, _ in samples),
    )


def _samples(
    found: Like, lessons: Sequence[Lesson], stage: int, quantity: Quantity, computed: int
) -> list[tuple[Lesson, int]]:
    """What each lesson makes of a quantity: as printed by the very same start, else computed plus the residual.

    A residual holds for the predictions it was taken from, those of this version of gpuplan.
    """
    samples = []
    for lesson in lessons:
        told = lesson.stage(stage)
        term = None if told is None else told.of(quantity)
        if term is None or term.actual is None:
            continue
        exact = lesson.repeats == replace(found.start, model="", utilization=None, **_card(lesson))
        if exact:
            samples.append((lesson, term.actual))
        elif lesson.learned_by == __version__:
            samples.append((lesson, computed + term.actual - term.predicted))
    return samples


def _card(lesson: Lesson) -> dict[str, Any]:
    """The spelling of a card's name and the last digits of its memory are no other start."""
    start = lesson.start
    return {
        "gpu": start.gpu,
        "total_bytes": start.total_bytes,
        "compute_capability": start.compute_capability,
        "unified": start.unified,
    }


def _as_measured(
    activation: Term, non_torch: Term, graphs: Term, found: Like, stage: int
) -> tuple[Term, Term, Term] | None:
    """All that the budget pays besides weights and cache, as the same start measured it; None where it did not."""
    computed = activation.bytes + non_torch.bytes + graphs.bytes
    least = activation.least + non_torch.least + graphs.least
    samples = _believed(_samples(found, found.same, stage, Quantity.WORKING, computed), stage, least)
    if not samples:
        return None
    newest, total = samples[0]
    told = newest.stage(stage)
    assert told is not None
    estimate = _printed(told, Quantity.GRAPHS, graphs.bytes)
    outside = _printed(told, Quantity.NON_TORCH, non_torch.bytes)
    rest = total - estimate
    apart = told.residual(Quantity.NON_TORCH) is not None
    if not apart:
        outside = _share(activation, non_torch, rest)
    outside = max(0, min(outside, max(rest, 0)))
    lessons = [lesson for lesson, _ in samples]
    values = [value for _, value in samples]
    doubt = _doubt(found.start, newest.start)
    high = max(values) + doubt - total
    if found.start.unified:
        # the host's page cache moves what is free from one start to the next
        high = max(high, activation.most + non_torch.most + graphs.most - total)
    common: dict[str, Any] = {
        "basis": Basis.MEASURED,
        "source": _seen(lessons),
        "starts": tuple(lesson.id for lesson in lessons),
    }
    together = "" if apart else ", not told apart from non-torch"
    peak = rest - outside
    return (
        replace(
            activation,
            bytes=peak,
            low=peak - (total - min(values)) - doubt,
            high=peak + high,
            formula=f"measured{together}: budget − loading − KV cache of like starts",
            inputs=_inputs(activation, peak),
            **common,
        ),
        replace(
            non_torch,
            bytes=outside,
            low=None,
            high=None,
            formula="as printed" if apart else "its likely share of what was measured with the activation",
            inputs=_inputs(non_torch, outside),
            **common,
        ),
        replace(
            graphs,
            bytes=estimate,
            low=None,
            high=None,
            formula="the estimate the engine printed" if estimate != graphs.bytes else graphs.formula,
            inputs=_inputs(graphs, estimate),
            **common,
        )
        if told.residual(Quantity.GRAPHS) is not None
        else replace(graphs, low=None, high=None),
    )


def _believed(samples: list[tuple[Lesson, int]], stage: int, least: int) -> list[tuple[Lesson, int]]:
    """Without starts beside which another process gave memory back while they profiled.

    Such a start prints less than nothing for non-torch memory (0.10.2, RTX 4080: −1.25 GiB), or takes less than is likely
    at all: that is believed where a second start says the same.
    """
    clean = [
        (lesson, value)
        for lesson, value in samples
        if (told := lesson.stage(stage)) is not None and _printed(told, Quantity.NON_TORCH, 0) >= -SCATTER
    ]
    return [
        (lesson, value)
        for lesson, value in clean
        if value + _loaded_more(lesson, stage) >= least - SCATTER
        or _tells_apart(lesson, stage)
        or any(other is not lesson and abs(again - value) <= _near(lesson) for other, again in clean)
    ]


def _tells_apart(lesson: Lesson, stage: int) -> bool:
    """Whether memory that came back meanwhile would have shown."""
    told = lesson.stage(stage)
    return told is not None and told.residual(Quantity.NON_TORCH) is not None


def _loaded_more(lesson: Lesson, stage: int) -> int:
    """What loading took beside its prediction: what is missing there may have been counted here."""
    told = lesson.stage(stage)
    return 0 if told is None else told.residual(Quantity.LOADING) or 0


def _near(lesson: Lesson) -> int:
    """Bytes by which starts of the same thing are apart, their limits not being the same."""
    return max(4 * SCATTER, (lesson.start.total_bytes or 0) // OTHER_LIMITS)


def _printed(told: StageTerms, quantity: Quantity, computed: int) -> int:
    term = told.of(quantity)
    return computed if term is None or term.actual is None else term.actual


def _share(activation: Term, non_torch: Term, rest: int) -> int:
    """Non-torch memory out of what was measured together: a surplus goes where the range is widest."""
    surplus = rest - activation.bytes - non_torch.bytes
    ends = (activation.most, non_torch.most) if surplus > 0 else (activation.least, non_torch.least)
    spans = (abs(ends[0] - activation.bytes), abs(ends[1] - non_torch.bytes))
    return non_torch.bytes + (surplus * spans[1] // sum(spans) if sum(spans) else 0)


def _doubt(asked: Start, measured: Start) -> int:
    """How far the same start may be from what was measured, in bytes either way.

    Another share of the card or another length of a request leaves the profile run as it is, apart from the block tables;
    logged pairs are 0.00 % of the budget apart (0.10.2, RTX 4080) and 0.4 % (0.23.1, GH200).
    """
    if (asked.utilization, asked.max_model_len) == (measured.utilization, measured.max_model_len):
        return SCATTER
    tokens = abs(asked.max_model_len - measured.max_model_len)
    tables = asked.max_num_seqs * (tokens // SMALLEST_BLOCK) * BLOCK_ENTRY
    return max(SCATTER, (measured.total_bytes or 0) // OTHER_LIMITS) + tables


def _other_batch(activation: Term, found: Like, stage: int) -> Term:
    """The peak of the forward pass grows with the tokens of a batch, and so does what it was wrong by."""
    phase = dict(activation.inputs).get("phase")
    for lesson in found.limits:
        told = lesson.stage(stage)
        residual = None if told is None else told.residual(Quantity.ACTIVATION)
        if told is None or residual is None or lesson.learned_by != __version__:
            continue
        if told.phase != "forward" or phase != "forward":
            continue
        tokens = lesson.start.max_num_batched_tokens
        return _shifted(
            activation,
            residual * found.start.max_num_batched_tokens // max(tokens, 1),
            [lesson],
            f"scaled from {tokens:,} tokens",
        )
    return activation


def _outside(non_torch: Term, found: Like, stage: int) -> Term:
    """Memory outside the allocator: the same model's, else that of other models on this hardware where they agree."""
    for lesson in found.limits:
        residual = _residual(lesson, stage, Quantity.NON_TORCH)
        if residual is not None:
            return _shifted(non_torch, residual, [lesson], "as the model took with another batch")
    by_model: dict[str, tuple[Lesson, int]] = {}
    for lesson in found.hardware:
        residual = _residual(lesson, stage, Quantity.NON_TORCH)
        if residual is not None:
            by_model.setdefault(lesson.start.digest, (lesson, residual))
    residuals = [residual for _, residual in by_model.values()]
    if len(residuals) < 2 or max(residuals) - min(residuals) > AGREE:
        return non_torch
    lessons = [lesson for lesson, _ in by_model.values()]
    moved = _shifted(non_torch, _middle(residuals), lessons, f"median of {plural(len(lessons), 'model')}")
    spread = max(residuals) - min(residuals)
    return replace(moved, low=max(0, moved.least - spread), high=moved.most + spread)


def _middle(values: Sequence[int]) -> int:
    """The median; `statistics` takes longer to import than a plan to make."""
    ranked = sorted(values)
    half = len(ranked) // 2
    return ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) // 2


def _residual(lesson: Lesson, stage: int, quantity: Quantity) -> int | None:
    told = lesson.stage(stage)
    return None if told is None or lesson.learned_by != __version__ else told.residual(quantity)


def _shifted(term: Term, residual: int, lessons: Sequence[Lesson], how: str) -> Term:
    """The term moved by a residual; its safe end moves to the safe side only."""
    size = max(0, term.bytes + residual)
    return replace(
        term,
        bytes=size,
        low=max(0, min(term.least + min(0, residual), size)),
        high=max(term.most + max(0, residual), size),
        basis=Basis.MEASURED,
        formula=f"{term.formula} + residual of like starts ({how})",
        inputs=_inputs(term, size),
        source=_seen(lessons),
        starts=tuple(lesson.id for lesson in lessons),
    )


def _inputs(term: Term, size: int) -> tuple[tuple[str, int | float | str], ...]:
    return (*term.inputs, ("computed", term.bytes), ("measured less computed", size - term.bytes))


def _seen(lessons: Sequence[Lesson]) -> str:
    """`2 starts, the last on 2026-11-22 (vllm.log)`."""
    last = max(lessons, key=lambda lesson: lesson.at)
    return f"{plural(len(lessons), 'start')}, the last on {day(last.at)} ({last.origin})"
