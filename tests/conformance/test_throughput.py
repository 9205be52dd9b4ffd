"""The roofline against 43 published measurements: A100, H100, H200, H20, MI300X, GB10, consumer cards; 1 to 64 users.

The shares and latencies of `engine.throughput` are round numbers, chosen once with some of these rows in sight and not
adjusted to the comparison; LOW and HIGH are read off it. The engines are vLLM and, for 9 rows, SGLang. As it stands: the
median estimate is 16 % off, 84 % lie within a factor of 1.5 and 93 % within 2, estimates are 17 % above the
measurements on average. Mixtures of experts are the worst: kernels of young models reach less. The bounds leave little
more than that.
"""

import math
import statistics

import pytest

from gpuplan.domain.throughput import Bound
from gpuplan.engine.throughput import HIGH, LOW
from tests.conformance.throughput_cases import Compared, compared


def _within(factor: float, items: tuple[Compared, ...]) -> float:
    return sum(max(item.ratio, 1 / item.ratio) <= factor for item in items) / len(items)


def test_the_median_estimate_is_less_than_a_fifth_off() -> None:
    assert len(compared()) >= 30
    assert statistics.median(abs(item.ratio - 1) for item in compared()) <= 0.2


def test_most_estimates_are_within_a_factor() -> None:
    assert _within(1.5, compared()) >= 0.83
    assert _within(2, compared()) >= 0.92


def test_estimates_are_neither_high_nor_low_on_the_whole() -> None:
    mean = math.exp(statistics.mean(math.log(item.ratio) for item in compared()))
    assert 0.95 <= mean <= 1.2
    many = [item.ratio for item in compared() if item.row["users"] > 1]
    assert 0.85 <= statistics.median(many) <= 1.1


def test_the_stated_error_holds_for_four_of_five() -> None:
    held = sum(LOW <= 1 / item.ratio <= HIGH for item in compared()) / len(compared())
    assert held >= 0.8


@pytest.mark.parametrize("item", compared(), ids=lambda item: item.label)
def test_every_estimate_is_within_a_factor_of_three(item: Compared) -> None:
    assert 1 / 3 <= item.ratio <= 3


def test_one_user_of_a_large_dense_model_waits_for_memory() -> None:
    large = [item for item in compared() if "72B" in item.row["model"]]
    assert large
    assert {item.estimate.decode.bound for item in large} == {Bound.MEMORY}


def test_every_measurement_has_a_source_of_its_own() -> None:
    rows = [item.row for item in compared()]
    assert all(row["source"].startswith("https://") for row in rows)
    keys = [
        (row["model"], row["gpu"], row["tensor"], row["users"], row["prompt"], row["measure"]) for row in rows
    ]
    assert len(set(keys)) == len(keys)
    assert len({row["source"] for row in rows}) >= 12
