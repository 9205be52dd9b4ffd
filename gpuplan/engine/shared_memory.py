"""What an engine loses on a GPU that shares the memory of its host (GB10, Thor, Orin).

There `free` is what the kernel calls available (`MemorySnapshot.measure`, psutil; from 0.11.1 for compute capability 8.7,
11.0 and 12.1, from 0.22 for every integrated GPU). Page cache counts as available, so the weights being read from disk
cost nothing; up to 0.11.0 `free` was what no one uses, and files read into the cache were lost to the KV cache. What does
count, from the reading before the weights to the one after the profile run, is every page any process
of the host takes in between: the engine's own heap (model classes, the compiler and its graphs, pinned buffers), and what
other processes take or give back. vLLM books it all as memory outside torch: `non_torch_increase` up to 0.26,
`total_consumed` from 0.27.

Logged on GB10, one GPU, beside weights and torch's own peak: Qwen3-0.6B 2.2 GiB and Qwen3.8-27B 4.6 (0.27.1), gpt-oss-20b
1.4 (0.13), Gemma-4-26B NVFP4 and INT4 1.9 (0.25.1), Laguna-S 0.9, 2.2 and 3.6 in three starts of one machine (0.25.1),
Gemma-4-26B and 31B 3.4 and 4.4 (0.20, 0.22). It follows neither the size of the model nor the release: a range, no rule.

Two GB10 over the network lose more. The ranks have no peer memory: what NCCL pins on the host for the network card and
what it takes on the GPU are the same memory here, and it opens its channels at the first collective, which is in the
profile run. Logged: GLM-5.3 5.7 GiB, MiniMax-M2.7 10 to 11 (0.29), DeepSeek-V4.1 11 with its peak; of one pair the head 4
to 10 less than its peer. How much is NCCL's no log tells; fast loaders are said to keep 4 GiB of it.

What the kernel calls available before the container starts is more than the engine then finds: 113.69 of 116.43 and 29.83
of 32.40 GiB (0.28, two starts on GB10), for the runtime, the context and the interpreters of its processes.

GH200 is no such GPU, its memory is its own. ROCm tells free memory of an APU by what its GPU took of it (Strix Halo: 79.99 of
80.0 GiB free at the start), so there the host's processes do not count.
"""

from gpuplan.domain.model import ModelProfile
from gpuplan.engine.rank_setting import RankSetting
from gpuplan.engine.versions import EngineVersion
from gpuplan.engine.weights import Split, rank_weights
from gpuplan.units import GIB

CACHE_IS_AVAILABLE_SINCE = EngineVersion(0, 11, 1)

HOST_GROWTH = (2.2, 0.0, 5.5)
"""GiB that kernels and the processes of the host take while the engine measures: likely, least, most."""
GRAPHS_AMISS = (0.4, 4.9)
"""GiB by which the estimate of CUDA graphs is too large, likely and at most. It is taken from memory nobody uses
(`profile_cudagraph_memory`, 0.20 to 0.33), so files that are read meanwhile count as graphs, and what the second graph seems
to take counts for all that follow. Logged on GB10: 0.1 to 0.4 on ten starts, 0.7 to 2.6 on nine, 5.0 on two."""
NETWORK = (6.8, 1.0, 9.0)
"""GiB more where tensor parallel ranks talk over the network: likely, least, most."""
BEFORE = 2.7
"""GiB between what the host has available and what the engine finds free when it starts there."""


def counts(*, unified: bool, backend: str) -> bool:
    """Whether the engine takes the host's available memory for the GPU's free memory."""
    return unified and backend == "cuda"


def non_torch_term_gib(profile: ModelProfile, setting: RankSetting) -> tuple[float, float, float]:
    """(likely, least, most) GiB that profiling books as memory outside torch."""
    likely, least, most = non_torch_gib(setting.parallelism.tensor)
    if setting.version < CACHE_IS_AVAILABLE_SINCE:
        most += rank_weights(profile, Split()).parameters / GIB
    return likely, least, most


def non_torch_gib(tensor: int) -> tuple[float, float, float]:
    """(likely, least, most) GiB where page cache counts as available.

    A host has one GPU of this kind, so tensor parallel ranks are on different hosts.
    """
    if tensor == 1:
        return HOST_GROWTH
    likely, least, most = (alone + more for alone, more in zip(HOST_GROWTH, NETWORK, strict=True))
    return likely, least, most
