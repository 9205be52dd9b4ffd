"""Two answers compared, and which change accounts for another answer."""

from dataclasses import replace

import pytest

from gpuplan.domain.fleet import Fleet, HostStatus
from gpuplan.domain.plan import Parallelism, StrategyName, Verdict
from gpuplan.planning.answers import (
    Answer,
    Cause,
    Conclusion,
    Factor,
    Level,
    answer_of,
    concluded,
    level,
    moved_hosts,
    tried,
)
from tests.fleets import host
from tests.made_plans import made

HERE = Answer(strategy=StrategyName.SINGLE_GPU, place=(("h1", (0,)),), shape=Parallelism(), context=8192)
THERE = Answer(strategy=StrategyName.SINGLE_GPU, place=(("h2", (0,)),), shape=Parallelism(), context=8192)
NOTHING = Answer()
FLEET = Cause(kind="fleet")
MODEL = Cause(kind="model")


def factor(name: str, answer: Answer) -> Factor:
    return Factor(kind="asked", key=name, undone=lambda: answer)


def never() -> Answer:
    raise AssertionError("nothing is planned where the answers agree")


def test_an_answer_is_the_recommendation_and_the_verdicts() -> None:
    answer = answer_of(made("Qwen/Qwen3-32B", context="8k"))
    assert answer.fits
    assert answer.context == 8000
    assert dict(answer.verdicts)[StrategyName.SINGLE_GPU] is Verdict.FITS
    assert not answer_of(made("Qwen/Qwen3-32B", vram_claim="10TiB")).fits


@pytest.mark.parametrize(
    ("first", "second", "differs"),
    [
        (HERE, HERE, None),
        (HERE, NOTHING, Level.FITS),
        (NOTHING, HERE, Level.FITS),
        (NOTHING, Answer(refusal="no GPU"), None),
        (HERE, THERE, Level.PLACE),
        (
            HERE,
            Answer(strategy=StrategyName.MANUAL, place=HERE.place, shape=HERE.shape, context=8192),
            None,
        ),
        (
            HERE,
            Answer(strategy=StrategyName.OFFLOAD, place=HERE.place, shape=HERE.shape, context=8192),
            Level.PLACE,
        ),
        (
            HERE,
            Answer(strategy=StrategyName.SINGLE_GPU, place=HERE.place, shape=HERE.shape, context=4096),
            Level.CONTEXT,
        ),
        (
            HERE,
            Answer(
                strategy=StrategyName.SINGLE_GPU,
                place=HERE.place,
                shape=HERE.shape,
                context=8192,
                verdicts=((StrategyName.SINGLE_HOST, Verdict.NO_FIT),),
            ),
            Level.VERDICTS,
        ),
    ],
)
def test_the_gravest_difference_is_told(first: Answer, second: Answer, differs: Level | None) -> None:
    assert level(first, second) is differs


def conclusion(
    causes: tuple[Cause, ...], left: tuple[Cause, ...] = (), together: Answer | None = None
) -> tuple[Conclusion, list[str]]:
    found, ordered = concluded(HERE, NOTHING, causes, left, together)
    return found, [one.key or one.kind for one in ordered]


def test_nothing_is_tried_where_the_answers_agree() -> None:
    assert tried(HERE, HERE, [Factor(kind="asked", key="x", undone=never)]) == ()
    assert concluded(HERE, HERE, (), (FLEET,)) == (Conclusion.SAME, ())


def test_a_change_that_brings_the_answer_back_alone_is_the_cause() -> None:
    causes = tried(HERE, NOTHING, [factor("a", NOTHING), factor("b", THERE)])
    assert [one.restores for one in causes] == [False, True], "something fits again: that is what was lost"
    assert conclusion(causes, (FLEET,)) == (Conclusion.FOUND, ["b", "a"])


def test_where_the_place_moved_the_place_must_come_back() -> None:
    causes = tried(HERE, THERE, [factor("a", NOTHING), factor("b", HERE)])
    assert [one.restores for one in causes] == [False, True]


def test_changes_may_only_together_account_for_it() -> None:
    causes = tried(HERE, NOTHING, [factor("a", NOTHING), factor("b", NOTHING)])
    assert conclusion(causes, (), HERE) == (Conclusion.TOGETHER, ["a", "b"])
    assert conclusion(causes, (), NOTHING) == (Conclusion.HIDDEN, ["a", "b"])


def test_what_could_not_be_taken_back_is_left() -> None:
    causes = tried(HERE, NOTHING, [factor("a", NOTHING)])
    assert conclusion(causes, (FLEET,)) == (Conclusion.LEFT, ["fleet", "a"])
    assert conclusion(causes, (FLEET, MODEL)) == (Conclusion.OPEN, ["fleet", "model", "a"])
    assert conclusion(()) == (Conclusion.HIDDEN, [])


def test_hosts_that_moved() -> None:
    same = host("same", "H100", 2, free={0: 50.0, 1: 50.0})
    before = Fleet(
        hosts=(
            same,
            host("gone", "H100", 1),
            host("memory", "H100", 1, free={0: 70.0}),
            host("down", "T4", 1),
        )
    )
    after = Fleet(
        hosts=(
            replace(
                same,
                gpus=(replace(same.gpus[0], free_bytes=(same.gpus[0].free_bytes or 0) - 1000), same.gpus[1]),
            ),
            host("memory", "H100", 1, free={0: 20.0}),
            replace(host("down", "T4", 1), status=HostStatus.UNREACHABLE, gpus=()),
            host("new", "H100", 1),
        )
    )
    assert moved_hosts(before, after) == ("memory", "down", "new", "gone")
