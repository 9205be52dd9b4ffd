"""Memory of LoRA slots: two thin matrices per adapted linear layer and slot, allocated when the model is loaded.

vLLM 0.33 `vllm/lora/layers/*.py` create_lora_weights: A is whole on every rank of a column split and follows the inputs
of a row split, B follows the outputs; `--fully-sharded-loras` divides the other one too. Models that name embedding
modules also get slots for the vocabulary: A of the input table and B of the logits span all of it on every rank
(vocab_parallel_embedding.py, logits_processor.py). Logged: Qwen3-8B at tp 2, rank 16, 0.22: 7.71 GiB against 7.64 without.
"""

from functools import lru_cache

from gpuplan.domain.model import Experts, Linear, ModelProfile, Shard
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.versions import DEFAULT, EngineVersion
from gpuplan.engine.weights import Split, experts_on_rank, local_units, stage_layers

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
INDEX_BYTES = 8
ITEM_BYTES = {"bfloat16": 2, "float16": 2}
EXPERTS_SINCE = EngineVersion(0, 11, 1)
"""Slots for routed experts (`lora/layers/fused_moe.py`)."""
STACKED_SINCE = EngineVersion(0, 12)
STACKED_EXPERTS = ("GptOss", "Qwen3VLMoe", "Qwen3_5Moe", "Qwen3OmniMoe", "InternS1Pro")
"""One A for gate and up together (`FusedMoE3DWithLoRA`)."""
VOCABULARY_SLOTS = frozenset(
    {
        "ApertusForCausalLM",
        "BambaForCausalLM",
        "CohereForCausalLM",
        "Cohere2ForCausalLM",
        "DeciLMForCausalLM",
        "Exaone4ForCausalLM",
        "ExaoneForCausalLM",
        "ExaoneMoEForCausalLM",
        "FalconH1ForCausalLM",
        "GraniteForCausalLM",
        "GraniteMoeForCausalLM",
        "GraniteMoeHybridForCausalLM",
        "GraniteMoeSharedForCausalLM",
        "HyperCLOVAXForCausalLM",
        "JambaForCausalLM",
        "Lfm2ForCausalLM",
        "Lfm2MoeForCausalLM",
        "LlamaForCausalLM",
        "MiniCPMForCausalLM",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "NemotronForCausalLM",
        "NemotronHForCausalLM",
        "Phi3ForCausalLM",
        "PhiMoEForCausalLM",
        "SolarForCausalLM",
    }
)
"""Models with `embedding_modules`."""
VOCABULARY_SLOTS_SINCE = {
    "Qwen3ForCausalLM": EngineVersion(0, 16),
    "Qwen3MoeForCausalLM": EngineVersion(0, 16),
    "Qwen3_5ForConditionalGeneration": EngineVersion(0, 30),
    "Qwen3_5MoeForConditionalGeneration": EngineVersion(0, 30),
}


def lora_bytes(
    profile: ModelProfile,
    split: Split,
    engine: EngineArguments,
    *,
    stage: int = 0,
    stages: int = 1,
    layer_partition: tuple[int, ...] | None = None,
    version: EngineVersion = DEFAULT,
) -> int:
    """Bytes of all slots on one rank of a stage; 0 without `--enable-lora`. Raises Indivisible."""
    if not engine.enable_lora:
        return 0
    rank = next((size for size in RANKS if size >= engine.max_lora_rank), engine.max_lora_rank)
    slots = max(1, engine.max_loras)
    stacked = 1 if _is_3d(profile.architecture) and version >= STACKED_SINCE else 2
    numbers = _in_layers(
        profile,
        split,
        rank,
        stage,
        stages,
        layer_partition,
        sharded=engine.fully_sharded_loras,
        up_matrices=stacked if version >= EXPERTS_SINCE else 0,
    )
    vocabulary = 0
    if _adapts_vocabulary(profile, version):
        embeds, ends = stage == 0, stage == stages - 1
        numbers += rank * (profile.vocabulary + profile.hidden) * (embeds + ends)
        vocabulary = profile.vocabulary * INDEX_BYTES if ends and split.tensor > 1 else 0
    return numbers * slots * ITEM_BYTES.get(engine.lora_dtype, profile.itemsize) + vocabulary


def _is_3d(architecture: str) -> bool:
    """Whether a checkpoint keeps gate and up of all experts in one tensor (`is_3d_moe_weight`)."""
    return architecture.startswith(STACKED_EXPERTS)


def _adapts_vocabulary(profile: ModelProfile, version: EngineVersion) -> bool:
    since = VOCABULARY_SLOTS_SINCE.get(profile.architecture)
    return profile.architecture in VOCABULARY_SLOTS or (since is not None and version >= since)


@lru_cache(maxsize=256)
def _in_layers(
    profile: ModelProfile,
    split: Split,
    rank: int,
    stage: int,
    stages: int,
    layer_partition: tuple[int, ...] | None,
    *,
    sharded: bool,
    up_matrices: int,
) -> int:
    """Numbers of one slot in the layers of a stage; `up_matrices`: A matrices of gate and up, 0 where experts get none."""
    first, last = stage_layers(profile.layer_count, stages, layer_partition)[stage]
    counts: dict[int, int] = {}
    for kind in profile.layer_order[first:last]:
        counts[kind] = counts.get(kind, 0) + 1
    numbers = 0
    for kind, count in counts.items():
        for part in profile.layer_kinds[kind].parts:
            if isinstance(part, Linear):
                numbers += count * _linear(part, split.tensor, rank, sharded=sharded)
            elif isinstance(part, Experts) and up_matrices:
                numbers += count * _experts(part, split, rank, sharded=sharded, up_matrices=up_matrices)
    return numbers


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


def _experts(part: Experts, split: Split, rank: int, *, sharded: bool, up_matrices: int) -> int:
    """Numbers of one slot for the experts a rank holds; the other side of each matrix is divided where slots are sharded."""
    local = experts_on_rank(part.count + split.redundant_experts, split.expert_ranks, split.expert_rank)
    width, shared = part.intermediate // split.expert_tensor, split.expert_tensor if sharded else 1
    sides = up_matrices if part.gated else 1
    up = sides * (rank // shared) * part.hidden + (2 if part.gated else 1) * width * rank
    return local * (up + rank * (width + part.hidden // shared))
