"""What is different from the plan before, in words with both numbers and the signed difference."""

from dataclasses import replace

from gpuplan.present.document import text_of
from gpuplan.present.plan_changes import Change, candidate_changes, change_lines, plan_changes
from gpuplan.units import GIB
from tests.made_plans import at, choices, made

BEFORE = made("Qwen/Qwen3-32B", context="8k")
HOST = 2


def _words(changes: tuple[Change, ...]) -> str:
    return "\n".join(change.words for change in changes)


def test_nothing_is_told_without_a_plan_before_or_of_the_same() -> None:
    assert plan_changes(None, BEFORE, 1) == ()
    assert plan_changes(BEFORE, BEFORE, 1) == ()
    again = replace(BEFORE)
    assert plan_changes(BEFORE, again, 1, (1, 0)) == ()


def test_a_lower_share_changes_budget_cache_claim_and_tokens() -> None:
    after = made("Qwen/Qwen3-32B", context="8k", engine_args=("--gpu-memory-utilization", "0.85"))
    then = at(BEFORE, (HOST, 0)).memory
    choice = next(choice for choice in choices(after) if choice[0] == HOST)
    words = _words(plan_changes(BEFORE, after, HOST, choice))
    assert then is not None
    assert "asked: gpu memory utilization 0.92 → 0.85" in words
    assert "asked: engine args – → --gpu-memory-utilization 0.85" in words
    first, second = at(BEFORE, (HOST, 0)), at(after, choice)
    assert second.memory is not None
    expected = second.memory.ranks[0].kv_cache_bytes - then.ranks[0].kv_cache_bytes
    assert (
        f"KV cache {then.ranks[0].kv_cache_bytes / GIB:.2f} → {second.memory.ranks[0].kv_cache_bytes / GIB:.2f} GiB"
        in words
    )
    assert f"(−{-expected / GIB:.2f})" in words
    assert f"claim on {first.placement[0].host}:0-1" in words
    assert f"tokens in the KV cache {then.kv_cache_tokens:,} → {second.memory.kv_cache_tokens:,}" in words


def test_a_strategy_that_no_longer_fits_and_another_recommendation() -> None:
    after = made("Qwen/Qwen3-32B", context="8k", engine_args=("--gpu-memory-utilization", "0.8"))
    words = _words(plan_changes(BEFORE, after, 1))
    assert "single GPU: ✓ fits → ✗ no fit" in words
    assert "recommended: single GPU → single host" in words


def test_another_model_is_told_alone() -> None:
    after = made("Qwen/Qwen3-4B", context="8k")
    assert _words(plan_changes(BEFORE, after, 1)) == "model Qwen/Qwen3-32B → Qwen/Qwen3-4B"


def test_context_and_requests_are_signed() -> None:
    after = made("Qwen/Qwen3-32B", context="16k")
    words = _words(plan_changes(BEFORE, after, HOST, (HOST, 0)))
    assert "context 8,000 → 16,000 (+8,000)" in words
    assert "requests of that context at once" in words
    assert "(−" in words


def test_the_same_place_is_compared_wherever_it_stands_in_the_list() -> None:
    now = BEFORE.strategies[1]
    turned = replace(BEFORE, strategies=tuple(
        replace(one, candidates=one.candidates[::-1]) if one is now else one for one in BEFORE.strategies
    ))  # fmt: skip
    assert plan_changes(BEFORE, turned, 1, (1, 0)) == ()


def test_another_place_names_both() -> None:
    first, second = at(BEFORE, (1, 0)), at(BEFORE, (HOST, 0))
    words = "\n".join(change.words for change in candidate_changes(first, second))
    assert "GPUs h100-a:0 → " in words
    assert "shape TP1 → TP2" in words


def test_lines_keep_hostile_text_harmless() -> None:
    change = Change(key="model", words="model a\x1b[31m → [/red]\u202e")
    text = text_of(change_lines((change,), 80))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[/red]" in text
