"""Mixtures of experts with ordinary attention, shared experts and some dense layers first.

vLLM 0.32: vllm/model_executor/models/{glm4_moe,ernie45_moe,exaone_moe,afmoe,bailing_moe,granitemoe,
granitemoeshared,dbrx,step3p5}.py.
"""

from collections.abc import Callable
from dataclasses import replace

from gpuplan.domain.model import Layer, Part, Shard
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
    pair_of_head_norms,
    pair_of_norms,
    plain_layers,
    router,
    shared_width,
    vector,
)


def sparse_block(
    context: Context,
    block: str,
    hidden: int,
    experts: int,
    *,
    top_k: int,
    width: int,
    shared: int = 0,
    shared_name: str = "shared_experts",
    gate_itemsize: float | None = None,
    correction: bool = False,
    bias: bool = False,
) -> tuple[Part, ...]:
    """Router, its correction bias, shared experts of total width `shared`, routed experts."""
    return (
        router(context, f"{block}.gate", hidden, experts, itemsize=gate_itemsize),
        *((vector("e_score_correction_bias", experts, FLOAT32),) if correction else ()),
        *(context.gated_mlp(f"{block}.{shared_name}", hidden, shared, bias=bias) if shared else ()),
        context.experts(f"{block}.experts", experts, top_k, hidden, width),
    )


def build_glm4_moe(context: Context) -> Blueprint:
    """GLM-4.5 to 4.7 (glm4_moe.py): a float32 router, dense layers first, the head never tied."""
    config = context.config
    size = Dimensions.of(config)
    width = config.integer("moe_intermediate_size")
    first = config.integer("first_k_dense_replace", default=0, least=0)
    wide = config.integer("intermediate_size")

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        if index < first or "n_routed_experts" not in config:
            return context.gated_mlp(f"{path}.mlp", size.hidden, wide)
        return sparse_block(
            context,
            f"{path}.mlp",
            size.hidden,
            expert_count(config, "n_routed_experts"),
            top_k=config.integer("num_experts_per_tok", most=MOST_EXPERTS),
            width=width,
            shared=shared_width(config, "n_shared_experts", width),
            gate_itemsize=FLOAT32,
            correction=True,
        )

    normed = config.flag("use_qk_norm")
    inner = pair_of_head_norms(context, size.head_size) if normed else ()
    bias = config.flag("attention_bias")
    layers = plain_layers(context, config, size, mlp, bias=bias, inner=inner, intermediate=wide)
    return assemble(context, config, size, layers, tied=False)


def build_ernie45_moe(context: Context) -> Blueprint:
    """ERNIE 4.5 MoE (ernie45_moe.py): every `moe_layer_interval`-th layer of a range."""
    config = context.config
    size = Dimensions.of(config)
    count = layer_count(config)
    experts = expert_count(config, "moe_num_experts", default=0)
    first = config.integer("moe_layer_start_index", default=0, least=0)
    last = config.integer("moe_layer_end_index", default=count - 1, least=-1)
    last = count - 1 if last < 0 else last
    interval = config.integer("moe_layer_interval", default=1)
    bias = config.flag("use_bias")
    wide = config.integer("intermediate_size")

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        if experts == 0 or (index + 1) % interval or not first <= index <= last:
            return context.gated_mlp(f"{path}.mlp", size.hidden, wide, bias=bias)
        width = config.integer("moe_intermediate_size")
        return sparse_block(
            context,
            f"{path}.mlp",
            size.hidden,
            experts,
            top_k=config.integer("moe_k", default=2, most=MOST_EXPERTS),
            width=width,
            shared=shared_width(config, "moe_num_shared_experts", width),
            gate_itemsize=FLOAT32,
            correction=True,
        )

    layers = plain_layers(context, config, size, mlp, bias=bias, intermediate=wide)
    return assemble(context, config, size, layers)


