"""Kimi-VL, Kimi-K2.5 (a DeepSeek language model), Kimi-Linear and Kimi-K3 (delta and latent attention).

vLLM 0.32: vllm/model_executor/models/{kimi_vl,kimi_k25}.py, vllm/models/kimi_k3/nvidia/{model,mla,kda}.py,
vllm/model_executor/layers/mamba/gdn/kimi_gdn_linear_attn.py.
"""

from dataclasses import dataclass, replace

from gpuplan.domain.model import (
    Cache,
    CacheKind,
    Layer,
    Part,
    Partition,
    Residence,
    ResidentPart,
    Shard,
    StateShape,
    Tensor,
)
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import (
    Blueprint,
    Builder,
    Context,
    final_norm,
    layer_count,
    parts_of,
)
from gpuplan.engine.architectures.deepseek import ExpertShape, deepseek_blueprint, layer_norms
from gpuplan.engine.architectures.mla import (
    FLOAT32,
    LatentShape,
    latent_attention,
    latent_cache,
    latent_output,
    latent_shape,
)
from gpuplan.engine.architectures.moonvit import tower_parts
from gpuplan.engine.architectures.quantizer import NoQuantizer

LANGUAGE = "language_model.model"
LANGUAGE_HEAD = "language_model.lm_head"
GATE_ALIGNMENT = 16
LEAST_EXPERT_SHARE = 256
"""Routed experts of Kimi are padded to it when tensor parallelism cuts them thinner."""


def build_kimi_k25(context: Context) -> Blueprint:
    """Kimi-K2.5, K2.6, K2.7: MoonViT, a projector, and a DeepSeek-V3 language model."""
    text = context.config.view("text_config")
    tower, encoder = tower_parts(context, context.config.view("vision_config"), text.integer("hidden_size"))
    blueprint = deepseek_blueprint(context, text, prefix=LANGUAGE, head=LANGUAGE_HEAD, extra=tower)
    return replace(blueprint, encoders=(encoder,))


def build_kimi_vl(context: Context) -> Blueprint:
    """Kimi-VL: MoonViT and its projector, never quantized, and a DeepSeek-V3 language model."""
    text = context.config.view("text_config")
    plain = replace(context, quantizer=NoQuantizer())
    tower, encoder = tower_parts(plain, context.config.view("vision_config"), text.integer("hidden_size"))
    blueprint = deepseek_blueprint(context, text, prefix=LANGUAGE, head=LANGUAGE_HEAD, extra=tower)
    return replace(blueprint, encoders=(encoder,))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaShape:
    """Kimi delta attention (KDA)."""

    heads: int
    head: int
    window: int
    """Taps of the short convolution."""
    full_gate: bool
    """Kimi-K3's output gate of full rank; else one through a bottleneck."""
    layers: frozenset[int]
    """Decoder layers that have it, counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridShape:
    """What every layer of Kimi-Linear or Kimi-K3 is made from."""

    latent: LatentShape
    delta: DeltaShape
    gated: bool
    """Latent attention with an output gate."""
    intermediate: int
    experts: ExpertShape
    routed_hidden: int | None
    """Width the routed experts work in, None: the model's own."""
    routed_norm: bool
    residual_blocks: bool
    """Attention over the residuals of earlier blocks of layers."""
    least_share: int

    @property
    def hidden(self) -> int:
        return self.latent.hidden


def delta_shape(config: ConfigView) -> DeltaShape:
    """Delta attention as `linear_attn_config` states it; layers are counted from 1 there."""
    linear = config.view("linear_attn_config")
    layers = linear.items("kda_layers")
    if not all(isinstance(index, int) and not isinstance(index, bool) for index in layers):
        raise linear.error("kda_layers", "is not a list of layer numbers")
    if not layers:
        return DeltaShape(heads=1, head=1, window=1, full_gate=False, layers=frozenset())
    return DeltaShape(
        heads=linear.integer("num_heads"),
        head=linear.integer("head_dim"),
        window=linear.integer("short_conv_kernel_size", most=4096),
        full_gate=linear.flag("use_full_rank_gate"),
        layers=frozenset(index - 1 for index in layers),
    )


