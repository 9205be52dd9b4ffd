"""GLM-4.7-Flash (Glm4MoeLite): DeepSeek's latent attention with GLM's float32 router.

vLLM 0.32: vllm/model_executor/models/{glm4_moe_lite,glm4_moe}.py. GLM-5 (GlmMoeDsa) is built by `deepseek`.
"""

from dataclasses import replace

from gpuplan.domain.model import Layer, Linear, Part
from gpuplan.engine.architectures.context import Blueprint, Builder, Context
from gpuplan.engine.architectures.deepseek import deepseek_blueprint
from gpuplan.engine.architectures.mla import FLOAT32


def build_glm4_moe_lite(context: Context) -> Blueprint:
    """GLM-4.7-Flash: the router and its correction in float32 on every expert layer."""
    blueprint = deepseek_blueprint(
        context, context.config, corrected=True, tied=context.config.flag("tie_word_embeddings")
    )
    return replace(
        blueprint,
        layers=tuple(_with_float32_router(layer) for layer in blueprint.layers),
        drafts=tuple(_with_float32_router(layer) for layer in blueprint.drafts),
    )


def _with_float32_router(layer: Layer) -> Layer:
    def routed(part: Part) -> Part:
        return (
            replace(part, itemsize=FLOAT32)
            if isinstance(part, Linear) and part.name.endswith("mlp.gate")
            else part
        )

    return replace(layer, parts=tuple(routed(part) for part in layer.parts))


BUILDERS: dict[str, Builder] = {
    "Glm4MoeLiteForCausalLM": build_glm4_moe_lite,
}
