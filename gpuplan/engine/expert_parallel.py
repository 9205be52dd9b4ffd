"""Memory that expert parallelism adds on a rank: buffers of the all-to-all, rows each rank works on, EPLB's copies.

Kernels exchange tokens where experts are spread over replicas (vLLM `FusedMoEParallelConfig.use_all2all_kernels`: data
parallel and expert parallel). The backend decides what they hold (distributed/device_communicators/all2all.py):

* allgather_reducescatter, the default: nothing outside torch; a rank works on the rows of all replicas;
* deepep_high_throughput: 1 GiB (`VLLM_DEEPEP_BUFFER_SIZE_MB`), and as much again between hosts;
* deepep_low_latency, nixl_ep: the first of these and DeepEP's `get_low_latency_rdma_size_hint`, two buffers of one
  message per expert and token to send and two to receive; rows of a batch for every local expert
  (experts/batched_deep_gemm_moe.py `workspace_shapes`);
* others: a GiB is set aside, with a range.

EPLB keeps a copy of one layer's experts to move them (distributed/eplb/eplb_state.py `expert_buffer`, from 0.12) and
counts of a window of steps.
"""

from gpuplan.domain.model import Experts, ModelProfile
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.rank_setting import RankSetting
from gpuplan.engine.versions import DEFAULT, EngineVersion
from gpuplan.engine.weights import Split, experts_on_rank, layers_on_stage, part_bytes
from gpuplan.units import GIB, MIB

LOW_LATENCY = ("deepep_low_latency", "nixl_ep")
HIGH_THROUGHPUT = "deepep_high_throughput"
IN_TORCH = ("allgather_reducescatter", "naive", "pplx", "passthrough")
BATCHED_TOKENS = 256
"""Tokens a rank sends at once: VLLM_MOE_DP_CHUNK_SIZE up to 0.19, then what a batch is limited to
(`DEFAULT_MAX_NUM_BATCHED_TOKENS_FOR_BATCHED_DP`)."""
BATCH_LIMITED_SINCE = EngineVersion(0, 20)
BUFFER = 1024 * MIB
"""VLLM_DEEPEP_BUFFER_SIZE_MB; for backends nobody looked into the likely size of what they set aside."""
GPUS_OF_A_HOST = 8
"""More ranks than this stand on several hosts."""
SCALED = 128
"""Values that share a scale in a message."""
EXPERT_BUFFER_SINCE = EngineVersion(0, 12)
WINDOW = 1000
"""Steps whose counts are kept by default (`EPLBConfig.window_size`)."""
MOST_STEPS = 10**6
COUNT_BYTES = 4


def backend_of(engine: EngineArguments) -> str:
    """`--all2all-backend`, or the default."""
    return engine.all2all_backend or IN_TORCH[0]


def exchanges(profile: ModelProfile, setting: RankSetting) -> bool:
    """Whether kernels carry tokens between replicas."""
    parallelism = setting.parallelism
    return profile.expert_count > 0 and parallelism.expert and parallelism.data > 1


def limited_batch(profile: ModelProfile, engine: EngineArguments, version: EngineVersion) -> int | None:
    """The default max_num_batched_tokens of low-latency backends (`ParallelConfig.use_batched_dp_moe`); None: another's."""
    spread = profile.expert_count > 0 and engine.enable_expert_parallel and engine.data_parallel_size > 1
    if version >= BATCH_LIMITED_SINCE and spread and backend_of(engine) in LOW_LATENCY:
        return BATCHED_TOKENS
    return None


def exchange_bytes(profile: ModelProfile, setting: RankSetting) -> tuple[int, int, int]:
    """(likely, least, most) bytes outside torch that the backend's buffers take on a rank."""
    if not exchanges(profile, setting):
        return 0, 0, 0
    backend = backend_of(setting.engine)
    if backend in IN_TORCH:
        return 0, 0, 0
    if backend == HIGH_THROUGHPUT:
        hosts = _ranks(setting) > GPUS_OF_A_HOST
        return BUFFER * (2 if hosts else 1), BUFFER, 2 * BUFFER + GIB // 2
    if backend in LOW_LATENCY:
        messages = _messages(profile, setting)
        return BUFFER + messages, messages, BUFFER + messages + GIB
    return BUFFER, 0, 4 * BUFFER


def _messages(profile: ModelProfile, setting: RankSetting) -> int:
    experts = profile.expert_count + setting.engine.num_redundant_experts
    scales = profile.hidden // SCALED
    dispatched = 16 + max(2 * profile.hidden, profile.hidden + 4 * scales)
    combined = 4 * scales + 2 * profile.hidden
    rows = experts * _tokens_sent(setting)
    return 2 * rows * (combined + max(dispatched, combined))


def _tokens_sent(setting: RankSetting) -> int:
    if setting.version < BATCH_LIMITED_SINCE:
        return BATCHED_TOKENS
    return setting.max_num_batched_tokens


def _ranks(setting: RankSetting) -> int:
    parallelism = setting.parallelism
    return parallelism.tensor * parallelism.data * parallelism.prefill_context


def batched_elements(part: Experts, setting: RankSetting) -> int | None:
    """Elements of the workspaces of kernels that take a batch per local expert; None where rows are not batched so."""
    spread = setting.parallelism.expert and setting.parallelism.data > 1
    if not spread or backend_of(setting.engine) not in LOW_LATENCY:
        return None
    ranks = _ranks(setting)
    local = experts_on_rank(part.count + setting.engine.num_redundant_experts, ranks, 0)
    wide = max(part.intermediate * (2 if part.gated else 1), part.hidden)
    return local * _tokens_sent(setting) * ranks * (wide + max(part.intermediate, part.hidden))


def gathered_bytes(profile: ModelProfile, setting: RankSetting) -> int:
    """The rows of all replicas while a layer works on them, and what it made of them before they are summed."""
    if not exchanges(profile, setting) or backend_of(setting.engine) not in IN_TORCH:
        return 0
    rows = setting.max_num_batched_tokens * setting.parallelism.data
    return 2 * rows * profile.hidden * profile.itemsize


def balancing_bytes(
    profile: ModelProfile,
    split: Split,
    engine: EngineArguments,
    *,
    stage: int = 0,
    stages: int = 1,
    layer_partition: tuple[int, ...] | None = None,
    version: EngineVersion = DEFAULT,
) -> int:
    """What EPLB keeps on a rank: one layer's experts to move them through, and how often each was used."""
    if not engine.enable_eplb or split.expert_ranks == 1:
        return 0
    layers = layers_on_stage(profile, stage, stages, layer_partition)
    held = [part for layer in layers for part in layer.parts if isinstance(part, Experts)]
    if not held:
        return 0
    window = engine.eplb_config.get("window_size", WINDOW)
    steps = 1 + (window if isinstance(window, int) and 0 < window < MOST_STEPS else WINDOW)
    counts = steps * len(held) * (held[0].count + split.redundant_experts) * COUNT_BYTES
    return counts + (part_bytes(held[0], split) if version >= EXPERT_BUFFER_SINCE else 0)
