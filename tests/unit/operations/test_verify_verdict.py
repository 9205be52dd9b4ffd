"""What a trial says of the prediction, in facts."""

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.memory import EngineAnswer, StartCheck
from gpuplan.domain.verification import ComparedFigure, Rank
from gpuplan.operations.verify_verdict import verdict

STARTS = EngineAnswer(starts=True)


def row(term: str, actual: float, *, rank: int = 0) -> ComparedFigure:
    return ComparedFigure(term=term, rank=Rank(rank=rank), predicted=10, low=9, high=11, actual=actual)


def cause(group: str) -> Fact:
    return Fact(code="GP739", severity=Severity.ERROR, subject={}, figures={"class": group})


def test_it_held() -> None:
    [told] = verdict(STARTS, [row("weights", 10), row("kv_cache", 9), row("kv_cache", 10.5, rank=1)])
    assert (told.code, told.severity) == ("GP870", Severity.INFO)
    assert told.figures == {"predicted_bytes": 10, "actual_bytes": 9}, "the rank that is furthest off"


def test_a_missed_term_is_told_by_its_worst_rank() -> None:
    [told] = verdict(STARTS, [row("weights", 10), row("kv_cache", 8.5), row("kv_cache", 14, rank=3)])
    assert (told.code, told.severity) == ("GP871", Severity.WARNING)
    [term] = told.figures["terms"]
    assert (term["term"], term["rank"], term["actual"]) == ("kv_cache", "rank 3", 14)


def test_a_failure_that_was_and_was_not_foreseen() -> None:
    unforeseen, *rest = verdict(STARTS, [row("weights", 20)], failure=[cause("MEM_KV_SMALL")])
    assert (unforeseen.code, unforeseen.severity) == ("GP872", Severity.ERROR)
    assert (unforeseen.figures["foreseen"], unforeseen.figures["check"]) == (False, "too_long")
    assert [fact.code for fact in rest] == ["GP739", "GP871"], "the cause comes before the terms"

    told = EngineAnswer(starts=False, check=StartCheck.NO_KV_ROOM)
    same, _ = verdict(told, [], failure=[cause("MEM_KV_NONE")])
    assert (same.figures["foreseen"], same.figures["same_check"]) == (True, True)
    other, _ = verdict(told, [], failure=[cause("MEM_WEIGHTS")])
    assert (other.figures["foreseen"], other.figures["same_check"]) == (True, False)
    elsewhere, _ = verdict(told, [], failure=[cause("PLAN_ARG")])
    assert (elsewhere.figures["foreseen"], elsewhere.figures["check"]) == (False, None)


def test_a_start_against_the_prediction_and_a_silent_one() -> None:
    against = verdict(EngineAnswer(starts=False, check=StartCheck.CONTEXT), [row("weights", 10)])
    assert [fact.code for fact in against] == ["GP873", "GP870"]
    assert [fact.code for fact in verdict(STARTS, [])] == ["GP874"]
