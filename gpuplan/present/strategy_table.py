"""Strategies side by side, a row each: the same words in every face."""

from collections.abc import Iterator

from gpuplan.domain.fact import Severity
from gpuplan.domain.plan import Candidate, Plan, StrategyName, StrategyResult, Verdict
from gpuplan.present.document import Line, Lines, Role, Span, line, padded, visible, wrapped
from gpuplan.present.findings import brief
from gpuplan.present.numbers import count, gpu_range, listed, times
from gpuplan.present.placement_text import shape_words
from gpuplan.present.refusal_text import closest

NAMES = {
    StrategyName.MANUAL: "manual",
    StrategyName.SINGLE_GPU: "single GPU",
    StrategyName.SINGLE_HOST: "single host",
    StrategyName.MULTI_HOST: "several hosts",
    StrategyName.DATA_PARALLEL: "replicas",
    StrategyName.OFFLOAD: "offload",
    StrategyName.EVICT: "evict",
}
VERDICTS = {
    Verdict.FITS: ("✓ fits", Role.GOOD),
    Verdict.OVERCOMMIT: ("! overcommit", Role.WARNING),
    Verdict.NO_FIT: ("✗ no fit", Role.BAD),
    Verdict.SKIPPED: ("– skipped", Role.DIM),
}
LAST_RESORTS = frozenset({StrategyName.OFFLOAD, StrategyName.EVICT})
"""Where something fits whole they are no news."""
RECOMMENDED = "●"
"""In front of the recommended candidate."""
NARROWEST_PLACE = 12


def table_header(width: int) -> Line:
    """What the columns are."""
    place = padded("where", _place(width))
    return line(
        Span(f"{'strategy':<14}{'verdict':<13}{place}{'shape':<11}{'context':>9}{'at 8k':>7}", Role.DIM)
    )


def strategy_lines(result: StrategyResult, width: int) -> Lines:
    """A strategy's best candidate in a line; without one, why there is none, in as many lines as that takes."""
    if result.candidates:
        return (candidate_line(result, 0, width),)
    name, verdict = _label(result)
    rows = wrapped(result.reason or _first_headline(result), width, first=" " * 27)
    return (line(name, verdict, rows[0][0].text.strip()), *rows[1:])


def candidate_line(result: StrategyResult, index: int, width: int, *, name: str | None = None) -> Line:
    """One candidate of a strategy: verdict, where, how, context, requests at once; `name` stands for the strategy's."""
    candidate = result.candidates[index]
    label, role = VERDICTS[candidate.verdict if index else result.verdict]
    memory = candidate.memory
    context = count(memory.max_model_len) if memory is not None else "–"
    at_8k = dict(memory.concurrency_at).get(8192) if memory is not None else None
    return line(
        padded(NAMES[result.strategy] if name is None else name, 14),
        Span(padded(label, 13), role),
        padded(visible(where(candidate)), _place(width) - 1) + " ",
        padded(shape_words(candidate), 10) + " ",
        f"{context:>9}",
        f"{'–' if at_8k is None else times(at_8k):>7}",
    )


def where(candidate: Candidate) -> str:
    """`h100-a:0-3, h100-b:0-3`."""
    return ", ".join(
        f"{host.host}:{gpu_range([gpu.index for gpu in host.gpus])}" for host in candidate.placement
    )


def rows_of(plan: Plan) -> tuple[StrategyResult, ...]:
    """The strategies that have a row: offload and eviction where they were looked at or asked for. JSON has all."""
    asked = set(plan.request.get("strategies") or ())
    return tuple(
        result
        for result in plan.strategies
        if result.strategy not in LAST_RESORTS
        or result.verdict is not Verdict.SKIPPED
        or result.strategy.value in asked
    )


def table_lines(plan: Plan, width: int) -> Iterator[Line]:
    """The header and a row of each strategy."""
    yield table_header(width)
    for result in rows_of(plan):
        yield from strategy_lines(result, width)


def answer_line(plan: Plan) -> Line:
    """What is recommended; where nothing is, whether anything could be."""
    if plan.recommended is not None:
        strategy, index = plan.recommended
        result = next(item for item in plan.strategies if item.strategy is strategy)
        candidate = result.candidates[index]
        role = Role.GOOD if candidate.verdict is Verdict.FITS else Role.WARNING
        words = f"{NAMES[strategy]} on {visible(where(candidate))} ({shape_words(candidate)})"
        return line(Span("Recommended: ", Role.TITLE), Span(words, role))
    left_out = left_out_words(plan)
    if left_out is not None:
        return line(Span(left_out, Role.WARNING))
    room = room_words(plan)
    if room is not None:
        return line(Span(room, Role.WARNING))
    if any(result.verdict is Verdict.OVERCOMMIT for result in plan.strategies):
        return line(Span("Nothing fits; the selection can only be overcommitted", Role.WARNING))
    return line(Span("Nothing fits", Role.BAD))


def left_out_words(plan: Plan) -> str | None:
    """Why nothing is recommended although something fits: the strategies that were asked for do not."""
    fitting = [
        NAMES[item.strategy]
        for item in plan.strategies
        if item.verdict is Verdict.FITS and item.strategy is not StrategyName.EVICT
    ]
    asked = plan.request.get("strategies") or ()
    if not (fitting and asked):
        return None
    options = " ".join(f"--strategy {name}" for name in asked)
    return f"Nothing is recommended: {options} leaves out what fits ({', '.join(fitting)})"


def room_words(plan: Plan) -> str | None:
    """Whose stop would make room where nothing fits beside what runs and nobody asked for that; None where nobody's."""
    candidate = evicting(plan)
    if plan.recommended is not None or candidate is None:
        return None
    names = listed([one.deployment for one in candidate.evicts])
    return (
        f"Nothing fits beside what runs; stopping {names} makes room (--strategy {StrategyName.EVICT.value})"
    )


def evicting(plan: Plan) -> Candidate | None:
    """The placement that there would be once others are stopped."""
    result = next((item for item in plan.strategies if item.strategy is StrategyName.EVICT), None)
    return result.candidates[0] if result is not None and result.verdict is Verdict.FITS else None


def _place(width: int) -> int:
    return max(NARROWEST_PLACE, 22 + min(width - 80, 30))


def _label(result: StrategyResult) -> tuple[str, Span]:
    label, role = VERDICTS[result.verdict]
    return padded(NAMES[result.strategy], 14), Span(padded(label, 13), role)


def _first_headline(result: StrategyResult) -> str:
    errors = [fact for fact in result.facts if fact.severity is Severity.ERROR]
    return brief(closest(errors)) if errors else ""
