"""Pieces every mixture-of-experts family is put together from, and the families with nothing else to them.

vLLM 0.32: vllm/model_executor/models/{qwen3_moe,qwen2_moe,mixtral,phimoe,olmoe}.py.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gpuplan.domain.model import Cache, Layer, Part, Partition, Residence, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import (
    Blueprint,
    Builder,
    Context,
    attention_cache,
    layer_count,
    parts_of,
)
from gpuplan.engine.architectures.rotary import text_rotary

MOST_EXPERTS = 65536
FLOAT32 = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """What every decoder of this kind has."""

    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    positions: int = 0
    """Tokens of context, for the families whose rotary table is not the ordinary one."""

    @classmethod
    def of(cls, config: ConfigView) -> "Dimensions":
        hidden = config.integer("hidden_size")
        heads = config.integer("num_attention_heads")
        return cls(
            hidden=hidden,
            heads=heads,
            kv_heads=config.integer("num_key_value_heads", default=heads),
            head_size=config.integer("head_dim", default=max(1, hidden // heads)),
            vocabulary=config.integer("vocab_size"),
            positions=config.integer("max_position_embeddings", default=0, least=0),
        )


def router(
    context: Context,
    path: str,
    hidden: int,
    experts: int,
    *,
    itemsize: float | None = None,
    bias: bool = False,
    quantized: bool = False,
) -> Part:
    """The gate: whole on every rank, in the model's own type unless vLLM hands it the quantization config."""
    if quantized:
        return context.linear(path, hidden, experts, Shard.REPLICATED, bias=bias)
    units = hidden * experts + (experts if bias else 0)
    return Tensor(name="gate", partition=Partition(units=units), itemsize=itemsize or context.itemsize)


def vector(name: str, size: int, itemsize: float, *, sharded: bool = False) -> Tensor:
    """A parameter of one axis: a correction bias, sinks."""
    return Tensor(name=name, partition=Partition(units=size), itemsize=itemsize, sharded=sharded)


def pair_of_norms(context: Context, hidden: int, *, bias: bool = False) -> tuple[Tensor, Tensor]:
    """Norms before attention and before the MLP."""
    return (
        context.norm("input_layernorm", hidden, bias=bias),
        context.norm("post_attention_layernorm", hidden, bias=bias),
    )


def pair_of_head_norms(context: Context, head_size: int) -> tuple[Tensor, Tensor]:
    """Norms of query and key, over one head each."""
    return (context.norm("q_norm", head_size), context.norm("k_norm", head_size))


def shared_width(config: ConfigView, key: str, width: int, *, default: int = 0) -> int:
    """Width of all shared experts together: as many as `key` says, each `width` wide."""
    return config.integer(key, default=default, least=0, most=1024) * width


def expert_count(config: ConfigView, *keys: str, default: int | None = None) -> int:
    if default is None:
        return config.integer(*keys, most=MOST_EXPERTS)
    return config.integer(*keys, default=default, least=0, most=MOST_EXPERTS)


def per_layer_flags(config: ConfigView, key: str, layers: int) -> tuple[bool, ...]:
    """A list of one switch per layer; ModelError when it is too short."""
    values = config.items(key)
    if len(values) < layers or not all(isinstance(value, (int, bool)) for value in values[:layers]):
        raise config.error(key, f"does not hold one number for each of the {layers} layers")
    return tuple(bool(value) for value in values[:layers])


def assemble(
    context: Context,
    config: ConfigView,
    size: Dimensions,
    layers: tuple[Layer, ...],
    *,
    tied: bool | None = None,
    everywhere: bool = False,
    norm_everywhere: bool | None = None,
    norm_bias: bool = False,
    head_bias: bool = False,
    rotary: tuple[ResidentPart, ...] | None = None,
    prefix: str = "model",
    head: str = "lm_head",
    wrapped: bool = False,
) -> Blueprint:
    """The decoder around its layers. `everywhere`: embedding and head stand on every pipeline stage.

    `rotary` are the tables the layers read and whatever else stands outside them; None: the ordinary table.
    """
    tie = config.flag("tie_word_embeddings") if tied is None else tied
    last = (everywhere if norm_everywhere is None else norm_everywhere) and Residence.EVERY
    norm = ResidentPart(
        part=context.norm("norm", size.hidden, bias=norm_bias), residence=last or Residence.LAST
    )
    vocabulary = context.vocabulary_parts(
        size.vocabulary,
        size.hidden,
        tied=tie,
        prefix=prefix,
        head=head,
        everywhere=everywhere,
        head_bias=head_bias,
    )
    tables = (text_rotary(config, size.head_size, context.itemsize),) if rotary is None else rotary
    return Blueprint(
        layers=layers,
        parts=(*vocabulary, norm, *tables),
        hidden=size.hidden,
        vocabulary=size.vocabulary,
        attention_heads=size.heads,
        kv_heads=size.kv_heads,
        head_size=size.head_size,
        text_view=config if wrapped else None,
    )


Mlp = Callable[[int, str], tuple[Part, ...]]


def plain_layers(
    context: Context,
    config: ConfigView,
    size: Dimensions,
    mlp: Mlp,
    *,
    bias: bool = False,
    output_bias: bool = False,
    inner: tuple[Part, ...] = (),
    norm_bias: bool = False,
    window: int | None = None,
    intermediate: int = 0,
    prefix: str = "model",
) -> tuple[Layer, ...]:
    """Decoder layers of ordinary attention, two norms and what `mlp` gives for a layer's number and path."""
    cache: tuple[Cache, ...] = (attention_cache(size.kv_heads, size.head_size, window=window),)
    norms = pair_of_norms(context, size.hidden, bias=norm_bias)

    def layer(index: int) -> Layer:
        path = f"{prefix}.layers.{index}"
        attention = context.attention(
            f"{path}.self_attn",
            size.hidden,
            size.heads,
            size.kv_heads,
            size.head_size,
            bias=bias,
            output_bias=output_bias,
        )
        parts = parts_of(attention, inner, mlp(index, path), norms)
        return Layer(name="decoder", parts=parts, caches=cache, intermediate=intermediate)

    return tuple(layer(index) for index in range(layer_count(config)))


