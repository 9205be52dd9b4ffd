"""NVIDIA Nemotron: Nemotron-H and 3 (Mamba-2, attention, MLP, MoE layers in a written order), Nemotron-NAS.

vLLM 0.32: vllm/model_executor/models/{nemotron_h,nemotron_h_mtp,nemotron_nas}.py.
"""

from collections.abc import Mapping
from dataclasses import replace

from gpuplan.domain.model import Cache, Layer, Part, Residence, ResidentPart, Shard
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import (
    MOST_LAYERS,
    Blueprint,
    Builder,
    Context,
    attention_cache,
    final_norm,
    layer_count,
    parts_of,
)
from gpuplan.engine.architectures.moe import (
    FLOAT32,
    MOST_EXPERTS,
    expert_count,
    router,
    vector,
)
from gpuplan.engine.architectures.rotary import text_rotary
from gpuplan.engine.architectures.state_space import MOST_KERNEL, Mamba2, mamba2, state_itemsize

MAMBA, MLP, ATTENTION, EXPERTS = "M", "-", "*", "E"
KINDS = {
    "mamba": MAMBA,
    "linear_attention": MAMBA,
    "attention": ATTENTION,
    "full_attention": ATTENTION,
    "mlp": MLP,
    "moe": EXPERTS,
    "sparse": EXPERTS,
}

Mixed = tuple[tuple[Part, ...], tuple[Cache, ...], int]
"""Parts, caches and MLP width of one layer's mixer."""


def build_nemotron_h(context: Context) -> Blueprint:
    """Nemotron-H: each layer is one mixer behind one norm; embedding, head, norm on every pipeline stage."""
    config = context.config
    hidden = config.integer("hidden_size")
    pattern = _pattern(config, "hybrid_override_pattern", "layers_block_type", "layer_types")
    heads = config.integer("num_attention_heads")
    layers = tuple(
        _layer(context, _of_layer(config, pattern, index), kind, f"model.layers.{index}")
        for index, kind in enumerate(pattern)
    )
    vocabulary = context.vocabulary_parts(config.integer("vocab_size"), hidden, tied=False, everywhere=True)
    norm = ResidentPart(part=context.norm("norm_f", hidden), residence=Residence.EVERY)
    return Blueprint(
        layers=layers,
        parts=(*vocabulary, norm),
        hidden=hidden,
        vocabulary=config.integer("vocab_size"),
        attention_heads=heads,
        kv_heads=config.integer("num_key_value_heads", default=8),
        head_size=_head_size(config),
        drafts=_drafts(context),
    )


def _head_size(config: ConfigView) -> int:
    return config.integer("head_dim", "attention_head_dim", default=128)


def _pattern(config: ConfigView, letters: str, *names: str) -> str:
    """One letter per layer: from the pattern, from a list of names, or from the blocks of a pruned model."""
    if letters in config:
        pattern = config.text(letters).replace("|", "")
        if not 0 < len(pattern) <= MOST_LAYERS or set(pattern) - set(KINDS.values()):
            raise config.error(letters, f"is not made of {MAMBA}, {ATTENTION}, {MLP} and {EXPERTS}")
        return pattern
    listed = config.items(*names) if names else ()
    if not listed:
        blocks = config.items("block_configs")
        listed = tuple(block.get("block_type") if isinstance(block, Mapping) else None for block in blocks)
    if not 0 < len(listed) <= MOST_LAYERS or any(
        not isinstance(kind, str) or kind not in KINDS for kind in listed
    ):
        raise config.error(letters, "is missing, and no list of layer types stands in for it")
    return "".join(KINDS[kind] for kind in listed)


def _of_layer(config: ConfigView, pattern: str, index: int) -> ConfigView:
    """The config with what a pruned model says about this layer, and its width where widths are listed."""
    values = dict(config.values)
    blocks = config.items("block_configs")
    if index < len(blocks) and isinstance(blocks[index], Mapping):
        values.update({key: value for key, value in blocks[index].items() if value is not None})
    widths = values.get("intermediate_size")
    if isinstance(widths, (list, tuple)) and widths:
        place = pattern[: index + 1].count(MLP) - 1
        values["intermediate_size"] = widths[min(max(place, 0), len(widths) - 1)]
    return ConfigView(values, config.place) if values != config.values else config


