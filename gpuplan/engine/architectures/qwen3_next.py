"""Qwen3-Next, Qwen3.5 and Qwen3.6: gated delta nets with gated full attention every few layers, dense or MoE.

vLLM 0.32: vllm/model_executor/models/{qwen3_next,qwen3_next_mtp,qwen3_5,qwen3_5_mtp}.py.
"""

from collections.abc import Callable
from dataclasses import replace

from gpuplan.domain.model import (
    UNQUANTIZED,
    Cache,
    Embedding,
    Encoder,
    Layer,
    Part,
    Partition,
    Residence,
    ResidentPart,
    Shard,
)
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import (
    Blueprint,
    Builder,
    Context,
    attention_cache,
    final_norm,
    layer_count,
    parts_of,
)
from gpuplan.engine.architectures.moe import MOST_EXPERTS, expert_count, pair_of_norms, router
from gpuplan.engine.architectures.qwen_vision import qwen3_vision
from gpuplan.engine.architectures.rotary import text_rotary
from gpuplan.engine.architectures.state_space import MOST_KERNEL, DeltaNet, delta_net, state_itemsize

LINEAR, FULL = "linear_attention", "full_attention"
MOST_DRAFTS = 64

Mlp = Callable[[int, str], tuple[Part, ...]]


def build_qwen3_next(context: Context) -> Blueprint:
    """Qwen3-Next: embedding and head on every pipeline stage, neither quantized; drafts under `mtp`."""
    config = context.config
    hidden = config.integer("hidden_size")
    mlp = _mixed_mlp(context, config, hidden)
    layers = _layers(context, config, "model", mlp, interleaved=True, kv_heads=2)
    drafts = _drafts(
        context, config, mlp, config.integer("num_nextn_predict_layers", default=1, least=0, most=MOST_DRAFTS)
    )
    table = Embedding(
        name="embed_tokens",
        rows=config.integer("vocab_size"),
        width=hidden,
        itemsize=context.itemsize,
        scheme=UNQUANTIZED,
    )
    tables = (table,) if context.pooling else (table, replace(table, name="lm_head"))
    vocabulary = tuple(ResidentPart(part=part, residence=Residence.EVERY) for part in tables)
    return _blueprint(context, config, layers, drafts, vocabulary)


def build_qwen3_5(context: Context) -> Blueprint:
    """Qwen3.5 and 3.6: text alone, or with Qwen3-VL's tower; embedding on every stage."""
    whole = context.config
    wrapped = "text_config" in whole
    config = whole.view("text_config") if wrapped else whole
    hidden = config.integer("hidden_size")
    kind = config.text("model_type", default=context.architecture).lower()
    mlp = (_sparse_mlp if "moe" in kind else _dense_mlp)(context, config, hidden)
    prefix = "language_model.model" if wrapped else "model"
    layers = _layers(context, config, prefix, mlp, interleaved=False, kv_heads=2 if "moe" in kind else 4)
    drafts = _drafts(
        context, config, mlp, config.integer("mtp_num_hidden_layers", default=1, least=0, most=MOST_DRAFTS)
    )
    vocabulary = context.vocabulary_parts(
        config.integer("vocab_size"),
        hidden,
        tied=config.flag("tie_word_embeddings"),
        prefix=prefix,
        head="language_model.lm_head" if wrapped else "lm_head",
        everywhere=True,
        head_everywhere=False,
    )
    tower, encoders = _tower(context)
    return _blueprint(context, config, layers, drafts, (*vocabulary, *tower), encoders=encoders)


def _tower(context: Context) -> tuple[tuple[ResidentPart, ...], tuple[Encoder, ...]]:
    """The vision tower of the multimodal classes; nothing for the text-only ones."""
    if "ConditionalGeneration" not in context.architecture:
        return (), ()
    parts, encoder = qwen3_vision(context, context.config.view("vision_config"))
    return parts, (encoder,)


def _blueprint(
    context: Context,
    config: ConfigView,
    layers: tuple[Layer, ...],
    drafts: tuple[Layer, ...],
    outside: tuple[ResidentPart, ...],
    *,
    encoders: tuple[Encoder, ...] = (),
) -> Blueprint:
    hidden = config.integer("hidden_size")
    head_size = config.integer("head_dim", default=256)
    return Blueprint(
        layers=layers,
        parts=(
            *outside,
            final_norm(context, hidden),
            text_rotary(config, head_size, context.itemsize, positions=32768, share=0.25),
        ),
        hidden=hidden,
        vocabulary=config.integer("vocab_size"),
        attention_heads=config.integer("num_attention_heads"),
        kv_heads=config.integer("num_key_value_heads", default=2),
        head_size=head_size,
        drafts=drafts,
        encoders=encoders,
        text_view=config,
    )


def _layer_types(config: ConfigView) -> tuple[bool, ...]:
    """Whether each layer has full attention."""
    count = layer_count(config)
    if "layer_types" not in config:
        interval = config.integer("full_attention_interval", default=4)
        return tuple((index + 1) % interval == 0 for index in range(count))
    kinds = config.items("layer_types")
    if len(kinds) < count or any(kind not in (LINEAR, FULL) for kind in kinds[:count]):
        raise config.error("layer_types", f"does not name {LINEAR} or {FULL} for each of the {count} layers")
    return tuple(kind == FULL for kind in kinds[:count])


