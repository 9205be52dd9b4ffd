"""`gpuplan lint` against verdicts of vLLM 0.33's own parser, launch checks and configuration classes.

`vllm-parallel-config.jsonl.gz`: argument lists, the GPUs visible, whether Ray is there, some with a model's config; and what the
engine answered.
"""

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.fact import Severity
from gpuplan.operations.lint import Linted, LintOptions, lint

DATA = Path(__file__).parents[1] / "data" / "vllm-parallel-config.jsonl.gz"
CASES: list[dict[str, Any]] = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]

REASONS = {
    "GP101": r"attention heads .* must be divisible",
    "GP109": r"Number of experts in the model must be greater",
    "GP115": r"argument --|unrecognized arguments|for CacheConfig|for SchedulerConfig",
    "GP210": r"max_model_len .* is greater than the derived",
    "balancing_needs_experts": r"must be True to use EPLB",
    "context_spans": r"When PCP is enabled",
    "data_rank": r"data_parallel_rank .* must be in the range",
    "decode_context_divides": r"must be divisible by dcp_size",
    "dense_external": r"Non-MoE models do not support external",
    "external_local_one": r"requires `--data-parallel-size-local 1`",
    "external_needs_data": r"data_parallel_external_lb can only be set",
    "external_needs_rank": r"requires a data-parallel rank",
    "external_rank_ambiguous": r"cannot unambiguously identify",
    "hybrid_needs_local": r"`--data-parallel-hybrid-lb` requires",
    "load_balancing_modes": r"more than one data parallel load balancing mode",
    "local_at_most_data": r"data_parallel_size_local .* must be <=",
    "microbatch_backend": r"Microbatching currently only supports",
    "node_rank": r"`--node-rank` must be between",
    "nodes_divide_world": r"must evenly divide the total world size",
    "nodes_need_executor": r"nnodes > 1 can only be set",
    "nodes_need_mp_data_parallel": r"requires `--data-parallel-backend mp`",
    "nsight_needs_ray": r"Unable to use nsight",
    "pipeline_executor": r"Pipeline Parallelism without Ray",
    "ray_missing": r"Failed to import Ray",
    "too_few_gpus": r"World size .* is larger than the number of available GPUs",
}
"""Our code or rule, and the engine's words for the same."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Linted]:
    place = tmp_path_factory.mktemp("configs")
    return {case["name"]: _answer(case, place) for case in CASES}


def _answer(case: dict[str, Any], place: Path) -> Linted:
    config = None
    if case.get("hf_config"):
        path = place / case["name"] / "config.json"
        path.parent.mkdir()
        path.write_text(json.dumps(case["hf_config"]))
        config = str(path)
    return lint(
        case["argv"],
        LintOptions(gpus=case["gpus"], ray=case["ray"], config=config, moe=bool(case.get("is_moe"))),
    )


def excuse(case: dict[str, Any]) -> str | None:
    """Why a verdict of the recorded run is not the one a real start-up gives."""
    message, argv = case["answer"]["message"] or "", case["argv"]
    if "Model Runner V1 does not support: prefill context parallel" in message:
        return "recorded without Triton, where the second model runner is not used"
    if "hf_config" not in case and argv[-1:] == ["0"] and argv[-2:-1] == ["--max-num-seqs"]:
        return "recorded without a model: the scheduler's limits were not reached"
    if "hf_config" not in case and "uni" in argv:
        return "recorded without a model: the executor check was left out"
    return None


def test_verdicts_agree(answers: dict[str, Linted]) -> None:
    wrong = {
        case["name"]: case["answer"]["message"]
        for case in CASES
        if answers[case["name"]].ok != case["answer"]["ok"] and excuse(case) is None
    }
    assert not wrong


def test_nearly_all_agree_without_any_excuse(answers: dict[str, Linted]) -> None:
    agreeing = sum(answers[case["name"]].ok == case["answer"]["ok"] for case in CASES)
    assert agreeing >= 0.98 * len(CASES)


@cache
def _reason(code: str) -> re.Pattern[str]:
    return re.compile(REASONS[code], re.DOTALL)


def test_refusals_name_the_engines_reason(answers: dict[str, Linted]) -> None:
    """The engine stops at its first reason; ours may come with others."""
    refused = [case for case in CASES if not case["answer"]["ok"] and not answers[case["name"]].ok]
    assert len(refused) > 300
    unnamed = {
        case["name"]: case["answer"]["message"]
        for case in refused
        if excuse(case) is None
        and not any(
            _reason(str(fact.subject.get("rule")) if fact.code == "GP116" else fact.code).search(
                case["answer"]["message"]
            )
            for fact in answers[case["name"]].facts
            if fact.severity is Severity.ERROR
        )
    }
    assert len(unnamed) <= 0.02 * len(refused), unnamed


def test_resulting_configurations_are_the_engines(answers: dict[str, Linted]) -> None:
    accepted = [case for case in CASES if case["answer"]["ok"] and answers[case["name"]].ok]
    assert len(accepted) > 100
    for case in accepted:
        theirs, ours = case["answer"]["parallel_config"], answers[case["name"]].parallel_config
        assert ours is not None
        assert {name: ours[name] for name in theirs if name in ours} == {
            name: theirs[name] for name in theirs if name in ours
        }, case["name"]
