"""Which builder describes which architecture: the names vLLM's own model registry knows."""

from gpuplan.engine.architectures import dense
from gpuplan.engine.architectures.context import Builder

BUILDERS: dict[str, Builder] = {
    "LlamaForCausalLM": dense.build_llama,
    "MistralForCausalLM": dense.build_llama,
    "Qwen2ForCausalLM": dense.build_qwen2,
    "MiMoForCausalLM": dense.build_qwen2,
    "Qwen3ForCausalLM": dense.build_qwen3,
}