def build_exaone_moe(context: Context) -> Blueprint:
    """EXAONE MoE (exaone_moe.py): sliding layers by `layer_types`, sparse ones by `mlp_layer_types`."""
    config = context.config
    size = Dimensions.of(config)
    width = config.integer("moe_intermediate_size")
    kinds = config.items("mlp_layer_types")
    first = config.integer("first_k_dense_replace", default=1, least=0)
    bias = config.flag("attention_bias", "bias")

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        sparse = kinds[index] == "sparse" if index < len(kinds) else index >= first
        if not sparse:
            wide = config.integer("intermediate_size")
            return context.gated_mlp(f"{path}.mlp", size.hidden, wide, bias=config.flag("mlp_bias"))
        return sparse_block(
            context,
            f"{path}.mlp",
            size.hidden,
            expert_count(config, "num_experts"),
            top_k=config.integer("num_experts_per_tok", most=MOST_EXPERTS),
            width=width,
            shared=shared_width(config, "num_shared_experts", width),
            correction=True,
        )

    inner = pair_of_head_norms(context, size.head_size)
    layers = plain_layers(context, config, size, mlp, bias=bias, output_bias=bias, inner=inner)
    return assemble(context, config, size, sliding_by_type(config, layers, size))


def sliding_by_type(config: ConfigView, layers: tuple[Layer, ...], size: Dimensions) -> tuple[Layer, ...]:
    """Give the layers that `layer_types` calls sliding a sliding cache."""
    kinds = config.items("layer_types")
    window = config.optional_integer("sliding_window", least=1)
    if window is None or not kinds:
        return layers
    cache = (attention_cache(size.kv_heads, size.head_size, window=window),)
    return tuple(
        replace(layer, name="sliding", caches=cache)
        if index < len(kinds) and kinds[index] == "sliding_attention"
        else layer
        for index, layer in enumerate(layers)
    )


def build_afmoe(context: Context) -> Blueprint:
    """Arcee's AFMoE (afmoe.py): a gate on attention, four norms per layer, dense layers first."""
    config = context.config
    size = Dimensions.of(config)
    width = config.integer("moe_intermediate_size")
    first = config.integer("num_dense_layers", default=0, least=0)

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        gate = context.linear(
            f"{path}.self_attn.gate_proj", size.hidden, size.heads * size.head_size, Shard.COLUMN
        )
        more = (
            context.norm("pre_mlp_layernorm", size.hidden),
            context.norm("post_mlp_layernorm", size.hidden),
        )
        if index < first:
            return (
                gate,
                *more,
                *context.gated_mlp(f"{path}.mlp", size.hidden, config.integer("intermediate_size")),
            )
        block = sparse_block(
            context,
            f"{path}.mlp",
            size.hidden,
            expert_count(config, "num_experts"),
            top_k=config.integer("num_experts_per_tok", most=MOST_EXPERTS),
            width=width,
            shared=shared_width(config, "num_shared_experts", width),
            gate_itemsize=FLOAT32,
            correction=True,
        )
        return (gate, *more, *block)

    inner = pair_of_head_norms(context, size.head_size)
    layers = plain_layers(context, config, size, mlp, inner=inner)
    return assemble(context, config, size, sliding_by_type(config, layers, size), tied=False)


