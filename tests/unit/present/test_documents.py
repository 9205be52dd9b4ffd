"""What a plan looks like: within the columns, with every code worded, and valid against its own schema."""

import json
from dataclasses import replace

import jsonschema
import pytest

from gpuplan.cli.schema import schema_of
from gpuplan.domain.plan import Plan
from gpuplan.domain.workload import GpuSelection
from gpuplan.planning.refusals import LACK_CODES, RULE_CODES
from gpuplan.present.document import padded, text_of, visible, width_of
from gpuplan.present.findings import CODES
from gpuplan.present.plan_document import plain, plan_document
from gpuplan.present.plan_text import plan_text
from gpuplan.present.rulebook import PAGES
from gpuplan.units import GIB
from tests.fleets import host, planned

MODEL = "Qwen__Qwen3-32B"


@pytest.fixture(scope="module")
def plans() -> list[Plan]:
    return [
        planned(MODEL, host("h100-a", "H100", 8), host("lab", "4090", 2, free={0: 3.0})),
        planned(MODEL, host("h100-a", "H100", 1), context=40960, concurrency=3),
        planned(MODEL, host("a", "4090", 1), selection=(GpuSelection(host="a", devices=("0",)),)),
        planned(MODEL, host("a", "H100", 4), replicas=3),
        planned(MODEL, host("a", "4090", 4), vram_claim_bytes=60 * GIB),
        planned("meta-llama__Meta-Llama-3.1-405B", host("a", "H100", 8), host("b", "H100", 8)),
    ]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_text_stays_within_the_columns(plans: list[Plan], width: int) -> None:
    for made in plans:
        for row in text_of(plan_text(made, width)).splitlines():
            assert width_of(row) <= width, row


def test_every_code_has_words_and_a_page() -> None:
    used = {*RULE_CODES.values(), *LACK_CODES.values()}
    assert used <= set(CODES)
    assert set(CODES) == set(PAGES)


def test_every_fact_of_a_plan_can_be_worded(plans: list[Plan]) -> None:
    for made in plans:
        document = plain(plan_document(made))
        found = [
            finding for strategy in document["strategies"] for finding in strategy["findings"]
        ] + document["findings"]
        for finding in found:
            assert finding["headline"]
            assert finding["code"] in PAGES


def test_json_is_valid_against_the_schema(plans: list[Plan]) -> None:
    schema = schema_of("plan")
    for made in plans:
        jsonschema.validate(json.loads(json.dumps(plain(plan_document(made)))), schema)


def test_json_has_the_terms_of_every_gpu(plans: list[Plan]) -> None:
    document = plain(plan_document(plans[0]))
    assert document["schema_version"] == 1
    candidate = document["strategies"][1]["candidates"][0]
    (card,) = candidate["memory"]["per_gpu"]
    terms = {term["name"]: term["bytes"] for term in card["terms"]}
    beside = sum(size for name, size in terms.items() if name != "budget")
    assert card["kv_cache_bytes"] == card["budget_bytes"] - beside
    assert card["headroom_bytes"] == card["kv_cache_bytes"] - card["kv_needed_bytes"]
    low, high = candidate["ranges"]["kv_cache_bytes"]
    assert low <= card["kv_cache_bytes"] <= high


def test_claim_alone_leaves_the_rest_null(plans: list[Plan]) -> None:
    document = plain(plan_document(plans[4]))
    candidate = next(s for s in document["strategies"] if s["candidates"])["candidates"][0]
    assert candidate["kv_cache_tokens"] is None
    assert {card["weights_bytes"] for card in candidate["memory"]["per_gpu"]} == {None}
    assert all(card["claim_bytes"] > 0 for place in candidate["placement"] for card in place["gpus"])


def test_remote_text_cannot_move_the_cursor() -> None:
    hostile = "h\x1b[2J\u202eevil\u200b\n"
    shown = visible(hostile)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\n" not in shown
    made = planned(MODEL, replace(host("a", "H100", 1), name=hostile))
    assert "\x1b" not in text_of(plan_text(made, 80))


@pytest.mark.parametrize(("text", "cells"), [("漢字", 4), ("abc", 3), ("é", 1)])
def test_width_counts_cells(text: str, cells: int) -> None:
    assert width_of(text) == cells
    assert width_of(padded(text, 8)) == 8
    assert width_of(padded(text, 2)) == 2
