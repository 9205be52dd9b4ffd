"""`--solve` for people and for scripts: within 80 columns, and the same figures in both."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpuplan.cli.app import run
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.plan import ServingOptions
from gpuplan.operations.solve import cards, make_solution
from gpuplan.planning.solve import Solution
from gpuplan.present.document import text_of, width_of
from gpuplan.present.solve_document import solve_document
from gpuplan.present.solve_text import solve_text

ROOT = Path(__file__).parents[3]
MODEL = "Qwen/Qwen3-32B"
ASKED = ServingOptions(context="32K", concurrency=16)


def options(**changes: Any) -> FleetOptions:
    return FleetOptions(environ={}, cwd=Path(os.sep), no_probe=True, **changes)


@pytest.fixture(scope="module")
def solution() -> Solution:
    return make_solution(MODEL, options(inventory=ROOT / "inventory.example.yaml"), ASKED)


@pytest.mark.parametrize("width", [80, 120])
def test_the_text_keeps_within_its_width(solution: Solution, width: int) -> None:
    text = text_of(solve_text(solution, width))
    assert all(width_of(row) <= width for row in text.splitlines())
    for words in ("On this fleet", "How far the recommended placement goes", "What hardware it would take"):
        assert words in text


def test_text_and_document_have_the_same_figures(solution: Solution) -> None:
    text, document = text_of(solve_text(solution, 80)), solve_document(solution)
    assert document.schema_version == 1
    assert document.reach is not None
    assert f"up to {document.reach.context:,} tokens each" in text
    assert f"up to {document.reach.concurrency} requests at once" in text
    first = document.cards[0]
    row = next(row for row in text.splitlines() if row.strip().startswith(first.name + " "))
    assert row.split()[1:3] == [str(first.need.gpus), str(first.need.hosts)]
    assert first.need.tokens_per_second is not None


def test_without_an_inventory_the_catalogue_is_asked_alone() -> None:
    found = make_solution("Qwen/Qwen3-8B", options(), ServingOptions(context="8K"))
    assert found.fleet is None
    assert found.fleet_note == "there is no inventory and no snapshot"
    assert found.cards
    assert "No fleet to ask: there is no inventory and no snapshot" in text_of(solve_text(found, 80))


def test_regional_variants_are_not_listed_twice() -> None:
    names = [card.name for card in cards()]
    assert len(names) == len(set(names))
    assert "H100-80GB" in names


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "Qwen/Qwen3-8B", "-i", str(ROOT / "inventory.example.yaml"), "--no-probe"]
    assert run([*words, "--context", "8K", "--solve", "-o", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["schema_version"] == 1
    assert made["fleet"][0]["now"][0]["gpus"] == 1
    assert run([*words, "--solve", "--gpus", "lab:0"]) == 2
    assert "--solve looks for the GPUs itself" in capsys.readouterr().err
