"""Parallel rules against verdicts of vLLM 0.33's own parser, launch checks and configuration classes."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from gpuplan.engine.arguments import parse
from gpuplan.engine.parallel_config import (
    Circumstances,
    RuleCode,
    check,
    parallelism_of,
    resolve,
    world_size_across_data_parallel,
)
from gpuplan.errors import UsageError

SAMPLE = Path(__file__).parents[2] / "data" / "vllm-parallel-config-sample.jsonl"
CASES = [json.loads(line) for line in SAMPLE.read_text().splitlines()]


def _circumstances(case: dict[str, Any]) -> Circumstances:
    config = case.get("hf_config") or {}
    moe = bool(config.get("num_experts")) if config else case.get("is_moe")
    return Circumstances(
        gpus=case["gpus"],
        ray=case["ray"],
        moe=moe,
        attention_heads=config.get("num_attention_heads"),
        kv_heads=config.get("num_key_value_heads"),
    )


def _accepted(case: dict[str, Any]) -> bool:
    try:
        arguments = parse(case["argv"])
    except UsageError:
        return False
    longest = (case.get("hf_config") or {}).get("max_position_embeddings")
    length = arguments.max_model_len
    too_long = isinstance(length, int) and longest is not None and length > longest
    return not too_long and not check(arguments, _circumstances(case))


def _excuse(case: dict[str, Any]) -> str | None:
    """Why a verdict of the recorded run is not the one a real start-up gives."""
    message, argv = case["answer"]["message"] or "", case["argv"]
    if "Model Runner V1 does not support: prefill context parallel" in message:
        return "recorded without Triton, where the second model runner is not used"
    if "hf_config" not in case and argv[-1:] == ["0"] and argv[-2:-1] == ["--max-num-seqs"]:
        return "recorded without a model: the scheduler's limits were not reached"
    if "hf_config" not in case and "uni" in argv:
        return "recorded without a model: the executor check was left out"
    return None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_verdicts_agree(case: dict[str, Any]) -> None:
    if _excuse(case) is None:
        assert _accepted(case) == case["answer"]["ok"], case["answer"]["message"]


def test_few_cases_are_excused() -> None:
    assert sum(_excuse(case) is not None for case in CASES) <= len(CASES) * 0.06


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case["answer"]["ok"] and _excuse(case) is None],
    ids=lambda case: case["name"],
)
def test_the_resulting_configuration_is_the_engines(case: dict[str, Any]) -> None:
    ours = dataclasses.asdict(resolve(parse(case["argv"])))
    theirs = case["answer"]["parallel_config"]
    assert {name: value for name, value in ours.items() if name in theirs} == {
        name: theirs[name] for name in ours if name in theirs
    }


def test_the_world_counts_replicas_once() -> None:
    arguments = parse(["-tp", "4", "-pp", "2", "-dp", "4", "-dpl", "2"])
    sizes = parallelism_of(arguments)
    assert (sizes.world_size, world_size_across_data_parallel(sizes)) == (8, 32)
    assert arguments.user_world_size == 32


@pytest.mark.parametrize(
    ("argv", "around", "code"),
    [
        (["-tp", "4", "-dcp", "3"], Circumstances(), RuleCode.DECODE_CONTEXT_DIVIDES),
        (
            ["-tp", "8", "-dcp", "2"],
            Circumstances(attention_heads=64, kv_heads=8),
            RuleCode.DECODE_CONTEXT_HEADS,
        ),
        (["-tp", "3"], Circumstances(attention_heads=64), RuleCode.ATTENTION_HEADS),
        (["-ep"], Circumstances(moe=False, attention_heads=32), RuleCode.NO_EXPERTS),
        (["--enable-eplb", "-tp", "2"], Circumstances(), RuleCode.BALANCING_NEEDS_EXPERTS),
        (["--eplb-config.num_redundant_experts", "8"], Circumstances(), RuleCode.REDUNDANT_NEEDS_BALANCING),
        (["-dp", "2", "-dpl", "4"], Circumstances(), RuleCode.LOCAL_AT_MOST_DATA),
        (["-tp", "16"], Circumstances(gpus=8), RuleCode.TOO_FEW_GPUS),
        (["-pp", "2"], Circumstances(pipeline_supported=False), RuleCode.NO_PIPELINE),
        (["-tp", "8", "-n", "3"], Circumstances(), RuleCode.NODES_DIVIDE_WORLD),
        (["--distributed-executor-backend", "ray"], Circumstances(ray=False), RuleCode.RAY_MISSING),
    ],
)
def test_a_broken_rule_is_named_with_a_way_out(
    argv: list[str], around: Circumstances, code: RuleCode
) -> None:
    (violation,) = check(parse(argv), around)
    assert violation.code is code
    assert violation.hint


def test_what_is_unknown_is_not_judged() -> None:
    assert (
        check(
            parse(["-tp", "7", "-pp", "3", "-ep", "--distributed-executor-backend", "ray"]), Circumstances()
        )
        == ()
    )


def test_decode_context_is_free_for_latent_attention() -> None:
    around = Circumstances(attention_heads=128, kv_heads=128, mla=True, moe=True)
    assert check(parse(["-tp", "8", "-dcp", "8"]), around) == ()
