"""The rows both faces show, and the few lines above them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan.domain.plan import Plan, StrategyName, Verdict
from gpuplan.operations.fleet import FleetOptions, see_fleet
from gpuplan.operations.plan import Asked, ServingOptions
from gpuplan.operations.question import Planner
from gpuplan.present import asking_text
from gpuplan.present.document import Role, text_of, width_of
from gpuplan.present.plan_text import plan_text
from gpuplan.present.strategy_table import (
    answer_line,
    candidate_line,
    strategy_lines,
    table_header,
    table_lines,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def plan() -> Plan:
    path = ROOT / "inventory.example.yaml"
    fleet = see_fleet(FleetOptions(environ=os.environ, cwd=ROOT, inventory=path, no_probe=True))
    options = ServingOptions(context="131072", concurrency=16)
    return Planner().plan(fleet, options, Asked(reference="Qwen/Qwen3-235B-A22B"))


@pytest.mark.parametrize("width", [66, 80, 100, 200])
def test_every_row_has_its_columns_under_the_header(plan: Plan, width: int) -> None:
    header = text_of((table_header(width),))
    result = next(item for item in plan.strategies if len(item.candidates) > 1)
    rows = [text_of((candidate_line(result, index, width),)) for index in range(len(result.candidates))]
    for row in rows:
        assert len(row) == len(header) <= width
        assert row[header.index("shape") :].startswith("TP")
    assert text_of(strategy_lines(result, width)) == rows[0]


def test_a_further_candidate_is_named_as_the_caller_says(plan: Plan) -> None:
    result = next(item for item in plan.strategies if len(item.candidates) > 1)
    assert text_of((candidate_line(result, 1, 80, name="  2nd"),)).startswith("  2nd ")


def test_the_table_is_a_part_of_the_printed_plan(plan: Plan) -> None:
    assert text_of(tuple(table_lines(plan, 90))) in text_of(plan_text(plan, 90))


def test_the_answer_in_a_line(plan: Plan) -> None:
    assert text_of((answer_line(plan),)).startswith("Recommended: several hosts on h100-a:0-6, h100-b:0-6")
    nothing = replace(plan, recommended=None)
    fitting = {StrategyName.MULTI_HOST}
    none_fits = replace(
        nothing, strategies=tuple(item for item in plan.strategies if item.strategy not in fitting)
    )
    assert text_of((answer_line(none_fits),)) == "Nothing fits"
    first, *rest = none_fits.strategies
    over = replace(none_fits, strategies=(replace(first, verdict=Verdict.OVERCOMMIT), *rest))
    assert text_of((answer_line(over),)) == "Nothing fits; the selection can only be overcommitted"
    left_out = replace(nothing, request={**plan.request, "strategies": ["single_gpu"]})
    assert "--strategy single_gpu leaves out what fits (several hosts)" in text_of((answer_line(left_out),))


def test_text_of_others_is_harmless() -> None:
    lines = (
        asking_text.model_line("a\x1b[31m\u202eb", None, "o"),
        asking_text.summary_line(("x\ny",), "e"),
        *asking_text.error_lines("\x07boom", "\u200btry"),
        asking_text.busy_line("\x1b]0;", 3, reading=True),
        asking_text.old_line("\x9b1m"),
    )
    text = text_of(lines)
    assert not [char for char in text.replace("\n", "") if ord(char) < 32 or char in "\x9b\u202e\u200b"]
    assert width_of(text.splitlines()[0]) > 0


def test_every_state_of_a_question_has_its_words(plan: Plan) -> None:
    assert text_of((asking_text.model_line("", None, "o"),)) == "No model is chosen  o: choose one"
    assert "up to 40,960 tokens" in text_of((asking_text.model_line("m", plan.model, "o"),))
    assert text_of((asking_text.summary_line((), "e"),)) == "e: knobs  all at their defaults"
    assert text_of((asking_text.busy_line("m", 0, reading=False),)) == "planning…"
    assert text_of((asking_text.busy_line("m", 12, reading=True),)) == "reading m… 12 s"
    answer = asking_text.result_lines(plan, "undone")
    assert text_of(answer).startswith("● Recommended: ")
    assert text_of(answer).endswith("undone")
    assert text_of(asking_text.unread_line("", None, None)) == "there is no fleet yet"
    assert asking_text.unread_line("", "broken", "mend it")[0][0].role is Role.BAD
    assert "3 of 4 read" in text_of(asking_text.unread_line("3 of 4 read", None, None))
