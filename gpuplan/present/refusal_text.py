"""Refusals and remedies for people: the nearest miss first, alike ones together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Remedy
from gpuplan.present.document import Line, Role, Span, line, wrapped
from gpuplan.present.findings import Finding, word
from gpuplan.present.layout_words import layout_table
from gpuplan.present.numbers import listed
from gpuplan.present.remedies import word_remedy
from gpuplan.units import plural

SEVERITIES = {Severity.ERROR: Role.BAD, Severity.WARNING: Role.WARNING, Severity.INFO: Role.DIM}
MOST_REFUSALS = 3
MOST_REMEDIES = 4


def finding_lines(finding: Finding, width: int) -> Iterator[Line]:
    """Headline with its code, because, hint."""
    role = SEVERITIES[finding.severity]
    yield from wrapped(f"{finding.headline} [{finding.code}]", width, first="  ", rest="    ", role=role)
    if "layouts" in finding.figures:
        yield from layout_table(finding.figures, width)
    for reason in finding.because:
        yield from wrapped(reason, width, first="    because ", role=Role.DIM)
    if finding.hint:
        yield from wrapped(finding.hint, width, first="    hint: ", role=Role.HINT)


def closest(facts: Sequence[Fact]) -> Fact:
    """The refusal that is least short of fitting."""
    return min(
        facts, key=lambda fact: (fact.figures.get("gap_bytes") is None, fact.figures.get("gap_bytes") or 0)
    )


def refusal_lines(facts: tuple[Fact, ...], width: int) -> Iterator[Line]:
    """The nearest misses in full, alike ones together; the engine's own line once; the number of the rest."""
    groups = ordered_refusals(facts)
    for fact in groups[:MOST_REFUSALS]:
        yield from finding_lines(word(fact), width)
    if len(groups) > MOST_REFUSALS:
        yield line(
            Span(f"  … {plural(len(groups) - MOST_REFUSALS, 'more finding')} (all in -o json)", Role.DIM)
        )


def ordered_refusals(facts: tuple[Fact, ...]) -> list[Fact]:
    """Alike ones together, the nearest miss first; the engine's own line stays with the first alone."""
    groups = sorted(_alike(facts), key=lambda fact: (fact.severity is not Severity.ERROR, _miss(fact)))
    return [fact if number == 0 else _without_line(fact) for number, fact in enumerate(groups)]


def _miss(fact: Fact) -> tuple[bool, int]:
    gap = fact.figures.get("gap_bytes")
    return (gap is None, gap or 0)


def _without_line(fact: Fact) -> Fact:
    return replace(fact, figures={key: value for key, value in fact.figures.items() if key != "line"})


def _alike(facts: tuple[Fact, ...]) -> list[Fact]:
    """Facts that differ in the host alone as one fact about several hosts."""
    groups: dict[str, tuple[Fact, list[str]]] = {}
    for fact in facts:
        host = fact.subject.get("host")
        rest = {key: value for key, value in fact.subject.items() if key != "host"}
        key = (
            repr((fact.code, sorted(rest.items()), sorted(fact.figures.items()))) if host else repr(id(fact))
        )
        groups.setdefault(key, (fact, []))[1].append(str(host))
    return [
        fact if len(hosts) < 2 else replace(fact, subject=_on_hosts(fact.subject, hosts))
        for fact, hosts in groups.values()
    ]


def _on_hosts(subject: Mapping[str, Any], hosts: list[str]) -> dict[str, Any]:
    rest = {key: value for key, value in subject.items() if key != "host"}
    return {**rest, "host": listed(hosts), "hosts": hosts}


def remedy_lines(remedies: tuple[Remedy, ...], width: int) -> Iterator[Line]:
    """What would make it fit, smallest change first."""
    if not remedies:
        return
    yield line(Span("  what would make it fit (each one re-planned):", Role.PLAIN))
    for number, remedy in enumerate(remedies[:MOST_REMEDIES], 1):
        headline, cost = word_remedy(remedy)
        yield from wrapped(f"{headline} ({cost})", width, first=f"    {number}. ", role=Role.HINT)
