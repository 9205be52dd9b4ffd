"""What the engine sets aside for CUDA graphs before it sizes the KV cache.

From 0.20 the profile run captures the two largest graphs of each mode and extrapolates: the first one's pool, then at
least 1 MiB per further graph (`profile_cudagraph_memory`). A graph's own share grows with the number of layers. Logged
estimates: Llama-3.3-70B tp 8, 256 sequences 0.81 GiB, 5 sequences 0.10; Qwen3-30B-A3B 64 sequences 0.14, 16 sequences
0.15; Qwen3.6-27B 0.96; Gemma-4-E4B 0.79; GLM-5.2 one sequence 0.06.
"""

from gpuplan.domain.fleet import Basis
from gpuplan.domain.memory import Term
from gpuplan.domain.model import ModelProfile
from gpuplan.engine.rank_setting import RankSetting
from gpuplan.engine.versions import GraphAccounting, graph_accounting
from gpuplan.units import GIB, MIB

POOL = int(0.04 * GIB)
PER_LAYER = int(0.14 * MIB)
MOST = 1.8
MOST_ON_SHARED = 7
"""Estimates on GPUs that share the host's memory run up to 4.98 GiB (GB10, Gemma-3-12B 0.22)."""
LARGEST_SIZE = 512
LARGEST_SIZE_ON_SM100 = 1024


def cuda_graph_term(profile: ModelProfile, setting: RankSetting) -> Term:
    """The engine's own estimate of its graphs; 0 where it is not subtracted (up to 0.19, eager mode)."""
    counted = graph_accounting(setting.version) is GraphAccounting.SUBTRACTED and not _eager(setting)
    pieces, whole = captured(setting) if counted else (0, 0)
    layers = max(1, profile.layer_count // setting.parallelism.pipeline)
    size = POOL + (pieces + whole) * max(MIB, layers * PER_LAYER) if counted and pieces else 0
    return Term(
        name="CUDA graphs",
        bytes=size,
        low=size // 4,
        high=int(size * (MOST_ON_SHARED if setting.unified else MOST)),
        basis=Basis.COMPUTED if counted else Basis.EXACT,
        formula="pool of the first graph + graphs × layers × 0.14 MiB"
        if counted
        else "not taken from the budget",
        inputs=(("piecewise graphs", pieces), ("full decode graphs", whole), ("layers", layers)),
        source="estimates logged by releases from 0.19",
    )


def _eager(setting: RankSetting) -> bool:
    mode = setting.engine.compilation_config.get("cudagraph_mode", "")
    return setting.engine.enforce_eager or str(mode).upper() in ("NONE", "0")


def captured(setting: RankSetting) -> tuple[int, int]:
    """(piecewise graphs, full decode graphs): batch sizes as `_set_cudagraph_sizes` lists them."""
    sizes = setting.engine.cudagraph_capture_sizes
    decode = setting.max_num_seqs * (1 + setting.speculative_tokens)
    if sizes is None:
        largest = setting.engine.max_cudagraph_capture_size
        if largest is None:
            bound = LARGEST_SIZE_ON_SM100 if setting.generation == 10 else LARGEST_SIZE
            largest = min(decode * 2, bound)
        largest = min(largest, setting.max_num_batched_tokens)
        sizes = tuple(n for n in (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)) if n <= largest)
    return len(sizes), sum(1 for n in sizes if n <= decode)
