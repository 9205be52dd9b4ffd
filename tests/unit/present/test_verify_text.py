"""A trial in words: every finding, the table of its figures, and the JSON scripts read."""

import json
from typing import Any

import pytest

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.memory import EngineAnswer
from gpuplan.domain.verification import ComparedFigure, Rank, RankParameters, Verification
from gpuplan.present.document import text_of, width_of
from gpuplan.present.findings import CODES, word
from gpuplan.present.rulebook import PAGES as ALL_PAGES
from gpuplan.present.verify_document import verification_document
from gpuplan.present.verify_findings import CHECKS, WORDS
from gpuplan.present.verify_rulebook import PAGES
from gpuplan.present.verify_text import verification_text
from gpuplan.units import GIB

TERM = {
    "term": "kv_cache",
    "rank": "rank 3",
    "predicted": 8 * GIB,
    "low": 7.5 * GIB,
    "high": 8.5 * GIB,
    "actual": 9 * GIB,
}
CASES: list[tuple[str, dict[str, Any], str, str]] = [
    (
        "GP870",
        {"predicted_bytes": 8 * GIB, "actual_bytes": 8.1 * GIB},
        "held",
        "8.00 GiB predicted, 8.10 GiB printed",
    ),
    (
        "GP871",
        {"terms": (TERM,)},
        "missed: KV cache",
        "(rank 3): 9.00 GiB came, predicted was 7.50 GiB to 8.50 GiB",
    ),
    ("GP872", {"check": None}, "not for want of memory", "says nothing of this cause"),
    (
        "GP872",
        {"check": "too_long", "foreseen": False},
        "although the prediction said it would",
        "whole context fits",
    ),
    (
        "GP872",
        {"check": "too_long", "foreseen": True, "same_check": True},
        "as predicted",
        "whole context fits",
    ),
    (
        "GP872",
        {"check": "too_long", "foreseen": True, "same_check": False, "predicted_check": "no_kv_room"},
        "but at another check",
        "anything is left for the KV cache",
    ),
    (
        "GP873",
        {"check": "too_long"},
        "started although the prediction said it would not",
        "whole context fits",
    ),
    ("GP874", {}, "printed nothing that could be compared", "CPU"),
    (
        "GP875",
        {"predicted_bytes": 5, "actual_bytes": 5, "rank": 0, "ranks": 2},
        "to the byte on 2 ranks",
        "5 bytes",
    ),
    (
        "GP875",
        {"predicted_bytes": 5, "actual_bytes": 9, "rank": 1, "ranks": 2},
        "differ",
        "rank 1: 5 bytes predicted, 9 made",
    ),
    (
        "GP876",
        {"why": "no module named vllm"},
        "could not be counted in the image on h1: no module named vllm",
        "without a GPU",
    ),
    ("GP877", {"image": "a/b:1"}, "h1 does not have a/b:1", "docker pull a/b:1"),
]


@pytest.mark.parametrize(("code", "figures", "headline", "rest"), CASES)
def test_each_case_is_worded(code: str, figures: dict[str, Any], headline: str, rest: str) -> None:
    told = word(Fact(code=code, severity=Severity.INFO, subject={"host": "h1"}, figures=figures))
    assert headline in told.headline
    assert rest in " ".join((*told.because, told.hint or ""))
    assert "None" not in " ".join((told.headline, *told.because))


def test_every_code_has_words_a_page_and_a_case() -> None:
    own = {page.code for page in PAGES}
    assert own == set(WORDS) == {case[0] for case in CASES}
    assert own <= set(CODES)
    assert own <= set(ALL_PAGES)
    assert set(CHECKS) == {"free_memory", "out_of_memory", "no_kv_room", "too_long"}


def outcome(**changes: Any) -> Verification:
    rows = [
        ComparedFigure(
            term="weights",
            rank=Rank(rank=rank),
            predicted=20 * GIB,
            low=20 * GIB,
            high=20 * GIB,
            actual=20.01 * GIB,
            slack=0.02 * GIB,
        )
        for rank in range(4)
    ]
    rows += [
        ComparedFigure(
            term="kv_cache",
            rank=Rank(rank=rank),
            predicted=40 * GIB,
            low=39 * GIB,
            high=41 * GIB,
            actual=(40.2 if rank < 3 else 42) * GIB,
        )
        for rank in range(4)
    ]
    rows.append(
        ComparedFigure(term="tokens", rank=None, predicted=100_000, low=98_000, high=102_000, actual=101_000)
    )
    given: dict[str, Any] = {
        "name": "verify-qwen3",
        "model": "Qwen/Qwen3-32B",
        "image": "vllm/vllm-openai:v0.33.0",
        "vllm_version": "0.33.0",
        "places": (("h1", (0, 1, 2, 3)),),
        "predicted": EngineAnswer(starts=True),
        "started": True,
        "compared": tuple(rows),
        "parameters": (
            RankParameters(rank=0, predicted_bytes=100, actual_bytes=100),
            RankParameters(rank=3, predicted_bytes=100, actual_bytes=132),
        ),
        "facts": (Fact(code="GP871", severity=Severity.WARNING, subject={}, figures={"terms": (TERM,)}),),
        "logs": ("/state/x.log",),
        "learned": True,
        "seconds": 75.0,
    }
    return Verification(**given | changes)


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_has_a_line_for_ranks_that_are_alike(width: int) -> None:
    lines = text_of(verification_text(outcome(), width)).splitlines()
    text = "\n".join(lines)
    assert "h1:0-3" in lines[0]
    assert any("weights (ranks 0-3)" in line and "20.00 GiB" in line and "exact" in line for line in lines)
    assert any(
        "KV cache (ranks 0-2)" in line and "39.00-41.00 GiB" in line and "+0.5 %" in line for line in lines
    )
    assert any(line.startswith("! KV cache (rank 3)") and line.endswith("+5.0 %") for line in lines)
    assert any("tokens in it" in line and "101,000" in line for line in lines)
    assert any("rank 3" in line and line.endswith("+32") for line in lines)
    assert "started after 75 s" in text
    assert "/state/x.log" in text
    assert all(width_of(line) <= width for line in lines)


def test_the_document_keeps_every_rank() -> None:
    document = json.loads(json.dumps(verification_document(outcome())))
    assert (document["started"], document["held"], document["learned"]) == (True, False, True)
    assert len([one for one in document["figures"] if one["term"] == "kv_cache"]) == 4
    assert document["placement"] == [{"host": "h1", "gpu_indexes": [0, 1, 2, 3]}]
    assert [one["code"] for one in document["findings"]] == ["GP871"]
    untried = verification_document(outcome(started=None, compared=(), facts=()))
    assert (untried["started"], untried["held"]) == (None, None)
