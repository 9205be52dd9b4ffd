"""Two candidates beside each other: claims, every term, capacity, shape, score, findings. Differences are B less A, signed."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from gpuplan.domain.plan import Candidate, PlacedGpu
from gpuplan.domain.throughput import Throughput
from gpuplan.present.capacity_curve import short_length
from gpuplan.present.cost_words import amount
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible, width_of, wrapped
from gpuplan.present.findings import word
from gpuplan.present.numbers import count, gib, gpu_range, times
from gpuplan.present.placement_text import shape_words
from gpuplan.present.plan_changes import signed_count
from gpuplan.present.refusal_text import finding_lines
from gpuplan.present.strategy_table import VERDICTS, where
from gpuplan.present.terms import RankGroup, rank_groups, signed_gib
from gpuplan.present.throughput_words import BOUNDS, rate, seconds

SIDE_BY_SIDE = 100
"""Cells; narrower, B stands under A."""
ALL_USERS = "all users"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A candidate with the words it goes by."""

    title: str
    """`single GPU, candidate 1, Qwen/Qwen3-32B`."""
    candidate: Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing both have, or one of them."""

    name: str
    a: str
    b: str
    difference: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Rows under one title."""

    title: str
    rows: tuple[Row, ...]


def comparison(a: Candidate, b: Candidate) -> tuple[Block, ...]:
    """Everything that can be told of both."""
    blocks = [
        Block(title="placement", rows=tuple(_placement(a, b))),
        Block(title="claim of each GPU", rows=tuple(_claims(a, b))),
    ]
    for first, second in zip_longest(rank_groups(a), rank_groups(b)):
        blocks.append(Block(title=_ranks(first, second), rows=tuple(_terms(first, second))))
    blocks.append(Block(title="capacity", rows=tuple(_capacity(a, b))))
    blocks.append(Block(title="tokens per second (estimated)", rows=tuple(_speed(a, b))))
    blocks.append(Block(title="cost and energy", rows=tuple(_cost(a, b))))
    blocks.append(Block(title="score (compared in this order)", rows=tuple(_score(a, b))))
    return tuple(block for block in blocks if block.rows)


def comparison_lines(a: Compared, b: Compared, width: int) -> Lines:
    """The comparison in lines of at most `width` cells."""
    lines: list[Line] = [
        *wrapped(a.title, width, first="A  ", role=Role.TITLE),
        *wrapped(b.title, width, first="B  ", role=Role.TITLE),
    ]
    wide = width >= SIDE_BY_SIDE
    for block in comparison(a.candidate, b.candidate):
        lines.append(EMPTY)
        lines += _block(block, width) if wide else _stacked(block, width)
    lines += _findings(a.candidate, b.candidate, width)
    return tuple(lines)


def _block(block: Block, width: int) -> Iterator[Line]:
    name, difference = 40, 16
    column = (width - name - difference) // 2
    yield line(
        Span(padded(block.title, name), Role.TITLE),
        Span(f"{'A':>{column - 1}} {'B':>{column - 1}} {'B less A':>{difference - 1}}", Role.DIM),
    )
    for row in block.rows:
        a, b = visible(row.a), visible(row.b)
        if max(width_of(a), width_of(b)) >= column:
            yield from _below(row, width)
            continue
        yield line(
            padded(f"  {visible(row.name)}", name),
            padded(a, column - 1, right=True) + " ",
            padded(b, column - 1, right=True) + " ",
            Span(padded(row.difference, difference - 1, right=True), _role(row)),
        )


def _stacked(block: Block, width: int) -> Iterator[Line]:
    yield line(Span(block.title, Role.TITLE))
    for row in block.rows:
        yield from _below(row, width)


def _below(row: Row, width: int) -> Iterator[Line]:
    """A row on several lines: A, under it B with the difference; once where both are the same."""
    name = f"  {padded(visible(row.name), 30)} "
    if row.a == row.b:
        yield from wrapped(row.a, width, first=name, rest=" " * 33, role=Role.DIM)
        return
    yield from wrapped(f"A {row.a}", width, first=name, rest=" " * 35)
    words = f"B {row.b}" + (f"  ({row.difference})" if row.difference else "")
    yield from wrapped(words, width, first=" " * 33, rest=" " * 35, role=_role(row))