def build_qwen3_moe(context: Context) -> Blueprint:
    """Qwen3 MoE (qwen3_moe.py): embedding and head on every pipeline stage."""
    config = context.config
    size = Dimensions.of(config)
    head_norms = pair_of_head_norms(context, size.head_size)
    layers = plain_layers(
        context,
        config,
        size,
        qwen_mlp(context, config, size.hidden, router_quantized=True),
        bias=config.flag("attention_bias"),
        inner=head_norms,
        intermediate=config.integer("intermediate_size", default=0, least=0),
    )
    return assemble(context, config, size, layers, everywhere=True)


def build_qwen2_moe(context: Context) -> Blueprint:
    """Qwen2 MoE (qwen2_moe.py): a shared expert behind its own gate."""
    config = context.config
    size = Dimensions.of(config)
    layers = plain_layers(
        context,
        config,
        size,
        qwen_mlp(context, config, size.hidden, router_quantized=False),
        bias=config.flag("qkv_bias", default=True),
        intermediate=config.integer("intermediate_size", default=0, least=0),
    )
    return assemble(context, config, size, layers, everywhere=True)


def qwen_mlp(context: Context, config: ConfigView, hidden: int, *, router_quantized: bool) -> Mlp:
    """Experts with an optional shared one, or a dense MLP on the layers the config exempts."""
    experts = expert_count(config, "num_experts", default=0)
    step = config.integer("decoder_sparse_step", default=1)
    dense = set(config.items("mlp_only_layers"))
    shared = config.integer("shared_expert_intermediate_size", default=0, least=0)

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        if experts == 0 or index in dense or (index + 1) % step:
            return context.gated_mlp(f"{path}.mlp", hidden, config.integer("intermediate_size"))
        routed = context.experts(
            f"{path}.mlp.experts",
            experts,
            config.integer("num_experts_per_tok", most=MOST_EXPERTS),
            hidden,
            config.integer("moe_intermediate_size"),
        )
        gate = router(context, f"{path}.mlp.gate", hidden, experts, quantized=router_quantized)
        own_gate = router(context, f"{path}.mlp.shared_expert_gate", hidden, 1)
        if not shared:
            return (gate, routed) if router_quantized else (gate, own_gate, routed)
        return (gate, own_gate, *context.gated_mlp(f"{path}.mlp.shared_expert", hidden, shared), routed)

    return mlp


def build_mixtral(context: Context) -> Blueprint:
    """Mixtral (mixtral.py): embedding, head and norm on every pipeline stage."""
    return _mixtral(context, bias=False, output_bias=False, layer_norm=False, head_bias=False)


def build_phimoe(context: Context) -> Blueprint:
    """Phi-3.5-MoE and SlimMoE (phimoe.py): Mixtral with biases and LayerNorms; the head is never tied."""
    return _mixtral(context, bias=True, output_bias=True, layer_norm=True, head_bias=True)


def _mixtral(
    context: Context, *, bias: bool, output_bias: bool, layer_norm: bool, head_bias: bool
) -> Blueprint:
    config = context.config
    size = Dimensions.of(config)
    experts = expert_count(config, "num_local_experts", "num_experts")
    top_k = config.integer("num_experts_per_tok", default=2, most=MOST_EXPERTS)
    width = config.integer("intermediate_size")

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        del index
        gate = router(context, f"{path}.block_sparse_moe.gate", size.hidden, experts)
        return (gate, context.experts(f"{path}.block_sparse_moe.experts", experts, top_k, size.hidden, width))

    layers = plain_layers(
        context,
        config,
        size,
        mlp,
        bias=bias,
        output_bias=output_bias,
        norm_bias=layer_norm,
        window=config.optional_integer("sliding_window", least=1),
    )
    return assemble(
        context,
        config,
        size,
        layers,
        tied=False if head_bias else None,
        everywhere=True,
        norm_bias=layer_norm,
        head_bias=head_bias,
    )


def build_olmoe(context: Context) -> Blueprint:
    """OLMoE (olmoe.py): norms over all heads of query and key."""
    config = context.config
    size = Dimensions.of(config)
    experts = expert_count(config, "num_experts")

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        del index
        top_k = config.integer("num_experts_per_tok", default=8, most=MOST_EXPERTS)
        width = config.integer("intermediate_size")
        gate = router(context, f"{path}.mlp.gate", size.hidden, experts)
        return (gate, context.experts(f"{path}.mlp.experts", experts, top_k, size.hidden, width))

    inner = (
        context.norm("q_norm", size.heads * size.head_size),
        context.norm("k_norm", size.kv_heads * size.head_size),
    )
    layers = plain_layers(context, config, size, mlp, inner=inner)
    return assemble(context, config, size, layers, everywhere=True)


BUILDERS: dict[str, Builder] = {
    "Qwen3MoeForCausalLM": build_qwen3_moe,
    "Qwen2MoeForCausalLM": build_qwen2_moe,
    "MixtralForCausalLM": build_mixtral,
    "PhiMoEForCausalLM": build_phimoe,
    "OlmoeForCausalLM": build_olmoe,
}