def _layer(context: Context, config: ConfigView, kind: str, path: str) -> Layer:
    parts, caches, width = _mixer(context, config, kind, f"{path}.mixer")
    return Layer(
        name={MAMBA: "mamba", ATTENTION: "attention", MLP: "mlp", EXPERTS: "moe"}[kind],
        parts=(*parts, context.norm("norm", config.integer("hidden_size"))),
        caches=caches,
        intermediate=width,
    )


def _mixer(context: Context, config: ConfigView, kind: str, path: str) -> Mixed:
    hidden = config.integer("hidden_size")
    match kind:
        case "M":
            mamba, states = mamba2(context, path, _mamba_size(context, config))
            return mamba, (states,), 0
        case "*":
            heads = config.integer("num_attention_heads")
            kv_heads = config.integer("num_key_value_heads", default=8)
            attention = context.attention(path, hidden, heads, kv_heads, _head_size(config))
            window = config.optional_integer("sliding_window", least=1)
            return attention, (attention_cache(kv_heads, _head_size(config), window=window),), 0
        case "-":
            width = config.integer("intermediate_size")
            return _mlp(context, path, hidden, width, bias=config.flag("mlp_bias")), (), width
        case _:
            return _experts(context, config, path), (), 0


def _mamba_size(context: Context, config: ConfigView) -> Mamba2:
    heads = config.integer("mamba_num_heads", default=128)
    head_size = config.integer("mamba_head_dim", default=64)
    return Mamba2(
        hidden=config.integer("hidden_size"),
        inner=heads * head_size,
        heads=heads,
        head_size=head_size,
        groups=config.integer("n_groups", "mamba_n_groups", default=8),
        state=config.integer("ssm_state_size", default=128),
        kernel=config.integer("conv_kernel", "mamba_d_conv", default=4, most=MOST_KERNEL),
        state_itemsize=state_itemsize(context, config, "mamba_ssm_cache_dtype", default="float32"),
        bias=config.flag("use_bias"),
        conv_bias=config.flag("use_conv_bias", "mamba_conv_bias", default=True),
    )


def _mlp(context: Context, path: str, hidden: int, width: int, *, bias: bool = False) -> tuple[Part, ...]:
    """Up and down projection without a gate."""
    return (
        context.linear(f"{path}.up_proj", hidden, width, Shard.COLUMN, bias=bias),
        context.linear(f"{path}.down_proj", width, hidden, Shard.ROW, bias=bias),
    )


def _experts(context: Context, config: ConfigView, path: str) -> tuple[Part, ...]:
    """Routed experts, in a narrower space where the model has one (latent MoE), beside shared ones."""
    hidden = config.integer("hidden_size")
    count = expert_count(config, "n_routed_experts", "num_local_experts", default=8)
    top_k = config.integer("num_experts_per_tok", default=2, most=MOST_EXPERTS)
    width = config.integer("moe_intermediate_size", default=7688)
    latent = config.optional_integer("moe_latent_size", least=1)
    bias = config.flag("mlp_bias")
    parts: list[Part] = [
        router(context, f"{path}.gate", hidden, count),
        vector("e_score_correction_bias", count, FLOAT32),
    ]
    shared = config.integer("n_shared_experts", default=1, least=0, most=MOST_EXPERTS)
    if shared:
        common = shared * config.integer("moe_shared_expert_intermediate_size", default=7688)
        linears = (
            context.linear(f"{path}.shared_experts.up_proj", hidden, common, Shard.COLUMN),
            context.linear(f"{path}.shared_experts.down_proj", common, hidden, Shard.ROW),
        )
        parts += [replace(linear, token_parallel=True) for linear in linears]
    if latent:
        parts.append(context.linear(f"{path}.fc1_latent_proj", hidden, latent, Shard.REPLICATED, bias=bias))
        parts.append(context.linear(f"{path}.fc2_latent_proj", latent, hidden, Shard.REPLICATED, bias=bias))
    parts.append(context.experts(f"{path}.experts", count, top_k, latent or hidden, width, gated=False))
    return tuple(parts)


