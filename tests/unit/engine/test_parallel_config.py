"""Parallel rules, each with its way out; `tests/conformance/test_lint.py` holds them against the engine's own verdicts."""

import pytest

from gpuplan.engine.arguments import parse
from gpuplan.engine.parallel_config import (
    Circumstances,
    RuleCode,
    check,
    parallelism_of,
    world_size_across_data_parallel,
)


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
