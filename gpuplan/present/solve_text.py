"""The plan asked backwards, for people: the fewest GPUs on the fleet, how far they go, and what hardware it would take."""

from collections.abc import Iterator

from gpuplan.domain.plan import Candidate, StrategyName
from gpuplan.domain.throughput import Throughput
from gpuplan.planning.solve import CardNeed, KindNeed, Need, Reach, Solution
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible, wrapped
from gpuplan.present.numbers import count, gib, listed, tokens
from gpuplan.present.placement_text import shape_words
from gpuplan.present.plan_text import model_words
from gpuplan.present.strategy_table import NAMES
from gpuplan.present.throughput_words import rate
from gpuplan.units import plural

MOST_CARDS = 24
MOST_USERS = 10
NAME = 26


def solve_text(solution: Solution, width: int) -> Lines:
    """The answer in lines of at most `width` cells (80 and more)."""
    lines: list[Line] = [*_header(solution, width), EMPTY]
    if solution.fleet is not None:
        lines += [*_fleet(solution.fleet, width), EMPTY]
    elif solution.fleet_note:
        lines += [*wrapped(f"No fleet to ask: {solution.fleet_note}", width, role=Role.DIM), EMPTY]
    if solution.reach is not None:
        lines += [*_reach(solution, solution.reach, width), EMPTY]
    lines += _cards(solution, width)
    return tuple(lines)


def asked_words(solution: Solution) -> str:
    """`64 requests at once of 32,768 tokens each`."""
    request = solution.request
    users = plural(int(request.get("concurrency") or 1), "request")
    context = request.get("context")
    length = (
        "the model's longest context"
        if context == "max"
        else f"{tokens(int(context))} each"
        if context
        else None
    )
    return f"{users} at once" + (f" of {length}" if length else ", as long as fits")


def _header(solution: Solution, width: int) -> Iterator[Line]:
    request = solution.request
    yield line(Span(visible(str(solution.model["name"])), Role.TITLE))
    yield from wrapped(model_words(solution.model), width, first="  ", role=Role.DIM)
    replicas = int(request.get("replicas") or 1)
    share = request.get("gpu_memory_utilization")
    asked = [
        asked_words(solution),
        *([f"each of {count(replicas)} replicas"] if replicas > 1 else []),
        f"KV cache {request.get('kv_cache_dtype', 'auto')}",
        f"utilization {share}" if share else "claims only what it needs",
        f"vLLM {request.get('vllm_version', '?')}",
    ]
    yield from wrapped(" · ".join(asked), width, first="  ", role=Role.DIM)


# ---------------------------------------------------------------------- the fleet


def _fleet(kinds: tuple[KindNeed, ...], width: int) -> Iterator[Line]:
    yield line(Span("On this fleet: the fewest GPUs of each kind that serve it", Role.TITLE))
    for kind in kinds:
        there = f"{plural(kind.gpus, 'GPU')} on {plural(kind.hosts, 'host')}"
        yield line(f"  {visible(kind.device)}, {gib(kind.card_bytes)} each", Span(f" ({there})", Role.DIM))
        for need in kind.now or kind.idle:
            mark, role = ("✓", Role.GOOD) if kind.now else ("!", Role.WARNING)
            suffix = "" if kind.now else ", were nothing else running"
            yield from wrapped(f"{need_words(need)}{suffix}", width, first=f"    {mark} ", role=role)
        if not kind.now and not kind.idle:
            yield line(Span("    ✗ not even all of them, were nothing else running", Role.BAD))


def need_words(need: Need) -> str:
    """`single host: 4 GPUs on h1 (TP4), 316.76 GiB, 31 tokens/s for each user`."""
    names = list(dict.fromkeys(host.host for host in need.candidate.placement))
    words = [
        f"{NAMES[need.strategy]}: {plural(need.gpus, 'GPU')} on {visible(listed(names))} ({shape_words(need.candidate)})",
        gib(need.total_bytes),
    ]
    speed = _speed(need.candidate)
    if speed is not None:
        words.append(f"{rate(speed)} tokens/s for each user")
    return ", ".join(words)


def _speed(candidate: Candidate) -> float | None:
    told = candidate.throughput
    return told.decode.per_user if isinstance(told, Throughput) else None


def _reach(solution: Solution, reach: Reach, width: int) -> Iterator[Line]:
    names = list(dict.fromkeys(host.host for host in reach.candidate.placement))
    gpus = sum(len(host.gpus) for host in reach.candidate.placement)
    where = f"{plural(gpus, 'GPU')} on {visible(listed(names))} ({shape_words(reach.candidate)})"
    each = ", each replica" if reach.strategy is StrategyName.DATA_PARALLEL else ""
    yield from wrapped(f"How far the recommended placement goes{each}: {where}", width, role=Role.TITLE)
    users = int(solution.request.get("concurrency") or 1)
    yield from wrapped(
        f"{plural(users, 'request')} at once: up to {tokens(reach.context)} each", width, first="  "
    )
    memory = reach.candidate.memory
    if reach.concurrency is not None and memory is not None:
        most = plural(reach.concurrency, "request")
        yield from wrapped(f"{tokens(memory.max_model_len)} each: up to {most} at once", width, first="  ")
    yield line(Span(f"  {'requests at once':>16}  {'longest context':>15}", Role.DIM))
    for number, longest in reach.curve[:MOST_USERS]:
        yield line(f"  {count(number):>16}  {count(longest):>15}")
    if len(reach.curve) > MOST_USERS:
        yield line(Span(f"  … {len(reach.curve) - MOST_USERS} more rows (all in -o json)", Role.DIM))


# ---------------------------------------------------------------------- hardware


def _cards(solution: Solution, width: int) -> Iterator[Line]:
    each = " for each replica" if int(solution.request.get("replicas") or 1) > 1 else ""
    title = f"What hardware it would take{each}: the fewest of each card of `gpuplan gpus`"
    yield from wrapped(title, width, role=Role.TITLE)
    if not solution.cards:
        yield from wrapped(
            "no card of the catalogue serves it, not even on 8 hosts", width, first="  ", role=Role.BAD
        )
        return
    yield line(
        Span(
            f"  {padded('card', NAME)}{'GPUs':>5}{'hosts':>6}{'memory':>13}  {padded('shape', 10)}{'tokens/s':>9}",
            Role.DIM,
        )
    )
    for one in solution.cards[:MOST_CARDS]:
        yield _card(one)
    left = len(solution.cards) - MOST_CARDS
    if left > 0:
        yield line(Span(f"  … {plural(left, 'more card')} (all in -o json)", Role.DIM))
    yield from wrapped(
        "tokens/s: for each user, an estimate; hosts of 1, 2, 4 or 8 GPUs, of several all take 8",
        width,
        first="  ",
        role=Role.DIM,
    )
    if solution.too_small:
        names = visible(listed(solution.too_small, most=8))
        yield from wrapped(f"not even 8 hosts of: {names}", width, first="  ", role=Role.DIM)


def _card(one: CardNeed) -> Line:
    speed = _speed(one.need.candidate)
    return line(
        f"  {padded(visible(one.name), NAME)}{one.need.gpus:>5}{one.need.hosts:>6}{gib(one.need.total_bytes):>13}  "
        f"{padded(shape_words(one.need.candidate), 10)}{'–' if speed is None else rate(speed):>9}"
    )