def _drafts(context: Context) -> tuple[Layer, ...]:
    """The MTP step: its few layers as one, with the projection that joins embedding and hidden state."""
    config = context.config
    if config.integer("num_nextn_predict_layers", default=0, least=0) == 0:
        return ()
    if "mtp_hybrid_override_pattern" not in config and "mtp_layers_block_type" not in config:
        return ()
    hidden = config.integer("hidden_size")
    pattern = _pattern(config, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    layers = [_layer(context, config, kind, f"mtp.layers.{index}") for index, kind in enumerate(pattern)]
    joined = context.linear("mtp.layers.0.eh_proj", 2 * hidden, hidden, Shard.COLUMN)
    norms = context.norm("enorm, hnorm, final_layernorm", 3 * hidden)
    step = Layer(
        name="draft",
        parts=(*(part for layer in layers for part in layer.parts), joined, norms),
        caches=tuple(cache for layer in layers for cache in layer.caches),
        intermediate=max(layer.intermediate for layer in layers),
    )
    return (step,)


def build_nemotron_nas(context: Context) -> Blueprint:
    """DeciLM: Llama whose layers differ, some without attention or MLP."""
    config = context.config
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    head_size = config.integer("head_dim", default=max(1, hidden // heads))
    count = layer_count(config)
    blocks = config.items("block_configs")
    if len(blocks) < count or not all(isinstance(block, Mapping) for block in blocks[:count]):
        raise config.error("block_configs", f"does not describe each of the {count} layers")
    views = [
        ConfigView(block, f"{config.place}: block_configs[{index}]")
        for index, block in enumerate(blocks[:count])
    ]
    layers = tuple(
        _nas_layer(context, view, f"model.layers.{index}", heads, head_size)
        for index, view in enumerate(views)
    )
    kv_heads = max((cache.heads for layer in layers for cache in layer.caches), default=0)
    return Blueprint(
        layers=layers,
        parts=(
            *context.vocabulary_parts(
                config.integer("vocab_size"), hidden, tied=config.flag("tie_word_embeddings")
            ),
            final_norm(context, hidden),
            text_rotary(config, head_size, context.itemsize, positions=8192),
        ),
        hidden=hidden,
        vocabulary=config.integer("vocab_size"),
        attention_heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
    )


def _nas_layer(context: Context, block: ConfigView, path: str, heads: int, head_size: int) -> Layer:
    config = context.config
    hidden = config.integer("hidden_size")
    attention, ffn = block.view("attention"), block.view("ffn")
    parts: tuple[Part, ...] = ()
    caches: tuple[Cache, ...] = ()
    width = 0
    if not attention.flag("no_op"):
        kv_heads = max(1, heads // attention.integer("n_heads_in_group", most=heads))
        bias = config.flag("attention_bias", "bias")
        linears = context.attention(
            f"{path}.self_attn",
            hidden,
            heads,
            kv_heads,
            head_size,
            bias=config.flag("qkv_bias", default=bias),
            output_bias=bias,
        )
        parts = parts_of(linears, context.norm("input_layernorm", hidden))
        caches = (attention_cache(kv_heads, head_size),)
    if not ffn.flag("no_op"):
        width = _nas_width(ffn, hidden)
        mlp = context.gated_mlp(f"{path}.mlp", hidden, width, bias=config.flag("mlp_bias"))
        parts = parts_of(parts, mlp, context.norm("post_attention_layernorm", hidden))
    return Layer(name="decoder", parts=parts, caches=caches, intermediate=width)


def _nas_width(ffn: ConfigView, hidden: int) -> int:
    """Width of a block's MLP: written, or two thirds of a multiple of the hidden size, rounded up to 256."""
    if "ffn_mult" not in ffn:
        return ffn.integer("intermediate_size")
    multiple = ffn.number("ffn_mult", default=0)
    if not 0 < multiple < 1024:
        raise ffn.error("ffn_mult", "must lie between 0 and 1024")
    return max(1, -(-int(2 * multiple * hidden / 3) // 256)) * 256


BUILDERS: dict[str, Builder] = {
    "NemotronHForCausalLM": build_nemotron_h,
    "NemotronHPuzzleForCausalLM": build_nemotron_h,
    "DeciLMForCausalLM": build_nemotron_nas,
}
