"""Words and pages about making room (GP885 to GP892), and what somebody reads before agreeing to it."""

from typing import Any

import pytest

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Eviction
from gpuplan.present.deploy_findings_room import WORDS
from gpuplan.present.deployment_document import dry_run_document
from gpuplan.present.deployment_text import confirm_text, dry_run_text
from gpuplan.present.document import text_of, width_of
from gpuplan.present.eviction_text import eviction_words, evicts_words
from gpuplan.present.findings import word
from gpuplan.present.rulebook import PAGES
from gpuplan.present.run_texts import agreement_text, stops_words
from tests.unit.deploying.specs import native

IDLE = Eviction(
    deployment="qwen3-4b",
    gpus=(("h1", 0, 7), ("h1", 1, 7), ("h2", 3, 7)),
    running_requests=0,
    keep_alive_seconds=600,
)
BUSY = Eviction(deployment="llama", gpus=(("h2", 4, 9),), running_requests=2)


def fact(code: str, **figures: Any) -> Fact:
    return Fact(code=code, severity=Severity.ERROR, subject={}, figures=figures)


@pytest.mark.parametrize("code", sorted(WORDS))
def test_every_code_has_words_and_a_page_whatever_is_known(code: str) -> None:
    told = word(fact(code))
    assert told.headline
    assert "None" not in PAGES[code].title
    assert PAGES[code].code == code


@pytest.mark.parametrize("reason", ["busy", "pinned", "others", "silent"])
def test_what_changed_is_told(reason: str) -> None:
    told = word(fact("GP886", reason=reason, running=2, host="h1", why="no answer"))
    assert told.because[1] == "nothing was stopped"
    assert told.because[0]


def test_each_is_named_with_its_load_and_keep_alive() -> None:
    assert eviction_words(IDLE) == "qwen3-4b on h1:0-1, h2:3: idle, keep-alive 10 min"
    assert eviction_words(BUSY) == "llama on h2:4: 2 requests in flight, no keep-alive"
    unknown = Eviction(deployment="x", gpus=())
    assert eviction_words(unknown) == "x: its requests in flight are not known, no keep-alive"
    assert evicts_words((IDLE, BUSY)) == "stops 2 other deployments"
    assert stops_words((IDLE,), ()) == "stops 1 other deployment"
    assert stops_words((), ()) == ""


@pytest.mark.parametrize("width", [40, 80, 120])
def test_whoever_is_asked_reads_who_is_stopped(width: int) -> None:
    for lines in (
        confirm_text(native(), (), width, (IDLE, BUSY)),
        agreement_text(native(), (), (), width, evicts=(IDLE, BUSY)),
        dry_run_text(native(), width, (), (IDLE, BUSY)),
    ):
        text = " ".join(text_of(lines).split())
        assert "stops qwen3-4b on h1:0-1, h2:3: idle, keep-alive 10 min" in text
        assert "stops llama on h2:4: 2 requests in flight, no keep-alive" in text
        assert "they run again if the new one does not serve, and are removed once it does" in text
    rows = text_of(confirm_text(native(), (), width, (IDLE, BUSY))).splitlines()
    assert all(width_of(row) <= width for row in rows if "stops" in row)
    assert "stops" not in text_of(confirm_text(native(), (), width))


def test_a_dry_run_lists_them_for_scripts() -> None:
    (told,) = dry_run_document(native(), (), (BUSY,))["evicts"]
    assert told == {
        "deployment": "llama",
        "gpus": [{"host": "h2", "index": 4, "bytes": 9}],
        "running_requests": 2,
        "keep_alive_seconds": None,
    }
    assert "evicts" not in dry_run_document(native())
