"""What the log of one start says of itself, from logs of many releases."""

from pathlib import Path

import pytest

from gpuplan.domain.calibration import Ending
from gpuplan.domain.memory import StartCheck
from gpuplan.engine.start_facts import StartFacts, facts_of, last_start, undressed
from gpuplan.engine.versions import EngineVersion
from gpuplan.units import GIB

LOGS = Path(__file__).parents[2] / "data" / "logs"


def read(*names: str) -> StartFacts:
    return facts_of(
        {name: [(None, line) for line in (LOGS / name).read_text().splitlines()] for name in names}
    )


def said(*lines: str) -> StartFacts:
    return facts_of({"log": [(None, line) for line in lines]})


def gib(size: int | None) -> float | None:
    return None if size is None else round(size / GIB, 2)


def test_arguments_version_and_figures_of_a_server() -> None:
    facts = read("0.22.0-typhoon-8b.log")
    assert facts.version == EngineVersion(0, 22)
    assert facts.model == "typhoon-ai/typhoon-s-thaillm-8b-instruct-research-preview"
    assert facts.architecture == "Qwen3ForCausalLM"
    assert facts.arguments is not None
    assert facts.arguments["max_num_seqs"] == 2
    assert facts.arguments["gpu_memory_utilization"] == 0.6
    assert (facts.tokens, facts.max_concurrency, facts.max_model_len) == (275328, 33.61, 8192)
    (rank,) = facts.of_stages(1).values()
    assert (gib(rank.loading), gib(rank.kv_cache)) == (15.27, 37.81)
    assert facts.ending is Ending.SERVES


def test_arguments_that_may_hold_secrets_are_not_read() -> None:
    facts = said(
        "INFO 01-01 00:00:00 [u.py:1] non-default args: {'api_key': ['sk-quokka'], 'max_num_seqs': 4}"
    )
    assert facts.arguments == {"max_num_seqs": 4}


def test_the_old_namespace_of_arguments() -> None:
    facts = read("0.8.3-tinyllama.log")
    assert facts.arguments is not None
    assert facts.arguments["quantization"] == "bitsandbytes"
    assert facts.batched_tokens == 2048


def test_consumed_memory_is_not_taken_for_weights() -> None:
    facts = read("0.26.1-qwen3-coder-30b.log")
    (rank,) = facts.of_stages(1).values()
    assert (gib(rank.loading), gib(rank.consumed)) == (56.93, 57.26)
    assert (gib(rank.activation), rank.non_torch) == (0.23, None)
    assert (gib(rank.graphs_estimated), gib(rank.graphs)) == (0.15, 0.11)
    assert (gib(facts.total_bytes), gib(facts.free_bytes)) == (79.25, 78.84)


def test_all_terms_of_a_release_that_prints_them() -> None:
    facts = read("startup/Qwen3-Next-80B-A3B-Instruct_H200-TP2_0.10.2.log")
    (rank,) = facts.of_stages(1).values()
    assert (gib(rank.activation), gib(rank.non_torch), gib(rank.kv_cache)) == (5.58, 1.38, 44.59)
    assert facts.gpu is None or "H200" in facts.gpu


def test_the_card_is_named_by_its_tuned_kernels() -> None:
    assert read("0.12.0-qwen3-vl-30b-tp2.log").gpu == "NVIDIA H100 80GB HBM3"


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("failed-0.11.0-free-memory.log", StartCheck.FREE_MEMORY),
        ("failed-0.23.0-tp4-free-memory.log", StartCheck.FREE_MEMORY),
        ("failed-0.25.1-kv-cache-too-small.log", StartCheck.CONTEXT),
        ("failed-0.23.1-illegal-memory-access.log", None),
    ],
)
def test_failed_starts_name_their_check(name: str, check: StartCheck | None) -> None:
    facts = read(name)
    assert (facts.ending, facts.check) == (Ending.FAILED, check)
    assert facts.line is not None


