"""Remedies in words: what is typed, what it gives, what it costs."""

import shlex

import pytest

from gpuplan.domain.plan import Remedy
from gpuplan.engine.arguments import parse
from gpuplan.engine.versions import DEFAULT
from gpuplan.present.remedies import KINDS, option, word_remedy


def remedy(kind: str, change: dict[str, object], **figures: object) -> Remedy:
    return Remedy(kind=kind, change=change, figures=figures, size=1.0, verified=True)


SPEEDS = {"decode": 4.26, "decode_before": 31.4}
EXAMPLES = {
    "context": remedy("context", {"--context": 4096}, context=4096, asked=8192),
    "concurrency": remedy("concurrency", {"--concurrency": 1}, concurrency=1, asked=4),
    "replicas": remedy("replicas", {"--replicas": 2}, replicas=2, asked=5),
    "max_num_seqs": remedy(
        "max_num_seqs", {"--max-num-seqs": 8}, sequences=8, asked=256, gained_bytes=1 << 30
    ),
    "max_num_batched_tokens": remedy(
        "max_num_batched_tokens", {"--max-num-batched-tokens": 512}, batched=512, asked=8192
    ),
    "graphs": remedy("graphs", {"--cudagraph-capture-sizes": (1, 2)}, graphs=2, asked=512),
    "enforce_eager": remedy("enforce_eager", {"--enforce-eager": True}, **SPEEDS),
    "kv_cache_dtype": remedy("kv_cache_dtype", {"--kv-cache-dtype": "fp8"}),
    "dtype": remedy("dtype", {"--dtype": "float16"}),
    "gpu_memory_utilization": remedy(
        "gpu_memory_utilization", {"--gpu-memory-utilization": 0.95}, share=0.95, asked=0.92
    ),
    "expert_parallel": remedy("expert_parallel", {"--enable-expert-parallel": True}, experts=128),
    "max_loras": remedy("max_loras", {"--max-loras": 1}, slots=1, asked=8),
    "max_lora_rank": remedy("max_lora_rank", {"--max-lora-rank": 16}, rank=16, asked=64),
    "mm_limit": remedy(
        "mm_limit", {"--limit-mm-per-prompt": {"image": 0, "audio": 0}}, modalities=["image", "audio"]
    ),
    "cpu_offload_gb": remedy("cpu_offload_gb", {"--cpu-offload-gb": 9}, gib=9),
    "shape": remedy(
        "shape",
        {"--tensor-parallel-size": 1, "--pipeline-parallel-size": 2},
        shape="TP 1 × PP 2",
        partition=(20, 12),
        where="h1",
        gpus=2,
        asked=1,
    ),
    "gpus": remedy("gpus", {"--gpus": ("h2:0", "h3:1")}, shape="TP 2 × PP 1", where="h2, h3"),
    "other_hosts": remedy(
        "other_hosts", {"without": "--no-distributed"}, shape="TP 1 × PP 2", where="h1, h2"
    ),
    "sibling": remedy(
        "sibling", {"model": "a/b-FP8"}, quantization="fp8", weights_bytes=1 << 30, asked_bytes=2 << 30
    ),
    "stop": remedy("stop", {"stop": "old"}, deployment="old", places=("h1:0",), requests=3),
    "process": remedy(
        "process",
        {"process": "h1:123"},
        pid=123,
        host="h1",
        gpus=(0, 1),
        user="ann",
        process="python",
        container="lab",
        bytes=1 << 30,
    ),
    "more_gpus": remedy(
        "more_gpus", {"gpus": 4, "device": "T4"}, gpus=4, more=2, device="T4", shape="TP 4 × PP 1"
    ),
}
EXAMPLES["pair"] = remedy(
    "pair",
    {"--context": 4096, "--enforce-eager": True},
    parts=(EXAMPLES["context"], EXAMPLES["enforce_eager"]),
)


def test_every_kind_has_an_example() -> None:
    assert set(EXAMPLES) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_says_what_to_do_and_what_it_costs(kind: str) -> None:
    headline, cost = word_remedy(EXAMPLES[kind])
    assert headline
    assert cost
    assert option(EXAMPLES[kind].change) in headline


@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_behind_the_dashes_is_what_vllm_reads(kind: str) -> None:
    ours, _, engine = option(EXAMPLES[kind].change).partition("-- ")
    assert "--" not in ours.replace(" --", "").removeprefix("--")
    if engine:
        assert parse(shlex.split(engine), version=DEFAULT).user_set


@pytest.mark.parametrize(
    ("kind", "headline", "cost"),
    [
        (
            "pair",
            "--context 4096 -- --enforce-eager: the longest context that fits here, and no memory for CUDA graphs",
            "4,096 tokens instead of 8,192 tokens; slower decode: about 4.3 instead of 31 tokens/s for each user",
        ),
        (
            "process",
            "if pid 123 of user ann on h1:0-1 ended (python in container lab): 1.00 GiB come back there",
            "it is not gpuplan's and is never touched: ask ann",
        ),
        (
            "stop",
            "gpuplan stop old: what it holds on h1:0 comes back; then plan again",
            "3 requests in flight there would be lost",
        ),
        (
            "gpus",
            "--gpus h2:0 --gpus h3:1 instead: TP 2 × PP 1 on h2, h3",
            "other GPUs than the selected ones",
        ),
        (
            "cpu_offload_gb",
            "-- --cpu-offload-gb 9: 9 GiB of weights of each GPU stay in host memory",
            "slower decode: every step reads them over PCIe",
        ),
        (
            "mm_limit",
            """-- --limit-mm-per-prompt '{"audio":0,"image":0}': no memory for the tower of images and audio""",
            "requests with images or audio are refused",
        ),
    ],
)
def test_words(kind: str, headline: str, cost: str) -> None:
    assert word_remedy(EXAMPLES[kind]) == (headline, cost)


def test_a_pair_with_a_command_names_both() -> None:
    both = remedy("pair", {"stop": "old", "--context": 4096}, parts=(EXAMPLES["stop"], EXAMPLES["context"]))
    assert word_remedy(both)[0].startswith("gpuplan stop old and --context 4096: ")
