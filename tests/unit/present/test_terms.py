"""A rank's account: the terms add up to the budget, alike ranks are one, inputs read as what they are."""

from dataclasses import replace

import pytest

from gpuplan.domain.memory import MemoryEstimate
from gpuplan.present.document import text_of, width_of
from gpuplan.present.numbers import gib
from gpuplan.present.terms import (
    COUNTS,
    account,
    expansion,
    input_words,
    range_words,
    rank_groups,
    row_line,
    signed_gib,
    signed_short,
)
from gpuplan.units import GIB, MIB
from tests.fleets import host, planned
from tests.made_plans import at, choices, made, many


def _memory(name: str) -> tuple[MemoryEstimate, int]:
    plan = many()[name]
    memory = at(plan, choices(plan)[0]).memory
    assert memory is not None
    return memory, int(plan.request["concurrency"])


@pytest.mark.parametrize("name", ["fits", "stages", "replicas", "mixed"])
def test_the_account_adds_up(name: str) -> None:
    memory, concurrency = _memory(name)
    for rank in memory.ranks:
        rows = {row.key: row for row in account(rank, memory, concurrency)}
        paid = sum(
            rows[key].bytes for key in ("weights", "weights_extra", "activation", "non_torch", "cuda_graph")
        )
        assert rows["budget"].bytes - paid == rows["kv_cache"].bytes
        assert rows["kv_cache"].bytes - rows["kv_needed"].bytes == rows["headroom"].bytes
        assert dict(rows["kv_cache"].inputs)["weights"] == rows["weights"].bytes
        assert dict(rows["kv_needed"].inputs)["one request"] == rank.kv_needed_bytes // concurrency
        assert all(row.low <= row.bytes <= row.high for row in rows.values())


def test_ranks_that_differ_in_their_stage_alone_are_one_group() -> None:
    plan = many()["stages"]
    groups = rank_groups(at(plan, choices(plan)[0]))
    assert [group.title for group in groups] == ["ranks 0-1", "ranks 2-9", "ranks 10-11"]
    assert groups[1].places == ("h100-a:2-5", "h100-b:0-3")
    assert dict(groups[1].memory.weights.inputs)["pipeline stage"] == "1-4"


def test_every_rank_is_in_one_group_whose_figures_are_its_own() -> None:
    for plan in many().values():
        for choice in choices(plan):
            candidate = at(plan, choice)
            groups = rank_groups(candidate)
            assert sorted(rank for group in groups for rank in group.ranks) == (
                [rank.rank for rank in candidate.memory.ranks] if candidate.memory else []
            )
            for group in groups:
                assert candidate.memory is not None
                for number in group.ranks:
                    rank = candidate.memory.ranks[number]
                    assert [term.bytes for term in rank.terms] == [term.bytes for term in group.memory.terms]
                    assert rank.kv_cache_bytes == group.memory.kv_cache_bytes


def test_replicas_share_an_account() -> None:
    plan = many()["replicas"]
    (group,) = rank_groups(at(plan, choices(plan)[-1]))
    assert group.places == ("h100-a:0-2",)


def test_a_cache_of_a_given_size_is_not_what_the_budget_leaves() -> None:
    plan = made("Qwen/Qwen3-32B", engine_args=("--kv-cache-memory-bytes", str(2 * GIB)))
    candidate = at(plan, choices(plan)[0])
    assert candidate.memory is not None
    rows = {row.key: row for row in account(candidate.memory.ranks[0], candidate.memory, 1)}
    assert rows["kv_cache"].bytes == 2 * GIB
    assert rows["kv_cache"].formula.startswith("--kv-cache-memory-bytes")


def test_a_model_that_caches_nothing_needs_no_cache() -> None:
    plan = planned("BAAI__bge-m3", host("h1", "H100", 1))
    candidate = at(plan, choices(plan)[0])
    assert candidate.memory is not None
    keys = [row.key for row in account(candidate.memory.ranks[0], candidate.memory, 1)]
    assert keys[-1] == "kv_cache"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("total", 85_019_590_656, "79.18 GiB (85,019,590,656 bytes)"),
        ("max_num_seqs", 1024, "1,024"),
        ("towers", 0, "0"),
        ("gpu_memory_utilization", 0.85, "0.85"),
        ("phase", "sam\x1bpler", "sam�pler"),
    ],
)
def test_an_input_reads_as_what_it_is(name: str, value: float | str, words: str) -> None:
    assert input_words(name, value) == words


@pytest.mark.parametrize(
    "model", ["Qwen__Qwen3-32B", "deepseek-ai__DeepSeek-R1", "Qwen__Qwen3-VL-8B-Instruct"]
)
def test_small_whole_numbers_among_the_inputs_are_counts(model: str) -> None:
    """Bytes of less than 2 KiB do not occur; a new count has to be named in COUNTS."""
    plan = planned(model, host("h1", "H100", 8), host("h2", "H100", 8))
    for choice in choices(plan):
        memory = at(plan, choice).memory
        assert memory is not None
        for term in memory.ranks[0].terms:
            for name, value in term.inputs:
                if isinstance(value, int) and 0 < value < 2048:
                    assert name in COUNTS


def test_the_expansion_has_formula_inputs_and_source() -> None:
    memory, concurrency = _memory("fits")
    rows = {row.key: row for row in account(memory.ranks[0], memory, concurrency)}
    text = " ".join(text_of(expansion(rows["activation"], 200)).split())
    assert text.startswith(f"= {rows['activation'].formula}")
    assert "max_num_batched_tokens: 8,192" in text
    assert f"source: {rows['activation'].source}" in text


@pytest.mark.parametrize("width", [56, 74, 114])
def test_a_row_is_at_most_as_wide_as_told(width: int) -> None:
    memory, concurrency = _memory("stages")
    for row in account(memory.ranks[0], memory, concurrency):
        line = row_line(row, width)
        assert sum(width_of(span.text) for span in line) <= width
        assert gib(row.bytes) in "".join(span.text for span in line)


def test_less_than_nothing_is_marked_in_words() -> None:
    memory, _ = _memory("fits")
    rank = replace(memory.ranks[0], kv_cache_bytes=-GIB)
    row = next(row for row in account(rank, memory, 1) if row.key == "kv_cache")
    assert "-1.00 GiB" in "".join(span.text for span in row_line(row, 74))


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (GIB, GIB, ""),
        (GIB, 2 * GIB, "1.00 – 2.00 GiB"),
        (5 * MIB, 2 * GIB, "5.00 MiB – 2.00 GiB"),
    ],
)
def test_a_range_names_its_unit_once(low: int, high: int, words: str) -> None:
    assert range_words(low, high) == words


def test_differences_have_a_sign() -> None:
    assert [signed_gib(size) for size in (GIB, -GIB, 0)] == ["+1.00 GiB", "−1.00 GiB", "±0"]
    assert [signed_short(size) for size in (GIB, -GIB)] == ["+1.00", "−1.00"]
