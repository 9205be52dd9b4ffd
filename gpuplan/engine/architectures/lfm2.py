"""LFM2 and LFM2 MoE: short convolutions with a few attention layers.

vLLM 0.32: vllm/model_executor/models/{lfm2,lfm2_moe}.py.
"""

from gpuplan.domain.model import Layer, Linear, Part, Residence, Shard
from gpuplan.engine.architectures.context import Blueprint, Builder, Context, layer_count
from gpuplan.engine.architectures.hybrid import (
    MlpOf,
    attention_layers,
    attention_mixer,
    frame,
    hybrid_layer,
)
from gpuplan.engine.architectures.moe import (
    FLOAT32,
    MOST_EXPERTS,
    expert_count,
    pair_of_norms,
    router,
    vector,
)
from gpuplan.engine.architectures.rotary import text_rotary
from gpuplan.engine.architectures.state_space import MOST_KERNEL, short_convolution


def _w13_mlp(context: Context, path: str, hidden: int, wide: int) -> tuple[Linear, Linear]:
    return (
        context.linear(f"{path}.w13", hidden, (wide, wide), Shard.COLUMN, fused=("w1", "w3")),
        context.linear(f"{path}.w2", wide, hidden, Shard.ROW),
    )


def build_lfm2(context: Context) -> Blueprint:
    """LFM2: short convolutions with a few attention layers."""
    config = context.config
    wide = config.integer("block_ff_dim", "intermediate_size", default=12288)
    if config.flag("block_auto_adjust_ff_dim", default=True):
        step = config.integer("block_multiple_of", default=256)
        factor = config.number("block_ffn_dim_multiplier", default=1.0)
        if not 0 < factor < 1024:
            raise config.error("block_ffn_dim_multiplier", "must lie between 0 and 1024")
        wide = max(1, -(-int(factor * int(2 * wide / 3)) // step)) * step

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        del index
        return _w13_mlp(context, path, config.integer("hidden_size"), wide)

    return _lfm2(context, mlp, wide, config.integer("conv_dim", default=config.integer("hidden_size")))


def build_lfm2_moe(context: Context) -> Blueprint:
    """LFM2 MoE: dense MLPs on the first layers, experts on the rest."""
    config = context.config
    hidden = config.integer("hidden_size")
    wide = config.integer("intermediate_size", default=7168)
    dense = config.integer("num_dense_layers", default=2, least=0)
    experts = expert_count(config, "num_experts", default=32)
    top_k = config.integer("num_experts_per_tok", default=4, most=MOST_EXPERTS)
    width = config.integer("moe_intermediate_size", default=1792)
    biased = config.flag("use_expert_bias", default=True)

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        if index < dense:
            return _w13_mlp(context, path, hidden, wide)
        return (
            router(context, f"{path}.gate", hidden, experts, quantized=True),
            *((vector("e_score_correction_bias", experts, FLOAT32),) if biased else ()),
            context.experts(f"{path}.experts", experts, top_k, hidden, width),
        )

    return _lfm2(context, mlp, wide, hidden)


def _lfm2(context: Context, mlp: MlpOf, wide: int, convolved: int) -> Blueprint:
    config = context.config
    hidden = config.integer("hidden_size")
    kernel = config.integer("conv_L_cache", default=3, most=MOST_KERNEL)
    heads = config.integer("num_attention_heads")
    inner = context.norm("q_layernorm, k_layernorm", 2 * max(1, hidden // heads))
    attention, head_size = attention_mixer(context, output="out_proj", inner=(inner,))
    norms = pair_of_norms(context, hidden)
    count = layer_count(config)
    listed = config.items("full_attn_idxs")
    where = attention_layers(config, count, "layer_types")
    if "layer_types" not in config:
        where = frozenset(index for index in listed or range(count) if isinstance(index, int))
    bias = config.flag("conv_bias")

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        if index in where:
            parts, cache = attention(f"{path}.self_attn")
        else:
            parts, cache = short_convolution(context, f"{path}.short_conv", convolved, kernel, bias=bias)
        return hybrid_layer(parts, (cache,), mlp(index, f"{path}.feed_forward"), norms, wide)

    table = text_rotary(context.config, head_size, context.itemsize, positions=128_000)
    layers = tuple(layer(index) for index in range(count))
    return frame(context, layers, tied=True, norm=Residence.LAST, outside=(table,))


BUILDERS: dict[str, Builder] = {
    "Lfm2ForCausalLM": build_lfm2,
    "Lfm2MoeForCausalLM": build_lfm2_moe,
}
