"""The candidate in full: its numbers are those of the plan's JSON, it fits its width, nothing in it does harm."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpuplan.domain.plan import Candidate, Plan, Verdict
from gpuplan.present.candidate_detail import CONTAINERS, REMEDY, Containers, detail
from gpuplan.present.capacity_curve import requests
from gpuplan.present.document import width_of
from gpuplan.present.folding import Key, Part, Row, rows_of
from gpuplan.present.numbers import count, gib
from gpuplan.present.plan_document import candidate_document, plan_document
from gpuplan.present.remedies import word_remedy
from gpuplan.present.terms import account, claim_lines, rank_groups
from tests.made_plans import FLEETS, at, choices, made, many

PLANS = many()


class _AllOpen(dict[Key, bool]):
    """Everything was opened by hand."""

    def get(self, key: Key, default: bool | None = None) -> bool:  # type: ignore[override]
        return True


def _rows(plan: Plan, choice: tuple[int, int] | None, strategy: int, width: int = 120) -> list[Row]:
    return list(rows_of(detail(plan, choice, strategy, None, width), _AllOpen()))


def _text(rows: list[Row]) -> str:
    return "\n".join("".join(span.text for span in row.line) for row in rows)


def _section(rows: list[Row], *key: str) -> str:
    return _text([row for row in rows if row.part[: len(key)] == key])


def _candidates() -> Iterator[tuple[str, tuple[int, int]]]:
    for name, plan in PLANS.items():
        for choice in choices(plan):
            if choice[1] < 3:
                yield name, choice


@pytest.mark.parametrize(("name", "choice"), list(_candidates()))
def test_every_number_is_the_one_of_the_plans_json(name: str, choice: tuple[int, int]) -> None:
    plan = PLANS[name]
    document = plan_document(plan).strategies[choice[0]].candidates[choice[1]]
    rows = _rows(plan, choice, choice[0])
    memory, terms = _section(rows, "memory"), _section(rows, "terms")
    for host in document.placement:
        for gpu in host.gpus:
            assert f"claim {gib(gpu.claim_bytes)} of {gib(gpu.total_bytes)}" in memory
            assert gib(gpu.allocatable_bytes) in memory
    groups = rank_groups(at(plan, choice))
    for rank in document.memory.per_gpu:
        if rank.budget_bytes is None:
            assert groups == ()
            continue
        number, group = next((n, one) for n, one in enumerate(groups) if rank.rank in one.ranks)
        told = {
            row.key: row.bytes
            for row in account(group.memory, at(plan, choice).memory, 1)  # type: ignore[arg-type]
        }
        for key in (
            "budget",
            "weights",
            "weights_extra",
            "activation",
            "non_torch",
            "cuda_graph",
            "kv_cache",
        ):
            size = getattr(rank, f"{key}_bytes")
            assert told[key] == size
            assert gib(size) in _section(rows, "terms", str(number), key)
        if "kv_needed" in told:
            assert (told["kv_needed"], told["headroom"]) == (rank.kv_needed_bytes, rank.headroom_bytes)
        for term in rank.terms:
            assert term.formula.split()[0] in terms
    if document.kv_cache_tokens:
        assert f"{count(document.kv_cache_tokens)} tokens" in _section(rows, "capacity")
        assert count(document.max_model_len or 0) in _section(rows, "headline")
        for length, at_once in document.concurrency_at.items():
            assert re.search(
                rf"{count(int(length))} +{re.escape(requests(at_once))}", _section(rows, "curve")
            )


@pytest.mark.parametrize("width", [40, 62, 80, 120])
@pytest.mark.parametrize("name", PLANS)
def test_no_line_is_wider_than_the_screen(name: str, width: int) -> None:
    plan = PLANS[name]
    for strategy, result in enumerate(plan.strategies):
        choice = (strategy, 0) if result.candidates else None
        for row in _rows(plan, choice, strategy, width):
            assert sum(width_of(span.text) for span in row.line) <= width


def test_rows_have_keys_of_their_own_that_outlive_another_plan() -> None:
    first = _rows(PLANS["fits"], (1, 0), 1)
    again = _rows(made("Qwen/Qwen3-32B", context="8k"), (1, 0), 1)
    assert len({row.key for row in first}) == len(first)
    kept = {row.key for row in first if row.can_fold} & {row.key for row in again}
    assert {("terms", "0", "weights", "#0"), ("curve", "#0"), (*CONTAINERS, "#0")} <= kept


def test_a_strategy_without_a_candidate_tells_why_and_what_would_help() -> None:
    plan = PLANS["quantized"]
    strategy = next(at for at, one in enumerate(plan.strategies) if not one.candidates and one.remedies)
    rows = _rows(plan, None, strategy)
    text = _text(rows)
    assert text.startswith("✗ no fit")
    assert "Why not" in text
    numbered = [row for row in rows if row.part[0] == REMEDY and row.part != (REMEDY,)]
    for number, remedy in enumerate(plan.strategies[strategy].remedies, 1):
        headline, _cost = word_remedy(remedy)
        assert headline[:40] in " ".join(_section(rows, REMEDY, str(number)).split())
        assert any(row.part == (REMEDY, str(number)) for row in numbered)


def test_what_does_not_fit_tells_why_before_its_memory() -> None:
    plan = PLANS["overcommit"]
    keys = [part.key[0] for part in detail(plan, (0, 0), 0, None, 80)]
    assert plan.strategies[0].verdict is Verdict.OVERCOMMIT
    assert keys.index("findings") < keys.index("memory")
    assert "too much" in _text(_rows(plan, (0, 0), 0))
    assert "python of ada" in _section(_rows(plan, (0, 0), 0), "memory")


def test_a_claim_has_its_numbers_and_no_terms() -> None:
    plan = PLANS["claim"]
    choice = choices(plan)[0]
    keys = [part.key[0] for part in detail(plan, choice, choice[0], None, 80)]
    assert "terms" not in keys
    assert "curve" not in keys


def test_what_changed_is_there_with_a_plan_before_and_only_then() -> None:
    plan, before = made("Qwen/Qwen3-32B", context="8k"), PLANS["fits"]
    with_it = [part.key[0] for part in detail(plan, (1, 0), 1, before, 80)]
    assert "changes" in with_it
    for none in (None, plan):
        assert "changes" not in [part.key[0] for part in detail(plan, (1, 0), 1, none, 80)]


def test_another_candidate_is_not_what_the_deploy_command_takes() -> None:
    rows = _rows(PLANS["fits"], (1, 1), 1)
    assert "deploys the recommended candidate" in _section(rows, "deploy")
    assert "deploys the recommended candidate" not in _section(_rows(PLANS["fits"], (1, 0), 1), "deploy")


def test_why_the_containers_are_not_known_is_told() -> None:
    parts = detail(
        PLANS["fits"], (1, 0), 1, None, 80, containers=Containers(failure="no port is free", hint="free one")
    )
    text = _text(list(rows_of(parts, {CONTAINERS: True})))
    assert "no port is free" in text
    assert "hint: free one" in text


HOSTILE = "h\x1b[31m[red]\u202e\u200b漢字[/]\n1"


def _renamed(candidate: Candidate) -> Candidate:
    return replace(candidate, placement=tuple(replace(host, host=HOSTILE) for host in candidate.placement))


def test_hostile_names_are_shown_and_move_nothing() -> None:
    plan = PLANS["overcommit"]
    result = plan.strategies[0]
    hostile = replace(
        plan,
        model={**plan.model, "name": HOSTILE},
        strategies=(replace(result, candidates=(_renamed(result.candidates[0]),), reason=HOSTILE),),
    )
    rows = _rows(hostile, (0, 0), 0, 80)
    text = _text(rows)
    assert "[red]" in text
    assert "漢字" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u200b\u202e]", text)
    assert all("\n" not in span.text for row in rows for span in row.line)
    assert all(sum(width_of(span.text) for span in row.line) <= 80 for row in rows)


def test_claims_that_are_alike_are_one_line() -> None:
    candidate = at(PLANS["stages"], choices(PLANS["stages"])[0])
    lines = claim_lines(candidate, 200)
    assert len(lines) == 1
    assert "h100-a:0-5, h100-b:0-5" in lines[0][0].text
    assert (
        candidate_document(candidate).placement[0].gpus[0].claim_bytes
        == candidate.placement[0].gpus[0].claim_bytes
    )


def test_a_finding_without_evidence_does_not_fold() -> None:
    plan = made("Qwen/Qwen3-32B", FLEETS / "busy.json")
    strategy = 2
    parts = detail(plan, None, strategy, None, 80)
    why = next(part for part in parts if part.key == ("refusals",))
    assert [bool(part.below) for part in why.below] == [part.can_fold for part in why.below]


def test_a_part_is_found_by_every_row_of_its_own() -> None:
    parts = detail(PLANS["stages"], choices(PLANS["stages"])[0], 3, None, 80)

    def keys(of: tuple[Part, ...]) -> Iterator[Key]:
        for part in of:
            yield part.key
            yield from keys(part.below)

    known = list(keys(parts))
    assert len(known) == len(set(known))
    assert {row.part for row in rows_of(parts, _AllOpen())} == set(known)
