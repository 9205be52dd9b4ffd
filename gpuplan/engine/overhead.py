"""Memory outside torch's allocator: what profiling adds, and what is gone before the engine looks at what is free.

Sizes without a rule in the engine's source are read off published start-up logs (GiB, release in brackets); ranges reach
beyond what was logged.

The snapshot is taken after the CUDA context, the communicators and cuBLAS exist (`GPUWorker.init_device`), so these
only narrow the first check. While profiling, the driver loads kernels and NCCL builds the channels it uses first:

* one GPU: 0.02 GiB on RTX cards (0.10), 0.07 on H100 (0.10, 0.12, and without a sampler 0.19), 0.25 with the Triton
  sampler of 0.16 to 0.20 (0.19.0 H100; 0.03 on L40S), 0.15 to 0.2 with FlashInfer's (0.22 H100, 0.26 A100 and a slice of
  a Hopper);
* ROCm: 0.55 to 0.75 on one GPU (0.14, 0.28);
* tensor parallel without a switch: 0.1 to 0.25 per GPU on A100, T4 and L40S (0.10.1, 0.13, 0.22, 0.27), 0.45 to 0.65 on
  GH200, GB200 and RTX PRO 6000 (0.23, 0.26, 0.27);
* with an NVLink switch that multicasts (Hopper on): up to 0.10.2, where the snapshot comes before the communicators, two
  H200 1.4, four H100 2.1, eight 2.3 (0.10.0, 0.10.2); two H100 0.5 to 0.6 (0.11, 0.12); two H100 2.07, with the
  workspace below, and four 2.13 (0.19.0). More than two under 0.11 to 0.16: no log;
* replicas that hold experts together: 2.36 on each of sixteen GB300 with one rank a replica (0.28);
* the all-reduce that is fused with the norm (default from 0.17 on Hopper and data centre Blackwell,
  `enable_allreduce_rms_fusion`): per rank four buffers of all ranks' largest input (FlashInfer
  `trtllm_create_ipc_workspace_for_all_reduce_fusion`), the input limited by `FI_ALLREDUCE_FUSION_MAX_SIZE_MB`.
"""

from gpuplan.domain.fleet import Basis
from gpuplan.domain.memory import Term
from gpuplan.domain.model import ModelProfile
from gpuplan.engine import shared_memory
from gpuplan.engine.expert_parallel import exchange_bytes, exchanges
from gpuplan.engine.rank_setting import BIG_CARD, HOPPER, RankSetting, runner_v2
from gpuplan.engine.sampler import TRITON_SINCE, flashinfer
from gpuplan.engine.versions import EngineVersion
from gpuplan.units import GIB, MIB

FUSED_REDUCE_SINCE = EngineVersion(0, 17)
FUSED_REDUCE_BESIDE_OTHERS_SINCE = EngineVersion(0, 24)
"""Up to 0.23 not with pipeline stages or data parallel replicas."""
FUSED_REDUCE_MIB: dict[tuple[int, int], dict[int, float]] = {
    (9, 0): {2: 64, 4: 2, 8: 0.5},
    (10, 0): {2: 64, 4: 32, 8: 1},
    (10, 3): {2: 64, 4: 64, 8: 2},
}
"""Largest fused input by compute capability and ranks."""
BUFFERS = 4
"""One for the data and three in turn for its exchange."""
MULTICAST_LATER_SINCE = EngineVersion(0, 17)
"""From here multicast buffers of two ranks come after the snapshot (logged: two H100 0.6 under 0.12, 2.07 under 0.19)."""


def non_torch_term(profile: ModelProfile, setting: RankSetting) -> Term:
    """Memory taken outside the allocator while profiling."""
    if shared_memory.counts(unified=setting.unified, backend=setting.backend):
        likely, low, high = shared_memory.non_torch_term_gib(profile, setting)
    else:
        workspace = fused_reduce_bytes(profile, setting) / GIB
        likely, low, high = (
            part + workspace + exchanged / GIB
            for part, exchanged in zip(
                _gibibytes(profile, setting), exchange_bytes(profile, setting), strict=True
            )
        )
    return Term(
        name="non-torch",
        bytes=int(likely * GIB),
        low=int(low * GIB),
        high=int(high * GIB),
        basis=Basis.ASSUMED,
        formula="kernels the driver loads, channels NCCL opens, the fused all-reduce's workspace: as logged on like starts"
        + ("; buffers of the all-to-all between replicas" if exchanges(profile, setting) else ""),
        inputs=(
            ("tensor parallel", setting.parallelism.tensor),
            ("compute capability", setting.compute_capability or "unknown"),
        ),
        source="non_torch of published start-up logs",
    )


