"""Memory of LoRA slots: two thin matrices per adapted linear layer and slot, allocated when the model is loaded.

vLLM 0.33 `vllm/lora/layers/*.py` create_lora_weights: A is whole on every rank of a column split and follows the inputs
of a row split, B follows the outputs; `--fully-sharded-loras` divides the other one too.
"""

from gpuplan.domain.model import Experts, Linear, ModelProfile, Shard
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.weights import Split, experts_on_rank, local_units, stage_layers

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


def lora_bytes(
    profile: ModelProfile,
    split: Split,
    engine: EngineArguments,
    *,
    stage: int = 0,
    stages: int = 1,
    layer_partition: tuple[int, ...] | None = None,
) -> int:
    """Bytes of all slots on one rank of a stage; 0 without `--enable-lora`. Raises Indivisible."""
    if not engine.enable_lora:
        return 0
    first, last = stage_layers(profile.layer_count, stages, layer_partition)[stage]
    counts: dict[int, int] = {}
    for kind in profile.layer_order[first:last]:
        counts[kind] = counts.get(kind, 0) + 1
    rank = next((size for size in RANKS if size >= engine.max_lora_rank), engine.max_lora_rank)
    numbers = 0
    for kind, count in counts.items():
        for part in profile.layer_kinds[kind].parts:
            if isinstance(part, Linear):
                numbers += count * _linear(part, split.tensor, rank, sharded=engine.fully_sharded_loras)
            elif isinstance(part, Experts):
                numbers += count * _experts(part, split, rank)
    return numbers * max(1, engine.max_loras) * profile.itemsize


def _linear(part: Linear, ranks: int, rank: int, *, sharded: bool) -> int:
    """Numbers in A (one per stacked matrix) and B of one slot."""
    inputs, outputs = part.inputs.size, [partition.size for partition in part.outputs]
    a_share = b_share = 1
    if part.shard is Shard.COLUMN:
        outputs = [local_units(part.name, p, ranks) * p.unit_size for p in part.outputs]
        a_share = ranks if sharded else 1
    elif part.shard is Shard.ROW:
        inputs = local_units(part.name, part.inputs, ranks) * part.inputs.unit_size
        b_share = ranks if sharded else 1
    return len(outputs) * rank * inputs // a_share + sum(outputs) * rank // b_share


def _experts(part: Experts, split: Split, rank: int) -> int:
    """Numbers of one slot for the experts a rank holds: gate, up and down, each with A and B."""
    local = experts_on_rank(part.count, split.expert_ranks, split.expert_rank)
    width = part.intermediate // split.expert_tensor
    matrices = 3 if part.gated else 2
    return local * matrices * rank * (part.hidden + width)
