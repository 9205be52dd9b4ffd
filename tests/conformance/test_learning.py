"""Published starts, each predicted with what all the others taught: learning helps where there is a like one, and harms nowhere.

Figures in percent of the budget; `python -m tests.benchmarks.learning` prints them start by start.
"""

from statistics import fmean, median

import pytest

from tests.benchmarks.learning import LeftOut, left_out, logged


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> tuple[LeftOut, ...]:
    return tuple(left_out(list(logged(tmp_path_factory.mktemp("models")))))


def test_a_like_start_brings_the_prediction_nearer(answers: tuple[LeftOut, ...]) -> None:
    like = [one for one in answers if one.touched]
    assert len(like) >= 5
    assert median(abs(one.after) for one in like) <= median(abs(one.before) for one in like)
    assert fmean(abs(one.after) for one in like) <= fmean(abs(one.before) for one in like)


def test_the_same_start_is_predicted_within_half_a_percent(answers: tuple[LeftOut, ...]) -> None:
    same = [one for one in answers if one.whole]
    assert len(same) >= 4
    assert all(abs(one.after) <= 0.5 and one.inside for one in same)


def test_what_no_like_start_was_seen_of_stays_as_it_was(answers: tuple[LeftOut, ...]) -> None:
    assert all(one.after == one.before for one in answers if not one.touched)
