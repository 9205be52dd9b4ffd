"""What is said of a start that was learned."""

from dataclasses import replace

import pytest

from gpuplan.domain.calibration import Compared, Ending, Quantity
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.memory import StartCheck
from gpuplan.engine.start_facts import StartFacts
from gpuplan.planning.learned import SERVER, Gap, Learned, Missing
from gpuplan.present.document import text_of
from gpuplan.present.explain import page_text, pages
from gpuplan.present.findings import word
from gpuplan.present.learn_document import learned_document
from gpuplan.present.learn_text import learned_text, lessons_text, missing_words
from gpuplan.units import GIB

LOADING = Compared(
    quantity=Quantity.LOADING, predicted=10 * GIB, low=10 * GIB, high=10 * GIB, actual=11 * GIB
)
WORKING = Compared(quantity=Quantity.WORKING, predicted=2 * GIB, low=GIB, high=3 * GIB, actual=None)
AT_ONCE = Compared(quantity=Quantity.CONCURRENCY, predicted=1500, low=1500, high=1500, actual=1400)
STARTED = Learned(
    origin="vllm.log",
    facts=StartFacts(id="abc", ending=Ending.SERVES, model="org/model"),
    compared=((0, LOADING), (0, WORKING), (SERVER, AT_ONCE)),
)


def test_only_what_was_printed_is_compared() -> None:
    text = text_of(learned_text(STARTED, 80))
    assert "+1.00 GiB" in text
    assert "−0.10" in text
    assert "these together" not in text
    assert "nothing is kept" in text


@pytest.mark.parametrize("gap", list(Gap))
def test_every_gap_is_told_with_its_way_out(gap: Gap) -> None:
    said, way = missing_words(Missing(gap=gap, detail="detail"))
    assert said
    if gap in {Gap.MODEL, Gap.ARGUMENTS, Gap.CARD, Gap.TOTAL}:
        assert "--" in way
    text = text_of(learned_text(replace(STARTED, missing=(Missing(gap=gap, detail="x" * 400),)), 80))
    assert max(map(len, text.splitlines())) <= 80


def test_a_failure_names_its_check_and_its_line() -> None:
    facts = replace(
        STARTED.facts, ending=Ending.FAILED, check=StartCheck.NO_KV_ROOM, line="ValueError: no \x1b[2J room"
    )
    text = " ".join(text_of(learned_text(replace(STARTED, facts=facts), 80)).split())
    assert "nothing was left for the KV cache" in text
    assert "\x1b" not in text


def test_the_document_has_whole_numbers_of_bytes_and_requests_as_printed() -> None:
    (start,) = learned_document([STARTED])["starts"]
    loading, _, at_once = start["terms"]
    assert loading["difference_bytes"] == GIB
    assert (at_once["predicted"], at_once["printed"], at_once["stage"]) == (1.5, 1.4, None)


def test_unread_lines_are_told() -> None:
    assert "2 lines of it cannot be read and are passed over" in text_of(lessons_text((), "/x", 2, 80))


def fact(code: str, **figures: object) -> Fact:
    return Fact(code=code, severity=Severity.INFO, subject={"deployment": "d"}, figures=figures)


def test_a_deploy_says_what_it_learned() -> None:
    less = fact("GP880", what="KV cache", predicted_bytes=10 * GIB, printed_bytes=int(9.7 * GIB))
    assert word(less).headline == "learned: KV cache 0.30 GiB less than predicted"
    same = fact("GP880", what="loading", predicted_bytes=GIB, printed_bytes=GIB)
    assert word(same).headline == "learned: loading as predicted"
    assert "disk is full" in word(fact("GP881", why="disk is full")).headline


@pytest.mark.parametrize("code", ["GP505", "GP880", "GP881"])
def test_every_code_has_its_page(code: str) -> None:
    assert pages(code)[0].code == code


def test_a_page_without_a_source_has_no_heading_for_one() -> None:
    bare = replace(next(page for page in pages("GP881")), source="")
    assert "Source" not in text_of(page_text(bare, 80))