def _role(row: Row) -> Role:
    return Role.DIM if row.a == row.b else Role.HINT


def _placement(a: Candidate, b: Candidate) -> Iterator[Row]:
    yield Row(name="verdict", a=VERDICTS[a.verdict][0], b=VERDICTS[b.verdict][0])
    yield Row(name="GPUs", a=where(a), b=where(b))
    yield Row(name="shape", a=shape_words(a), b=shape_words(b))


def _claims(a: Candidate, b: Candidate) -> Iterator[Row]:
    """By host and GPU; alike ones of a host are one row."""
    first, second = _by_place(a), _by_place(b)
    rows: dict[tuple[str, str, str, str], list[int]] = {}
    for host, index in sorted({*first, *second}):
        one, other = first.get((host, index)), second.get((host, index))
        difference = signed_gib(other.claim_bytes - one.claim_bytes) if one and other else ""
        rows.setdefault((host, _claim(one), _claim(other), difference), []).append(index)
    for (host, one_words, other_words, difference), indexes in rows.items():
        yield Row(name=f"{host}:{gpu_range(indexes)}", a=one_words, b=other_words, difference=difference)


def _by_place(candidate: Candidate) -> dict[tuple[str, int], PlacedGpu]:
    return {(host.host, gpu.index): gpu for host in candidate.placement for gpu in host.gpus}


def _claim(gpu: PlacedGpu | None) -> str:
    return "–" if gpu is None else gib(gpu.claim_bytes)


def _ranks(a: RankGroup | None, b: RankGroup | None) -> str:
    names = list(dict.fromkeys(group.title for group in (a, b) if group is not None))
    return f"memory of {names[0]}" + (f" (A), {names[1]} (B)" if len(names) > 1 else "")


def _terms(a: RankGroup | None, b: RankGroup | None) -> Iterator[Row]:
    first, second = _sizes(a), _sizes(b)
    for name in first or second:
        yield _size(name, first.get(name), second.get(name))


def _sizes(group: RankGroup | None) -> dict[str, int]:
    if group is None:
        return {}
    rank = group.memory
    return {
        **{term.name: term.bytes for term in (rank.budget, *rank.terms)},
        "KV cache": rank.kv_cache_bytes,
        "KV needed": rank.kv_needed_bytes,
        "headroom": rank.headroom_bytes,
    }


def _size(name: str, a: int | None, b: int | None) -> Row:
    difference = signed_gib(b - a) if a is not None and b is not None else ""
    return Row(
        name=name, a="–" if a is None else gib(a), b="–" if b is None else gib(b), difference=difference
    )


def _number(name: str, a: int | None, b: int | None) -> Row:
    difference = signed_count(b - a) if a is not None and b is not None else ""
    return Row(
        name=name, a="–" if a is None else count(a), b="–" if b is None else count(b), difference=difference
    )


def _capacity(a: Candidate, b: Candidate) -> Iterator[Row]:
    one, other = a.memory, b.memory
    if one is None and other is None:
        return
    for name, field in (
        ("context", "max_model_len"),
        ("longest context of one request", "largest_max_model_len"),
        ("tokens in the KV cache", "kv_cache_tokens"),
    ):
        yield _number(
            name,
            None if one is None else getattr(one, field),
            None if other is None else getattr(other, field),
        )
    first = dict(one.concurrency_curve) if one is not None else {}
    second = dict(other.concurrency_curve) if other is not None else {}
    for length in sorted({*first, *second}):
        yield _at_once(f"requests of {short_length(length)} at once", first.get(length), second.get(length))


