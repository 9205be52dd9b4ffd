"""Context against requests: the estimate's own figures, as columns and as a table."""

import itertools
from dataclasses import replace

import pytest

from gpuplan.domain.memory import MemoryEstimate
from gpuplan.present.capacity_curve import chart_lines, requests, short_length, table_lines
from gpuplan.present.document import text_of, width_of
from gpuplan.present.numbers import count, times
from tests.made_plans import at, choices, many

PLANS = ["fits", "stages", "replicas", "mixed", "overcommit"]


def _memory(name: str) -> MemoryEstimate:
    plan = many()[name]
    memory = at(plan, choices(plan)[0]).memory
    assert memory is not None
    return memory


@pytest.mark.parametrize("name", PLANS)
def test_the_curve_has_the_points_the_plan_names_and_falls(name: str) -> None:
    memory = _memory(name)
    curve = dict(memory.concurrency_curve)
    assert {length: curve[length] for length, _ in memory.concurrency_at} == dict(memory.concurrency_at)
    assert all(later <= earlier for earlier, later in itertools.pairwise(curve.values()))
    assert min(curve) == 4096


@pytest.mark.parametrize("name", PLANS)
def test_the_table_has_every_point_and_the_planned_one(name: str) -> None:
    memory = _memory(name)
    text = text_of(tuple(table_lines(memory, 76)))
    for length, number in memory.concurrency_curve:
        assert f"{count(length):>10}{requests(number):>18}" in text
    planned = next(row for row in text.split("\n") if row.endswith("planned"))
    assert count(memory.max_model_len) in planned
    assert times(memory.max_concurrency) in planned
    assert count(memory.max_num_seqs) in text


@pytest.mark.parametrize("width", [40, 76, 120])
@pytest.mark.parametrize("name", PLANS)
def test_the_chart_fits_and_falls(name: str, width: int) -> None:
    lines = tuple(chart_lines(_memory(name), width))
    assert all(sum(width_of(span.text) for span in line) <= width for line in lines)
    columns = [sum(span.text.count("█") for span in line) for line in lines[1:-3]]
    assert columns == sorted(columns)
    text = text_of(lines)
    assert "requests at once" in text
    assert "context (tokens of a request)" in text


def test_what_does_not_fit_once_has_no_column_and_is_said() -> None:
    memory = _memory("overcommit")
    lengths = [length for length, number in memory.concurrency_curve if number < 1]
    assert lengths
    text = text_of(tuple(table_lines(memory, 76)))
    assert all(
        any(count(length) in row and "not one fits" in row for row in text.split("\n")) for length in lengths
    )


def test_a_cache_for_not_one_request_has_no_chart() -> None:
    memory = replace(_memory("fits"), concurrency_curve=((4096, 0.4), (8192, 0.2)))
    assert "not one request" in text_of(tuple(chart_lines(memory, 76)))


@pytest.mark.parametrize(
    ("tokens", "words"),
    [(4096, "4k"), (131072, "128k"), (1048576, "1M"), (131071, "131,071"), (40960, "40k")],
)
def test_lengths_are_short(tokens: int, words: str) -> None:
    assert short_length(tokens) == words


def test_just_under_one_request_is_not_one() -> None:
    assert [requests(number) for number in (0.9767, 0.9999, 0.5, 1.0, 7.84)] == [
        "0.98",
        "0.99",
        "0.5",
        "1.0",
        "7.8",
    ]
