"""What is different from the plan before: verdict, context, tokens, memory, claims, recommendation. Nothing where nothing is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuplan.domain.plan import Candidate, Plan, StrategyName, StrategyResult
from gpuplan.present.cost_words import amount
from gpuplan.present.document import Lines, Role, wrapped
from gpuplan.present.numbers import count, gib, gpu_range, listed, times
from gpuplan.present.placement_text import shape_words
from gpuplan.present.strategy_table import NAMES, VERDICTS, where
from gpuplan.present.terms import signed_short

NOT_COMPARED = frozenset({"reference"})
"""Keys of a request that say what another one says already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that is different."""

    key: str
    """Stable: `weights`, `claim h1:0`."""
    words: str
    role: Role = Role.PLAIN


def plan_changes(
    before: Plan | None, after: Plan, strategy: int, choice: tuple[int, int] | None = None
) -> tuple[Change, ...]:
    """Differences of the request, of one strategy (its candidate in `choice`, else its first) and of the recommendation."""
    if before is None or before is after:
        return ()
    result = after.strategies[strategy]
    earlier = next((one for one in before.strategies if one.strategy is result.strategy), None)
    if before.model["name"] != after.model["name"]:
        return (Change(key="model", words=f"model {before.model['name']} → {after.model['name']}"),)
    changes = list(asked_changes(before.request, after.request))
    if earlier is not None:
        changes += _strategy(earlier, result, choice)
    if before.recommended != after.recommended:
        words = f"recommended: {_recommended(before)} → {_recommended(after)}"
        changes.append(Change(key="recommended", words=words, role=Role.TITLE))
    return tuple(changes)


def change_lines(changes: Sequence[Change], width: int) -> Lines:
    """A line for each."""
    return tuple(
        row
        for change in changes
        for row in wrapped(change.words, width, first="  ", rest="    ", role=change.role)
    )


def asked_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    """Of what was asked, key by key."""
    for key in dict.fromkeys((*before, *after)):
        then, now = before.get(key), after.get(key)
        if then != now and key not in NOT_COMPARED:
            name = key.replace("_", " ")
            yield Change(key=f"asked {key}", words=f"asked: {name} {_asked(then)} → {_asked(now)}")


def _asked(value: Any) -> str:
    match value:
        case None | () | []:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int():
            return count(value)
        case list() | tuple():
            return " ".join(str(item) for item in value)
        case _:
            return str(value)


def _strategy(
    before: StrategyResult, after: StrategyResult, choice: tuple[int, int] | None
) -> Iterator[Change]:
    if before.verdict is not after.verdict:
        role = VERDICTS[after.verdict][1]
        words = f"{NAMES[after.strategy]}: {VERDICTS[before.verdict][0]} → {VERDICTS[after.verdict][0]}"
        yield Change(key="verdict", words=words, role=role)
    if not before.candidates or not after.candidates:
        return
    index = choice[1] if choice is not None else 0
    now = after.candidates[index]
    then = _same(before.candidates, now, index)
    yield from candidate_changes(then, now)


def _same(candidates: tuple[Candidate, ...], now: Candidate, index: int) -> Candidate:
    """The candidate of the same GPUs and sizes, else that of the same place in the list, else the first."""
    for one in candidates:
        if same_place(one, now):
            return one
    return candidates[index] if index < len(candidates) else candidates[0]


def same_place(one: Candidate, other: Candidate) -> bool:
    """Whether two candidates are the same shape on the same GPUs."""
    return (
        one.parallelism == other.parallelism
        and len(one.placement) == len(other.placement)
        and all(
            a.host == b.host and [gpu.index for gpu in a.gpus] == [gpu.index for gpu in b.gpus]
            for a, b in zip(one.placement, other.placement, strict=True)
        )
    )


def candidate_changes(before: Candidate, after: Candidate) -> Iterator[Change]:
    """Place, shape, context, tokens, memory of the fullest GPU, claims."""
    if where(before) != where(after):
        yield Change(key="where", words=f"GPUs {where(before)} → {where(after)}")
    if shape_words(before) != shape_words(after):
        yield Change(key="shape", words=f"shape {shape_words(before)} → {shape_words(after)}")
    then, now = before.memory, after.memory
    if then is not None and now is not None:
        yield from _count("context", then.max_model_len, now.max_model_len)
        yield from _count(
            "longest context of one request", then.largest_max_model_len, now.largest_max_model_len
        )
        yield from _count("tokens in the KV cache", then.kv_cache_tokens, now.kv_cache_tokens)
        yield from _times("requests of that context at once", then.max_concurrency, now.max_concurrency)
        poorest_then = min(then.ranks, key=lambda rank: rank.kv_cache_bytes)
        poorest = min(now.ranks, key=lambda rank: rank.kv_cache_bytes)
        terms = zip((poorest_then.budget, *poorest_then.terms), (poorest.budget, *poorest.terms), strict=True)
        for term_then, term in terms:
            yield from _size(term.name, term_then.bytes, term.bytes)
        yield from _size("KV cache", poorest_then.kv_cache_bytes, poorest.kv_cache_bytes)
        yield from _size("headroom", poorest_then.headroom_bytes, poorest.headroom_bytes)
    yield from _claims(before, after)
    yield from _cost(before, after)


def _cost(before: Candidate, after: Candidate) -> Iterator[Change]:
    then, now = (
        f"{amount(one.cost.money.per_hour)} {one.cost.money.currency}"
        if one.cost is not None and one.cost.money is not None
        else None
        for one in (before, after)
    )
    if then is not None and now is not None and then != now:
        yield Change(key="cost", words=f"an hour costs {then} → {now}")


def _claims(before: Candidate, after: Candidate) -> Iterator[Change]:
    """Claims on GPUs that both have, equal changes together."""
    then = {place: gpu.claim_bytes for place, gpu in _gpus(before)}
    alike: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for place, gpu in _gpus(after):
        old = then.get(place)
        if old is not None and old != gpu.claim_bytes:
            alike.setdefault((old, gpu.claim_bytes), []).append(place)
    for (old, new), places in alike.items():
        hosts: dict[str, list[int]] = {}
        for host, index in places:
            hosts.setdefault(host, []).append(index)
        on = listed([f"{host}:{gpu_range(indexes)}" for host, indexes in hosts.items()])
        yield from _size(f"claim on {on}", old, new)


def _gpus(candidate: Candidate) -> Iterator[tuple[tuple[str, int], Any]]:
    for host in candidate.placement:
        for gpu in host.gpus:
            yield (host.host, gpu.index), gpu


def _size(name: str, before: int, after: int) -> Iterator[Change]:
    """`KV cache 41.20 → 37.90 GiB (−3.30)`."""
    if before == after:
        return
    first, second = gib(before), gib(after)
    if first == second:
        return
    if first.endswith(" GiB") and second.endswith(" GiB"):
        words = f"{name} {first.removesuffix(' GiB')} → {second} ({signed_short(after - before)})"
    else:
        words = f"{name} {first} → {second}"
    yield Change(key=name, words=words)


def _count(name: str, before: int, after: int) -> Iterator[Change]:
    """`context 32,768 → 65,536 (+32,768)`."""
    if before != after:
        yield Change(
            key=name, words=f"{name} {count(before)} → {count(after)} ({signed_count(after - before)})"
        )


def _times(name: str, before: float, after: float) -> Iterator[Change]:
    before, after = round(before, 3), round(after, 3)  # as a saved plan has them
    if times(before) != times(after):
        sign = "+" if after > before else "−"
        words = f"{name} {times(before)} → {times(after)} ({sign}{times(abs(after - before))})"
        yield Change(key=name, words=words)


def signed_count(number: int) -> str:
    """`+32,768`, `−1`, `±0`."""
    return ("+" if number > 0 else "−" if number < 0 else "±") + count(abs(number))


def _recommended(plan: Plan) -> str:
    if plan.recommended is None:
        return "nothing"
    name, index = plan.recommended
    return _named(name, index)


def _named(name: StrategyName, index: int) -> str:
    return NAMES[name] if index == 0 else f"{NAMES[name]}, candidate {index + 1}"
