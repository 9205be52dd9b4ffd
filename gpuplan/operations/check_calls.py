"""Calls to many hosts at once, of which those that take too long are left behind."""

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TypeVar

from gpuplan.sources.deadline import Deadline, DeadlineExceeded, as_finished

WORKERS = 64
"""Hosts asked at once."""

T = TypeVar("T")


def each(calls: Mapping[str, Callable[[], T]], *, seconds: float) -> dict[str, T]:
    """Results by name of the calls that ended in time; the others are abandoned. `seconds` is for each batch."""
    names = list(calls)
    batches = -(-len(names) // WORKERS)
    results: dict[str, T] = {}
    try:
        with closing(
            as_finished(
                [calls[name] for name in names], workers=WORKERS, deadline=Deadline(max(1, batches) * seconds)
            )
        ) as finished:
            for call in finished:
                results[names[call.number]] = call.result()
    except DeadlineExceeded:
        pass
    return results
