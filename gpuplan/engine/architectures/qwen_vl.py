"""Qwen2-VL, Qwen2.5-VL, Qwen3-VL and dots.ocr: a tower of any image size before a Qwen decoder.

vLLM 0.32: vllm/model_executor/models/{qwen2_vl,qwen2_5_vl,qwen3_vl,qwen3_vl_moe,dots_ocr}.py.
"""

from dataclasses import dataclass, replace

from gpuplan.domain.model import Encoder, Part, Partition, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import MOST_LAYERS, Blueprint, Builder, Context
from gpuplan.engine.architectures.dense import build_qwen2, build_qwen3, head_size_of
from gpuplan.engine.architectures.moe import build_qwen3_moe
from gpuplan.engine.architectures.qwen_vision import ROTARY_POSITIONS, qwen3_vision
from gpuplan.engine.architectures.rotary import MROPE_TIMES, rope_of, text_rotary
from gpuplan.engine.architectures.wrapping import (
    inherited,
    nested,
    repeated,
    tower_buffer,
    tower_parts,
    with_towers,
)

LARGEST_IMAGE = 12_845_056
"""Pixels of the largest image (`max_pixels` of the preprocessors of Qwen2-VL and Qwen2.5-VL)."""
LARGEST_DOTS_IMAGE = 11_289_600


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tower:
    """Sizes of a tower of blocks with a merger at its end."""

    hidden: int
    heads: int
    depth: int
    wide: int
    out: int
    merge: int
    patch: int
    kernel: int
    """Elements of one patch."""
    middle: int
    """Width between the merger's two layers on the whole model."""

    def encoder(self, pixels: int) -> Encoder:
        tokens = max(1, pixels // (self.patch * self.merge) ** 2)
        return Encoder(
            kind="vision",
            heads=self.heads,
            hidden=self.hidden,
            layers=self.depth,
            intermediate=self.wide,
            tokens_per_item=tokens,
            patches_per_item=tokens * self.merge**2,
            inputs_per_patch=self.kernel,
        )


def text_of(context: Context) -> ConfigView:
    """The language model's config: `text_config` where there is one, else the whole."""
    return inherited(context, "text_config") if "text_config" in context.config else context.config


def with_rotary(blueprint: Blueprint, *tables: ResidentPart) -> Blueprint:
    """The same model with other rotary tables."""
    kept = tuple(part for part in blueprint.parts if not part.buffer)
    return replace(blueprint, parts=(*kept, *tables))


def mrope(builder: Builder, *, times: int = MROPE_TIMES, partial: float | None = None) -> Builder:
    """A decoder whose positions have three axes; `partial` is the rotated share of a head where none is given."""

    def build(context: Context) -> Blueprint:
        config = context.config
        hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
        size = head_size_of(config, hidden, heads)
        rotation = rope_of(config)
        if (
            partial is not None
            and "partial_rotary_factor" not in rotation
            and "partial_rotary_factor" not in config
        ):
            config = ConfigView({**config.values, "partial_rotary_factor": partial}, config.place)
        return with_rotary(builder(context), text_rotary(config, size, context.itemsize, times=times))

    return build


def build_qwen2_vl(context: Context) -> Blueprint:
    """Qwen2-VL: LayerNorms and a plain MLP in the tower."""
    vision = context.config.view("vision_config")
    hidden = vision.integer("embed_dim", default=1280)
    tower = _tower(
        vision, hidden, int(hidden * vision.number("mlp_ratio", default=4.0)), out_key="hidden_size"
    )
    parts: list[Part] = [*_patches(context, tower)]
    for index in range(tower.depth):
        path = f"visual.blocks.{index}"
        parts += [
            *_attention(context, tower, f"{path}.attn"),
            *repeated(_plain(context, tower, f"{path}.mlp"), "vision"),
            context.norm("norm1, norm2", 2 * hidden, bias=True),
        ]
    parts += _merger(context, tower, "visual.merger", norm_bias=True)
    towers = _with_table(context, tower, parts)
    return with_towers(context, mrope(build_qwen2), text_of(context), towers, (tower.encoder(LARGEST_IMAGE),))


def build_qwen2_5_vl(context: Context) -> Blueprint:
    """Qwen2.5-VL: RMS norms and a gated MLP in the tower."""
    towers, encoder = qwen2_5_tower(context)
    return with_towers(context, mrope(build_qwen2), text_of(context), towers, (encoder,))


def qwen2_5_tower(
    context: Context, *, kv_heads: int | None = None
) -> tuple[tuple[ResidentPart, ...], Encoder]:
    """The tower of Qwen2.5-VL and Qwen2.5-Omni with its facts for the profile run; `kv_heads`: fewer of them."""
    vision = context.config.view("vision_config")
    hidden = vision.integer("hidden_size", default=1280)
    tower = _tower(
        vision, hidden, vision.integer("intermediate_size", default=3420), out_key="out_hidden_size"
    )
    parts: list[Part] = [*_patches(context, tower)]
    for index in range(tower.depth):
        path = f"visual.blocks.{index}"
        parts += [
            *_attention(context, tower, f"{path}.attn", kv_heads=kv_heads),
            *repeated(context.gated_mlp(f"{path}.mlp", hidden, tower.wide, bias=True), "vision"),
            context.norm("norm1, norm2", 2 * hidden),
        ]
    parts += _merger(context, tower, "visual.merger", norm_bias=False)
    return _with_table(context, tower, parts), tower.encoder(LARGEST_IMAGE)


def _tower(vision: ConfigView, hidden: int, wide: int, *, out_key: str) -> _Tower:
    heads = vision.integer("num_heads", default=16)
    if hidden % heads:
        raise vision.error("num_heads", f"is {heads}, which does not divide the tower's width {hidden}")
    merge = vision.integer("spatial_merge_size", default=2, most=64)
    patch = vision.integer("patch_size", "spatial_patch_size", default=14, most=4096)
    channels = vision.integer("in_chans", "in_channels", default=3, most=64)
    if wide < 1:
        raise vision.error("mlp_ratio", "makes the tower's MLP empty")
    return _Tower(
        hidden=hidden,
        heads=heads,
        depth=vision.integer("depth", default=32, most=MOST_LAYERS),
        wide=wide,
        out=vision.integer(out_key, default=3584),
        merge=merge,
        patch=patch,
        kernel=vision.integer("temporal_patch_size", default=2, most=64) * channels * patch * patch,
        middle=hidden * merge * merge,
    )


def _patches(context: Context, tower: _Tower) -> tuple[Part, ...]:
    return (
        Tensor(
            name="patch_embed",
            partition=Partition(units=tower.kernel * tower.hidden),
            itemsize=context.itemsize,
        ),
    )


def _attention(
    context: Context, tower: _Tower, path: str, *, bias: bool = True, kv_heads: int | None = None
) -> tuple[Part, ...]:
    one = Partition(units=tower.heads, unit_size=tower.hidden // tower.heads)
    kv = one if kv_heads is None else replace(one, units=kv_heads, replicable=True)
    qkv = context.linear(
        f"{path}.qkv", tower.hidden, (one, kv, kv), Shard.COLUMN, bias=bias, fused=("q", "k", "v")
    )
    return repeated((qkv, context.linear(f"{path}.proj", one, tower.hidden, Shard.ROW, bias=bias)), "vision")


def _plain(context: Context, tower: _Tower, path: str) -> tuple[Part, ...]:
    return (
        context.linear(f"{path}.fc1", tower.hidden, tower.wide, Shard.COLUMN, bias=True),
        context.linear(f"{path}.fc2", tower.wide, tower.hidden, Shard.ROW, bias=True),
    )


def _merger(
    context: Context, tower: _Tower, path: str, *, norm_bias: bool, quantized: bool = True
) -> tuple[Part, ...]:
    """Neighbouring patches to one token of the language model."""
    return (
        context.norm("ln_q", tower.hidden, bias=norm_bias),
        context.linear(
            f"{path}.mlp.0", tower.middle, tower.middle, Shard.COLUMN, bias=True, quantized=quantized
        ),
        context.linear(f"{path}.mlp.2", tower.middle, tower.out, Shard.ROW, bias=True, quantized=quantized),
    )


def _with_table(context: Context, tower: _Tower, parts: list[Part]) -> tuple[ResidentPart, ...]:
    """The tower with its rotary table."""
    table = Tensor(
        name="vision rotary cache",
        partition=Partition(units=ROTARY_POSITIONS * (tower.hidden // tower.heads // 2)),
        itemsize=context.itemsize,
    )
    return (*tower_parts(parts), tower_buffer(table))


def build_qwen3_vl(context: Context) -> Blueprint:
    """Qwen3-VL, dense or MoE."""
    view = text_of(context)
    sparse = "Moe" in context.architecture or "num_experts" in view
    builder = mrope(build_qwen3_moe if sparse else build_qwen3, times=1)
    towers, encoder = qwen3_vision(context, context.config.view("vision_config"))
    return with_towers(context, builder, view, towers, (encoder,))


def build_dots_ocr(context: Context) -> Blueprint:
    """dots.ocr: Qwen2 with a tower of RMS norms and gated MLPs, its text at the top level of the config."""
    vision = context.config.view("vision_config")
    hidden = vision.integer("embed_dim", default=1536)
    heads = vision.integer("num_attention_heads", default=12)
    if hidden % heads:
        raise vision.error("num_attention_heads", f"is {heads}, which does not divide embed_dim {hidden}")
    merge = vision.integer("spatial_merge_size", default=2, most=64)
    patch = vision.integer("patch_size", default=14, most=4096)
    tower = _Tower(
        hidden=hidden,
        heads=heads,
        depth=vision.integer("num_hidden_layers", default=42, most=MOST_LAYERS),
        wide=vision.integer("intermediate_size", default=4224),
        out=vision.integer("hidden_size", default=1536),
        merge=merge,
        patch=patch,
        kernel=vision.integer("num_channels", default=3, most=64) * patch * patch,
        middle=hidden * merge * merge,
    )
    bias = vision.flag("use_bias")
    trunk = hidden if vision.flag("post_norm", default=True) else 0
    parts: list[Part] = [
        *_patches(context, tower),
        context.norm("patch bias and norm, trunk norm", 2 * hidden + trunk),
    ]
    for index in range(tower.depth):
        path = f"vision_tower.blocks.{index}"
        mlp = (
            context.linear(
                f"{path}.mlp.fc13",
                hidden,
                (tower.wide, tower.wide),
                Shard.COLUMN,
                bias=bias,
                fused=("fc1", "fc3"),
            ),
            context.linear(f"{path}.mlp.fc2", tower.wide, hidden, Shard.ROW, bias=bias),
        )
        parts += [
            *_attention(context, tower, f"{path}.attn", bias=bias),
            *repeated(mlp, "vision"),
            context.norm("norm1, norm2", 2 * hidden),
        ]
    parts += _merger(context, tower, "vision_tower.merger", norm_bias=True, quantized=False)
    frequencies = Tensor(name="inv_freq", partition=Partition(units=hidden // heads // 4), itemsize=4)
    text = build_qwen2(nested(context, context.config, "language_model."))
    return replace(
        text,
        parts=(*text.parts, *tower_parts(parts), tower_buffer(frequencies)),
        encoders=(tower.encoder(LARGEST_DOTS_IMAGE),),
    )


BUILDERS: dict[str, Builder] = {
    "Qwen2VLForConditionalGeneration": build_qwen2_vl,
    "Qwen2_5_VLForConditionalGeneration": build_qwen2_5_vl,
    "Qwen3VLForConditionalGeneration": build_qwen3_vl,
    "Qwen3VLMoeForConditionalGeneration": build_qwen3_vl,
    "DotsOCRForCausalLM": build_dots_ocr,
}