def _gibibytes(profile: ModelProfile, setting: RankSetting) -> tuple[float, float, float]:
    """(likely, least, most) of kernels and NCCL."""
    tensor = setting.parallelism.tensor
    if setting.backend == "rocm":
        return 0.7, 0.1, 1.5
    if setting.parallelism.data > 1 and setting.total_bytes >= BIG_CARD:
        return 2.3, 0.5, 2.8
    if tensor == 1:
        return _kernels(profile, setting)
    if setting.total_bytes < BIG_CARD or (setting.generation is not None and setting.generation < HOPPER):
        return 0.17, 0.02, 0.5
    if setting.generation is None:
        return (0.6 if tensor == 2 else 1.5 if tensor <= 4 else 1.9), 0.1, 2.5
    if not setting.switched:
        return 0.5, 0.1, 1.2 if setting.version >= SNAPSHOT_AFTER_NCCL else 2.0
    if SNAPSHOT_AFTER_NCCL <= setting.version < MULTICAST_LATER_SINCE:
        return (0.6, 0.4, 1.6) if tensor == 2 else (1.5, 0.4, 2.5)
    return (1.5, 0.4, 2.0) if tensor == 2 else (2.1, 0.5, 2.5) if tensor <= 4 else (2.3, 0.6, 2.8)


def _kernels(profile: ModelProfile, setting: RankSetting) -> tuple[float, float, float]:
    """A GPU on its own: code the driver loads, and the stacks of the Triton sampler."""
    big = setting.total_bytes >= BIG_CARD
    if setting.version < TRITON_SINCE or profile.pooling or setting.parallelism.pipeline > 1:
        return (0.07 if big else 0.04), 0.0, 0.35
    if runner_v2(profile, setting):
        return 0.13, 0.02, 0.35
    if flashinfer(setting):
        return 0.17, 0.02, 0.4
    return (0.25 if big else 0.1), 0.02, 0.5


def fused_reduce_bytes(profile: ModelProfile, setting: RankSetting) -> int:
    """FlashInfer's workspace for the fused all-reduce on a rank; 0 where it is not used."""
    parallelism, version = setting.parallelism, setting.version
    alone = parallelism.pipeline == 1 and parallelism.data == 1
    if version < FUSED_REDUCE_SINCE or (version < FUSED_REDUCE_BESIDE_OTHERS_SINCE and not alone):
        return 0
    if setting.engine.enforce_eager or setting.capability is None or setting.unified:
        return 0
    most = FUSED_REDUCE_MIB.get(setting.capability, {}).get(parallelism.tensor, 0) * MIB
    row = max(1, profile.hidden * profile.itemsize)
    return int(BUFFERS * parallelism.tensor * min(most // row, setting.max_num_batched_tokens) * row)


ALONE = 0.5
ALONE_ON_HOPPER = 0.6
"""Hopper and data-centre Blackwell (compute capability 9 and 10)."""
PAIR = 1.15
GROUP = 2.0
GROUP_ON_BLACKWELL = 2.5
SMALL_GROUP = 0.8
"""Cards below 70 GiB; read off no log, but set between a card on its own and WITHOUT_SWITCH."""
WITHOUT_SWITCH = 1.0
"""Cards without an NVLink switch have no multicast buffers: context and plain NCCL channels."""
SNAPSHOT_AFTER_NCCL = EngineVersion(0, 11)
"""The engine looks at what is free after the communicators were made (`GPUWorker.init_device`)."""


def start_overhead_bytes(
    total: int,
    *,
    compute_capability: str | None,
    tensor: int,
    version: EngineVersion,
    unified: bool = False,
) -> int:
    """Memory of the CUDA context, communicators and libraries before the engine looks at what is free.

    Up to 0.10.2 it looks before the communicators exist (`GPUWorker.init_device`), so there the ranks do not count.
    Logged (GiB), one GPU: A100 0.41, RTX 3090 to 5090 0.44 to 0.51, L40S 0.49, RTX PRO 6000 0.56, H100 0.53 to 0.61, B300
    0.61; two H200 under 0.10.2 0.60. With communicators: two A100 1.15, four GH200 2.02, four GB200 2.47, sixteen GB300
    2.35, B300 3.5, RTX PRO 6000 two stages 0.91 and four ranks 0.96.
    """
    if unified:
        return int(shared_memory.BEFORE * GIB)
    major = (compute_capability or "").partition(".")[0]
    if tensor == 1 or version < SNAPSHOT_AFTER_NCCL:
        size = ALONE_ON_HOPPER if major in ("9", "10") else ALONE
    elif total < BIG_CARD:
        size = SMALL_GROUP
    elif major == "12":
        size = WITHOUT_SWITCH
    elif tensor == 2:
        size = PAIR
    else:
        size = GROUP_ON_BLACKWELL if major == "10" else GROUP
    return int(size * GIB)