def build_bailing_moe(context: Context) -> Blueprint:
    """Ling and Ring (bailing_moe.py): Bailing MoE 1 and 2."""
    config = context.config
    size = Dimensions.of(config)
    width = config.integer("moe_intermediate_size")
    first = config.integer("first_k_dense_replace", default=0, least=0)
    bias = config.flag("use_bias")
    router_bytes = {"fp32": FLOAT32, "bf16": 2}.get(config.text("router_dtype"), context.itemsize)
    shared = shared_width(
        config, "num_shared_experts", config.integer("moe_shared_expert_intermediate_size", default=width)
    )

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        attention = context.attention(
            f"{path}.attention",
            size.hidden,
            size.heads,
            size.kv_heads,
            size.head_size,
            bias=bias or config.flag("use_qkv_bias"),
            output_bias=bias,
            qkv="query_key_value",
            output="dense",
        )
        layer_norm = not config.flag("use_rmsnorm", default=True)
        inner = tuple(
            context.norm(f"{name}_layernorm", size.head_size, bias=layer_norm) for name in ("query", "key")
        )
        sparse = sparse_block(
            context,
            f"{path}.mlp",
            size.hidden,
            expert_count(config, "num_experts"),
            top_k=config.integer("num_experts_per_tok", most=MOST_EXPERTS),
            width=width,
            shared=shared,
            gate_itemsize=router_bytes,
            correction=config.flag("moe_router_enable_expert_bias"),
            bias=bias,
        )
        dense = context.gated_mlp(f"{path}.mlp", size.hidden, config.integer("intermediate_size"), bias=bias)
        return Layer(
            name="decoder",
            parts=parts_of(
                attention,
                inner if config.flag("use_qk_norm") else (),
                dense if index < first else sparse,
                pair_of_norms(context, size.hidden),
            ),
            caches=(attention_cache(size.kv_heads, size.head_size),),
        )

    layers = tuple(layer(index) for index in range(layer_count(config)))
    return assemble(context, config, size, layers)


def build_granite_moe(context: Context) -> Blueprint:
    """Granite MoE and its variant with a shared MLP (granitemoe.py, granitemoeshared.py)."""
    config = context.config
    size = Dimensions.of(config)
    shared = config.integer("shared_intermediate_size", default=0, least=0)
    width = config.integer("intermediate_size")

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        del index
        experts = sparse_block(
            context,
            f"{path}.block_sparse_moe",
            size.hidden,
            expert_count(config, "num_local_experts"),
            top_k=config.integer("num_experts_per_tok", most=MOST_EXPERTS),
            width=width,
        )
        if not shared:
            return experts
        block = f"{path}.shared_mlp"
        common = (
            context.linear(f"{block}.input_linear", size.hidden, (shared, shared), Shard.COLUMN),
            context.linear(f"{block}.output_linear", shared, size.hidden, Shard.ROW),
        )
        return (*common, *experts)

    layers = plain_layers(context, config, size, mlp)
    return assemble(context, config, size, layers, everywhere=True)