def hybrid_shape(config: ConfigView) -> HybridShape:
    """Widths of a Kimi-Linear or Kimi-K3 language model."""
    count = config.integer("num_experts", default=0, least=0)
    intermediate = config.integer("moe_intermediate_size") if count else 0
    return HybridShape(
        latent=latent_shape(config),
        delta=delta_shape(config),
        gated=config.flag("mla_use_output_gate"),
        intermediate=config.integer("intermediate_size"),
        experts=ExpertShape(
            count=count,
            top_k=config.integer("num_experts_per_token", "num_experts_per_tok", default=1),
            intermediate=intermediate,
            shared=config.integer("num_shared_experts", default=0, least=0) * intermediate,
            first_dense=config.integer("first_k_dense_replace", default=0, least=0),
            every=config.integer("moe_layer_freq", default=1),
            corrected=True,
        ),
        routed_hidden=config.optional_integer("routed_expert_hidden_size", least=1),
        routed_norm=config.flag("latent_moe_use_norm"),
        residual_blocks="attn_res_block_size" in config,
        least_share=config.integer("min_moe_intermediate_per_partition", default=LEAST_EXPERT_SHARE, least=0),
    )


def delta_attention(context: Context, path: str, hidden: int, shape: DeltaShape) -> tuple[Part, ...]:
    """One stacked input projection whose gate bottleneck stands whole on every rank, states by heads."""
    heads = Partition(units=shape.heads, unit_size=shape.head)
    bottleneck = Partition(units=1, unit_size=shape.head, replicable=True)
    beta = Partition(units=shape.heads)
    outputs = (
        (heads, heads, heads, heads, bottleneck, beta)
        if shape.full_gate
        else (heads, heads, heads, beta, bottleneck)
    )
    projection = context.linear(
        f"{path}.in_proj_qkvgfab",
        hidden,
        outputs,
        Shard.COLUMN,
        fused=("q_proj", "k_proj", "v_proj", "b_proj", "f_a_proj"),
    )
    gate: tuple[Part, ...] = ()
    if shape.full_gate:
        projection = replace(projection, alignment=GATE_ALIGNMENT)
    else:
        gate = (
            context.linear(f"{path}.g_a_proj", hidden, shape.head, Shard.REPLICATED),
            context.linear(f"{path}.g_b_proj", shape.head, heads, Shard.COLUMN),
        )
    return (
        projection,
        context.linear(f"{path}.f_b_proj", shape.head, heads, Shard.COLUMN),
        _by_heads("dt_bias", shape, shape.head),
        _by_heads("conv1d", shape, 3 * shape.head * shape.window),
        _by_heads("A_log", shape, 1),
        *gate,
        context.norm("o_norm", shape.head),
        context.linear(f"{path}.o_proj", heads, hidden, Shard.ROW),
    )


def _by_heads(name: str, shape: DeltaShape, size: int) -> Tensor:
    return Tensor(
        name=name, partition=Partition(units=shape.heads, unit_size=size), itemsize=FLOAT32, sharded=True
    )


def delta_cache(context: Context, shape: DeltaShape) -> Cache:
    """The convolution's last inputs and the float32 state matrix of every head."""
    return Cache(
        kind=CacheKind.STATE,
        states=(
            StateShape(
                shape=(max(0, shape.window - 1), 3 * shape.heads * shape.head),
                sharded_axis=1,
                itemsize=context.itemsize,
                dtype_setting="conv",
            ),
            StateShape(
                shape=(shape.heads, shape.head, shape.head),
                sharded_axis=0,
                itemsize=FLOAT32,
                dtype_setting="ssm",
            ),
        ),
        state_type="kda",
    )


def gated_latent_attention(
    context: Context, path: str, shape: LatentShape, *, gated: bool
) -> tuple[Part, ...]:
    """Latent attention, with an output gate: stacked on the input projection after a query bottleneck."""
    if not gated:
        return latent_attention(context, path, shape)
    gate = Partition(units=shape.heads, unit_size=shape.value)
    if shape.query_rank is None:
        return (
            *latent_attention(context, path, shape),
            context.linear(f"{path}.g_proj", shape.hidden, gate, Shard.COLUMN),
        )
    return (
        context.linear(
            f"{path}.fused_qkv_a_g_proj",
            shape.hidden,
            (
                Partition(units=1, unit_size=shape.query_rank, replicable=True),
                Partition(units=1, unit_size=shape.rank + shape.rope, replicable=True),
                gate,
            ),
            Shard.COLUMN,
            fused=("q_a_proj", "kv_a_proj_with_mqa", "g_proj"),
        ),
        context.norm("q_a_layernorm", shape.query_rank),
        context.linear(
            f"{path}.q_b_proj",
            shape.query_rank,
            Partition(units=shape.heads, unit_size=shape.head),
            Shard.COLUMN,
        ),
        *latent_output(context, path, shape),
    )


