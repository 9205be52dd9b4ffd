"""A trial of a deployment for people: what it is going to do, and what was predicted beside what came."""

from collections.abc import Iterator, Sequence

from gpuplan.domain.deployment import DeploymentSpec
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.verification import ComparedFigure, Verification
from gpuplan.present.deployment_text import prediction_words
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible, wrapped
from gpuplan.present.findings import word
from gpuplan.present.numbers import count, gpu_range, span
from gpuplan.present.verify_findings import figure, name
from gpuplan.units import GIB, plural

ROLES = {Severity.ERROR: Role.BAD, Severity.WARNING: Role.WARNING, Severity.INFO: Role.GOOD}


def trial_text(spec: DeploymentSpec, width: int) -> Lines:
    """What somebody is asked to agree to: which GPUs are taken, for what, and for about how long."""
    given: dict[str, set[int]] = {}
    for one in spec.containers:
        given.setdefault(one.host, set()).update(one.gpu_indexes)
    places = tuple((host, tuple(indexes)) for host, indexes in given.items())
    lines: list[Line] = [line(Span("Verify ", Role.TITLE), Span(visible(spec.model), Role.TITLE))]
    lines += wrapped(f"on {_places(places)}", width, first="  ")
    lines += wrapped(f"{spec.image} (vLLM {spec.vllm_version})", width, first="  ", role=Role.DIM)
    predicted = prediction_words(spec.predicted)
    if predicted:
        lines += wrapped(f"predicted: {predicted}", width, first="  ", role=Role.DIM)
    lines += wrapped(
        "starts the engine with made-up weights, which takes these GPUs for some minutes; nothing is served, and every "
        "container is removed at the end",
        width,
        first="  ",
        role=Role.WARNING,
    )
    return tuple(lines)


def verification_text(outcome: Verification, width: int) -> Lines:
    """The verdict, every figure, and what else was found, in lines of at most `width` cells."""
    lines: list[Line] = [
        line(Span(visible(outcome.model), Role.TITLE), f"  {visible(_places(outcome.places))}"),
        *wrapped(f"{outcome.image} (vLLM {outcome.vllm_version})", width, first="  ", role=Role.DIM),
    ]
    if outcome.seconds is not None:
        how = "started" if outcome.started else "ended"
        text = f"{how} after {span(outcome.seconds)}, with made-up weights"
        lines += wrapped(text, width, first="  ", role=Role.DIM)
    for fact in outcome.facts:
        lines += _finding(fact, width)
    if outcome.compared:
        lines += [EMPTY, *_table(outcome.compared, width)]
    if outcome.parameters:
        lines += [EMPTY, *_parameters(outcome, width)]
    if outcome.learned:
        text = "kept: later predictions of this model on such GPUs use it"
        lines += [EMPTY, *wrapped(text, width, role=Role.DIM)]
    if outcome.logs:
        lines += wrapped(f"logs: {', '.join(outcome.logs[:4])}", width, rest="  ", role=Role.DIM)
    return tuple(lines)


def _places(places: Sequence[tuple[str, tuple[int, ...]]]) -> str:
    return ", ".join(f"{host}:{gpu_range(indexes)}" if indexes else host for host, indexes in places)


def _finding(fact: Fact, width: int) -> Iterator[Line]:
    told = word(fact)
    yield from wrapped(f"{told.headline} [{told.code}]", width, rest="  ", role=ROLES[fact.severity])
    for reason in told.because:
        yield from wrapped(reason, width, first="  ", role=Role.DIM)
    if told.hint:
        yield from wrapped(told.hint, width, first="  → ", role=Role.HINT)


_FIGURES = 11 + 20 + 16 + 9
"""Cells of the columns beside the name: predicted, its range, actual, off by."""
_WIDEST_NAME = 40


def _names(width: int) -> int:
    """Cells of the first column."""
    return max(20, min(_WIDEST_NAME, width - _FIGURES - 2))


def _table(rows: Sequence[ComparedFigure], width: int) -> Iterator[Line]:
    """A row per term; ranks that were predicted alike are one, with all that they printed. `!`: outside of the range."""
    names = _names(width)
    yield line(Span(f"  {'':<{names}}{'predicted':>11}{'range':>20}{'actual':>16}{'off by':>9}", Role.DIM))
    for group in _alike(rows):
        first = group[0]
        title = name(first.term) + (f" ({_ranks(group)})" if first.rank is not None else "")
        least, most = min(row.actual for row in group), max(row.actual for row in group)
        actual = figure(first.term, least)
        if figure(first.term, most) != actual:
            actual = f"{_bare(first.term, least)}-{figure(first.term, most)}"
        worst = max(group, key=lambda row: abs(row.difference))
        text = (
            f"{padded(title, names)}{figure(first.term, first.predicted):>11}{_range(first):>20}{actual:>16}"
            f"{_off(worst):>9}"
        )
        yield line(f"  {text}") if first.held else line(Span(f"! {text}", Role.WARNING))


def _alike(rows: Sequence[ComparedFigure]) -> Iterator[list[ComparedFigure]]:
    """Rows of one term with one prediction, and held or missed alike."""
    groups: dict[object, list[ComparedFigure]] = {}
    for row in rows:
        groups.setdefault((row.term, row.predicted, row.low, row.high, row.held), []).append(row)
    yield from groups.values()


def _ranks(group: Sequence[ComparedFigure]) -> str:
    ranks = [row.rank for row in group if row.rank is not None]
    numbers = tuple(rank.rank for rank in ranks if rank.rank is not None)
    if len(ranks) == 1 or len(numbers) < len(ranks) or any(rank.replica for rank in ranks):
        return ranks[0].label if len(ranks) == 1 else plural(len(ranks), "rank")
    return f"ranks {gpu_range(numbers)}"


def _range(row: ComparedFigure) -> str:
    if row.low == row.high:
        return "exact" if row.term == "weights" else "–"
    return f"{_bare(row.term, row.low)}-{figure(row.term, row.high)}"


def _bare(term: str, value: float) -> str:
    """Without its unit where the other end of a span has the same."""
    if term in {"tokens", "concurrency"}:
        return figure(term, value)
    return f"{value / GIB:,.2f}"


def _off(row: ComparedFigure) -> str:
    """`+1.2 %`: how much more came than was predicted."""
    return "–" if not row.predicted else f"{100 * row.difference / row.predicted:+z.1f} %"


def _parameters(outcome: Verification, width: int) -> Iterator[Line]:
    """What the image's own model class makes, to the byte."""
    names = _names(width)
    yield line(
        Span(
            f"  {'bytes of parameters':<{names}}{'predicted':>19}{'in the image':>19}{'off by':>16}", Role.DIM
        )
    )
    alike: dict[tuple[int, int], list[int]] = {}
    for one in outcome.parameters:
        alike.setdefault((one.predicted_bytes, one.actual_bytes), []).append(one.rank)
    for (predicted, actual), ranks in alike.items():
        title = f"rank{'' if len(ranks) == 1 else 's'} {gpu_range(ranks)}"
        off = "–" if predicted == actual else f"{actual - predicted:+,d}"
        text = f"{padded(title, names)}{count(predicted):>19}{count(actual):>19}{off:>16}"
        yield line(f"  {text}") if predicted == actual else line(Span(f"! {text}", Role.WARNING))
