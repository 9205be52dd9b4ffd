"""Parallel sizes as the engine checks them before it loads anything, and the configuration that results (S3).

Rules of vLLM 0.33 in the order it applies them: `entrypoints/cli/serve.py` (load-balancing modes),
`engine/arg_utils.py` (`_check_feature_supported`, `create_engine_config`), `config/parallel.py`
(`__post_init__`, `_validate_parallel_config`, `_verify_args`), `config/model.py` and `config/vllm.py`. All
violations are found; the first is the one the engine prints.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.launch_rules import launch_rules, option_rules
from gpuplan.engine.parallel_rules import (
    EPLB_DEFAULTS,
    FALLBACK_BACKENDS,
    Circumstances,
    RuleCode,
    Violation,
    context_rules,
    dbo_thresholds,
    device_rules,
    expert_rules,
    interleave_rules,
    interleave_size,
    micro_batches,
    model_rules,
    verify_rules,
)

__all__ = [
    "Circumstances",
    "ParallelConfig",
    "RuleCode",
    "Violation",
    "check",
    "parallelism_of",
    "resolve",
    "world_size_across_data_parallel",
]

DEFAULT_MASTER_ADDRESS = "127.0.0.1"
DEFAULT_MASTER_PORT = 29501
DEFAULT_RPC_PORT = 29550
SEQUENCE_PARALLEL_BACKENDS = frozenset(
    (
        "allgather_reducescatter",
        "deepep_high_throughput",
        "deepep_low_latency",
        "deepep_v2",
        "flashinfer_nvlink_one_sided",
        "mori_high_throughput",
        "mori_low_latency",
        "nixl_ep",
        "passthrough",
    )
)
"""All-to-all backends whose experts would see every token once per tensor-parallel rank (`use_sequence_parallel_moe`)."""
CUSTOM_ALL_REDUCE_SIZES = (2, 4, 6, 8)
"""Tensor-parallel sizes the kernel is written for (`device_communicators/custom_all_reduce.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelConfig:
    """The parallel configuration the engine ends up with on one node (S3.1, S3.4, S3.5)."""

    tensor_parallel_size: int
    pipeline_parallel_size: int
    prefill_context_parallel_size: int
    decode_context_parallel_size: int
    data_parallel_size: int
    data_parallel_size_local: int
    data_parallel_rank: int
    data_parallel_master_ip: str
    """Empty where the engine takes the host's own address (Ray)."""
    data_parallel_rpc_port: int
    data_parallel_backend: str
    data_parallel_external_lb: bool
    data_parallel_hybrid_lb: bool
    distributed_executor_backend: str
    nnodes: int
    node_rank: int
    master_addr: str
    master_port: int
    world_size: int
    """Ranks of one data-parallel replica: tp × pp × pcp, times dp with the external launcher."""
    world_size_across_dp: int
    nnodes_within_dp: int
    """Hosts one replica spans."""
    node_rank_within_dp: int
    local_world_size: int
    """Ranks of one replica on this host."""
    enable_expert_parallel: bool
    all2all_backend: str
    expert_placement_strategy: str
    """`linear` or `round_robin`."""
    use_sequence_parallel_moe: bool
    """Experts work on each rank's share of the tokens instead of on all of them (S3.3)."""
    enable_eplb: bool
    eplb_config: Mapping[str, Any]
    """Window and interval (steps), redundant experts, async and policy; what was not given at its default."""
    micro_batches: int
    """A batch above the thresholds is cut into so many; 1: never (S3.6)."""
    dbo_decode_token_threshold: int
    dbo_prefill_token_threshold: int
    cp_kv_cache_interleave_size: int
    """Tokens of the KV cache that lie together on one context-parallel rank."""
    disable_custom_all_reduce: bool
    custom_all_reduce: bool
    """Whether the kernel can serve at all: sizes it knows, and tensor-parallel ranks of one node (S3.6)."""


def parallelism_of(arguments: EngineArguments) -> Parallelism:
    """The parallel sizes the arguments ask for; what was not given is 1."""
    return Parallelism(
        tensor=arguments.tensor_parallel_size,
        pipeline=arguments.pipeline_parallel_size,
        data=arguments.data_parallel_size,
        expert=arguments.enable_expert_parallel,
        decode_context=arguments.decode_context_parallel_size,
        prefill_context=arguments.prefill_context_parallel_size,
    )


def world_size_across_data_parallel(parallelism: Parallelism) -> int:
    """GPUs of all replicas: tp × pp × pcp × dp.

    The local size of dp says where replicas run, not how many (S0.2).
    """
    return parallelism.world_size * parallelism.data


def check(arguments: EngineArguments, circumstances: Circumstances) -> tuple[Violation, ...]:
    """Every rule the arguments break, in the engine's order; empty when it would accept them.

    What the circumstances leave open (`None`) is not judged.
    """
    return tuple(_violations(arguments, circumstances))


def _violations(arguments: EngineArguments, around: Circumstances) -> Iterator[Violation]:
    yield from launch_rules(arguments)
    yield from option_rules(arguments, around)
    yield from device_rules(arguments, around)
    yield from expert_rules(arguments, around)
    yield from context_rules(arguments)
    yield from verify_rules(arguments, around)
    yield from model_rules(arguments, around)
    yield from interleave_rules(arguments)


def resolve(arguments: EngineArguments) -> ParallelConfig:
    """The configuration that results from arguments without violations (`create_engine_config`,
    `__post_init__`).
    """
    sizes = parallelism_of(arguments)
    launcher = arguments.distributed_executor_backend == "external_launcher"
    across = world_size_across_data_parallel(sizes)
    world = across if launcher else sizes.world_size
    external, hybrid, local, rank = _data_parallel_mode(arguments, sizes.world_size)
    nodes_within, node_within = _nodes_of_replica(arguments, local)
    executor = _executor(arguments, across)
    master = arguments.data_parallel_address
    if master is None:
        ray = arguments.data_parallel_backend == "ray"
        master = "" if ray else (arguments.master_addr or DEFAULT_MASTER_ADDRESS)
    all2all = _all2all(arguments)
    return ParallelConfig(
        tensor_parallel_size=sizes.tensor,
        pipeline_parallel_size=sizes.pipeline,
        prefill_context_parallel_size=sizes.prefill_context,
        decode_context_parallel_size=sizes.decode_context,
        data_parallel_size=sizes.data,
        data_parallel_size_local=local,
        data_parallel_rank=rank if sizes.data > 1 or local == 0 else 0,
        data_parallel_master_ip=master if sizes.data > 1 or local == 0 else DEFAULT_MASTER_ADDRESS,
        data_parallel_rpc_port=_given(arguments.data_parallel_rpc_port, DEFAULT_RPC_PORT),
        data_parallel_backend=arguments.data_parallel_backend,
        data_parallel_external_lb=external,
        data_parallel_hybrid_lb=hybrid,
        distributed_executor_backend=executor,
        nnodes=arguments.nnodes,
        node_rank=arguments.node_rank,
        master_addr=arguments.master_addr or DEFAULT_MASTER_ADDRESS,
        master_port=_given(arguments.master_port, DEFAULT_MASTER_PORT),
        world_size=world,
        world_size_across_dp=world * sizes.data,
        nnodes_within_dp=nodes_within,
        node_rank_within_dp=node_within,
        local_world_size=world // nodes_within,
        enable_expert_parallel=sizes.expert,
        all2all_backend=all2all,
        expert_placement_strategy=arguments.expert_placement_strategy,
        use_sequence_parallel_moe=sizes.expert
        and sizes.tensor > 1
        and sizes.data > 1
        and all2all in SEQUENCE_PARALLEL_BACKENDS,
        enable_eplb=arguments.enable_eplb,
        eplb_config={**EPLB_DEFAULTS, **arguments.eplb_config},
        micro_batches=micro_batches(arguments),
        **dbo_thresholds(arguments),
        cp_kv_cache_interleave_size=interleave_size(arguments),
        disable_custom_all_reduce=arguments.disable_custom_all_reduce,
        custom_all_reduce=not arguments.disable_custom_all_reduce
        and sizes.tensor in CUSTOM_ALL_REDUCE_SIZES
        and sizes.tensor <= world // nodes_within,
    )


def _all2all(arguments: EngineArguments) -> str:
    asked = arguments.all2all_backend or "allgather_reducescatter"
    return "allgather_reducescatter" if asked in FALLBACK_BACKENDS else asked


def _given(value: Any, default: Any) -> Any:
    return default if value is None else value


def _data_parallel_mode(arguments: EngineArguments, world: int) -> tuple[bool, bool, int, int]:
    """(external load balancing, hybrid, replicas on this node, first rank on this node)."""
    rank = arguments.data_parallel_rank
    local = arguments.data_parallel_size_local
    inferred = 0
    external = arguments.data_parallel_external_lb or rank is not None
    if arguments.nnodes > 1:
        here = world * arguments.data_parallel_size // arguments.nnodes
        inferred = arguments.node_rank * here // world
        if arguments.data_parallel_size > 1 and arguments.data_parallel_external_lb:
            rank = inferred if rank is None else rank
        elif local is None:
            local = max(here // world, 1)
    if external:
        return True, False, 1, _given(rank, 0)
    if local is None:
        return False, arguments.data_parallel_hybrid_lb, arguments.data_parallel_size, _given(rank, 0)
    hybrid = arguments.data_parallel_hybrid_lb
    hybrid = hybrid or (arguments.data_parallel_start_rank is not None and not arguments.headless)
    if hybrid and local == 1:
        external, hybrid = True, False
    if local == arguments.data_parallel_size:
        hybrid = False
    return external, hybrid, local, _given(arguments.data_parallel_start_rank, inferred)


def _nodes_of_replica(arguments: EngineArguments, local: int) -> tuple[int, int]:
    if arguments.nnodes == 1:
        return 1, arguments.node_rank if arguments.node_rank < 1 else 0
    groups = max(arguments.data_parallel_size // max(local, 1), 1)
    nodes = max(arguments.nnodes // groups, 1)
    return nodes, arguments.node_rank % nodes


def _executor(arguments: EngineArguments, across: int) -> str:
    """`uni` for one rank, else `mp`, `ray` with a Ray data-parallel backend; a given one stays (S3.4)."""
    if arguments.distributed_executor_backend is not None:
        return arguments.distributed_executor_backend
    if across == 1:
        return "uni"
    return "ray" if arguments.data_parallel_backend == "ray" and arguments.nnodes == 1 else "mp"
