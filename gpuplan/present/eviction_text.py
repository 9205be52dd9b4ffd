"""What is stopped to make room, in words: each deployment with its places, requests in flight and keep-alive (S4.6)."""

from collections.abc import Iterator, Sequence

from gpuplan.domain.plan import Eviction
from gpuplan.present.document import Line, Role, wrapped
from gpuplan.present.numbers import gpu_range, span
from gpuplan.units import plural


def load_words(running: int | None) -> str:
    """`idle`, `2 requests in flight`."""
    if running is None:
        return "its requests in flight are not known"
    return f"{plural(running, 'request')} in flight" if running else "idle"


def keep_alive_words(seconds: int | None) -> str:
    """`no keep-alive`, `keep-alive 10 min`."""
    if seconds is None:
        return "no keep-alive"
    return "pinned" if seconds < 0 else f"keep-alive {span(seconds)}"


def eviction_words(eviction: Eviction) -> str:
    """`qwen3-4b on h1:0-1: idle, keep-alive 10 min`."""
    given: dict[str, list[int]] = {}
    for host, index, _ in eviction.gpus:
        given.setdefault(host, []).append(index)
    places = ", ".join(f"{host}:{gpu_range(tuple(sorted(indexes)))}" for host, indexes in given.items())
    where = f" on {places}" if places else ""
    load = load_words(eviction.running_requests)
    return f"{eviction.deployment}{where}: {load}, {keep_alive_words(eviction.keep_alive_seconds)}"


def evictions_text(evictions: Sequence[Eviction], width: int) -> Iterator[Line]:
    """For somebody who is asked to agree: who is stopped, and what becomes of it."""
    for one in evictions:
        yield from wrapped(f"stops {eviction_words(one)}", width, first="  ", rest="    ", role=Role.WARNING)
    if evictions:
        it = "it runs" if len(evictions) == 1 else "they run"
        text = f"to make room; {it} again if the new one does not serve, and is removed once it does"
        if len(evictions) > 1:
            text = f"to make room; {it} again if the new one does not serve, and are removed once it does"
        yield from wrapped(text, width, first="    ", role=Role.DIM)


def evicts_words(evictions: Sequence[Eviction]) -> str:
    """`stops 2 other deployments`; empty where none is."""
    return f"stops {plural(len(evictions), 'other deployment')}" if evictions else ""
