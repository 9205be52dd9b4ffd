"""gpt-oss: attention with sinks, sliding on every other layer, biased experts in MXFP4.

vLLM 0.32: vllm/model_executor/models/gpt_oss.py.
"""

from gpuplan.domain.model import Layer
from gpuplan.engine.architectures.context import (
    Blueprint,
    Builder,
    Context,
    attention_cache,
    layer_count,
    parts_of,
    rotary_buffer,
)
from gpuplan.engine.architectures.moe import (
    FLOAT32,
    MOST_EXPERTS,
    Dimensions,
    assemble,
    expert_count,
    pair_of_norms,
    router,
    vector,
)


def build_gpt_oss(context: Context) -> Blueprint:
    """gpt-oss 20B and 120B; sliding layers are the even ones, whatever `layer_types` says."""
    config = context.config
    size = Dimensions.of(config)
    experts = expert_count(config, "num_local_experts")
    top_k = config.integer("num_experts_per_tok", "experts_per_token", default=4, most=MOST_EXPERTS)
    width = config.integer("intermediate_size")
    window = config.optional_integer("sliding_window", least=1)

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        attention = context.attention(
            f"{path}.attn",
            size.hidden,
            size.heads,
            size.kv_heads,
            size.head_size,
            bias=True,
            output_bias=True,
            replicate_kv=False,  # the class divides KV heads and never repeats them
        )
        sliding = window if index % 2 == 0 else None
        return Layer(
            name="sliding" if sliding else "full",
            parts=parts_of(
                attention,
                vector("sinks", size.heads, context.itemsize, sharded=True),
                router(context, f"{path}.mlp.router", size.hidden, experts, bias=True),
                context.experts(f"{path}.mlp.experts", experts, top_k, size.hidden, width, bias=True),
                pair_of_norms(context, size.hidden),
            ),
            caches=(attention_cache(size.kv_heads, size.head_size, window=sliding),),
        )

    scaling = config.view("rope_scaling") if "rope_scaling" in config else config.view("rope_parameters")
    factor = scaling.number("factor", default=1.0)
    original = scaling.integer("original_max_position_embeddings", default=size.positions, least=0)
    positions = int(original * factor) if 0 < factor <= 4096 else size.positions
    layers = tuple(layer(index) for index in range(layer_count(config)))
    return assemble(
        context,
        config,
        size,
        layers,
        everywhere=True,
        rotary=(rotary_buffer(positions, size.head_size, FLOAT32),),
    )


BUILDERS: dict[str, Builder] = {
    "GptOssForCausalLM": build_gpt_oss,
}