def _at_once(name: str, a: float | None, b: float | None) -> Row:
    difference = ""
    if a is not None and b is not None:
        sign = "±" if times(a) == times(b) else "+" if b > a else "−"
        difference = f"{sign}{times(abs(b - a))}" if sign != "±" else "±0"
    return Row(
        name=name,
        a="–" if a is None else times(a),
        b="–" if b is None else times(b),
        difference=difference,
    )


def _speed(a: Candidate, b: Candidate) -> Iterator[Row]:
    one, other = _figures(a), _figures(b)
    if not one and not other:
        return
    for name in one or other:
        first, second = one.get(name), other.get(name)
        if isinstance(first, str) or isinstance(second, str):
            yield Row(name=name, a=str(first or "–"), b=str(second or "–"))
        else:
            yield _rate(name, first, second)


def _figures(candidate: Candidate) -> dict[str, float | str]:
    told = candidate.throughput
    if not isinstance(told, Throughput):
        return {}
    return {
        "each user": told.decode.per_user,
        ALL_USERS: told.decode.total,
        "at": f"{count(told.decode.users)} x {count(told.decode.context)} tokens",
        "bound by": BOUNDS[told.decode.bound],
        "prompt tokens": told.prefill_tokens_per_second,
        "first token of such a prompt": seconds(told.first_token_seconds),
    }


def _rate(name: str, a: float | None, b: float | None) -> Row:
    difference = ""
    if a is not None and b is not None:
        difference = "±0" if rate(a) == rate(b) else ("+" if b > a else "−") + rate(abs(b - a))
    return Row(
        name=name, a="–" if a is None else rate(a), b="–" if b is None else rate(b), difference=difference
    )


def _cost(a: Candidate, b: Candidate) -> Iterator[Row]:
    one, other = _costs(a), _costs(b)
    for name in dict.fromkeys((*one, *other)):
        first, second = one.get(name), other.get(name)
        difference = ""
        if first is not None and second is not None:
            less = amount(abs(second - first))
            difference = "±0" if amount(first) == amount(second) else ("+" if second > first else "−") + less
        yield Row(
            name=name,
            a="–" if first is None else amount(first),
            b="–" if second is None else amount(second),
            difference=difference,
        )


def _costs(candidate: Candidate) -> dict[str, float]:
    cost = candidate.cost
    if cost is None:
        return {}
    found = {}
    if cost.money is not None:
        found[f"{cost.money.currency} an hour"] = cost.money.per_hour
    if cost.energy is not None:
        found["kilowatts"] = cost.energy.kilowatts
    if cost.tokens and cost.tokens[0].money is not None and cost.money is not None:
        found[f"{cost.money.currency} a million output tokens"] = cost.tokens[0].money.value
    return found


def _score(a: Candidate, b: Candidate) -> Iterator[Row]:
    one, other = a.score, b.score
    yield Row(name="needs Ray", a="yes" if one.ray else "no", b="yes" if other.ray else "no")
    yield _number("hosts not ready", one.unready_hosts, other.unready_hosts)
    yield _number("GPUs", one.gpus, other.gpus)
    yield _number("hosts", one.hosts, other.hosts)
    yield _number("pipeline stages", one.stages, other.stages)
    yield _size("memory of the cards taken", one.total_bytes, other.total_bytes)
    first, second = _figures(a).get(ALL_USERS), _figures(b).get(ALL_USERS)
    if isinstance(first, float) and isinstance(second, float):
        yield _rate("tokens/s of all users", first, second)
    yield _size("free on them now", one.free_bytes, other.free_bytes)


def _findings(a: Candidate, b: Candidate, width: int) -> Iterator[Line]:
    """Findings that one has and the other has not."""
    first = {repr(fact): fact for fact in a.facts}
    second = {repr(fact): fact for fact in b.facts}
    for name, own, others in (("A", first, second), ("B", second, first)):
        alone = [fact for key, fact in own.items() if key not in others]
        if alone:
            yield EMPTY
            yield line(Span(f"findings of {name} alone", Role.TITLE))
        for fact in alone:
            finding = word(fact)
            yield from finding_lines(finding, width)
