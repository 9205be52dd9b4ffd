"""Hybrid and recurrent families: Mamba, Jamba, Bamba, Granite 4, Falcon-H1.

vLLM 0.32 vllm/model_executor/models: mamba, mamba2, jamba, granitemoehybrid, falcon_h1;
Bamba: vLLM 0.22 models/bamba.py, the last with it.
"""

from collections.abc import Callable
from dataclasses import replace

from gpuplan.domain.model import Cache, Layer, Part, Residence, ResidentPart, Shard
from gpuplan.engine.architectures.config_view import ConfigView
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
    MOST_EXPERTS,
    expert_count,
    pair_of_norms,
    router,
)
from gpuplan.engine.architectures.rotary import text_rotary
from gpuplan.engine.architectures.state_space import (
    MOST_KERNEL,
    Mamba1,
    Mamba2,
    Mixer,
    mamba1,
    mamba2,
)

ATTENTION_NAMES = ("attention", "full_attention", "*")

MixerOf = Callable[[str], Mixer]
MlpOf = Callable[[int, str], tuple[Part, ...]]


def frame(
    context: Context,
    layers: tuple[Layer, ...],
    *,
    tied: bool,
    everywhere: bool = True,
    head_quantized: bool = True,
    norm: Residence = Residence.EVERY,
    outside: tuple[ResidentPart, ...] = (),
    prefix: str = "model",
) -> Blueprint:
    """The decoder around its layers; attention sizes are 0 where there is none."""
    config = context.config
    hidden = config.integer("hidden_size")
    vocabulary = config.integer("vocab_size")
    heads = config.integer("num_attention_heads", default=0, least=0)
    cached = [cache for layer in layers for cache in layer.caches if cache.heads]
    tables = context.vocabulary_parts(
        vocabulary,
        hidden,
        tied=tied,
        prefix=prefix,
        head="lm_head" if head_quantized else "",
        everywhere=everywhere,
    )
    return Blueprint(
        layers=layers,
        parts=(*tables, ResidentPart(part=context.norm("norm", hidden), residence=norm), *outside),
        hidden=hidden,
        vocabulary=vocabulary,
        attention_heads=heads if cached else 0,
        kv_heads=max((cache.heads for cache in cached), default=0),
        head_size=max((cache.head_size for cache in cached), default=0),
    )