def build_dbrx(context: Context) -> Blueprint:
    """DBRX (dbrx.py): keys of its own in the config, LayerNorms."""
    config = context.config
    inner, ffn = config.view("attn_config"), config.view("ffn_config")
    hidden = config.integer("d_model")
    heads = config.integer("n_heads")
    size = Dimensions(
        hidden=hidden,
        heads=heads,
        kv_heads=inner.integer("kv_n_heads", default=heads),
        head_size=max(1, hidden // heads),
        vocabulary=config.integer("vocab_size"),
    )
    experts = expert_count(ffn, "moe_num_experts")
    width = ffn.integer("ffn_hidden_size")
    top_k = ffn.integer("moe_top_k", default=1, most=MOST_EXPERTS)

    def layer(index: int) -> Layer:
        path = f"transformer.blocks.{index}"
        attention = context.attention(
            f"{path}.norm_attn_norm.attn",
            hidden,
            heads,
            size.kv_heads,
            size.head_size,
            qkv="Wqkv",
            output="out_proj",
        )
        gate = router(context, f"{path}.ffn.router", hidden, experts)
        routed = context.experts(f"{path}.ffn.experts", experts, top_k, hidden, width)
        norms = pair_of_norms(context, hidden, bias=True)
        caches = (attention_cache(size.kv_heads, size.head_size),)
        return Layer(name="decoder", parts=parts_of(attention, gate, routed, norms), caches=caches)

    layers = tuple(layer(index) for index in range(layer_count(config, "n_layers")))
    return assemble(context, config, size, layers, tied=False, everywhere=True, norm_bias=True)


def build_step3p5(context: Context) -> Blueprint:
    """Step 3.5 (step3p5.py): sliding layers with heads of their own number, experts on the listed layers."""
    config = context.config
    head_size = config.integer("head_dim")
    heads = config.integer("num_attention_heads")
    size = Dimensions(
        hidden=config.integer("hidden_size"),
        heads=heads,
        kv_heads=config.integer("num_attention_groups"),
        head_size=head_size,
        vocabulary=config.integer("vocab_size"),
    )
    count = layer_count(config)
    listed = config.text("moe_layers_enum")
    numbers = [part.strip() for part in listed.split(",")] if listed else []
    if not all(number.isdecimal() for number in numbers):
        raise config.error("moe_layers_enum", "is not a list of layer numbers")
    sparse = {int(number) for number in numbers} if numbers else set(range(1, count))
    attention = _step_attention(context, config, size)

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        parts, sliding = attention(index, f"{path}.self_attn")
        window = config.optional_integer("sliding_window", least=1) if sliding else None
        block = (
            _step_experts(context, config, f"{path}.moe", size.hidden)
            if index in sparse
            else context.gated_mlp(f"{path}.mlp", size.hidden, config.integer("intermediate_size"))
        )
        return Layer(
            name="sliding" if window else "full",
            parts=parts_of(parts, block, pair_of_norms(context, size.hidden)),
            caches=(attention_cache(_step_groups(config, size, sliding=sliding), head_size, window=window),),
        )

    layers = tuple(layer(index) for index in range(count))
    return assemble(context, config, size, layers, tied=False)


def _step_groups(config: ConfigView, size: Dimensions, *, sliding: bool) -> int:
    other = config.view("attention_other_setting")
    return other.integer("num_attention_groups", default=size.kv_heads) if sliding else size.kv_heads


def _step_attention(
    context: Context, config: ConfigView, size: Dimensions
) -> Callable[[int, str], tuple[tuple[Part, ...], bool]]:
    kinds = config.items("layer_types")
    other = config.view("attention_other_setting")
    norms = pair_of_head_norms(context, size.head_size)

    def attention(index: int, path: str) -> tuple[tuple[Part, ...], bool]:
        sliding = kinds[index] == "sliding_attention" if index < len(kinds) else index % 2 == 0
        heads = other.integer("num_attention_heads", default=size.heads) if sliding else size.heads
        groups = _step_groups(config, size, sliding=sliding)
        gate = (
            (context.linear(f"{path}.g_proj", size.hidden, heads, Shard.COLUMN),)
            if config.flag("use_head_wise_attn_gate")
            else ()
        )
        return (*context.attention(path, size.hidden, heads, groups, size.head_size), *gate, *norms), sliding

    return attention


def _step_experts(context: Context, config: ConfigView, block: str, hidden: int) -> tuple[Part, ...]:
    return sparse_block(
        context,
        block,
        hidden,
        expert_count(config, "moe_num_experts"),
        top_k=config.integer("moe_top_k", default=8, most=MOST_EXPERTS),
        width=config.integer("moe_intermediate_size"),
        shared=config.integer("share_expert_dim", "share_expert_dims", default=0, least=0),
        shared_name="share_expert",
        gate_itemsize=FLOAT32,
        correction=True,
    )


BUILDERS: dict[str, Builder] = {
    "Glm4MoeForCausalLM": build_glm4_moe,
    "Ernie4_5_MoeForCausalLM": build_ernie45_moe,
    "ExaoneMoeForCausalLM": build_exaone_moe,
    "ExaoneMoEForCausalLM": build_exaone_moe,
    "AfmoeForCausalLM": build_afmoe,
    "BailingMoeForCausalLM": build_bailing_moe,
    "BailingMoeV2ForCausalLM": build_bailing_moe,
    "SarvamMoEForCausalLM": build_bailing_moe,
    "GraniteMoeForCausalLM": build_granite_moe,
    "GraniteMoeSharedForCausalLM": build_granite_moe,
    "DbrxForCausalLM": build_dbrx,
    "Step3p5ForCausalLM": build_step3p5,
}
