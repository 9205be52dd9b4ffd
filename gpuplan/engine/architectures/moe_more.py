"""Mixtures of experts that fewer run: Hunyuan 3, Sarvam, Param 2, Command A MoE, Step 3.

vLLM 0.32: vllm/model_executor/models/{hy_v3,sarvam,param2moe,cohere2_moe,step3_text}.py.
"""

from dataclasses import replace

from gpuplan.domain.model import CacheKind, Layer, Part, Partition, Shard
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import (
    Blueprint,
    Builder,
    Context,
    attention_cache,
    layer_count,
    parts_of,
)
from gpuplan.engine.architectures.mla import LatentShape, latent_cache, latent_output, latent_shape
from gpuplan.engine.architectures.moe import (
    FLOAT32,
    MOST_EXPERTS,
    Dimensions,
    assemble,
    expert_count,
    pair_of_head_norms,
    pair_of_norms,
    plain_layers,
    router,
)
from gpuplan.engine.architectures.moe_shared import sparse_block
from gpuplan.engine.architectures.rotary import text_rotary


def build_hy_v3(context: Context) -> Blueprint:
    """Hunyuan 3: a float32 router, dense layers first, embedding, head and norm on every pipeline stage."""
    config = context.config
    size = Dimensions.of(config)
    width = config.integer("expert_hidden_dim", "moe_intermediate_size")
    first = config.integer("first_k_dense_replace", default=1, least=0)
    wide = config.integer("intermediate_size")

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        if index < first:
            return context.gated_mlp(f"{path}.mlp", size.hidden, wide)
        return sparse_block(
            context,
            f"{path}.mlp",
            size.hidden,
            expert_count(config, "num_experts"),
            top_k=config.integer("num_experts_per_tok", most=MOST_EXPERTS),
            width=width,
            shared=config.integer("num_shared_experts", default=1, least=0, most=1024) * width,
            shared_name="shared_mlp",
            gate_itemsize=FLOAT32,
            correction=True,
        )

    inner = pair_of_head_norms(context, size.head_size) if config.flag("qk_norm", default=True) else ()
    layers = plain_layers(context, config, size, mlp, inner=inner, intermediate=wide)
    return assemble(context, config, size, layers, everywhere=True)


def build_param2(context: Context) -> Blueprint:
    """Param 2: a float32 router, shared experts as wide as their own key says together."""
    config = context.config
    size = Dimensions.of(config)
    wide = config.integer("intermediate_size")
    inner = pair_of_head_norms(context, size.head_size) if config.flag("use_qk_norm") else ()
    layers = plain_layers(
        context,
        config,
        size,
        lambda index, path: _corrected(context, config, size.hidden, index, path, gate_itemsize=FLOAT32),
        bias=config.flag("use_qkv_bias"),
        output_bias=config.flag("use_bias"),
        inner=inner,
        intermediate=wide,
    )
    return assemble(context, config, size, layers)


def build_sarvam_mla(context: Context) -> Blueprint:
    """Sarvam with latent attention: DeepSeek's attention, its projections apart."""
    config = context.config
    shape = latent_shape(config)
    hidden = config.integer("hidden_size")
    wide = config.integer("intermediate_size", default=16384)

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        attention = _apart(context, f"{path}.self_attn", shape)
        mlp = _corrected(context, config, hidden, index, path, each=True)
        return Layer(
            name="decoder",
            parts=parts_of(attention, mlp, pair_of_norms(context, hidden)),
            caches=(latent_cache(shape),),
            intermediate=wide,
        )

    size = replace(Dimensions.of(config), kv_heads=1)
    rotary = text_rotary(config, shape.rope, context.itemsize)
    layers = tuple(layer(index) for index in range(layer_count(config)))
    return assemble(context, config, size, layers, rotary=(rotary,))


def _apart(context: Context, path: str, shape: LatentShape) -> tuple[Part, ...]:
    """Latent attention whose two down-projections are not fused."""
    heads = Partition(units=shape.heads, unit_size=shape.head)
    latent = context.linear(
        f"{path}.kv_a_proj_with_mqa", shape.hidden, shape.rank + shape.rope, Shard.REPLICATED
    )
    query: tuple[Part, ...] = (context.linear(f"{path}.q_proj", shape.hidden, heads, Shard.COLUMN),)
    if shape.query_rank is not None:
        query = (
            context.linear(f"{path}.q_a_proj", shape.hidden, shape.query_rank, Shard.REPLICATED),
            context.norm("q_a_layernorm", shape.query_rank),
            context.linear(f"{path}.q_b_proj", shape.query_rank, heads, Shard.COLUMN),
        )
    return (latent, *query, *latent_output(context, path, shape))


def _corrected(
    context: Context,
    config: ConfigView,
    hidden: int,
    index: int,
    path: str,
    *,
    gate_itemsize: float | None = None,
    each: bool = False,
) -> tuple[Part, ...]:
    """Experts with a correction of their choice; `each`: the key of shared experts counts one of them."""
    first = config.integer("first_k_dense_replace", default=1, least=0)
    if (
        index < first
        or "num_experts" not in config
        or (index - first) % config.integer("moe_layer_freq", default=1)
    ):
        return context.gated_mlp(f"{path}.mlp", hidden, config.integer("intermediate_size", default=16384))
    width = config.integer("moe_intermediate_size")
    count = config.integer("num_shared_experts", default=1, least=0, most=1024)
    shared = config.optional_integer("moe_shared_expert_intermediate_size", least=1)
    together = width * count if shared is None else shared * (count if each else min(1, count))
    return sparse_block(
        context,
        f"{path}.mlp",
        hidden,
        expert_count(config, "num_experts"),
        top_k=config.integer("num_experts_per_tok", most=MOST_EXPERTS),
        width=width,
        shared=together,
        gate_itemsize=gate_itemsize,
        correction=config.flag("moe_router_enable_expert_bias", default=True),
    )


