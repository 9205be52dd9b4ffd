"""What the engine sets aside for CUDA graphs before it sizes the KV cache.

From 0.20 the profile run captures the two largest graphs of each mode and extrapolates: the first one's pool, then what
the second added per further graph, at least 1 MiB (`profile_cudagraph_memory`). The second runner returned 0 up to 0.28.
What a graph adds is the least on one GPU with plain attention, and grows with the layers where their pieces hold more:
collectives, recurrent states, indexers. The first graph of sparse attention holds its indexer's logits.

Logged estimates: Llama-3.3-70B tp 8, 256 sequences 0.81 GiB, 5 sequences 0.10; Qwen3-30B-A3B 64 sequences 0.14, 16
sequences 0.15; Gemma-3-1B 0.19; Qwen2.5-7B 4 sequences 0.05; Qwen3.6-27B tp 2 0.96; Qwen3.5-9B 0.65 and 0.78;
LFM2.5-1.2B 0.58; Gemma-4-E4B 0.79; GLM-5.2 one sequence 0.06, 1024 sequences of 819,200 tokens 4.99; DeepSeek-V4-Flash tp 2 1.58
(GiB). The pool, what a layer adds and the bounds of the range are read off these.
"""

from gpuplan.domain.fleet import Basis
from gpuplan.domain.memory import Term
from gpuplan.domain.model import CacheKind, ModelProfile
from gpuplan.engine import shared_memory
from gpuplan.engine.forward import decode_logits_bytes
from gpuplan.engine.rank_setting import RankSetting, runner_v2
from gpuplan.engine.versions import RUNNER_V2_SINCE, GraphAccounting, graph_accounting
from gpuplan.units import GIB, MIB

POOL = int(0.08 * GIB)
PER_LAYER = int(0.12 * MIB)
PER_LAYER_WITH_STATES = int(0.18 * MIB)
PER_LAYER_WITH_INDEXERS = int(0.3 * MIB)
"""Bytes of a further graph."""
MOST = 1.8
"""Times the estimate."""
MOST_PER_GRAPH = 5 * MIB
LARGEST_SIZE = 512
LARGEST_SIZE_ON_SM100 = 1024


def cuda_graph_term(profile: ModelProfile, setting: RankSetting) -> Term:
    """The engine's own estimate of its graphs; 0 where it is not subtracted (up to 0.19, eager mode)."""
    counted = (
        graph_accounting(setting.version) is GraphAccounting.SUBTRACTED
        and not _eager(setting)
        and (setting.version >= RUNNER_V2_SINCE or not runner_v2(profile, setting))
    )
    pieces, whole = captured(setting) if counted else (0, 0)
    layers = max(1, profile.layer_count // setting.parallelism.pipeline)
    graph = max(MIB, layers * _per_layer(profile, setting))
    pool = POOL + decode_logits_bytes(profile, setting, min(_decoding(setting), LARGEST_SIZE))
    size = pool + (pieces + whole) * graph if pieces else 0
    most = max(int(size * MOST), pool + (pieces + whole) * MOST_PER_GRAPH) if pieces else 0
    least = size // 4
    if pieces and shared_memory.counts(unified=setting.unified, backend=setting.backend):
        size, most = (size + int(amiss * GIB) for amiss in shared_memory.GRAPHS_AMISS)
    return Term(
        name="CUDA graphs",
        bytes=size,
        low=least,
        high=most,
        basis=Basis.COMPUTED if counted else Basis.EXACT,
        formula="pool of the first graph + graphs × max(1 MiB, layers × what a layer adds)"
        if counted
        else "not taken from the budget",
        inputs=(("piecewise graphs", pieces), ("full decode graphs", whole), ("layers", layers)),
        source="estimates logged by releases from 0.19",
    )


def _per_layer(profile: ModelProfile, setting: RankSetting) -> int:
    """Bytes a layer adds to a further graph; 0 where the least a graph is booked with covers it."""
    kinds = {cache.kind for layer in profile.layer_kinds for cache in layer.caches}
    if CacheKind.INDEXER in kinds:
        return PER_LAYER_WITH_INDEXERS
    if CacheKind.STATE in kinds:
        return PER_LAYER_WITH_STATES
    return PER_LAYER if setting.parallelism.tensor > 1 else 0


def _eager(setting: RankSetting) -> bool:
    mode = setting.engine.compilation_config.get("cudagraph_mode", "")
    return setting.engine.enforce_eager or str(mode).upper() in ("NONE", "0")


def _decoding(setting: RankSetting) -> int:
    """Tokens of a batch in which every sequence decodes."""
    return setting.max_num_seqs * (1 + setting.engine.speculative_tokens)


def captured(setting: RankSetting) -> tuple[int, int]:
    """(piecewise graphs, full decode graphs): batch sizes as `_set_cudagraph_sizes` lists them."""
    sizes = setting.engine.cudagraph_capture_sizes
    decode = _decoding(setting)
    if sizes is None:
        largest = setting.engine.max_cudagraph_capture_size
        if largest is None:
            bound = LARGEST_SIZE_ON_SM100 if setting.generation == 10 else LARGEST_SIZE
            largest = min(decode * 2, bound)
        largest = min(largest, setting.max_num_batched_tokens)
        sizes = tuple(n for n in (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)) if n <= largest)
    return len(sizes), sum(1 for n in sizes if n <= decode)
