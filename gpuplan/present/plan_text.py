"""A plan for people: strategies side by side, the recommended placement GPU by GPU, refusals and remedies."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Candidate, FunnelStep, Plan, StrategyName, StrategyResult, Verdict
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible, wrapped
from gpuplan.present.findings import brief, word
from gpuplan.present.numbers import count, gib, gpu_range, listed, plural, times, tokens
from gpuplan.present.placement_text import candidate_lines, command_lines, shape_words
from gpuplan.present.refusal_text import closest, finding_lines, refusal_lines, remedy_lines

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


def plan_text(plan: Plan, width: int) -> Lines:
    """The whole plan in lines of at most `width` cells (80 and more)."""
    lines: list[Line] = [*_header(plan, width), EMPTY, *_table(plan, width), EMPTY]
    best = _recommended(plan)
    if best is not None:
        result, candidate = best
        lines += [*_recommendation(plan, result, candidate, width), EMPTY]
    else:
        lines += _not_asked_for(plan, width)
    lines += _refusals(plan, width)
    lines += _facts(plan.facts, width)
    return tuple(lines)


def _header(plan: Plan, width: int) -> Iterator[Line]:
    model, request = plan.model, plan.request
    yield line(Span(visible(str(model["name"])), Role.TITLE))
    details = [
        str(model["architecture"]) or "unknown architecture",
        f"{gib(model['weights_bytes'])} of weights by {str(model['evidence']).replace('_', ' ')}",
    ]
    if model.get("quantization"):
        details.append(str(model["quantization"]))
    if model.get("longest_context"):
        details.append(f"up to {tokens(model['longest_context'])}")
    yield from wrapped(" · ".join(details), width, first="  ", role=Role.DIM)
    share = request.get("gpu_memory_utilization")
    asked = [
        f"vLLM {request.get('vllm_version', '?')}",
        f"utilization {share}" if share else "claims only what it needs",
    ]
    asked.append(f"context {_context_words(request)}")
    asked.append(plural(int(request.get("concurrency") or 1), "request") + " at once")
    yield from wrapped(" · ".join(asked), width, first="  ", role=Role.DIM)
    yield from wrapped(_funnel(plan.funnel, plan.fleet_basis), width, first="  ", role=Role.DIM)


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


def _table(plan: Plan, width: int) -> Iterator[Line]:
    """A row per strategy: verdict, where, how, context, requests at once."""
    extra = max(0, width - 80)
    where = 22 + min(extra, 30)
    yield line(
        Span(
            f"{'strategy':<14}{'verdict':<13}{padded('where', where)}{'shape':<11}{'context':>9}{'at 8k':>7}",
            Role.DIM,
        )
    )
    for result in plan.strategies:
        label, role = VERDICTS[result.verdict]
        name = padded(NAMES[result.strategy], 14)
        if not result.candidates:
            text = result.reason or _first_headline(result)
            rows = wrapped(text, width, first=" " * 27)
            yield line(name, Span(padded(label, 13), role), rows[0][0].text.strip())
            yield from rows[1:]
            continue
        yield from _candidate_row(result.candidates[0], name, Span(padded(label, 13), role), where)


def _candidate_row(candidate: Candidate, name: str, verdict: Span, where: int) -> Iterator[Line]:
    memory = candidate.memory
    context = count(memory.max_model_len) if memory is not None else "–"
    at_8k = dict(memory.concurrency_at).get(8192) if memory is not None else None
    yield line(
        name,
        verdict,
        padded(visible(_where(candidate)), where - 1) + " ",
        padded(shape_words(candidate), 10) + " ",
        f"{context:>9}",
        f"{'–' if at_8k is None else times(at_8k):>7}",
    )


def _first_headline(result: StrategyResult) -> str:
    errors = [fact for fact in result.facts if fact.severity is Severity.ERROR]
    return brief(closest(errors)) if errors else ""


def _where(candidate: Candidate) -> str:
    return ", ".join(
        f"{host.host}:{gpu_range([gpu.index for gpu in host.gpus])}" for host in candidate.placement
    )


def _not_asked_for(plan: Plan, width: int) -> Iterator[Line]:
    """Why nothing is recommended although something fits: the strategies that were asked for do not."""
    fitting = [NAMES[item.strategy] for item in plan.strategies if item.verdict is Verdict.FITS]
    asked = plan.request.get("strategies") or ()
    if fitting and asked:
        options = " ".join(f"--strategy {name}" for name in asked)
        text = f"Nothing is recommended: {options} leaves out what fits ({', '.join(fitting)})"
        yield from wrapped(text, width, role=Role.WARNING)
        yield EMPTY


def _recommended(plan: Plan) -> tuple[StrategyResult, Candidate] | None:
    if plan.recommended is None:
        return None
    name, index = plan.recommended
    result = next(item for item in plan.strategies if item.strategy is name)
    return result, result.candidates[index]


def _recommendation(plan: Plan, result: StrategyResult, candidate: Candidate, width: int) -> Iterator[Line]:
    yield line(
        Span("Recommended: ", Role.TITLE),
        Span(
            f"{NAMES[result.strategy]} on {visible(_where(candidate))} ({shape_words(candidate)})",
            Role.GOOD if candidate.verdict is Verdict.FITS else Role.WARNING,
        ),
    )
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