def build_cohere2_moe(context: Context) -> Blueprint:
    """Command A's mixture: one norm a layer, the head tied, experts where `mlp_layer_types` says so."""
    config = context.config
    size = Dimensions.of(config)
    wide = config.integer("intermediate_size")
    kinds, slides = config.items("mlp_layer_types"), config.items("layer_types")
    window = config.integer("sliding_window", default=4096)
    norm = context.norm("input_layernorm", size.hidden)

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        dense = index < len(kinds) and kinds[index] == "dense"
        own = config.integer("prefix_dense_intermediate_size", default=wide)
        mlp = (
            context.gated_mlp(f"{path}.mlp", size.hidden, own)
            if dense
            else sparse_block(
                context,
                f"{path}.mlp",
                size.hidden,
                expert_count(config, "num_experts"),
                top_k=config.integer("num_experts_per_tok", most=MOST_EXPERTS),
                width=wide,
                shared=config.integer("num_shared_experts", default=0, least=0, most=1024) * wide,
            )
        )
        sliding = index < len(slides) and slides[index] == "sliding_attention"
        attention = context.attention(
            f"{path}.self_attn", size.hidden, size.heads, size.kv_heads, size.head_size
        )
        cache = attention_cache(size.kv_heads, size.head_size, window=window + 1 if sliding else None)
        return Layer(
            name="sliding" if sliding else "decoder",
            parts=parts_of(attention, mlp, norm),
            caches=(cache,),
            intermediate=own if dense else 0,
        )

    layers = tuple(layer(index) for index in range(layer_count(config)))
    return assemble(context, config, size, layers, tied=True, everywhere=True)


def build_step3(context: Context) -> Blueprint:
    """Step 3: queries through a shared narrow projection, one key-value head, one shared expert."""
    config = context.config
    hidden = config.integer("hidden_size", default=7168)
    heads = config.integer("num_attention_heads", default=64)
    size = config.integer("head_dim", default=256)
    narrow = config.integer("share_q_dim", default=size)
    wide = config.integer("intermediate_size", default=18432)
    count = layer_count(config)
    chosen = _listed(config, count)

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        attention = (
            context.linear(f"{path}.self_attn.qkv_proj", hidden, narrow + 2 * size, Shard.REPLICATED),
            context.linear(
                f"{path}.self_attn.o_proj", Partition(units=heads, unit_size=size), hidden, Shard.ROW
            ),
            context.norm("inter_norm", narrow),
            context.linear(
                f"{path}.self_attn.wq", narrow, Partition(units=heads, unit_size=size), Shard.COLUMN
            ),
        )
        mlp: tuple[Part, ...]
        if index in chosen:
            experts = expert_count(config, "moe_num_experts")
            top_k = config.integer("moe_top_k", default=3, most=MOST_EXPERTS)
            width = config.integer("moe_intermediate_size", default=5120)
            mlp = (
                router(context, f"{path}.moe.gate", hidden, experts),
                context.experts(f"{path}.moe.experts", experts, top_k, hidden, width),
                *context.gated_mlp(
                    f"{path}.share_expert", hidden, config.integer("share_expert_dim", default=5120)
                ),
            )
        else:
            mlp = context.gated_mlp(f"{path}.mlp", hidden, wide)
        return Layer(
            name="decoder",
            parts=parts_of(attention, mlp, pair_of_norms(context, hidden)),
            caches=(replace(attention_cache(1, size), kind=CacheKind.FULL),),
            intermediate=0 if index in chosen else wide,
        )

    dimensions = Dimensions(
        hidden=hidden, heads=heads, kv_heads=1, head_size=size, vocabulary=config.integer("vocab_size")
    )
    positions = config.integer("max_position_embedding", "max_position_embeddings", default=65536)
    stretched = ConfigView({**config.values, "max_position_embeddings": positions}, config.place)
    rotary = text_rotary(stretched, size, context.itemsize)
    layers = tuple(layer(index) for index in range(count))
    return assemble(context, config, dimensions, layers, rotary=(rotary,))


def _listed(config: ConfigView, count: int) -> frozenset[int]:
    """Layers with experts: a list, a text of numbers with commas, else all but the first."""
    value = config.raw("moe_layers_enum")
    if value is None:
        return frozenset(range(1, count))
    listed = value.split(",") if isinstance(value, str) else value
    try:
        return frozenset(int(number) for number in listed)
    except (TypeError, ValueError):
        raise config.error("moe_layers_enum", "is no list of layers") from None


BUILDERS: dict[str, Builder] = {
    "HYV3ForCausalLM": build_hy_v3,
    "Param2MoEForCausalLM": build_param2,
    "SarvamMLAForCausalLM": build_sarvam_mla,
    "Cohere2MoeForCausalLM": build_cohere2_moe,
    "Step3TextForCausalLM": build_step3,
}
