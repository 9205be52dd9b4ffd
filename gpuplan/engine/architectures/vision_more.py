"""Towers of any image size that fewer run: ERNIE 4.5 VL, EXAONE 4.5, OpenCUA; Step 3.

vLLM 0.32: vllm/model_executor/models/{ernie45_vl,ernie45_vl_moe,exaone4_5,opencua,step3_vl}.py.
"""

from dataclasses import replace

from gpuplan.domain.model import Encoder, Layer, Part, Partition, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.clip_vision import clip_tower, tower_of
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import (
    MOST_LAYERS,
    Blueprint,
    Builder,
    Context,
    attention_cache,
    layer_count,
    parts_of,
)
from gpuplan.engine.architectures.dense import build_qwen2
from gpuplan.engine.architectures.misc_dense import build_exaone4
from gpuplan.engine.architectures.moe import (
    FLOAT32,
    MOST_EXPERTS,
    Dimensions,
    assemble,
    pair_of_norms,
    vector,
)
from gpuplan.engine.architectures.moe_more import build_step3
from gpuplan.engine.architectures.quantizer import NoQuantizer
from gpuplan.engine.architectures.qwen_vl import qwen2_5_tower, text_of
from gpuplan.engine.architectures.rotary import MROPE_TIMES, text_rotary
from gpuplan.engine.architectures.wrapping import inherited, repeated, tower_buffer, tower_parts, with_towers

LARGEST_ERNIE_IMAGE = 6_177 * 784
"""Pixels of the largest image ERNIE 4.5 VL's preprocessor lets through."""


STEP_TOKENS = 169 + 6 * 81
"""Tokens of an image and of the most patches it is cut into."""


def build_exaone45(context: Context) -> Blueprint:
    """EXAONE 4.5: Qwen2.5-VL's tower with fewer key-value heads before EXAONE 4."""
    vision = context.config.view("vision_config")
    heads = vision.integer("num_heads", default=16)
    kv_heads = vision.integer("num_key_value_heads", default=heads)
    towers, encoder = qwen2_5_tower(context, kv_heads=kv_heads)
    return with_towers(context, build_exaone4, text_of(context), towers, (encoder,))


def build_opencua(context: Context) -> Blueprint:
    """OpenCUA: Qwen2.5-VL with ordinary positions."""
    towers, encoder = qwen2_5_tower(context)
    return with_towers(context, build_qwen2, text_of(context), towers, (encoder,))


def build_ernie_vl(context: Context) -> Blueprint:
    """ERNIE 4.5 VL: experts for text and others for images, a tower and a resampler of neighbours in space and time."""
    config = context.config
    towers, encoder = _ernie_tower(context)
    return with_towers(context, _ernie_text, config, towers, (encoder,))


def _pair(config: ConfigView, key: str, default: tuple[int, int] | None = None) -> tuple[int, int]:
    """A setting of text and of images."""
    value = config.raw(key)
    if value is None and default is not None:
        return default
    both = value if isinstance(value, (list, tuple)) else (value, value)
    if len(both) != 2 or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in both):
        raise config.error(key, "is not one whole number for text and one for images")
    return both[0], both[1]


def _ernie_text(context: Context) -> Blueprint:
    """Every layer has a rotary table of its own (Ernie4_5_VLRotaryEmbedding), four times as long as the context."""
    config = context.config
    size = Dimensions.of(config)
    count = layer_count(config)
    wide = config.integer("intermediate_size")
    experts, widths = _pair(config, "moe_num_experts"), _pair(config, "moe_intermediate_size")
    starts, ends = (
        _pair(config, "moe_layer_start_index", (1, 1)),
        _pair(config, "moe_layer_end_index", (count - 1, count - 1)),
    )
    every = config.integer("moe_layer_interval", default=1)
    shared = config.integer("moe_num_shared_experts", default=0, least=0, most=1024) * widths[0]
    top_k = config.integer("moe_k", default=6, most=MOST_EXPERTS)
    bias = config.flag("use_bias")

    def side(index: int, path: str, which: int, name: str) -> tuple[Part, ...]:
        if not starts[which] <= index <= ends[which]:
            return context.gated_mlp(f"{path}.mlp", size.hidden, wide, bias=bias)
        gate = context.linear(
            f"{path}.mlp.{name}_experts_gate", size.hidden, experts[which], Shard.REPLICATED
        )
        routed = context.experts(
            f"{path}.mlp.{name}_experts", experts[which], top_k, size.hidden, widths[which]
        )
        return (replace(gate, itemsize=FLOAT32), routed)

    def mlp(index: int, path: str) -> tuple[Part, ...]:
        if (index + 1) % every or not min(starts) <= index <= max(ends):
            return context.gated_mlp(f"{path}.mlp", size.hidden, wide, bias=bias)
        common = context.gated_mlp(f"{path}.mlp.shared_experts", size.hidden, shared) if shared else ()
        correction = vector("e_score_correction_bias", 2 * experts[0], FLOAT32)
        return (correction, *common, *side(index, path, 0, "text"), *side(index, path, 1, "vision"))

    def layer(index: int) -> Layer:
        path = f"model.layers.{index}"
        attention = context.attention(
            f"{path}.self_attn", size.hidden, size.heads, size.kv_heads, size.head_size, bias=bias
        )
        return Layer(
            name="decoder",
            parts=parts_of(attention, mlp(index, path), pair_of_norms(context, size.hidden)),
            caches=(attention_cache(size.kv_heads, size.head_size),),
            intermediate=wide,
        )

    layers = tuple(layer(index) for index in range(count))
    table = text_rotary(config, size.head_size, context.itemsize, times=MROPE_TIMES)
    made = assemble(context, config, size, layers, rotary=(table,) * count)
    return replace(made, supports_pipeline=not config.flag("tie_word_embeddings"))


