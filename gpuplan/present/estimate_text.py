"""An estimate for people: one placement on named hardware, term by term."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuplan.domain.fact import Fact
from gpuplan.domain.memory import RankMemory, Term
from gpuplan.domain.plan import StrategyResult, Verdict
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible
from gpuplan.present.findings import word
from gpuplan.present.numbers import gib
from gpuplan.present.placement_text import candidate_lines, command_lines, shape_words
from gpuplan.present.refusal_text import finding_lines, refusal_lines, remedy_lines
from gpuplan.present.strategy_table import VERDICTS
from gpuplan.units import plural


def estimate_text(
    model: Mapping[str, Any],
    hardware: Mapping[str, Any],
    result: StrategyResult,
    facts: tuple[Fact, ...],
    width: int,
) -> Lines:
    """The estimate in lines of at most `width` cells."""
    lines: list[Line] = list(_header(model, hardware, result, width))
    if result.candidates:
        candidate = result.candidates[0]
        fits = result.verdict is Verdict.FITS
        if fits or candidate.memory is not None:
            lines += [EMPTY, *candidate_lines(candidate, width, findings=fits)]
        if candidate.memory is not None:
            lines += [EMPTY, *terms_table(candidate.memory.ranks[0])]
        if fits:
            lines += [EMPTY, *command_lines(candidate, width)]
    if result.verdict is not Verdict.FITS:
        lines += [EMPTY, *refusal_lines(result.facts, width), *remedy_lines(result.remedies, width)]
    for fact in facts:
        lines += finding_lines(word(fact), width)
    return tuple(lines)


def _header(
    model: Mapping[str, Any], hardware: Mapping[str, Any], result: StrategyResult, width: int
) -> Iterator[Line]:
    label, role = VERDICTS[result.verdict]
    shape = f" ({shape_words(result.candidates[0])})" if result.candidates else ""
    name = visible(str(model["name"]))
    where = f"on {plural(hardware['count'], 'GPU')} {visible(str(hardware['name']))}, {gib(hardware['total_bytes'])} each: "
    if len(f"{name} {where}{label}{shape}") <= width:
        yield line(Span(name, Role.TITLE), f" {where}", Span(label + shape, role))
    else:
        yield line(Span(name, Role.TITLE))
        yield line(f"  {where}", Span(label + shape, role))


def terms_table(rank: RankMemory) -> Iterator[Line]:
    """Every term of rank 0 with range and basis."""
    yield line(Span(f"  {'term (rank 0)':<16}{'size':>13}{'likely range':>28}  basis", Role.DIM))
    for term in (rank.budget, *rank.terms):
        yield _term(term)
    cache = f"{_range(rank.kv_cache_low, rank.kv_cache_high):>28}"
    yield line(f"  {'KV cache':<16}{gib(rank.kv_cache_bytes):>13}{cache}  computed")


def _term(term: Term) -> Line:
    return line(
        f"  {padded(term.name, 16)}{gib(term.bytes):>13}{_range(term.least, term.most):>28}  {term.basis.value}"
    )


def _range(low: int, high: int) -> str:
    return "" if low == high else f"{gib(low)} – {gib(high)}"
