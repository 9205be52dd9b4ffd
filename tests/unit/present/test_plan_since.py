"""Two plans compared, in words no wider than asked, whatever came of it."""

import pytest

from gpuplan.domain.plan import Parallelism, StrategyName
from gpuplan.planning.answers import Answer, Cause, Conclusion
from gpuplan.present.document import text_of, width_of
from gpuplan.present.plan_differences import MOST, Difference
from gpuplan.present.plan_since import PlanSince, answer_words, since_document, since_text

HERE = Answer(
    strategy=StrategyName.DATA_PARALLEL,
    place=(("h1", (0, 1)), ("h2", (0, 1))),
    shape=Parallelism(tensor=2, data=2),
    context=8192,
)
NOTHING = Answer()


def since(
    conclusion: Conclusion, *causes: tuple[Cause, str], after: Answer = NOTHING, count: int = 1
) -> PlanSince:
    return PlanSince(
        before="plan.json",
        after="",
        answers=(HERE, after),
        conclusion=conclusion,
        causes=causes,
        differences=tuple(Difference(kind="fleet", words=f"h{number}: gone") for number in range(count)),
    )


def shown(one: PlanSince) -> str:
    lines = since_text(one, 80)
    assert all(width_of("".join(span.text for span in row)) <= 80 for row in lines)
    return " ".join(text_of(lines).split())


def test_answers_in_words() -> None:
    assert answer_words(HERE) == "replicas on h1:0-1, h2:0-1 (2×TP2), context 8,192"
    assert answer_words(NOTHING) == "nothing is recommended"
    assert answer_words(Answer(refusal="no usable GPU")) == "no plan: no usable GPU"


@pytest.mark.parametrize(
    ("conclusion", "cause", "words"),
    [
        (
            Conclusion.FOUND,
            Cause(kind="asked", restores=True, then=HERE),
            "because of X: without it the answer would be replicas on h1:0-1",
        ),
        (
            Conclusion.TOGETHER,
            Cause(kind="asked", restores=False, then=NOTHING),
            "none of them brings it back without X alone it would be nothing is recommended",
        ),
        (Conclusion.LEFT, Cause(kind="fleet"), "because of X: nothing else"),
        (
            Conclusion.OPEN,
            Cause(kind="fleet"),
            "because of one of these, or several: X",
        ),
        (
            Conclusion.HIDDEN,
            Cause(kind="fleet", restores=False),
            "nothing that is recorded accounts for it",
        ),
    ],
)
def test_each_conclusion_has_its_words(conclusion: Conclusion, cause: Cause, words: str) -> None:
    one = since(conclusion, (cause, "X"))
    assert words in shown(one)
    document = since_document(one)
    assert (document["conclusion"], document["changed"]) == (conclusion.value, "fits")
    assert document["causes"][0]["restores"] is cause.restores


def test_the_same_answer_is_said_to_be_so() -> None:
    text = shown(since(Conclusion.SAME, after=HERE))
    assert text.startswith("since plan.json The answer is the same: replicas on h1:0-1")
    assert "because" not in text


def test_many_differences_are_counted() -> None:
    text = shown(since(Conclusion.LEFT, count=MOST + 3))
    assert f"h{MOST - 1}: gone … 3 more differences (all in -o json)" in text
