"""MiMo V2 Flash: sliding and full attention of different shapes, values narrower than keys.

vLLM 0.32: vllm/model_executor/models/mimo_v2.py.
"""

from gpuplan.domain.model import Cache, Layer, Part
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import (
    Blueprint,
    Builder,
    Context,
    attention_cache,
    layer_count,
    parts_of,
)
from gpuplan.engine.architectures.moe import (
    FLOAT32,
    MOST_EXPERTS,
    Dimensions,
    assemble,
    expert_count,
    pair_of_norms,
    per_layer_flags,
    router,
    vector,
)
from gpuplan.engine.architectures.rotary import text_rotary

ROUTER_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def build_mimo_v2(context: Context) -> Blueprint:
    """MiMo V2 Flash and V2 (text)."""
    config = context.config
    size = Dimensions.of(config)
    count = layer_count(config)
    sliding = per_layer_flags(config, "hybrid_layer_pattern", count)
    sparse = (
        per_layer_flags(config, "moe_layer_freq", count)
        if config.items("moe_layer_freq")
        else (False,) * count
    )
    norms = pair_of_norms(context, size.hidden)

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        attention = _attention(context, config, f"{path}.self_attn", size.hidden, sliding=sliding[index])
        mlp = (
            _experts(context, config, path, size.hidden)
            if sparse[index]
            else context.gated_mlp(f"{path}.mlp", size.hidden, config.integer("intermediate_size"))
        )
        return Layer(
            name="sliding" if sliding[index] else "full",
            parts=parts_of(attention[0], mlp, norms),
            caches=(attention[1],),
            intermediate=0 if sparse[index] else config.integer("intermediate_size"),
        )

    widths = (size.head_size, config.integer("swa_head_dim", default=size.head_size))
    tables = tuple(text_rotary(config, width, context.itemsize) for width in widths)
    layers = tuple(layer(index) for index in range(count))
    return assemble(context, config, size, layers, rotary=tables)


def _attention(
    context: Context, config: ConfigView, path: str, hidden: int, *, sliding: bool
) -> tuple[tuple[Part, ...], Cache]:
    mark = "swa_" if sliding else ""
    heads = config.integer(f"{mark}num_attention_heads")
    kv_heads = config.integer(f"{mark}num_key_value_heads")
    head_size = config.integer(f"{mark}head_dim")
    value_size = config.integer(f"{mark}v_head_dim", default=head_size)
    bias = config.flag("attention_bias")
    linears = context.attention(path, hidden, heads, kv_heads, head_size, head_size_v=value_size, bias=bias)
    sinks = sliding and config.flag("add_swa_attention_sink_bias")
    window = config.optional_integer("sliding_window_size", "sliding_window", least=-1) if sliding else None
    cache = attention_cache(
        kv_heads,
        head_size,
        head_size_v=value_size if value_size != head_size else None,
        window=window if window and window > 0 else None,
    )
    return (*linears, *((vector("sinks", heads, context.itemsize, sharded=True),) if sinks else ())), cache


def _experts(context: Context, config: ConfigView, path: str, hidden: int) -> tuple[Part, ...]:
    experts = expert_count(config, "n_routed_experts")
    itemsize = ROUTER_BYTES.get(config.text("moe_router_dtype", default="float32"), FLOAT32)
    return (
        router(context, f"{path}.mlp.gate", hidden, experts, itemsize=itemsize),
        vector("e_score_correction_bias", experts, FLOAT32),
        context.experts(
            f"{path}.mlp.experts",
            experts,
            config.integer("num_experts_per_tok", most=MOST_EXPERTS),
            hidden,
            config.integer("moe_intermediate_size"),
        ),
    )


BUILDERS: dict[str, Builder] = {
    "MiMoV2FlashForCausalLM": build_mimo_v2,
    "MiMoV2ForCausalLM": build_mimo_v2,
}