def _ernie_tower(context: Context) -> tuple[tuple[ResidentPart, ...], Encoder]:
    config = context.config
    vision = config.view("vision_config")
    hidden = vision.integer("embed_dim", "hidden_size", default=1280)
    heads = vision.integer("num_heads", default=16)
    if hidden % heads:
        raise vision.error("num_heads", f"is {heads}, which does not divide embed_dim {hidden}")
    depth = vision.integer("depth", default=32, most=MOST_LAYERS)
    wide = int(hidden * vision.number("mlp_ratio", default=4.0))
    patch = vision.integer("patch_size", default=14, most=4096)
    one = Partition(units=heads, unit_size=hidden // heads)
    kernel = vision.integer("in_channels", "in_chans", default=3, most=64) * patch * patch
    parts: list[Part] = [context.norm("patch_embed, ln", kernel * hidden + 2 * hidden)]
    for index in range(depth):
        path = f"vision_model.blocks.{index}"
        linears = (
            context.linear(f"{path}.attn.qkv", hidden, (one, one, one), Shard.COLUMN, bias=True),
            context.linear(f"{path}.attn.proj", one, hidden, Shard.ROW, bias=True),
            context.linear(f"{path}.mlp.fc1", hidden, wide, Shard.COLUMN, bias=True),
            context.linear(f"{path}.mlp.fc2", wide, hidden, Shard.ROW, bias=True),
        )
        parts += [*repeated(linears, "vision"), context.norm("norm1, norm2", 2 * hidden, bias=True)]
    merge = config.integer("spatial_conv_size", default=2, most=64)
    parts += _ernie_resampler(context, config, merge)
    frequencies = Tensor(name="inv_freq", partition=Partition(units=hidden // heads // 4), itemsize=FLOAT32)
    tokens = max(1, LARGEST_ERNIE_IMAGE // (patch * merge) ** 2)
    encoder = Encoder(
        kind="vision",
        heads=heads,
        hidden=hidden,
        layers=depth,
        intermediate=wide,
        tokens_per_item=tokens,
        patches_per_item=tokens * merge * merge,
    )
    return (*tower_parts(parts), tower_buffer(frequencies)), encoder


def _ernie_resampler(context: Context, config: ConfigView, merge: int) -> tuple[Part, ...]:
    """Pairs of matrices over neighbours in space and in time, divided by their outputs; never quantized."""
    inner = config.integer("pixel_hidden_size", default=1280) * merge * merge
    times = config.integer("temporal_conv_size", default=2, most=64)
    out = config.integer("hidden_size")

    def dense(name: str, inputs: int, outputs: int) -> Part:
        path = f"resampler_model.{name}"
        return context.linear(path, inputs, outputs, Shard.COLUMN, bias=True, quantized=False)

    temporal = config.flag("use_temporal_conv", default=True)
    joined = (dense("temporal_linear1", inner * times, inner), dense("temporal_linear2", inner, inner))
    return (
        dense("spatial_linear1", inner, inner),
        dense("spatial_linear2", inner, inner),
        *(joined if temporal else ()),
        dense("mlp", inner, out),
        context.norm("spatial_norm, temporal_norm", (4 if temporal else 2) * inner),
        context.norm("after_norm", out),
    )


def build_step3_vl(context: Context) -> Blueprint:
    """Step 3: a CLIP-like tower without norms around it, two convolutions and a matrix, never quantized."""
    config = context.config
    view = inherited(context, "text_config")
    plain = replace(context, quantizer=NoQuantizer())
    vision = config.view("vision_config")
    shown = {
        "hidden_size": 1792,
        "intermediate_size": 3072,
        "num_hidden_layers": 63,
        "num_attention_heads": 16,
    }
    sizes = {**shown, "image_size": 728, "patch_size": 14, **vision.values}
    tower = tower_of(ConfigView(sizes, vision.place), clip=False)
    out = vision.integer("output_hidden_size", default=4096)
    hidden = view.integer("hidden_size", default=7168)
    bias = hidden if config.flag("projector_bias", default=True) else 0
    joined = (4 * tower.hidden + 1) * out + (9 * out + 1) * 2 * out + 2 * out * hidden + bias
    towers = (
        *clip_tower(plain, tower, "vision_model", post_norm=False),
        *tower_parts((plain.norm("class embedding, its position, projector", 2 * tower.hidden + joined),)),
    )
    encoder = Encoder(
        kind="vision",
        heads=tower.heads,
        hidden=tower.hidden,
        layers=tower.layers,
        intermediate=tower.wide,
        tokens_per_item=STEP_TOKENS,
        patches_per_item=tower.patches + 1,
    )
    return with_towers(context, build_step3, view, towers, (encoder,))


BUILDERS: dict[str, Builder] = {
    "Ernie4_5_VLMoeForConditionalGeneration": build_ernie_vl,
    "Exaone4_5_ForConditionalGeneration": build_exaone45,
    "OpenCUAForConditionalGeneration": build_opencua,
    "Step3VLForConditionalGeneration": build_step3_vl,
}