def attention_mixer(
    context: Context, *, output: str = "o_proj", bias: bool = False, inner: tuple[Part, ...] = ()
) -> tuple[Callable[[str], Mixer], int]:
    """Ordinary attention at a path (parts and cache), and its head size."""
    config = context.config
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    kv_heads = config.integer("num_key_value_heads", default=heads)
    head_size = config.integer("head_dim", default=max(1, hidden // heads))

    def build(path: str) -> Mixer:
        linears = context.attention(
            path, hidden, heads, kv_heads, head_size, bias=bias, output_bias=bias, output=output
        )
        return parts_of(linears, inner), attention_cache(kv_heads, head_size)

    return build, head_size


def time_step_rank(config: ConfigView, key: str, hidden: int) -> int:
    """`auto` (and absence) is a sixteenth of the hidden size, rounded up."""
    return -(-hidden // 16) if config.raw(key) in (None, "auto") else config.integer(key)


def build_mamba(context: Context) -> Blueprint:
    """Mamba and FalconMamba (whose norms inside the mixer carry no weight)."""
    config = context.config
    hidden = config.integer("hidden_size")
    size = Mamba1(
        hidden=hidden,
        inner=config.integer("intermediate_size", default=_expanded(config, "expand")),
        state=config.integer("state_size", default=16),
        kernel=config.integer("conv_kernel", default=4, most=MOST_KERNEL),
        time_step=time_step_rank(config, "time_step_rank", hidden),
        state_itemsize=context.itemsize,
        bias=config.flag("use_bias"),
        conv_bias=config.flag("use_conv_bias", default=True),
    )
    return _recurrent(context, lambda path: mamba1(context, path, size), tied=True)


def build_mamba2(context: Context) -> Blueprint:
    """Mamba-2 (Codestral Mamba and converted checkpoints)."""
    config = context.config
    hidden = config.integer("hidden_size")
    size = Mamba2(
        hidden=hidden,
        inner=config.integer("intermediate_size", default=_expanded(config, "expand")),
        heads=config.integer("num_heads", default=128),
        head_size=config.integer("head_dim", default=64),
        groups=config.integer("n_groups", default=8),
        state=config.integer("state_size", default=128),
        kernel=config.integer("conv_kernel", default=4, most=MOST_KERNEL),
        state_itemsize=context.itemsize,
        bias=config.flag("use_bias"),
        conv_bias=config.flag("use_conv_bias", default=True),
    )
    built = _recurrent(context, lambda path: mamba2(context, path, size), tied=False)
    return replace(built, supports_pipeline=False)


def _recurrent(context: Context, mixer: MixerOf, *, tied: bool) -> Blueprint:
    """Nothing but recurrent mixers, each behind one norm."""
    config = context.config
    norm = context.norm("norm", config.integer("hidden_size"))

    def layer(index: int) -> Layer:
        parts, states = mixer(f"backbone.layers.{index}.mixer")
        return Layer(name="mamba", parts=(*parts, norm), caches=(states,))

    layers = tuple(layer(index) for index in range(layer_count(config)))
    tie = config.flag("tie_word_embeddings", default=tied)
    return frame(context, layers, tied=tie, head_quantized=False, prefix="backbone")


def _mamba_d(context: Context, *, inner: int, normed: bool = True) -> Mamba2:
    """Mamba-2 sizes as Bamba, Granite 4 and Falcon-H1 spell them."""
    config = context.config
    heads = config.integer("mamba_n_heads", default=128)
    automatic = config.raw("mamba_d_head") in (None, "auto")
    return Mamba2(
        hidden=config.integer("hidden_size"),
        inner=inner,
        heads=heads,
        head_size=max(1, inner // heads) if automatic else config.integer("mamba_d_head"),
        groups=config.integer("mamba_n_groups", default=1),
        state=config.integer("mamba_d_state", default=256),
        kernel=config.integer("mamba_d_conv", default=4, most=MOST_KERNEL),
        state_itemsize=context.itemsize,
        bias=config.flag("mamba_proj_bias"),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        normed=normed,
    )


def _expanded(config: ConfigView, key: str = "mamba_expand") -> int:
    """Inner width: a small multiple of the hidden size."""
    return config.integer(key, default=2, most=1024) * config.integer("hidden_size")


def attention_layers(config: ConfigView, count: int, *keys: str) -> frozenset[int]:
    """Numbers of the layers a list of layer types gives attention to; none when there is no list."""
    kinds = config.items(*keys)
    if kinds and len(kinds) < count:
        raise config.error(keys[0], f"holds {len(kinds)} entries for {count} layers")
    return frozenset(index for index in range(min(count, len(kinds))) if kinds[index] in ATTENTION_NAMES)


def build_jamba(context: Context) -> Blueprint:
    """Jamba: one attention layer in a period of Mamba layers, experts on every second layer; no rotary."""
    config = context.config
    hidden = config.integer("hidden_size")
    size = Mamba1(
        hidden=hidden,
        inner=_expanded(config),
        state=config.integer("mamba_d_state", default=16),
        kernel=config.integer("mamba_d_conv", default=4, most=MOST_KERNEL),
        time_step=time_step_rank(config, "mamba_dt_rank", hidden),
        state_itemsize=context.itemsize,
        bias=config.flag("mamba_proj_bias"),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        norms=True,
    )
    attention, _ = attention_mixer(context)
    count = layer_count(config)
    period = config.integer("attn_layer_period", default=8)
    offset = config.integer("attn_layer_offset", default=4, least=0)
    named = attention_layers(config, count, "layers_block_type")
    where = named if "layers_block_type" in config else {i for i in range(count) if i % period == offset}
    experts = expert_count(config, "num_experts", default=16)
    expert_period = config.integer("expert_layer_period", default=2)
    expert_offset = config.integer("expert_layer_offset", default=1, least=0)
    wide = config.integer("intermediate_size")
    norms = pair_of_norms(context, hidden)

    def feed_forward(index: int, path: str) -> tuple[Part, ...]:
        if experts <= 1 or index % expert_period != expert_offset:
            return context.gated_mlp(f"{path}.feed_forward", hidden, wide)
        top_k = config.integer("num_experts_per_tok", default=2, most=MOST_EXPERTS)
        return (
            router(context, f"{path}.feed_forward.router", hidden, experts),
            context.experts(f"{path}.feed_forward.experts", experts, top_k, hidden, wide),
        )

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        parts, cache = attention(path) if index in where else mamba1(context, f"{path}.mixer", size)
        return hybrid_layer(parts, (cache,), feed_forward(index, path), norms, wide)

    return frame(context, tuple(layer(i) for i in range(count)), tied=False, head_quantized=False)


def hybrid_layer(
    parts: tuple[Part, ...],
    caches: tuple[Cache, ...],
    mlp: tuple[Part, ...],
    norms: tuple[Part, ...],
    wide: int,
) -> Layer:
    """A decoder layer named after what it keeps: attention, recurrent states or both."""
    kind = "+".join(sorted({"attention" if cache.heads else "recurrent" for cache in caches}))
    return Layer(name=kind, parts=parts_of(parts, mlp, norms), caches=caches, intermediate=wide)


def build_bamba(context: Context) -> Blueprint:
    """Bamba: Mamba-2 with a few attention layers, an MLP on each."""
    config = context.config
    hidden = config.integer("hidden_size")
    wide = config.integer("intermediate_size")
    size = _mamba_d(context, inner=_expanded(config))
    attention, head_size = attention_mixer(context)
    norms = pair_of_norms(context, hidden)
    count = layer_count(config)
    listed = {index for index in config.items("attn_layer_indices") if isinstance(index, int)}
    where = listed or attention_layers(config, count, "layers_block_type", "layer_types")

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        parts, cache = attention(path) if index in where else mamba2(context, f"{path}.mixer", size)
        mlp = context.gated_mlp(f"{path}.feed_forward", hidden, wide)
        return hybrid_layer(parts, (cache,), mlp, norms, wide)

    table = rotary(context, config.integer("attn_rotary_emb", default=head_size), 262144)
    layers = tuple(layer(index) for index in range(count))
    return frame(context, layers, tied=config.flag("tie_word_embeddings"), outside=(table,))


def rotary(context: Context, width: int, positions: int) -> ResidentPart:
    """The rotary cache over all positions the config allows."""
    rows = context.config.integer("max_position_embeddings", default=positions, least=0)
    return rotary_buffer(rows, width, context.itemsize)


def build_granite_hybrid(context: Context) -> Blueprint:
    """Granite 4: Mamba-2 or attention layers, each with a shared MLP and, in MoE sizes, routed experts."""
    config = context.config
    hidden = config.integer("hidden_size")
    experts = expert_count(config, "num_local_experts", default=8)
    shared = config.integer("shared_intermediate_size", default=1024, least=0)
    size = _mamba_d(context, inner=_expanded(config))
    attention, head_size = attention_mixer(context, bias=config.flag("attention_bias"))
    norms = pair_of_norms(context, hidden)
    count = layer_count(config)
    where = attention_layers(config, count, "layer_types", "layers_block_type")

    def feed_forward(path: str) -> tuple[Part, ...]:
        parts: list[Part] = []
        if experts:
            block = f"{path}.block_sparse_moe"
            top_k = config.integer("num_experts_per_tok", default=2, most=MOST_EXPERTS)
            width = config.integer("intermediate_size")
            parts.append(router(context, f"{block}.gate", hidden, experts))
            parts.append(context.experts(f"{block}.experts", experts, top_k, hidden, width))
        if shared:
            both = f"{path}.shared_mlp"
            parts.append(context.linear(f"{both}.input_linear", hidden, (shared, shared), Shard.COLUMN))
            parts.append(context.linear(f"{both}.output_linear", shared, hidden, Shard.ROW))
        return tuple(parts)

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        full = index in where
        parts, cache = attention(f"{path}.self_attn") if full else mamba2(context, f"{path}.mixer", size)
        return hybrid_layer(parts, (cache,), feed_forward(path), norms, shared)

    outside = (
        (text_rotary(config, head_size, context.itemsize, positions=2048),)
        if config.text("position_embedding_type") == "rope"
        else ()
    )
    layers = tuple(layer(index) for index in range(count))
    return frame(context, layers, tied=config.flag("tie_word_embeddings"), outside=outside)


def build_falcon_h1(context: Context) -> Blueprint:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    config = context.config
    hidden = config.integer("hidden_size")
    wide = config.integer("intermediate_size")
    given = config.optional_integer("mamba_d_ssm", least=1)
    inner = given or (_expanded(config) if "mamba_d_ssm" in config.values else 1024)
    size = _mamba_d(context, inner=inner, normed=config.flag("mamba_rms_norm"))
    attention, head_size = attention_mixer(context)
    norms = pair_of_norms(context, hidden)
    count = layer_count(config)

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        parts, cache = attention(f"{path}.self_attn")
        recurrent, states = mamba2(context, f"{path}.mamba", size)
        mlp = context.gated_mlp(f"{path}.feed_forward", hidden, wide)
        return hybrid_layer((*parts, *recurrent), (cache, states), mlp, norms, wide)

    return frame(
        context,
        tuple(layer(index) for index in range(count)),
        tied=config.flag("tie_word_embeddings"),
        everywhere=False,
        head_quantized=False,
        norm=Residence.LAST,
        outside=(rotary(context, config.integer("attn_rotary_emb", default=head_size), 8192),),
    )


BUILDERS: dict[str, Builder] = {
    "MambaForCausalLM": build_mamba,
    "FalconMambaForCausalLM": build_mamba,
    "Mamba2ForCausalLM": build_mamba2,
    "JambaForCausalLM": build_jamba,
    "JambaForSequenceClassification": build_jamba,
    "BambaForCausalLM": build_bamba,
    "GraniteMoeHybridForCausalLM": build_granite_hybrid,
    "FalconH1ForCausalLM": build_falcon_h1,
}
