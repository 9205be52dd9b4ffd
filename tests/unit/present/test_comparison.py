"""Two candidates: every figure of both, the difference signed, findings that only one has."""

from dataclasses import replace

import pytest

from gpuplan.domain.plan import Candidate
from gpuplan.present.comparison import Block, Compared, Row, comparison, comparison_lines
from gpuplan.present.document import text_of, width_of
from gpuplan.present.numbers import count, gib
from gpuplan.present.terms import signed_gib
from tests.made_plans import at, choices, made, many

A = at(made("Qwen/Qwen3-32B"), (1, 0))
B = at(made("Qwen/Qwen3-32B"), (2, 0))


def _rows(blocks: tuple[Block, ...], title: str) -> dict[str, Row]:
    return {row.name: row for block in blocks if block.title.startswith(title) for row in block.rows}


def test_terms_of_both_and_their_difference() -> None:
    rows = _rows(comparison(A, B), "memory of rank")
    assert A.memory is not None
    assert B.memory is not None
    for first, second in zip(
        (A.memory.ranks[0].budget, *A.memory.ranks[0].terms),
        (B.memory.ranks[0].budget, *B.memory.ranks[0].terms),
        strict=True,
    ):
        row = rows[first.name]
        assert (row.a, row.b) == (gib(first.bytes), gib(second.bytes))
        assert row.difference == signed_gib(second.bytes - first.bytes)
    assert {"KV cache", "KV needed", "headroom"} <= rows.keys()


def test_capacity_at_every_context() -> None:
    rows = _rows(comparison(A, B), "capacity")
    assert A.memory is not None
    assert B.memory is not None
    assert rows["tokens in the KV cache"].a == count(A.memory.kv_cache_tokens)
    assert rows["tokens in the KV cache"].b == count(B.memory.kv_cache_tokens)
    assert rows["requests of 8k at once"].difference.startswith("+")
    assert len([name for name in rows if name.startswith("requests of")]) == len(A.memory.concurrency_curve)


def test_the_same_candidate_differs_in_nothing() -> None:
    for block in comparison(A, A):
        for row in block.rows:
            assert row.a == row.b
            assert row.difference in ("", "±0")


def test_swapping_turns_every_sign() -> None:
    there, back = comparison(A, B), comparison(B, A)
    turned = {"+": "−", "−": "+", "±": "±"}
    for first, second in zip(there, back, strict=True):
        if first.title == "claim of each GPU":
            continue
        for one, other in zip(first.rows, second.rows, strict=True):
            assert (one.a, one.b) == (other.b, other.a)
            if one.difference:
                assert other.difference == turned[one.difference[0]] + one.difference[1:]


def test_claims_of_one_alone_have_no_difference() -> None:
    rows = _rows(comparison(A, B), "claim of")
    assert rows["h100-a:0"].b == "–"
    assert rows["h100-a:0"].difference == ""


def test_a_claim_alone_is_compared_as_far_as_it_is_known() -> None:
    claimed = at(many()["claim"], choices(many()["claim"])[0])
    titles = [block.title for block in comparison(claimed, A)]
    assert "claim of each GPU" in titles
    assert "memory of rank 0" in titles
    assert _rows(comparison(claimed, A), "memory of rank")["weights"].a == "–"


def test_findings_of_one_alone_are_told() -> None:
    over = at(many()["overcommit"], (0, 0))
    text = text_of(comparison_lines(_named(over), _named(A), 120))
    assert "findings of A alone" in text
    assert "GP201" in text
    same = text_of(comparison_lines(_named(over), _named(over), 120))
    assert "alone" not in same


def _named(candidate: Candidate, title: str = "this one") -> Compared:
    return Compared(title=title, candidate=candidate)


@pytest.mark.parametrize("width", [60, 80, 99, 100, 140])
@pytest.mark.parametrize("name", ["stages", "replicas", "claim", "overcommit"])
def test_it_fits_the_width(name: str, width: int) -> None:
    plan = many()[name]
    other = _named(at(plan, choices(plan)[0]))
    for line in comparison_lines(_named(A), other, width):
        assert sum(width_of(span.text) for span in line) <= width


def test_narrow_stands_b_under_a_and_wide_beside_it() -> None:
    wide = text_of(comparison_lines(_named(A), _named(B), 120))
    narrow = text_of(comparison_lines(_named(A), _named(B), 80))
    assert A.memory is not None
    assert B.memory is not None
    first, second = (one.memory.ranks[0].kv_cache_bytes for one in (A, B) if one.memory)
    assert any(gib(first) in row and gib(second) in row for row in wide.split("\n"))
    assert not any(gib(first) in row and gib(second) in row for row in narrow.split("\n"))
    assert f"({signed_gib(second - first)})" in narrow


def test_hostile_names_are_harmless() -> None:
    placement = tuple(replace(host, host="[/x]\x1b[2J\u202e") for host in A.placement)
    hostile = replace(A, placement=placement)
    text = text_of(comparison_lines(_named(hostile, "a\x07b[red]"), _named(B), 80))
    assert "[/x]" in text
    assert "[red]" in text
    assert not any(char in text for char in "\x1b\x07\u202e")