def routed_parts(context: Context, path: str, shape: HybridShape) -> tuple[Part, ...]:
    """Router, shared experts, and routed experts that may work in a narrower space of their own."""
    hidden, experts = shape.hidden, shape.experts
    inner = shape.routed_hidden or hidden
    narrow: tuple[Part, ...] = ()
    if shape.routed_hidden is not None:
        narrow = parts_of(
            context.linear(f"{path}.routed_expert_down_proj", hidden, inner, Shard.REPLICATED),
            (context.norm("routed_expert_norm", inner),) if shape.routed_norm else (),
            context.linear(f"{path}.routed_expert_up_proj", inner, hidden, Shard.REPLICATED),
        )
    routed = context.experts(f"{path}.experts", experts.count, experts.top_k, inner, experts.intermediate)
    shared = context.gated_mlp(f"{path}.shared_experts", hidden, experts.shared) if experts.shared else ()
    return parts_of(
        context.linear(f"{path}.gate", hidden, experts.count, Shard.REPLICATED, quantized=False),
        Tensor(name="e_score_correction_bias", partition=Partition(units=experts.count), itemsize=FLOAT32),
        tuple(replace(part, token_parallel=True) for part in shared),
        narrow,
        replace(routed, least_share=shape.least_share),
    )


def hybrid_layer(context: Context, prefix: str, index: int, shape: HybridShape) -> Layer:
    """Decoder layer `index`: delta attention keeps a state, latent attention a latent per token."""
    path, hidden = f"{prefix}.layers.{index}", shape.hidden
    attention: tuple[Part, ...]
    if index in shape.delta.layers:
        attention = delta_attention(context, f"{path}.self_attn", hidden, shape.delta)
        cache = delta_cache(context, shape.delta)
    else:
        attention = gated_latent_attention(context, f"{path}.self_attn", shape.latent, gated=shape.gated)
        cache = latent_cache(shape.latent)
    routed = shape.experts.stands_on(index)
    mlp: tuple[Part, ...] = (
        routed_parts(context, f"{path}.block_sparse_moe", shape)
        if routed
        else context.gated_mlp(f"{path}.mlp", hidden, shape.intermediate)
    )
    residual = (context.norm("residual attention", 4 * hidden),) if shape.residual_blocks else ()
    return Layer(
        name="delta" if index in shape.delta.layers else "latent",
        parts=parts_of(attention, mlp, layer_norms(context, hidden), residual),
        caches=(cache,),
        intermediate=shape.experts.shared if routed else shape.intermediate,
    )


def hybrid_blueprint(context: Context, config: ConfigView, prefix: str, head: str) -> Blueprint:
    """Kimi-Linear's language model read from `config`; attention has no rotary positions."""
    shape = hybrid_shape(config)
    hidden, vocabulary = shape.hidden, config.integer("vocab_size")
    residual = (
        (ResidentPart(part=context.norm("output residual attention", 2 * hidden), residence=Residence.LAST),)
        if shape.residual_blocks
        else ()
    )
    return Blueprint(
        layers=tuple(hybrid_layer(context, prefix, index, shape) for index in range(layer_count(config))),
        parts=(
            *context.vocabulary_parts(vocabulary, hidden, tied=False, prefix=prefix, head=head),
            final_norm(context, hidden),
            *residual,
        ),
        hidden=hidden,
        vocabulary=vocabulary,
        attention_heads=shape.latent.heads,
        kv_heads=1,
        head_size=shape.latent.rank + shape.latent.rope,
        text_view=config,
    )


def build_kimi_linear(context: Context) -> Blueprint:
    """Kimi-Linear: text alone."""
    return hybrid_blueprint(context, context.config, "model", "lm_head")


def build_kimi_k3(context: Context) -> Blueprint:
    """Kimi-K3: MoonViT before the hybrid language model."""
    text = context.config.view("text_config")
    tower, encoder = tower_parts(context, context.config.view("vision_config"), text.integer("hidden_size"))
    blueprint = hybrid_blueprint(context, text, LANGUAGE, LANGUAGE_HEAD)
    return replace(blueprint, parts=(*blueprint.parts, *tower), encoders=(encoder,))


BUILDERS: dict[str, Builder] = {
    "KimiK25ForConditionalGeneration": build_kimi_k25,
    "KimiK3ForConditionalGeneration": build_kimi_k3,
    "KimiLinearForCausalLM": build_kimi_linear,
    "KimiVLForConditionalGeneration": build_kimi_vl,
}
