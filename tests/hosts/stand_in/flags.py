"""The arguments of `vllm serve` that the stand-in acts on; others are kept as they were written."""

import argparse
from collections.abc import Sequence
from typing import NoReturn

from tests.hosts.stand_in import log

_REMOVED = frozenset({"--swap-space"})
"""Flags that vLLM had once and refuses now."""
_INTEGERS = {
    "--port": 8000,
    "--tensor-parallel-size": 1,
    "--pipeline-parallel-size": 1,
    "--prefill-context-parallel-size": 1,
    "--data-parallel-size": 1,
    "--data-parallel-size-local": None,
    "--data-parallel-start-rank": None,
    "--data-parallel-rpc-port": 29550,
    "--nnodes": 1,
    "--node-rank": 0,
    "--master-port": 29501,
    "--max-num-seqs": 256,
    "--max-num-batched-tokens": 8192,
    "--distributed-timeout-seconds": 600,
}
_WORDS = {
    "--host": None,
    "--api-key": None,
    "--data-parallel-address": "127.0.0.1",
    "--data-parallel-backend": "mp",
    "--distributed-executor-backend": None,
    "--master-addr": "127.0.0.1",
    "--max-model-len": None,
    "--runner": "auto",
    "--dtype": "auto",
    "--load-format": "auto",
}
_SWITCHES = ("--headless", "--enforce-eager", "--enable-expert-parallel", "--skip-tokenizer-init")
_SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpl": "--data-parallel-size-local",
    "-dpr": "--data-parallel-start-rank",
    "-dpa": "--data-parallel-address",
    "-dpp": "--data-parallel-rpc-port",
    "-n": "--nnodes",
    "-r": "--node-rank",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        log.error(f"usage: vllm serve [model_tag] [options]\nvllm serve: error: {message}")
        raise SystemExit(2)


class Options(argparse.Namespace):
    """As vLLM names them; `others` holds the words nobody here knows."""

    model_tag: str
    host: str | None
    port: int
    api_key: str | None
    served_model_name: list[str] | None
    tensor_parallel_size: int
    pipeline_parallel_size: int
    prefill_context_parallel_size: int
    data_parallel_size: int
    data_parallel_size_local: int | None
    data_parallel_start_rank: int | None
    data_parallel_address: str
    data_parallel_rpc_port: int
    data_parallel_backend: str
    distributed_executor_backend: str | None
    distributed_timeout_seconds: int
    nnodes: int
    node_rank: int
    master_addr: str
    master_port: int
    headless: bool
    enforce_eager: bool
    gpu_memory_utilization: float
    max_model_len: str | None
    max_num_seqs: int
    runner: str
    load_format: str
    others: list[str]

    @property
    def model_ranks(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.prefill_context_parallel_size

    @property
    def replicas_here(self) -> int:
        """Data-parallel ranks whose work is, at least in part, on this node."""
        if self.data_parallel_size_local is not None:
            return self.data_parallel_size_local
        return max(1, self.data_parallel_size // self.nnodes)

    @property
    def nodes_per_replica(self) -> int:
        """As vLLM's `ParallelConfig.nnodes_within_dp` counts them."""
        if self.nnodes == 1:
            return 1
        return max(1, self.nnodes // max(1, self.data_parallel_size // self.replicas_here))

    @property
    def ranks_here(self) -> int:
        """GPUs this node needs."""
        return self.model_ranks * self.replicas_here // self.nodes_per_replica

    @property
    def names(self) -> list[str]:
        """What clients may call the model; the first is the one it is listed under."""
        return self.served_model_name or [self.model_tag]


def parse(argv: Sequence[str]) -> Options:
    """The words after `vllm serve`; ends the program with 2 as vLLM does where they make no sense."""
    parser = _Parser(prog="vllm serve", add_help=False, allow_abbrev=False)
    parser.add_argument("model_tag", nargs="?", default="Qwen/Qwen3-0.6B")
    parser.add_argument("--served-model-name", nargs="+", default=None)
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.92)
    for name, number in _INTEGERS.items():
        parser.add_argument(name, type=int, default=number)
    for name, word in _WORDS.items():
        parser.add_argument(name, default=word)
    for name in _SWITCHES:
        parser.add_argument(name, action="store_true")
    words = [_spelled(word) for word in argv]
    options, others = parser.parse_known_args(words, Options())
    removed = sorted(_REMOVED.intersection(word.partition("=")[0] for word in others))
    if removed:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    options.others = others
    return options


def _spelled(word: str) -> str:
    """Short and underscored names in their long form."""
    if not word.startswith("-"):
        return word
    name, equals, value = word.partition("=")
    name = _SHORT.get(name, name.replace("_", "-") if name.startswith("--") else name)
    return f"{name}{equals}{value}"
