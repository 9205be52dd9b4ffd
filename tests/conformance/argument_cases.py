"""Deployments whose command lines vLLM itself was asked about: every shape of the deploying tests and more, on several releases.

`CASES` maps a name (`mp-2-hosts@0.33.0`) to a shape; `requests_of` gives the question for each of its containers.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from gpuplan.deploying.compile import compile_deployment
from gpuplan.deploying.request import CompileRequest
from gpuplan.domain.deployment import ContainerSpec, DeploymentSpec, Launch
from gpuplan.domain.workload import Category, ExecutorChoice
from gpuplan.units import GIB
from tests.fleets import CONFIGS
from tests.unit.deploying.shapes import PAIRS, WITH_RAY, Shape, host

NEWEST = "0.33.0"
FOR_SHAPES = ("0.11.2", "0.18.0", "0.26.0", NEWEST)
FOR_MORE = ("0.8.5", "0.14.1", "0.22.0", "0.30.0", NEWEST)
NOT_ASKED = ("omni",)
"""`--omni` is of vllm-omni, a distribution of its own."""
ONE = (host(1),)
TWO = (host(1), host(2))
RAY: dict[str, Any] = {"facts": WITH_RAY, "workload": {"executor": ExecutorChoice.RAY}}
DRAFT = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 1,
    "vocab_size": 151936,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
BESIDE = {"/srv/drafts/eagle": DRAFT}

MORE: Mapping[str, tuple[str, Shape]] = {
    # name: (first release that knows model and flags, shape)
    "fp8-checkpoint": ("0.9.0", Shape(model="Qwen__Qwen3-32B-FP8", hosts=ONE)),
    "awq": ("0.8.5", Shape(model="Qwen__Qwen2.5-7B-Instruct-AWQ", hosts=(host(1, "4090", 1),))),
    "compressed": (
        "0.8.5",
        Shape(model="RedHatAI__Meta-Llama-3.1-70B-Instruct-quantized.w8a8", hosts=(host(1, "A100", 4),)),
    ),
    "sliding-window": ("0.11.2", Shape(model="allenai__Olmo-3-32B", hosts=ONE)),
    "vision": ("0.30.0", Shape(model="google__gemma-3-27b-it", hosts=ONE)),
    "vision-limited": (
        "0.11.2",
        Shape(
            model="Qwen__Qwen3-VL-8B-Instruct",
            hosts=ONE,
            arguments=('--limit-mm-per-prompt {"image":2,"video":0} --mm-encoder-tp-mode data -tp 2',),
        ),
    ),
    "vision-as-text": (
        "0.30.0",
        Shape(model="Qwen__Qwen3-VL-32B-Instruct", hosts=ONE, arguments=("--language-model-only",)),
    ),
    "vision-experts": (
        "0.11.2",
        Shape(
            model="Qwen__Qwen3-VL-235B-A22B-Instruct",
            hosts=ONE,
            arguments=("-tp 8 --enable-expert-parallel",),
        ),
    ),
    "vision-experts-llama": ("0.9.0", Shape(model="meta-llama__Llama-4-Scout-17B-16E-Instruct", hosts=ONE)),
    "mxfp4": ("0.11.2", Shape(model="openai__gpt-oss-120b", hosts=ONE, workload={"context": 65536})),
    "mxfp4-small": ("0.11.2", Shape(model="openai__gpt-oss-20b", hosts=(host(1, "4090", 1),))),
    "mixtral": ("0.8.5", Shape(model="mistralai__Mixtral-8x7B-v0.1", hosts=ONE)),
    "hybrid": ("0.11.2", Shape(model="Qwen__Qwen3-Next-80B-A3B-Instruct", hosts=ONE)),
    "hybrid-mtp": (
        "0.14.1",
        Shape(
            model="Qwen__Qwen3-Next-80B-A3B-Instruct",
            hosts=ONE,
            arguments=('--speculative-config {"method":"qwen3_next_mtp","num_speculative_tokens":2} -tp 4',),
        ),
    ),
    "mamba": ("0.22.0", Shape(model="nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", hosts=ONE)),
    "mla": ("0.8.5", Shape(model="deepseek-ai__DeepSeek-V2-Lite", hosts=ONE)),
    "mla-two-hosts": (
        "0.14.1",
        Shape(model="deepseek-ai__DeepSeek-R1", hosts=TWO, arguments=("-tp 8 -pp 2",)),
    ),
    "mla-wide-experts": (
        "0.11.2",
        Shape(
            model="deepseek-ai__DeepSeek-V2-Lite",
            hosts=(host(1, count=2), host(2, count=2)),
            arguments=("--data-parallel-size 4 --enable-expert-parallel --max-model-len 8192",),
        ),
    ),
    "mla-decode-context": (
        "0.14.1",
        Shape(
            model="deepseek-ai__DeepSeek-V2-Lite",
            hosts=ONE,
            arguments=("-tp 8 --decode-context-parallel-size 8",),
        ),
    ),
    "mla-mtp": (
        "0.18.0",
        Shape(
            model="deepseek-ai__DeepSeek-R1",
            hosts=TWO,
            arguments=('--speculative-config {"method":"mtp","num_speculative_tokens":1} -tp 16',),
        ),
    ),
    "experts-wide": (
        "0.11.2",
        Shape(
            model="Qwen__Qwen3-235B-A22B-FP8",
            hosts=TWO,
            arguments=("--data-parallel-size 4 -tp 4 --enable-expert-parallel",),
        ),
    ),
    "experts-balanced": (
        "0.14.1",
        Shape(
            model="Qwen__Qwen3-30B-A3B",
            hosts=ONE,
            arguments=(
                '--data-parallel-size 4 --enable-expert-parallel --enable-eplb --eplb-config {"num_redundant_experts":0}',
            ),
        ),
    ),
    "experts-three-hosts": (
        "0.11.2",
        Shape(
            model="Qwen__Qwen3-30B-A3B",
            hosts=tuple(host(number, count=1) for number in (1, 2, 3)),
            arguments=("--data-parallel-size 3 --enable-expert-parallel",),
        ),
    ),
    "experts-whole": ("0.11.2", Shape(model="Qwen__Qwen3-Coder-480B-A35B-Instruct", hosts=TWO)),
    "minimax": ("0.22.0", Shape(model="MiniMaxAI__MiniMax-M2.7", hosts=ONE)),
    "sparse-attention": (
        "0.33.0",
        Shape(model="deepseek-ai__DeepSeek-V3.2", hosts=TWO, arguments=("-tp 8 -pp 2",)),
    ),
    "glm": ("0.33.0", Shape(model="zai-org__GLM-5-FP8", hosts=TWO)),
    "kimi": (
        "0.18.0",
        Shape(model="moonshotai__Kimi-K2-Instruct", hosts=TWO, arguments=("-tp 16 --trust-remote-code",)),
    ),
    "reranker": (
        "0.11.2",
        Shape(
            model="Qwen__Qwen3-4B",
            hosts=(host(1, "4090", 1),),
            category=Category.RERANKER,
            pooling=True,
            arguments=(
                "--runner pooling",
                '--hf-overrides {"architectures":["Qwen3ForSequenceClassification"],"classifier_from_token":["no","yes"]}',
            ),
        ),
    ),
    "embedding-both-ways": (
        "0.8.5",
        Shape(model="BAAI__bge-m3", hosts=(host(1, "4090", 1),), category=Category.EMBEDDING, pooling=True),
    ),
    "embedding-tensor": (
        "0.8.5",
        Shape(
            model="Qwen__Qwen3-8B",
            hosts=(host(1, count=2),),
            category=Category.EMBEDDING,
            pooling=True,
            arguments=("-tp 2",),
        ),
    ),
    "limits": (
        "0.8.5",
        Shape(
            hosts=ONE,
            arguments=("--max-num-seqs 64 --max-model-len 16384 --max-num-batched-tokens 4096 -tp 2",),
        ),
    ),
    "limits-human": (
        "0.11.2",
        Shape(
            hosts=ONE,
            arguments=("--max-model-len 32K", "--max-num-batched-tokens=8k", "--tensor_parallel_size = 4"),
        ),
    ),
    "cache-fp8": (
        "0.8.5",
        Shape(hosts=ONE, arguments=("--kv-cache-dtype fp8 --gpu-memory-utilization 0.8",)),
    ),
    "eager-half": (
        "0.8.5",
        Shape(hosts=ONE, arguments=("--enforce-eager --dtype float16 --no-enable-prefix-caching",)),
    ),
    "quantized-at-load": ("0.8.5", Shape(hosts=(host(1, "H100", 1),), arguments=("--quantization fp8",))),
    "graphs": (
        "0.14.1",
        Shape(hosts=ONE, arguments=('--compilation-config {"cudagraph_capture_sizes":[1,2,4,8]} -tp 2',)),
    ),
    "dotted": ("0.14.1", Shape(hosts=ONE, arguments=("--compilation-config.cudagraph_mode PIECEWISE -O2",))),
    "tools": (
        "0.11.2",
        Shape(
            hosts=ONE,
            arguments=("--reasoning-parser qwen3 --enable-auto-tool-choice --tool-call-parser hermes",),
        ),
    ),
    "names": (
        "0.8.5",
        Shape(hosts=ONE, arguments=("--served-model-name qwen qwen3-32b --port 8080 --host 127.0.0.1",)),
    ),
    "longer-than-trained": ("0.8.5", Shape(hosts=ONE, workload={"context": 65536})),
    "context-max": ("0.8.5", Shape(hosts=ONE, workload={"context": "max", "concurrency": 4})),
    "claim": ("0.8.5", Shape(hosts=ONE, workload={"vram_claim_bytes": 100 * GIB})),
    "offloaded-cache": ("0.14.1", Shape(hosts=ONE, arguments=("--kv-offloading-size 40 -tp 2",))),
    "servers": ("0.11.2", Shape(hosts=ONE, arguments=("--api-server-count 2",))),
    "servers-two-hosts": (
        "0.14.1",
        Shape(hosts=(host(1, count=2), host(2, count=2)), arguments=("-tp 2 -pp 2 --api-server-count 2",)),
    ),
    "tensor-over-hosts": ("0.14.1", Shape(hosts=(host(1, count=2), host(2, count=2)), arguments=("-tp 4",))),
    "ray-tensor-over-hosts": (
        "0.8.5",
        Shape(hosts=(host(1, count=2), host(2, count=2)), arguments=("-tp 4",), **RAY),
    ),
    "ray-huge": (
        "0.8.5",
        Shape(model="meta-llama__Meta-Llama-3.1-405B", hosts=tuple(host(n) for n in (1, 2, 3)), **RAY),
    ),
    "ray-experts-over-hosts": (
        "0.14.1",
        Shape(
            model="Qwen__Qwen3-30B-A3B",
            hosts=(host(1, count=2), host(2, count=2)),
            arguments=("--data-parallel-size 4 --enable-expert-parallel",),
            **RAY,
        ),
    ),
    "ray-replicas": (
        "0.8.5",
        Shape(
            hosts=tuple(host(number, "L40S", 1) for number in (1, 2, 3, 4)),
            arguments=("-pp 2",),
            facts=WITH_RAY,
            workload={"replicas": 2, "executor": ExecutorChoice.RAY},
        ),
    ),
    "lora-two-hosts": (
        "0.14.1",
        Shape(
            hosts=(host(1, count=2), host(2, count=2)),
            arguments=("-tp 2 -pp 2 --enable-lora --max-lora-rank 32",),
        ),
    ),
}


def _cases() -> Iterator[tuple[str, Shape]]:
    for name, shape in PAIRS.items():
        if name in NOT_ASKED:
            continue
        if shape.version != NEWEST:
            yield f"{name}@{shape.version}", shape
            continue
        for release in FOR_SHAPES:
            yield f"{name}@{release}", replace(shape, version=release)
    for name, (first, shape) in MORE.items():
        for release in FOR_MORE:
            if _numbers(release) >= _numbers(first):
                yield f"{name}@{release}", replace(shape, version=release)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


CASES: Mapping[str, Shape] = dict(_cases())


@cache
def request_of(name: str) -> CompileRequest:
    """A case, planned once a process: two tests ask for each."""
    return CASES[name].request()


def command_of(container: ContainerSpec) -> tuple[str, ...] | None:
    """The `vllm serve …` that a container ends up with; None for one that starts a node of Ray."""
    words = (*container.entrypoint, *container.command)
    places = [at for at in range(len(words) - 1) if words[at : at + 2] == ("vllm", "serve")]
    return words[places[0] :] if places else None


def serving(spec: DeploymentSpec) -> tuple[ContainerSpec, ...]:
    """The containers that run vLLM."""
    return tuple(container for container in spec.containers if command_of(container) is not None)


def requests_of(name: str) -> dict[str, dict[str, Any]]:
    """What `vllm_parser` is asked, by the name of the container. Raises UsageError where gpuplan refuses the case."""
    shape, spec = CASES[name], compile_deployment(request_of(name))
    hosts = {one.name: one for one in shape.hosts}
    config = json.loads((CONFIGS / f"{shape.model}.json").read_text())
    asked: dict[str, dict[str, Any]] = {}
    for container in serving(spec):
        planned = [
            one for one in spec.containers if one.host == container.host and one.server == container.server
        ]
        indexes = {index for one in planned for index in one.gpu_indexes}
        cards = [gpu for gpu in hosts[container.host].gpus if gpu.index in indexes]
        capability = cards[0].compute_capability or "9.0"
        asked[container.name] = {
            "argv": list(command_of(container) or ()),
            "env": {name: value for name, value in container.env if name.startswith("VLLM_")},
            "config": config,
            "beside": {path: model for path, model in BESIDE.items() if path in " ".join(container.command)},
            "gpus": len(cards),
            "card": cards[0].name,
            "total_bytes": cards[0].total_bytes,
            "capability": [int(part) for part in capability.split(".")],
            "ray": spec.servers[container.server].launch is Launch.RAY,
        }
    return asked
