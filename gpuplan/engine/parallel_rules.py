"""The rules behind `engine.parallel_config`: each yields a violation with the way out (vLLM 0.33, S3,
S0.13).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from gpuplan.domain.workload import EngineArguments

FALLBACK_BACKENDS = ("naive", "pplx")
"""All-to-all backends that are accepted and replaced by allgather_reducescatter."""
EPLB_DEFAULTS = {
    "window_size": 1000,
    "step_interval": 3000,
    "num_redundant_experts": 0,
    "use_async": True,
    "policy": "default",
}
"""`EPLBConfig`, its main fields."""
DBO_THRESHOLDS = {"dbo_decode_token_threshold": 32, "dbo_prefill_token_threshold": 512}
"""Tokens from which a batch is cut into micro-batches."""
MICROBATCHING_BACKENDS = ("deepep_low_latency", "deepep_high_throughput", "nixl_ep")


class RuleCode(StrEnum):
    LOAD_BALANCING_MODES = "load_balancing_modes"
    HEADLESS_SERVERS = "headless_servers"
    HEADLESS_HYBRID = "headless_hybrid"
    PIPELINE_EXECUTOR = "pipeline_executor"
    NODES_NEED_MP_DATA_PARALLEL = "nodes_need_mp_data_parallel"
    NODES_DIVIDE_WORLD = "nodes_divide_world"
    NODE_RANK = "node_rank"
    EXTERNAL_RANK_AMBIGUOUS = "external_rank_ambiguous"
    DENSE_EXTERNAL = "dense_external"
    EXTERNAL_NEEDS_RANK = "external_needs_rank"
    EXTERNAL_LOCAL_ONE = "external_local_one"
    HYBRID_NEEDS_LOCAL = "hybrid_needs_local"
    ELASTIC_EXPERTS = "elastic_experts"
    DATA_RANK = "data_rank"
    TOO_FEW_GPUS = "too_few_gpus"
    NODES_NEED_EXECUTOR = "nodes_need_executor"
    LOCAL_AT_MOST_DATA = "local_at_most_data"
    EXTERNAL_NEEDS_DATA = "external_needs_data"
    NUMA_NEEDS_BINDING = "numa_needs_binding"
    BALANCING_NEEDS_DEVICE = "balancing_needs_device"
    BALANCING_NEEDS_EXPERTS = "balancing_needs_experts"
    BALANCING_NEEDS_RANKS = "balancing_needs_ranks"
    REDUNDANT_NEEDS_BALANCING = "redundant_needs_balancing"
    DECODE_CONTEXT_DIVIDES = "decode_context_divides"
    CONTEXT_SPANS = "context_spans"
    RAY_MISSING = "ray_missing"
    NSIGHT_NEEDS_RAY = "nsight_needs_ray"
    MICROBATCH_THRESHOLD = "microbatch_threshold"
    MICROBATCH_BACKEND = "microbatch_backend"
    ATTENTION_HEADS = "attention_heads"
    NO_EXPERTS = "no_experts"
    NO_PIPELINE = "no_pipeline"
    DECODE_CONTEXT_HEADS = "decode_context_heads"
    INTERLEAVE_BLOCK = "interleave_block"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One rule the arguments break."""

    code: RuleCode
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the engine finds when it reads the arguments. None: unknown, and then not judged."""

    gpus: int | None = None
    """GPUs visible on this node."""
    ray: bool | None = None
    """Whether Ray can be imported in the image."""
    backend: str = "cuda"
    moe: bool | None = None
    attention_heads: int | None = None
    kv_heads: int | None = None
    mla: bool = False
    pipeline_supported: bool | None = None


def device_rules(arguments: EngineArguments, around: Circumstances) -> Iterator[Violation]:
    """Ranks against replicas, nodes and GPUs (`ParallelConfig.__post_init__`)."""
    yield from _elastic_rules(arguments)
    data, executor, nodes = (
        arguments.data_parallel_size,
        arguments.distributed_executor_backend,
        arguments.nnodes,
    )
    rank = arguments.data_parallel_rank
    if rank is None and arguments.data_parallel_size_local is not None:
        rank = arguments.data_parallel_start_rank
    if data > 1 and rank is not None and not 0 <= rank < data:
        yield Violation(
            code=RuleCode.DATA_RANK,
            message=f"data-parallel rank {rank} is not in 0 to {data - 1}",
            hint="number the replicas from 0",
        )
    world = world_size(arguments)
    unchosen = executor is None and nodes == 1 and around.backend == "cuda" and world * data > 1
    if unchosen and around.gpus is not None and world > around.gpus:
        yield Violation(
            code=RuleCode.TOO_FEW_GPUS,
            message=f"{world} ranks (tp × pp × pcp) need {world} GPUs, this node has {around.gpus}",
            hint="name how ranks reach other hosts: --nnodes N with --node-rank and --master-addr, or"
            " --distributed-executor-backend ray; or choose smaller sizes",
        )
    if nodes > 1 and executor not in (None, "mp", "uni", "external_launcher"):
        yield Violation(
            code=RuleCode.NODES_NEED_EXECUTOR,
            message=f"--nnodes {nodes} works with the mp, uni and external_launcher executors, not "
            f"{executor}",
            hint="leave --nnodes out for Ray, or use --distributed-executor-backend mp",
        )


def _elastic_rules(arguments: EngineArguments) -> Iterator[Violation]:
    if not arguments.values.get("enable_elastic_ep"):
        return
    largest = arguments.values.get("elastic_ep_max_dp_size")
    broken = (
        (not arguments.enable_eplb, "needs --enable-eplb"),
        (arguments.pipeline_parallel_size > 1, "works without pipeline parallelism only"),
        (arguments.data_parallel_hybrid_lb, "does not work with hybrid load balancing"),
        (
            largest is not None and largest < arguments.data_parallel_size,
            "has a largest size below --data-parallel-size",
        ),
    )
    for applies, text in broken:
        if applies:
            yield Violation(code=RuleCode.ELASTIC_EXPERTS, message=f"--enable-elastic-ep {text}")


def expert_rules(arguments: EngineArguments, around: Circumstances) -> Iterator[Violation]:
    """Replicas, NUMA and expert load balancing (`_validate_parallel_config`) (S3.2, S3.3)."""
    local, data = arguments.data_parallel_size_local, arguments.data_parallel_size
    external = arguments.data_parallel_external_lb or arguments.data_parallel_rank is not None
    if not external and local is not None and local > data:
        yield Violation(
            code=RuleCode.LOCAL_AT_MOST_DATA,
            message=f"--data-parallel-size-local {local} is more than --data-parallel-size {data}",
            hint="the local size counts the replicas of this node, out of --data-parallel-size",
        )
    autoswitched = arguments.data_parallel_hybrid_lb or (
        arguments.data_parallel_start_rank is not None and not arguments.headless
    )
    if data <= 1 and (external or (autoswitched and local == 1)):
        yield Violation(
            code=RuleCode.EXTERNAL_NEEDS_DATA,
            message="external load balancing needs --data-parallel-size above 1",
            hint="leave the data-parallel rank and load-balancing flags out",
        )
    pinned = any(arguments.values.get(name) for name in ("numa_bind_nodes", "numa_bind_cpus"))
    if pinned and not arguments.values.get("numa_bind"):
        yield Violation(
            code=RuleCode.NUMA_NEEDS_BINDING,
            message="NUMA nodes and CPUs need --numa-bind",
            hint="add --numa-bind",
        )
    yield from _expert_balancing(arguments, around)


def _expert_balancing(arguments: EngineArguments, around: Circumstances) -> Iterator[Violation]:
    if not arguments.enable_eplb:
        if arguments.num_redundant_experts:
            yield Violation(
                code=RuleCode.REDUNDANT_NEEDS_BALANCING,
                message=f"{arguments.num_redundant_experts} redundant experts are only used by expert "
                "load balancing",
                hint="add --enable-eplb, or leave num_redundant_experts out",
            )
        return
    if around.backend not in ("cuda", "rocm", "xpu"):
        yield Violation(
            code=RuleCode.BALANCING_NEEDS_DEVICE,
            message=f"expert load balancing runs on CUDA, ROCm and XPU, not on {around.backend}",
        )
    if not arguments.enable_expert_parallel:
        yield Violation(
            code=RuleCode.BALANCING_NEEDS_EXPERTS,
            message="--enable-eplb balances experts, which stay sharded without expert parallelism",
            hint="add --enable-expert-parallel",
        )
    if (
        arguments.tensor_parallel_size
        * arguments.prefill_context_parallel_size
        * arguments.data_parallel_size
        <= 1
    ):
        yield Violation(
            code=RuleCode.BALANCING_NEEDS_RANKS,
            message="--enable-eplb needs more than one rank in tp × pcp × dp",
            hint="leave --enable-eplb out on a single rank",
        )


def context_rules(arguments: EngineArguments) -> Iterator[Violation]:
    """Decode context parallelism lives on the ranks there are (S3.6)."""
    tensor, decode = arguments.tensor_parallel_size, arguments.decode_context_parallel_size
    prefill = arguments.prefill_context_parallel_size
    if prefill == 1 and tensor % decode:
        fitting = [size for size in range(1, min(tensor, 64) + 1) if tensor % size == 0]
        yield Violation(
            code=RuleCode.DECODE_CONTEXT_DIVIDES,
            message=f"--decode-context-parallel-size {decode} does not divide --tensor-parallel-size "
            f"{tensor}",
            hint=f"choose one of {', '.join(map(str, fitting))}",
        )
    spans = sorted({1, prefill, tensor * prefill})
    if prefill > 1 and decode not in spans:
        yield Violation(
            code=RuleCode.CONTEXT_SPANS,
            message=f"with prefill context parallelism {prefill}, --decode-context-parallel-size {decode} "
            "is not possible",
            hint=f"choose one of {', '.join(map(str, spans))}",
        )


def verify_rules(arguments: EngineArguments, around: Circumstances) -> Iterator[Violation]:
    """Ray, profiling and micro-batches (`_verify_args`)."""
    by_data = arguments.data_parallel_backend == "ray" and arguments.nnodes == 1
    across = world_size(arguments) * arguments.data_parallel_size
    executor = arguments.distributed_executor_backend or ("ray" if by_data and across > 1 else None)
    if executor == "ray" and around.ray is False:
        yield Violation(
            code=RuleCode.RAY_MISSING,
            message="the image has no Ray, and the ray executor is asked for",
            hint="use an image with Ray, or vLLM's own multi-node mode: --nnodes, --node-rank, --master-addr",
        )
    if arguments.values.get("ray_workers_use_nsight") and executor != "ray":
        yield Violation(
            code=RuleCode.NSIGHT_NEEDS_RAY,
            message="--ray-workers-use-nsight profiles Ray workers, and the executor is not ray",
            hint="leave --ray-workers-use-nsight out, or use --distributed-executor-backend ray",
        )
    batches = micro_batches(arguments)
    if batches > 1 and min(dbo_thresholds(arguments).values()) < batches:
        yield Violation(
            code=RuleCode.MICROBATCH_THRESHOLD,
            message=f"the dual-batch-overlap thresholds are below the number of micro-batches ({batches})",
            hint=f"--dbo-decode-token-threshold and --dbo-prefill-token-threshold must be at least {batches}",
        )


def micro_batches(arguments: EngineArguments) -> int:
    """Parts a large batch is cut into: two with `--enable-dbo`, else `--ubatch-size`; 1 where it stays whole."""
    return 2 if arguments.enable_dbo else max(arguments.ubatch_size, 1)


def dbo_thresholds(arguments: EngineArguments) -> dict[str, int]:
    """The two thresholds of micro-batching, by name (tokens)."""
    return {name: arguments.values.get(name, default) for name, default in DBO_THRESHOLDS.items()}


def interleave_size(arguments: EngineArguments) -> int:
    """Tokens that lie together on a context-parallel rank; the older name of the flag wins where it is above 1."""
    older = int(arguments.values.get("dcp_kv_cache_interleave_size") or 1)
    return older if older > 1 else int(arguments.values.get("cp_kv_cache_interleave_size") or 1)


def interleave_rules(arguments: EngineArguments) -> Iterator[Violation]:
    """A KV block holds whole interleaves (`VllmConfig.validate_block_size`, after the model's blocks are settled) (S3.6).

    Judged for a block size that was given: each attention backend has a default of its own. NIXL settles the interleave
    later.
    """
    block, size = arguments.block_size, interleave_size(arguments)
    connector = str(arguments.kv_transfer_config.get("kv_connector") or "")
    if block is None or arguments.decode_context_parallel_size <= 1 or connector == "NixlConnector":
        return
    if size > block or block % size:
        yield Violation(
            code=RuleCode.INTERLEAVE_BLOCK,
            message=f"--cp-kv-cache-interleave-size {size} does not divide --block-size {block}",
            hint=f"use an interleave size of at most {block} that divides it, or leave it out for 1",
        )


def model_rules(arguments: EngineArguments, around: Circumstances) -> Iterator[Violation]:
    """Parallel sizes against the model (`verify_with_parallel_config`), and micro-batching (S0.13).

    The engine gets here with the model's configuration only; without attention heads nothing is judged.
    """
    tensor, heads = arguments.tensor_parallel_size, around.attention_heads
    if heads is not None and heads % tensor:
        fitting = [size for size in range(1, min(heads, 128) + 1) if heads % size == 0]
        yield Violation(
            code=RuleCode.ATTENTION_HEADS,
            message=f"{heads} attention heads do not divide by --tensor-parallel-size {tensor}",
            hint=f"choose one of {', '.join(map(str, fitting[:16]))}",
        )
    if arguments.enable_expert_parallel and around.moe is False and heads is not None:
        yield Violation(
            code=RuleCode.NO_EXPERTS,
            message="--enable-expert-parallel needs a model with experts",
            hint="leave --enable-expert-parallel out",
        )
    if arguments.pipeline_parallel_size > 1 and around.pipeline_supported is False:
        yield Violation(
            code=RuleCode.NO_PIPELINE,
            message="this model cannot be split into pipeline stages",
            hint="use --pipeline-parallel-size 1 and more tensor parallelism",
        )
    yield from _decode_context_heads(arguments, around)
    used = arguments.all2all_backend or "allgather_reducescatter"
    allowed = MICROBATCHING_BACKENDS + (("allgather_reducescatter",) if around.backend == "rocm" else ())
    used = "allgather_reducescatter" if used in FALLBACK_BACKENDS else used
    if (arguments.enable_dbo or arguments.ubatch_size > 1) and heads is not None and used not in allowed:
        yield Violation(
            code=RuleCode.MICROBATCH_BACKEND,
            message=f"micro-batching does not work with the {used} all-to-all backend",
            hint=f"use --all2all-backend {' or '.join(allowed)}, with its kernels installed",
        )


def _decode_context_heads(arguments: EngineArguments, around: Circumstances) -> Iterator[Violation]:
    """Grouped-query attention shards its cache over ranks that would repeat KV heads; MLA over any."""
    decode, tensor = arguments.decode_context_parallel_size, arguments.tensor_parallel_size
    heads, kv_heads = around.attention_heads, around.kv_heads
    if decode <= 1 or around.mla or heads is None or not kv_heads:
        return
    hint = f"set --decode-context-parallel-size 1, or raise --tensor-parallel-size above {kv_heads}"
    text = None
    if tensor <= kv_heads:
        text = (
            f"decode context parallelism needs more tensor-parallel ranks ({tensor}) than KV heads "
            f"({kv_heads})"
        )
    elif decode > tensor // kv_heads:
        text = f"--decode-context-parallel-size {decode} is more than {tensor} ranks // {kv_heads} KV heads"
    elif (heads // kv_heads) % decode:
        text = (
            f"{heads // kv_heads} query heads per KV head do not divide by "
            f"--decode-context-parallel-size {decode}"
        )
    if text is not None:
        yield Violation(code=RuleCode.DECODE_CONTEXT_HEADS, message=text, hint=hint)


def world_size(arguments: EngineArguments) -> int:
    """Ranks of one process group: tp × pp × pcp, times dp with the external launcher."""
    launcher = arguments.distributed_executor_backend == "external_launcher"
    sizes = (
        arguments.tensor_parallel_size
        * arguments.pipeline_parallel_size
        * arguments.prefill_context_parallel_size
    )
    return sizes * (arguments.data_parallel_size if launcher else 1)
