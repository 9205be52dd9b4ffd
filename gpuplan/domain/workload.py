"""What the user asks for: how the model is to be served, and the engine's own arguments.

`EngineArguments` holds what was written and nothing else: a field nobody set keeps the engine's own default
or `None` (the engine decides), and `user_set` names the fields that were given. Validity is checked where
arguments are read (`engine.arguments`), so a value of this type never holds a utilization of 1.2 or a
tensor-parallel size of 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

MOST_SPECULATIVE_TOKENS = 1024
"""Drafts of a step; a count as large as this is taken for a slip."""


class Category(StrEnum):
    """What a model is for; it decides which rules of memory use apply."""

    LLM = "llm"
    EMBEDDING = "embedding"
    RERANKER = "reranker"
    SPEECH_TO_TEXT = "speech_to_text"
    TEXT_TO_SPEECH = "text_to_speech"
    IMAGE = "image"
    OMNI = "omni"


class Placement(StrEnum):
    """Where replicas go: on as many hosts as possible, or on as few."""

    SPREAD = "spread"
    BINPACK = "binpack"


class ExecutorChoice(StrEnum):
    """How workers on several hosts are started."""

    AUTO = "auto"
    RAY = "ray"
    MP = "mp"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentNotice:
    """Something about an accepted argument the user should know; never an error."""

    code: str
    """newer_flag, removed_flag, unread_config, unknown_executor, quantization_removed"""
    flag: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineArguments:
    """Arguments of `vllm serve`, as far as a plan depends on them; everything else is in `values`."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    data_parallel_size_local: int | None = None
    """Replicas on each host, out of `data_parallel_size`; never multiplied into the world size (S0.2)."""
    data_parallel_rank: int | None = None
    data_parallel_start_rank: int | None = None
    data_parallel_address: str | None = None
    data_parallel_rpc_port: int | None = None
    data_parallel_backend: str = "mp"
    data_parallel_external_lb: bool = False
    data_parallel_hybrid_lb: bool = False
    data_parallel_multi_port_external_lb: bool = False
    prefill_context_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    enable_expert_parallel: bool = False
    enable_eplb: bool = False
    eplb_config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    num_redundant_experts: int = 0
    """From `--eplb-config` (or its own flag up to 0.11)."""
    expert_placement_strategy: str = "linear"
    all2all_backend: str | None = None
    enable_dbo: bool = False
    ubatch_size: int = 0
    distributed_executor_backend: str | None = None
    nnodes: int = 1
    node_rank: int = 0
    master_addr: str | None = None
    master_port: int | None = None
    headless: bool = False
    disable_custom_all_reduce: bool = False
    device_ids: str | None = None

    max_model_len: int | Literal["auto"] | None = None
    """Tokens; `auto` (or -1) lets the engine fit the length to the memory, None derives it from the model."""
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enable_chunked_prefill: bool | None = None
    async_scheduling: bool | None = None
    performance_mode: str = "balanced"

    gpu_memory_utilization: float | None = None
    """Share of the device's total memory, in (0, 1]; None: the version's default."""
    kv_cache_memory_bytes: int | None = None
    kv_cache_dtype: str = "auto"
    kv_cache_dtype_skip_layers: tuple[str, ...] = ()
    block_size: int | None = None
    num_gpu_blocks_override: int | None = None
    enable_prefix_caching: bool | None = None
    disable_hybrid_kv_cache_manager: bool | None = None
    mamba_cache_mode: str | None = None
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    mamba_block_size: int | None = None
    cpu_offload_gb: float = 0.0
    """GiB of parameters per GPU kept in host memory."""
    kv_offloading_size: float | None = None
    """GiB of host memory for the extended KV cache, over all ranks."""
    kv_transfer_config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    swap_space: float | None = None
    """GiB of host memory per GPU; the flag left the engine in 0.18."""

    dtype: str = "auto"
    quantization: str | None = None
    load_format: str = "auto"
    hf_overrides: Mapping[str, Any] = field(default_factory=dict, hash=False)
    hf_config_path: str | None = None
    runner: str = "auto"
    convert: str = "auto"
    task: str | None = None
    """The flag before `--runner` and `--convert`; gone since 0.12."""
    disable_sliding_window: bool = False

    enforce_eager: bool = False
    cudagraph_capture_sizes: tuple[int, ...] | None = None
    max_cudagraph_capture_size: int | None = None
    compilation_config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    optimization_level: int | None = None
    attention_backend: str | None = None
    attention_config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    moe_backend: str | None = None

    language_model_only: bool = False
    limit_mm_per_prompt: Mapping[str, Any] = field(default_factory=dict, hash=False)
    skip_mm_profiling: bool = False
    mm_encoder_tp_mode: str = "weights"
    mm_processor_kwargs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    mm_ipc_gpu_memory_gb: float = 0.0

    speculative_config: Mapping[str, Any] | None = field(default=None, hash=False)
    """`--speculative-config` with `--spec-method`, `--spec-model` and `--spec-tokens` merged in."""

    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    max_cpu_loras: int | None = None
    lora_dtype: str = "auto"
    fully_sharded_loras: bool = False
    lora_extra_vocab_size: int | None = None
    lora_target_modules: tuple[str, ...] = ()
    lora_modules: tuple[str, ...] = ()
    enable_tower_connector_lora: bool = False
    specialize_active_lora: bool = False

    model: str | None = None
    """Given as a positional argument or with `--model`."""
    tokenizer: str | None = None
    revision: str | None = None
    trust_remote_code: bool = False
    served_model_name: tuple[str, ...] = ()
    host: str | None = None
    port: int | None = None
    config: str | None = None
    """A YAML file of arguments that the engine reads itself."""

    user_args: tuple[str, ...] = ()
    """As written, flattened to one argv."""
    user_set: frozenset[str] = frozenset()
    """Names of the arguments that were given (with underscores), those outside this type included."""
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Every argument given, read by its kind, by name with underscores."""
    notices: tuple[ArgumentNotice, ...] = ()

    @property
    def parallel_sizes_set(self) -> tuple[str, ...]:
        """Which sizes that make up the world the user chose, in the order tp, pp, dp, pcp (S0.2)."""
        sizes = ("tensor", "pipeline", "data", "prefill_context")
        return tuple(f"{size}_parallel_size" for size in sizes if f"{size}_parallel_size" in self.user_set)

    @property
    def user_world_size(self) -> int | None:
        """GPUs the user's sizes ask for over all data-parallel replicas; None when no size was given
        (S0.2).
        """
        if not self.parallel_sizes_set:
            return None
        return (
            self.tensor_parallel_size
            * self.pipeline_parallel_size
            * self.prefill_context_parallel_size
            * self.data_parallel_size
        )

    @property
    def speculative_method(self) -> str:
        """The method of speculative decoding as it was asked for; empty without one."""
        return str((self.speculative_config or {}).get("method") or "")

    @property
    def speculative_tokens(self) -> int:
        """Tokens drafted per step; 0 without speculative decoding, and for a count no engine would run."""
        count = (self.speculative_config or {}).get("num_speculative_tokens")
        return count if isinstance(count, int) and 0 < count < MOST_SPECULATIVE_TOKENS else 0


NO_ARGUMENTS = EngineArguments()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSelection:
    """`--gpus HOST:IDX[,IDX…]`: cards chosen by hand on one host."""

    host: str
    devices: tuple[str, ...]
    """Indexes, GPU UUIDs or MIG UUIDs, as written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One request for a plan: the model's use, its load, limits on the placement, the engine and its
    arguments.
    """

    context: int | Literal["max"] | None = None
    """Tokens per request to provide for; None: the longest that fits at the asked concurrency (S1.3)."""
    concurrency: int | None = None
    """Requests of that length at once."""
    category: Category | None = None
    """None: read from the model."""
    replicas: int = 1
    placement: Placement = Placement.SPREAD
    executor: ExecutorChoice = ExecutorChoice.AUTO
    vllm_version: str | None = None
    """As written; None: the version of the image, else the default."""
    image: str | None = None
    strategies: tuple[str, ...] = ()
    """Only these are recommended; empty: all."""
    selection: tuple[GpuSelection, ...] = ()
    vram_claim_bytes: int | None = None
    """In total, and nothing is known of how it splits."""
    ram_claim_bytes: int | None = None
    allow_overcommit: bool = False
    allow_distributed: bool = True
    calibrated: bool = True
    """What earlier starts measured corrects the estimate."""
    engine: EngineArguments = NO_ARGUMENTS


EMPTY_WORKLOAD = Workload()
