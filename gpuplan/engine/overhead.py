"""Memory outside torch's allocator: what profiling adds, and what is gone before the engine looks at what is free.

The snapshot is taken after the CUDA context, the communicators and cuBLAS exist (`GPUWorker.init_device`), so these
only narrow the first check. While profiling, the driver loads kernels and NCCL builds the channels it uses first:

* one GPU: 0.02 GiB on RTX cards (0.10), 0.07 on H100 without a sampler, 0.25 with the kernels that releases from 0.16
  compile (0.19.0 H100, 0.26 A100);
* pipeline stages alone: 0.07 (0.19.0 H100);
* tensor parallel: 0.14 to 0.17 per GPU on A100 and T4 (0.10.1, 0.22, 0.27), 0.63 on GH200 (0.23), on H100 0.5 to 0.65
  for two GPUs (0.11, 0.12) and 2.07 to 2.33 with an NVLink switch (0.10.0 and 0.19.0).
"""

from gpuplan.domain.fleet import Basis
from gpuplan.domain.memory import Term
from gpuplan.domain.model import ModelProfile
from gpuplan.engine.rank_setting import BIG_CARD, HOPPER, RankSetting
from gpuplan.engine.sampler import TRITON_SINCE
from gpuplan.engine.versions import EngineVersion
from gpuplan.units import GIB

SHARED = (2.0, 8.0)
"""GiB that go missing, likely and at most, where the GPU shares memory with the host, whose page cache and processes move
what is free while the engine measures (GB10, 0.19 to 0.29: from 1 to 12 GiB more than on other cards)."""
FUSED_REDUCE_SINCE = EngineVersion(0, 17)


def non_torch_term(profile: ModelProfile, setting: RankSetting) -> Term:
    """Memory taken outside the allocator while profiling."""
    likely, low, high = _gibibytes(setting, sampled=setting.last_stage and not profile.pooling)
    if setting.unified:
        likely, high = likely + SHARED[0], high + SHARED[1]
    return Term(
        name="non-torch",
        bytes=int(likely * GIB),
        low=int(low * GIB),
        high=int(high * GIB),
        basis=Basis.ASSUMED,
        formula="kernels the driver loads and channels NCCL opens while profiling, as logged on like start-ups",
        inputs=(
            ("tensor parallel", setting.parallelism.tensor),
            ("compute capability", setting.compute_capability or "unknown"),
        ),
        source="non_torch of published start-up logs",
    )


def _gibibytes(setting: RankSetting, *, sampled: bool) -> tuple[float, float, float]:
    """(likely, least, most)."""
    tensor = setting.parallelism.tensor
    if tensor == 1:
        if sampled and setting.version >= TRITON_SINCE and setting.parallelism.pipeline == 1:
            return (0.25 if setting.total_bytes >= BIG_CARD else 0.2), 0.05, 0.5
        return 0.07, 0.0, 0.5
    if setting.total_bytes < BIG_CARD:
        return 0.17, 0.0, 0.5
    if setting.generation is None:
        return (0.6 if tensor == 2 else 1.5 if tensor <= 4 else 1.9), 0.1, 2.5
    if setting.generation < HOPPER:
        return 0.17, 0.1, 0.65
    if tensor > 2 or setting.version >= FUSED_REDUCE_SINCE:
        return 2.1, 0.5, 2.5
    return 0.6, 0.4, 2.2


ALONE = 0.45
PAIR = 1.15
GROUP = 2.0
SMALL_GROUP = 0.8
"""Cards without an NVLink switch have no multicast buffers: context and plain NCCL channels (assumed, no log states it)."""


def start_overhead_bytes(
    total: int, *, compute_capability: str | None, tensor: int, version: EngineVersion
) -> int:
    """Memory of the CUDA context, communicators and libraries before the engine looks at what is free.

    Logged: 0.44 of 23.65 GiB (RTX), 0.41 of 79.25 (A100), 0.56 of 94.97 (RTX PRO 6000), with two A100 1.15, with four
    GH200 2.02.
    """
    del compute_capability, version
    shared = SMALL_GROUP if total < BIG_CARD else PAIR if tensor == 2 else GROUP
    size = ALONE if tensor == 1 else shared
    return int(size * GIB)