def test_what_kills_after_it_served_is_no_failed_start() -> None:
    facts = said("INFO:     Application startup complete.", "torch.OutOfMemoryError: CUDA out of memory.")
    assert (facts.ending, facts.check) == (Ending.SERVES, None)


@pytest.mark.parametrize(
    "prefix",
    ["", "2026-11-01T12:00:00.123456789Z ", "vllm-1  | ", "2026-11-01T12:00:00.1+00:00 stdout F "],
)
def test_what_docker_and_others_put_before_a_line_is_taken_away(prefix: str) -> None:
    line = "(EngineCore pid=7) INFO 06-02 13:32:35 [gpu_worker.py:466] Available KV cache memory: -0.53 GiB"
    assert undressed(prefix + line) == line
    (rank,) = said(prefix + line).ranks
    assert gib(rank.kv_cache) == -0.53


def test_only_the_last_start_of_a_log_counts() -> None:
    first = ["vLLM API server version 0.11.0", "Model loading took 3.00 GiB and 1.0 seconds"]
    second = ["vLLM API server version 0.11.0", "Model loading took 4.00 GiB and 1.0 seconds"]
    assert last_start([*first, *second]) == tuple(second)
    assert gib(said(*first, *second).ranks[0].loading) == 4.0


def test_stages_are_told_by_the_processes_names_and_by_their_own_words() -> None:
    facts = said(
        "(Worker_PP0_TP0 pid=1) INFO 01-01 00:00:00 [x.py:1] Model loading took 10.00 GiB and 1.0 seconds",
        "(Worker_PP1_TP0 pid=2) INFO 01-01 00:00:00 [x.py:1] Model loading took 12.00 GiB and 1.0 seconds",
        "(EngineCore pid=9) (RayWorkerWrapper pid=3, ip=10.0.0.2) INFO 01-01 00:00:00 [x.py:1] rank 5 in world size 8 is "
        "assigned as DP rank 0, PP rank 1, TP rank 1, EP rank 1",
        "(EngineCore pid=9) (RayWorkerWrapper pid=3, ip=10.0.0.2) INFO 01-01 00:00:00 [x.py:1] Model loading took 13.00 GiB",
        "(Worker pid=4) INFO 01-01 00:00:00 [x.py:1] Model loading took 99.00 GiB and 1.0 seconds",
    )
    stages = facts.of_stages(2)
    assert {stage: gib(rank.loading) for stage, rank in stages.items()} == {0: 10.0, 1: 13.0}


def test_the_poorest_rank_decides_on_the_cache_and_the_fullest_on_loading() -> None:
    facts = said(
        "(Worker_TP0 pid=1) INFO 01-01 00:00:00 [x.py:1] Model loading took 10.00 GiB and 1.0 seconds",
        "(Worker_TP1 pid=2) INFO 01-01 00:00:00 [x.py:1] Model loading took 10.20 GiB and 1.0 seconds",
        "(Worker_TP0 pid=1) INFO 01-01 00:00:00 [x.py:1] Available KV cache memory: 5.00 GiB",
        "(Worker_TP1 pid=2) INFO 01-01 00:00:00 [x.py:1] Available KV cache memory: 4.80 GiB",
    )
    (rank,) = facts.of_stages(1).values()
    assert (gib(rank.loading), gib(rank.kv_cache)) == (10.2, 4.8)


def test_a_log_is_known_again_and_two_starts_are_two() -> None:
    one, again = read("0.22.0-typhoon-8b.log"), read("0.22.0-typhoon-8b.log")
    assert one.id == again.id
    assert one.id != read("0.9.2-qwen2.5-1.5b.log").id


def test_nothing_in_a_hostile_line_takes_long_or_raises() -> None:
    for line in (
        "(" * 50000,
        "non-default args: {" + "[" * 50000,
        "a" * 10**6,
        "args: Namespace(" + "'" * 9999,
    ):
        said(line)
