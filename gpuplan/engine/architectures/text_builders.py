"""Language models that multimodal configs nest, by the architecture or the model type they name."""

from gpuplan.engine.architectures import (
    deepseek,
    dense,
    gemma,
    gpt_oss,
    gpt_style,
    misc_dense,
    moe,
    moe_shared,
    transformers_models,
)
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import Builder

BY_ARCHITECTURE: dict[str, Builder] = {
    **gemma.BUILDERS,
    **transformers_models.BUILDERS,
    **misc_dense.BUILDERS,
    **gpt_style.BUILDERS,
    "LlamaForCausalLM": misc_dense.build_llama_like,
    "Qwen2ForCausalLM": dense.build_qwen2,
    "Qwen3ForCausalLM": dense.build_qwen3,
    "Qwen3MoeForCausalLM": moe.build_qwen3_moe,
    "MixtralForCausalLM": moe.build_mixtral,
    "GptOssForCausalLM": gpt_oss.build_gpt_oss,
    "DeepseekV2ForCausalLM": deepseek.build_deepseek,
    "DeepseekV3ForCausalLM": deepseek.build_deepseek,
    "GraniteMoeForCausalLM": moe_shared.build_granite_moe,
    "Glm4MoeForCausalLM": moe_shared.build_glm4_moe,
}
OF_TYPE = {
    "chatglm": "ChatGLMModel",
    "cohere": "CohereForCausalLM",
    "cohere2": "Cohere2ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "ernie4_5": "Ernie4_5ForCausalLM",
    "exaone4": "Exaone4ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "granite": "GraniteForCausalLM",
    "internlm2": "InternLM2ForCausalLM",
    "internlm3": "InternLM3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "nemotron": "NemotronForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "opt": "OPTForCausalLM",
    "phi": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "stablelm": "StableLmForCausalLM",
}


def text_builder(text: ConfigView, *, default: str = "llama") -> Builder:
    """The builder of a nested language model; ModelError when none describes it."""
    for name in text.items("architectures"):
        if isinstance(name, str) and name in BY_ARCHITECTURE:
            return BY_ARCHITECTURE[name]
    kind = text.text("model_type", default=default)
    architecture = OF_TYPE.get(kind)
    if architecture is None:
        raise text.error(
            "model_type", f"is {kind[:40]!r}, a language model that is not known inside this one"
        )
    return BY_ARCHITECTURE[architecture]
