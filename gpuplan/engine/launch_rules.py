"""Launch options against each other, before a parallel configuration is built (vLLM 0.33, S3.2, S3.5)."""

from collections.abc import Iterator

from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.parallel_rules import Circumstances, RuleCode, Violation

PIPELINE_EXECUTORS = (None, "ray", "mp", "external_launcher")


def launch_rules(arguments: EngineArguments) -> Iterator[Violation]:
    """Load-balancing modes exclude each other; a headless node has no API server (`serve.py`)."""
    chosen = arguments.data_parallel_hybrid_lb or arguments.data_parallel_multi_port_external_lb
    modes = (
        arguments.data_parallel_multi_port_external_lb,
        arguments.data_parallel_external_lb or arguments.data_parallel_rank is not None,
        arguments.data_parallel_hybrid_lb if chosen else arguments.data_parallel_start_rank is not None,
    )
    servers = arguments.values.get("api_server_count")
    if arguments.headless and servers:
        yield Violation(
            code=RuleCode.HEADLESS_SERVERS,
            message=f"--api-server-count {servers} with --headless: a headless node starts no API server",
            hint="leave --api-server-count out on headless nodes",
        )
    if sum(modes) > 1:
        yield Violation(
            code=RuleCode.LOAD_BALANCING_MODES,
            message="more than one data-parallel load-balancing mode is asked for",
            hint="keep one: --data-parallel-external-lb (or --data-parallel-rank), "
            "--data-parallel-hybrid-lb (or"
            " --data-parallel-start-rank), or --data-parallel-multi-port-external-lb",
        )


def option_rules(arguments: EngineArguments, around: Circumstances) -> Iterator[Violation]:
    """Launch options against each other (`create_engine_config`)."""
    if (
        arguments.pipeline_parallel_size > 1
        and arguments.distributed_executor_backend not in PIPELINE_EXECUTORS
    ):
        yield Violation(
            code=RuleCode.PIPELINE_EXECUTOR,
            message="pipeline parallelism does not run under the "
            f"{arguments.distributed_executor_backend} executor",
            hint="use --distributed-executor-backend mp or ray, or --pipeline-parallel-size 1",
        )
    if arguments.headless and arguments.data_parallel_hybrid_lb:
        yield Violation(
            code=RuleCode.HEADLESS_HYBRID,
            message="--data-parallel-hybrid-lb does not apply to a headless node",
            hint="leave one of --headless and --data-parallel-hybrid-lb out",
        )
    yield from _node_rules(arguments)
    yield from _balancing_mode_rules(arguments, around)


def _node_rules(arguments: EngineArguments) -> Iterator[Violation]:
    nodes, rank, data = arguments.nnodes, arguments.node_rank, arguments.data_parallel_size
    if nodes <= 1:
        return
    if arguments.data_parallel_backend != "mp":
        yield Violation(
            code=RuleCode.NODES_NEED_MP_DATA_PARALLEL,
            message=f"--nnodes {nodes} needs --data-parallel-backend mp, got "
            f"{arguments.data_parallel_backend}",
            hint="use --data-parallel-backend mp, or leave --nnodes out",
        )
    world = arguments.tensor_parallel_size * arguments.pipeline_parallel_size * data
    world *= arguments.prefill_context_parallel_size
    if world % nodes:
        yield Violation(
            code=RuleCode.NODES_DIVIDE_WORLD,
            message=f"{world} ranks (dp × pp × tp × pcp) do not divide over --nnodes {nodes}",
            hint="every node carries the same number of ranks: choose sizes whose product is a multiple "
            f"of {nodes}",
        )
    if not 0 <= rank < nodes:
        yield Violation(
            code=RuleCode.NODE_RANK,
            message=f"--node-rank {rank} is not in 0 to {nodes - 1}",
            hint="number the nodes from 0",
        )
    external = data > 1 and arguments.data_parallel_external_lb and arguments.data_parallel_rank is None
    if external and nodes % data:
        yield Violation(
            code=RuleCode.EXTERNAL_RANK_AMBIGUOUS,
            message=f"--node-rank does not tell the data-parallel rank: {nodes} nodes do not divide by "
            f"{data} replicas",
            hint="give each process its own --data-parallel-rank",
        )


def _balancing_mode_rules(arguments: EngineArguments, around: Circumstances) -> Iterator[Violation]:
    external = arguments.data_parallel_external_lb or arguments.data_parallel_rank is not None
    inferred = arguments.nnodes > 1 and arguments.data_parallel_size > 1
    local = arguments.data_parallel_size_local
    if local is None and arguments.nnodes > 1 and not (inferred and arguments.data_parallel_external_lb):
        local = max(arguments.data_parallel_size // arguments.nnodes, 1)
    if external and arguments.data_parallel_size > 1 and around.moe is False:
        yield Violation(
            code=RuleCode.DENSE_EXTERNAL,
            message="a model without experts cannot use external data-parallel load balancing",
            hint="start independent servers without --data-parallel-… and balance between them",
        )
    if external and arguments.data_parallel_rank is None and not inferred:
        yield Violation(
            code=RuleCode.EXTERNAL_NEEDS_RANK,
            message="--data-parallel-external-lb does not know which replica this process is",
            hint="give --data-parallel-rank, or --data-parallel-size above 1 with --nnodes and --node-rank",
        )
    if external and local not in (1, None):
        yield Violation(
            code=RuleCode.EXTERNAL_LOCAL_ONE,
            message=f"with external load balancing a process holds one replica, this node would hold {local}",
            hint="leave --data-parallel-size-local out, and --nnodes unless a replica spans nodes",
        )
    if not external and arguments.data_parallel_hybrid_lb and local is None:
        yield Violation(
            code=RuleCode.HYBRID_NEEDS_LOCAL,
            message="--data-parallel-hybrid-lb needs to know how many replicas run on this node",
            hint="give --data-parallel-size-local",
        )
