"""Which GPU memory utilization applies: the user's, the release's default, or none at all (S0.3)."""

from gpuplan.domain.workload import Category, EngineArguments
from gpuplan.engine.versions import EngineVersion, default_gpu_memory_utilization

GENERATIVE = frozenset((Category.LLM, Category.SPEECH_TO_TEXT, Category.OMNI))
SERVED_WITH_UTILIZATION = frozenset(
    ("Qwen3ForCausalLM", "Qwen3ForSequenceClassification", "Qwen3VLForConditionalGeneration")
)
"""Embedding and reranking architectures the engine gives a KV cache: Qwen3 and Qwen3-VL."""


def gpu_memory_utilization(
    arguments: EngineArguments,
    *,
    category: Category | None,
    architectures: tuple[str, ...],
    version: EngineVersion,
) -> float | None:
    """The share of each GPU's total memory the engine asks for, in (0, 1]; None: the share does not apply
    (S0.3).

    A value of the user's always applies. Without one it is off for embedding, reranking, image and speech
    models, except the architectures that are served with it. An unknown category counts as a language model.
    """
    if arguments.gpu_memory_utilization is not None:
        return arguments.gpu_memory_utilization
    applies = category is None or category in GENERATIVE or bool(SERVED_WITH_UTILIZATION & set(architectures))
    return default_gpu_memory_utilization(version) if applies else None
