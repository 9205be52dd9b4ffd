"""Llama 4: chunked attention on all but every fourth layer, one shared expert, an optional vision tower.

vLLM 0.32: vllm/model_executor/models/{llama4,mllama4}.py.
"""

from dataclasses import replace

from gpuplan.domain.model import (
    Cache,
    CacheKind,
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
    layer_count,
    parts_of,
    rotary_buffer,
)
from gpuplan.engine.architectures.moe import (
    MOST_EXPERTS,
    Dimensions,
    assemble,
    expert_count,
    pair_of_norms,
    router,
    vector,
)
from gpuplan.engine.architectures.rotary import text_rotary

ROPE_PERIOD = 4
"""Every fourth layer has neither rotation nor chunks (transformers' default for `no_rope_layers`)."""
MOST_TILES = 16
"""An image becomes at most 16 tiles and one overview."""


def build_llama4(context: Context) -> Blueprint:
    """Llama 4, text only or with its vision tower."""
    config = context.config
    if "text_config" not in config:
        return _text(context, config, "model", "lm_head", ())
    text = config.view("text_config")
    if "vision_config" not in config:
        return _text(context, text, "language_model.model", "language_model.lm_head", ())
    tower, encoder = _vision(context, config.view("vision_config"), text.integer("hidden_size"))
    blueprint = _text(context, text, "language_model.model", "language_model.lm_head", tower)
    return replace(blueprint, encoders=(encoder,))


def _text(
    context: Context, config: ConfigView, prefix: str, head: str, tower: tuple[ResidentPart, ...]
) -> Blueprint:
    size = Dimensions.of(config)
    count = layer_count(config)
    chunk = (
        config.optional_integer("attention_chunk_size", least=0) if "attention_chunk_size" in config else 8192
    )
    listed = config.items("no_rope_layers")
    if listed and len(listed) < count:
        raise config.error("no_rope_layers", f"holds {len(listed)} entries for {count} layers")
    interval = config.integer("no_rope_layer_interval", default=ROPE_PERIOD)
    step = config.integer("interleave_moe_layer_step", default=1, least=0)
    width = config.integer("intermediate_size")
    wide = config.integer("intermediate_size_mlp", default=width)
    norms = pair_of_norms(context, size.hidden)

    def layer(index: int) -> Layer:
        path = f"{prefix}.layers.{index}"
        rotated = bool(listed[index]) if listed else (index + 1) % interval != 0
        sparse = step > 0 and (index + 1) % step == 0
        chunked = Cache(kind=CacheKind.CHUNKED, heads=size.kv_heads, head_size=size.head_size, window=chunk)
        full = attention_cache(size.kv_heads, size.head_size)
        block = f"{path}.feed_forward"
        mlp = (
            _experts(context, config, block, size.hidden, width)
            if sparse
            else context.gated_mlp(block, size.hidden, wide)
        )
        attention = context.attention(
            f"{path}.self_attn", size.hidden, size.heads, size.kv_heads, size.head_size
        )
        return Layer(
            name="chunked" if rotated and chunk else "full",
            parts=parts_of(attention, mlp, norms),
            caches=(chunked if rotated and chunk else full,),
            intermediate=0 if sparse else wide,
        )

    rotary = text_rotary(config, size.head_size, context.itemsize)
    layers = tuple(layer(index) for index in range(count))
    return assemble(
        context, config, size, layers, rotary=(rotary, *tower), prefix=prefix, head=head, wrapped=True
    )


def _experts(context: Context, config: ConfigView, block: str, hidden: int, width: int) -> tuple[Part, ...]:
    experts = expert_count(config, "num_local_experts", default=16)
    top_k = config.integer("num_experts_per_tok", default=1, most=MOST_EXPERTS)
    return (
        router(context, f"{block}.router", hidden, experts),
        *context.gated_mlp(f"{block}.shared_expert", hidden, width),
        context.experts(f"{block}.experts", experts, top_k, hidden, width),
    )


def _vision(
    context: Context, vision: ConfigView, text_hidden: int
) -> tuple[tuple[ResidentPart, ...], Encoder]:
    """The tower (never quantized) and its projector, on every stage."""
    hidden = vision.integer("hidden_size")
    heads = vision.integer("num_attention_heads")
    count = layer_count(vision)
    wide = vision.integer("intermediate_size")
    patch = vision.integer("patch_size", default=14, most=4096)
    side = vision.integer("image_size", default=336, most=1 << 16) // patch
    channels = vision.integer("num_channels", default=3, most=64)
    ratio = vision.number("pixel_shuffle_ratio", default=0.5)
    projected = vision.integer("projector_output_dim", default=4096)
    inputs = vision.integer("projector_input_dim", default=4096)
    bias = vision.flag("multi_modal_projector_bias")
    patches = side * side + 1
    parts = (
        _linear(context, "patch_embedding", channels * patch * patch, hidden, Shard.COLUMN),
        vector("class_embedding", hidden, context.itemsize),
        vector("positional_embedding", patches * hidden, context.itemsize),
        context.norm("layernorm_pre", hidden, bias=True),
        context.norm("layernorm_post", hidden, bias=True),
        *(_layer(context, hidden, heads, wide) * count),
        _linear(context, "vision_adapter.fc1", wide, inputs, Shard.COLUMN, bias=bias),
        _linear(context, "vision_adapter.fc2", inputs, projected, Shard.ROW, bias=bias),
        _linear(
            context,
            "multi_modal_projector",
            vision.integer("vision_output_dim", default=projected),
            text_hidden,
            Shard.COLUMN,
        ),
    )
    table = rotary_buffer(patches, hidden // heads // 2, 8)
    tokens = max(1, int(side * side * ratio * ratio)) if 0 < ratio <= 1 else side * side
    encoder = Encoder(
        kind="vision",
        heads=heads,
        hidden=hidden,
        layers=count,
        intermediate=wide,
        tokens_per_item=tokens * (MOST_TILES + 1),
        patches_per_item=patches * (MOST_TILES + 1),
    )
    resident = tuple(ResidentPart(part=part, residence=Residence.EVERY, tower="vision") for part in parts)
    return (*resident, replace(table, tower="vision")), encoder


def _linear(
    context: Context, name: str, inputs: int | Partition, outputs: int, shard: Shard, *, bias: bool = False
) -> Part:
    return context.linear(f"vision_model.{name}", inputs, outputs, shard, bias=bias, quantized=False)


def _layer(context: Context, hidden: int, heads: int, wide: int) -> tuple[Part, ...]:
    size = max(1, hidden // heads)
    one = Partition(units=heads, unit_size=size)
    return (
        context.linear(
            "vision_model.qkv_proj", hidden, (one, one, one), Shard.COLUMN, bias=True, quantized=False
        ),
        _linear(context, "o_proj", one, hidden, Shard.ROW, bias=True),
        _linear(context, "fc1", hidden, wide, Shard.COLUMN, bias=True),
        _linear(context, "fc2", wide, hidden, Shard.ROW, bias=True),
        context.norm("input_layernorm", hidden, bias=True),
        context.norm("post_attention_layernorm", hidden, bias=True),
    )


BUILDERS: dict[str, Builder] = {
    "Llama4ForCausalLM": build_llama4,
    "Llama4ForConditionalGeneration": build_llama4,
}
