"""A plan for people: strategies side by side, the recommended placement GPU by GPU, refusals and remedies."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from gpuplan.domain.memory import MemoryEstimate, RankMemory
from gpuplan.domain.plan import (
    Candidate,
    Fact,
    FunnelStep,
    Plan,
    Remedy,
    Severity,
    StrategyName,
    StrategyResult,
    Verdict,
)
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible, wrapped
from gpuplan.present.findings import Finding, word
from gpuplan.present.numbers import count, gib, gpu_range, listed, plural, times, tokens
from gpuplan.present.remedies import word_remedy
from gpuplan.units import GIB

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
SEVERITIES = {Severity.ERROR: Role.BAD, Severity.WARNING: Role.WARNING, Severity.INFO: Role.DIM}
MOST_REFUSALS = 3
MOST_REMEDIES = 4


def plan_text(plan: Plan, width: int) -> Lines:
    """The whole plan in lines of at most `width` cells (80 and more)."""
    lines: list[Line] = [*_header(plan, width), EMPTY, *_table(plan, width), EMPTY]
    best = _recommended(plan)
    if best is not None:
        result, candidate = best
        lines += [*_recommendation(plan, result, candidate, width), EMPTY]
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
    yield from wrapped(
        _funnel(plan.funnel, plan.fleet_basis, plan.taken_at), width, first="  ", role=Role.DIM
    )


def _context_words(request: Mapping[str, Any]) -> str:
    context = request.get("context")
    return (
        "the longest that fits"
        if context is None
        else "the model's longest"
        if context == "max"
        else count(int(context))
    )


def _funnel(steps: tuple[FunnelStep, ...], basis: str, taken_at: str | None) -> str:
    """`3 hosts with 18 GPUs (declared) → reachable 3/18 → …`: only filters that took something away are named."""
    if not steps:
        return ""
    first = steps[0]
    source = f"probed {taken_at}" if taken_at else "declared" if basis == "assumed" else basis
    words = [f"fleet: {plural(first.hosts, 'host')}, {plural(first.gpus, 'GPU')} ({source})"]
    for before, step in zip(steps, steps[1:], strict=False):
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
    return word(errors[0]).headline if errors else ""


def _where(candidate: Candidate) -> str:
    return ", ".join(
        f"{host.host}:{gpu_range([gpu.index for gpu in host.gpus])}" for host in candidate.placement
    )


def shape_words(candidate: Candidate) -> str:
    """`TP2`, `TP8·PP2`, `TP8·EP`, with the number of replicas in front."""
    parallelism = candidate.parallelism
    words = [f"TP{parallelism.tensor}"]
    if parallelism.pipeline > 1:
        words.append(f"PP{parallelism.pipeline}")
    if parallelism.expert:
        words.append("EP")
    text = "·".join(words)
    return f"{parallelism.data}×{text}" if parallelism.data > 1 else text


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
    yield from candidate_lines(candidate, width)
    yield EMPTY
    yield from command_lines(candidate, width)


def candidate_lines(candidate: Candidate, width: int) -> Iterator[Line]:
    """One bar per GPU, then the cache in tokens and requests."""
    memory = candidate.memory
    if memory is None:
        yield from wrapped(
            "only the claim is known: weights, activation and KV cache are not told apart",
            width,
            first="  ",
            role=Role.DIM,
        )
        for host in candidate.placement:
            for gpu in host.gpus:
                yield line(
                    f"  {visible(host.host)}:{gpu.index}  claim {gib(gpu.claim_bytes)} of {gib(gpu.total_bytes)}, {gib(gpu.allocatable_bytes)} allocatable"
                )
        return
    yield from _legend(width)
    yield from _bars(candidate, memory, width)
    yield from _capacity(candidate, memory, width)
    for fact in candidate.facts:
        yield from finding_lines(word(fact), width)


def _legend(width: int) -> Iterator[Line]:
    del width
    yield line(
        "  ",
        Span("█ weights", Role.WEIGHTS),
        "  ",
        Span("▓ activation+other", Role.ACTIVATION),
        "  ",
        Span("▒ graphs", Role.GRAPHS),
        "  ",
        Span("░ KV cache", Role.CACHE),
        "  ",
        Span("· outside the budget", Role.FREE),
    )


MOST_BARS = 16


def _bars(candidate: Candidate, memory: MemoryEstimate, width: int) -> Iterator[Line]:
    places = [(host.host, gpu) for host in candidate.placement for gpu in host.gpus]
    world = max(1, len(memory.ranks))
    label = min(18, max(len(f"{host}:{gpu.index}") for host, gpu in places))
    size = max(10, width - label - 39)
    for position, (host, gpu) in enumerate(places[:MOST_BARS]):
        rank = memory.ranks[position % world]
        figures = f" W {rank.weights.bytes / GIB:.1f} A {_other(rank) / GIB:.1f} G {rank.cuda_graph.bytes / GIB:.1f} KV {rank.kv_cache_bytes / GIB:.1f} GiB"
        yield line("  ", padded(visible(f"{host}:{gpu.index}"), label), " ", *_bar(rank, size), figures)
    if len(places) > MOST_BARS:
        yield line(Span(f"  … {len(places) - MOST_BARS} more GPUs with the same shape", Role.DIM))


def _other(rank: RankMemory) -> int:
    return rank.weights_extra.bytes + rank.activation.bytes + rank.non_torch.bytes


def _bar(rank: RankMemory, size: int) -> list[Span]:
    """Cells in proportion to bytes of the whole card, largest remainders first."""
    cache = max(0, rank.kv_cache_bytes)
    parts = [
        (rank.weights.bytes, "█", Role.WEIGHTS),
        (max(0, _other(rank)), "▓", Role.ACTIVATION),
        (rank.cuda_graph.bytes, "▒", Role.GRAPHS),
        (cache, "░", Role.CACHE),
    ]
    used = sum(part for part, _, _ in parts)
    parts.append((max(0, rank.total_bytes - used), "·", Role.FREE))
    whole = max(1, sum(part for part, _, _ in parts))
    exact = [part * size / whole for part, _, _ in parts]
    cells = [int(value) for value in exact]
    order = sorted(range(len(parts)), key=lambda number: cells[number] - exact[number])
    for number in order[: size - sum(cells)]:
        cells[number] += 1
    return [Span(char * cells[number], role) for number, (_, char, role) in enumerate(parts) if cells[number]]


def _capacity(candidate: Candidate, memory: MemoryEstimate, width: int) -> Iterator[Line]:
    poorest = min(memory.ranks, key=lambda rank: rank.kv_cache_bytes)
    text = (
        f"KV cache {gib(poorest.kv_cache_bytes)} a GPU (likely {gib(poorest.kv_cache_low)} to {gib(poorest.kv_cache_high)}), "
        f"{tokens(memory.kv_cache_tokens)}"
    )
    if candidate.parallelism.data > 1:
        text += ", in each replica"
    yield from wrapped(text, width, first="  ")
    requests = ", ".join(f"{times(number)} of {tokens(length)}" for length, number in memory.concurrency_at)
    yield from wrapped(f"requests at once: {requests}", width, first="  ")
    longest = memory.largest_max_model_len
    yield from wrapped(
        f"context {tokens(memory.max_model_len)}; the longest one request could have is {tokens(longest)}",
        width,
        first="  ",
    )


def command_lines(candidate: Candidate, width: int) -> Iterator[Line]:
    """The command to run, broken so that it can be pasted."""
    environment = [f"{name}={shlex.quote(value)}" for name, value in candidate.env]
    words = [*environment, "vllm", *(shlex.quote(word) for word in candidate.vllm_args)]
    current = "  "
    rows: list[str] = []
    for item in words:
        if len(current) + len(item) + 3 > width and current.strip():
            rows.append(current.rstrip() + " \\")
            current = "      "
        current += item + " "
    rows.append(current.rstrip())
    for row in rows:
        yield line(Span(visible(row), Role.COMMAND))


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


def refusal_lines(facts: tuple[Fact, ...], width: int) -> Iterator[Line]:
    """The first few findings of a strategy in full, the number of the rest."""
    for fact in facts[:MOST_REFUSALS]:
        yield from finding_lines(word(fact), width)
    if len(facts) > MOST_REFUSALS:
        yield line(
            Span(f"  … {plural(len(facts) - MOST_REFUSALS, 'more finding')} (all in -o json)", Role.DIM)
        )


def finding_lines(finding: Finding, width: int) -> Iterator[Line]:
    """Headline with its code, because, hint."""
    yield from wrapped(
        f"{finding.headline} [{finding.code}]",
        width,
        first="  ",
        rest="    ",
        role=SEVERITIES[finding.severity],
    )
    for reason in finding.because:
        yield from wrapped(reason, width, first="    because ", role=Role.DIM)
    if finding.hint:
        yield from wrapped(finding.hint, width, first="    hint: ", role=Role.HINT)


def remedy_lines(remedies: tuple[Remedy, ...], width: int) -> Iterator[Line]:
    """What would make it fit, smallest change first."""
    if not remedies:
        return
    yield line(Span("  what would make it fit (each one re-planned):", Role.PLAIN))
    for number, remedy in enumerate(remedies[:MOST_REMEDIES], 1):
        headline, cost = word_remedy(remedy)
        yield from wrapped(f"{headline} ({cost})", width, first=f"    {number}. ", role=Role.HINT)


def _facts(facts: tuple[Fact, ...], width: int) -> Iterator[Line]:
    for fact in facts:
        yield from finding_lines(word(fact), width)
