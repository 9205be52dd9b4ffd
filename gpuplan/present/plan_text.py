"""A plan for people: strategies side by side, the recommended placement GPU by GPU, refusals and remedies."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gpuplan.domain.fact import Fact
from gpuplan.domain.plan import Candidate, FunnelStep, Plan, StrategyName, Verdict
from gpuplan.present.command_lines import deploy_words
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, visible, wrapped
from gpuplan.present.findings import word
from gpuplan.present.numbers import count, gib, listed, tokens
from gpuplan.present.placement_text import candidate_lines, command_lines, pasteable, quoted
from gpuplan.present.refusal_text import finding_lines, refusal_lines, remedy_lines
from gpuplan.present.strategy_table import (
    NAMES,
    VERDICTS,
    answer_line,
    evicting,
    left_out_words,
    room_words,
    table_lines,
)
from gpuplan.units import plural


def plan_text(plan: Plan, width: int) -> Lines:
    """The whole plan in lines of at most `width` cells (80 and more)."""
    lines: list[Line] = [*_header(plan, width), EMPTY, *table_lines(plan, width), EMPTY]
    best = _recommended(plan)
    if best is not None:
        lines += [*_recommendation(plan, best, width), EMPTY]
    else:
        lines += [*_not_asked_for(plan, width), *_room(plan, width)]
    lines += _refusals(plan, width)
    lines += _facts(plan.facts, width)
    return tuple(lines)


def _header(plan: Plan, width: int) -> Iterator[Line]:
    model, request = plan.model, plan.request
    yield line(Span(visible(str(model["name"])), Role.TITLE))
    yield from wrapped(model_words(model), width, first="  ", role=Role.DIM)
    share = request.get("gpu_memory_utilization")
    asked = [
        f"vLLM {request.get('vllm_version', '?')}",
        f"utilization {share}" if share else "claims only what it needs",
    ]
    asked.append(f"context {_context_words(request)}")
    asked.append(plural(int(request.get("concurrency") or 1), "request") + " at once")
    yield from wrapped(" · ".join(asked), width, first="  ", role=Role.DIM)
    yield from wrapped(_funnel(plan.funnel, plan.fleet_basis), width, first="  ", role=Role.DIM)


def model_words(model: Mapping[str, Any]) -> str:
    """Architecture, weights and what they rest on, quantization, longest context."""
    details = [
        str(model["architecture"]) or "unknown architecture",
        f"{gib(model['weights_bytes'])} of weights by {str(model['evidence']).replace('_', ' ')}",
    ]
    if model.get("quantization"):
        details.append(str(model["quantization"]))
    if model.get("longest_context"):
        details.append(f"up to {tokens(model['longest_context'])}")
    return visible(" · ".join(details))


def _context_words(request: Mapping[str, Any]) -> str:
    context = request.get("context")
    return (
        "the longest that fits"
        if context is None
        else "the model's longest"
        if context == "max"
        else count(int(context))
    )


def _funnel(steps: tuple[FunnelStep, ...], basis: str) -> str:
    """`3 hosts with 18 GPUs (declared) → reachable 3/18 → …`: only filters that took something away are named."""
    if not steps:
        return ""
    first = steps[0]
    source = "declared" if basis == "assumed" else basis
    words = [f"fleet: {plural(first.hosts, 'host')}, {plural(first.gpus, 'GPU')} ({source})"]
    for before, step in itertools.pairwise(steps):
        if (step.hosts, step.gpus) != (before.hosts, before.gpus):
            taken = f" (not {listed(step.taken)})" if step.taken else ""
            words.append(f"{step.name}: {plural(step.hosts, 'host')}, {plural(step.gpus, 'GPU')}{taken}")
    return " → ".join(words)


def _not_asked_for(plan: Plan, width: int) -> Iterator[Line]:
    text = left_out_words(plan)
    if text is not None:
        yield from wrapped(text, width, role=Role.WARNING)
        yield EMPTY


def _room(plan: Plan, width: int) -> Iterator[Line]:
    """Whose stop would make room, and the command that asks for it."""
    text, candidate = room_words(plan), evicting(plan)
    if text is None or candidate is None:
        return
    yield from wrapped(text, width, role=Role.WARNING)
    for fact in candidate.facts:
        yield from finding_lines(word(fact), width)
    asked = [*(plan.request.get("strategies") or ()), StrategyName.EVICT.value]
    yield from pasteable(tuple(quoted(deploy_words({**plan.request, "strategies": asked}))), width)
    yield EMPTY


def _recommended(plan: Plan) -> Candidate | None:
    if plan.recommended is None:
        return None
    name, index = plan.recommended
    return next(item.candidates[index] for item in plan.strategies if item.strategy is name)


def _recommendation(plan: Plan, candidate: Candidate, width: int) -> Iterator[Line]:
    yield answer_line(plan)
    for reason in plan.recommended_because:
        yield from wrapped(reason, width, first="  ", role=Role.DIM)
    yield from candidate_lines(candidate, width, findings=candidate.verdict is Verdict.FITS)
    yield EMPTY
    yield from command_lines(candidate, width)


def _refusals(plan: Plan, width: int) -> Iterator[Line]:
    for result in plan.strategies:
        if result.verdict not in (Verdict.NO_FIT, Verdict.OVERCOMMIT):
            continue
        if not result.facts and not result.remedies:
            continue
        label, role = VERDICTS[result.verdict]
        yield line(Span(f"{NAMES[result.strategy]}: {label[2:]}", role))
        yield from refusal_lines(result.facts, width)
        yield from remedy_lines(result.remedies, width)
        yield EMPTY


MOST_ALIKE = 3
"""Findings of one code that are told whole: of a thousand hosts hundreds may be down. JSON has them all."""


def _facts(facts: tuple[Fact, ...], width: int) -> Iterator[Line]:
    told: Counter[str] = Counter()
    for fact in facts:
        told[fact.code] += 1
        if told[fact.code] <= MOST_ALIKE:
            yield from finding_lines(word(fact), width)
    for code, number in told.items():
        if number > MOST_ALIKE:
            text = f"… and {count(number - MOST_ALIKE)} more of {code}: -o json lists them all"
            yield from wrapped(text, width, first="  ", role=Role.DIM)
