"""How many requests fit at once at each context: a chart of columns and the numbers. The figures are the estimate's own."""

import math
from collections.abc import Iterator

from gpuplan.domain.memory import MemoryEstimate
from gpuplan.present.document import Line, Role, Span, line, wrapped
from gpuplan.present.numbers import count, times

HEIGHT = 6
"""Rows of the chart at most; each is eight steps."""
COLUMN = 6
STEPS = " ▁▂▃▄▅▆▇█"


def short_length(tokens: int) -> str:
    """`4k`, `128k`, `1M`; what is no multiple of 1024 with its digits: `40,960` is `40k`, `131,071` stays."""
    if tokens and tokens % 1024**2 == 0:
        return f"{tokens // 1024**2}M"
    if tokens and tokens % 1024 == 0:
        return f"{tokens // 1024}k"
    return count(tokens)


def requests(number: float) -> str:
    """`7.8`; just under one request is never rounded up to one: `0.98`."""
    words = times(number)
    return f"{min(number, 0.99):.2f}" if number < 1 and words == times(1) else words


def chart_lines(memory: MemoryEstimate, width: int) -> Iterator[Line]:
    """Columns of requests over context, both doubling; what does not fit once has no column."""
    points = _points(memory, max(2, (width - 9) // COLUMN))
    fitting = [number for _, number in points if number >= 1]
    if not fitting:
        yield from wrapped("not one request of 4k tokens fits", width, role=Role.BAD)
        return
    top = max(1, math.ceil(math.log2(max(fitting))))
    doublings = math.ceil(top / HEIGHT)
    yield from wrapped(f"requests at once (each row: {2**doublings} times as many)", width, role=Role.DIM)
    for row in range(math.ceil(top / doublings), 0, -1):
        cells = "".join(_cell(number, doublings, row) for _, number in points)
        mark = count(2 ** (doublings * row))
        yield line(Span(f"{mark:>7} ┤", Role.DIM), Span(cells.rstrip(), Role.CACHE))
    yield line(Span(f"{'1':>7} └" + "─" * (COLUMN * len(points)), Role.DIM))
    labels = "".join(f"{short_length(length):>{COLUMN - 1}} " for length, _ in points)
    yield line(Span(" " * 9 + labels.rstrip(), Role.DIM))
    yield line(Span(" " * 9 + "context (tokens of a request)", Role.DIM))


def _points(memory: MemoryEstimate, most: int) -> list[tuple[int, float]]:
    """The curve's points; of too many for the width the shortest contexts are left out."""
    points = list(memory.concurrency_curve)
    return points[-most:]


def _cell(number: float, doublings: int, row: int) -> str:
    """The part of a column in one row; a row is so many doublings high, the first begins at 1."""
    if number < 1:
        return " " * COLUMN
    eighths = round(math.log2(number) / doublings * 8)
    part = min(8, max(0, eighths - (row - 1) * 8))
    if row == 1 and part == 0:
        part = 1
    return "  " + STEPS[part] * (COLUMN - 3) + " "


def table_lines(memory: MemoryEstimate, width: int) -> Iterator[Line]:
    """Context, requests at once, and what stands against it."""
    yield line(Span(f"{'context':>10}{'requests at once':>18}", Role.DIM))
    planned = (memory.max_model_len, memory.max_concurrency)
    for length, number in sorted({*memory.concurrency_curve, planned}):
        remark, role = _remark(memory, length, number)
        yield line(f"{count(length):>10}{requests(number):>18}", Span(f"  {remark}" if remark else "", role))
    yield from wrapped(
        f"the engine runs at most {count(memory.max_num_seqs)} at once (max_num_seqs); more wait",
        width,
        role=Role.DIM,
    )


def _remark(memory: MemoryEstimate, length: int, number: float) -> tuple[str, Role]:
    if number < 1 or length > memory.largest_max_model_len:
        return "not one fits", Role.BAD
    if length == memory.max_model_len:
        return "planned", Role.GOOD
    if length > memory.max_model_len:
        return "longer than the planned context", Role.DIM
    return "", Role.PLAIN