def _layers(
    context: Context, config: ConfigView, prefix: str, mlp: Mlp, *, interleaved: bool, kv_heads: int
) -> tuple[Layer, ...]:
    hidden = config.integer("hidden_size")
    size = DeltaNet(
        hidden=hidden,
        key_heads=config.integer("linear_num_key_heads", default=16),
        value_heads=config.integer("linear_num_value_heads", default=32),
        key_size=config.integer("linear_key_head_dim", default=128),
        value_size=config.integer("linear_value_head_dim", default=128),
        kernel=config.integer("linear_conv_kernel_dim", default=4, most=MOST_KERNEL),
        state_itemsize=context.itemsize
        if interleaved
        else state_itemsize(context, config, "mamba_ssm_dtype"),
        interleaved=interleaved,
    )
    outer = _outer(context, config, hidden)

    def layer(index: int, full: bool) -> Layer:
        path = f"{prefix}.layers.{index}"
        if full:
            parts, cache = _attention(context, config, f"{path}.self_attn", kv_heads)
        else:
            parts, cache = delta_net(context, f"{path}.linear_attn", size)
        return Layer(
            name="full" if full else "linear",
            parts=parts_of(parts, mlp(index, path), outer),
            caches=(cache,),
            intermediate=config.integer("intermediate_size", default=0, least=0),
        )

    return tuple(layer(index, full) for index, full in enumerate(_layer_types(config)))


def _outer(context: Context, config: ConfigView, hidden: int) -> tuple[Part, ...]:
    """Norms around the mixer and the MLP, with the scales some checkpoints have."""
    scales = (context.norm("layer scales", 2 * hidden),) if config.flag("layer_scale") else ()
    return (*pair_of_norms(context, hidden), *scales)


def _attention(
    context: Context, config: ConfigView, path: str, kv_heads: int
) -> tuple[tuple[Part, ...], Cache]:
    """Full attention whose query projection is twice as wide where the output is gated."""
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    keys = config.integer("num_key_value_heads", default=kv_heads)
    head_size = config.integer("head_dim", default=256)
    gated = 2 if config.flag("attn_output_gate", default=True) else 1
    cached = Partition(units=keys, unit_size=head_size, replicable=True)
    parts = (
        context.linear(
            f"{path}.qkv_proj",
            hidden,
            (Partition(units=heads, unit_size=gated * head_size), cached, cached),
            Shard.COLUMN,
            bias=config.flag("qkv_bias"),
            fused=("q_proj", "k_proj", "v_proj"),
        ),
        context.linear(f"{path}.o_proj", Partition(units=heads, unit_size=head_size), hidden, Shard.ROW),
        context.norm("q_norm, k_norm", 2 * head_size),
    )
    return parts, attention_cache(keys, head_size)


def _dense_mlp(context: Context, config: ConfigView, hidden: int) -> Mlp:
    wide = config.integer("intermediate_size")

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        del index
        return context.gated_mlp(f"{path}.mlp", hidden, wide)

    return mlp


def _sparse_mlp(context: Context, config: ConfigView, hidden: int) -> Mlp:
    """Routed experts and a shared one behind its own gate."""
    count = expert_count(config, "num_experts")
    top_k = config.integer("num_experts_per_tok", default=8, most=MOST_EXPERTS)
    width = config.integer("moe_intermediate_size", default=512)
    shared = config.integer("shared_expert_intermediate_size", default=512, least=0)

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        del index
        always = context.gated_mlp(f"{path}.mlp.shared_expert", hidden, shared) if shared else ()
        return (
            router(context, f"{path}.mlp.gate", hidden, count),
            router(context, f"{path}.mlp.shared_expert_gate", hidden, 1),
            *(replace(linear, token_parallel=True) for linear in always),
            context.experts(f"{path}.mlp.experts", count, top_k, hidden, width),
        )

    return mlp


def _mixed_mlp(context: Context, config: ConfigView, hidden: int) -> Mlp:
    """Qwen3-Next: dense where the config exempts a layer."""
    step = config.integer("decoder_sparse_step", default=1)
    exempt = {index for index in config.items("mlp_only_layers") if isinstance(index, int)}
    if expert_count(config, "num_experts", default=512) == 0:
        return _dense_mlp(context, config, hidden)
    sparse = _sparse_mlp(context, config, hidden)
    if not exempt and step == 1:
        return sparse
    dense = _dense_mlp(context, config, hidden)

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        return (dense if index in exempt or (index + 1) % step else sparse)(index, path)

    return mlp


def _drafts(context: Context, config: ConfigView, mlp: Mlp, count: int) -> tuple[Layer, ...]:
    """MTP layers: full attention; the first carries the projection that joins embedding and hidden state."""
    hidden = config.integer("hidden_size")

    def draft(index: int) -> Layer:
        path = f"mtp.layers.{index}"
        parts, cache = _attention(context, config, f"{path}.self_attn", 2)
        joined: tuple[Part, ...] = ()
        if index == 0:
            fc = context.linear(
                "mtp.fc", 2 * hidden, hidden, Shard.COLUMN, quantized=context.quantizer.name != "modelopt_fp4"
            )
            joined = (fc, context.norm("norm, pre_fc_norm_hidden, pre_fc_norm_embedding", 3 * hidden))
        layer_number = layer_count(config) + index
        return Layer(
            name="draft",
            parts=parts_of(parts, mlp(layer_number, path), _outer(context, config, hidden), joined),
            caches=(cache,),
            intermediate=config.integer("intermediate_size", default=0, least=0),
        )

    return tuple(draft(index) for index in range(count))


BUILDERS: dict[str, Builder] = {
    "Qwen3NextForCausalLM": build_qwen3_next,
    "Qwen3_5ForCausalLM": build_qwen3_5,
    "Qwen3_5MoeForCausalLM": build_qwen3_5,
    "Qwen3_5ForConditionalGeneration": build_qwen3_5,
    "Qwen3_5MoeForConditionalGeneration": build_qwen3_5,
}
