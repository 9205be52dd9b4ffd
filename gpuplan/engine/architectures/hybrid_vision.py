"""Hybrid language models behind a vision tower: LFM2-VL (SigLIP 2) and Nemotron-H VL and Omni (RADIO).

vLLM 0.32: vllm/model_executor/models/{lfm2_vl,lfm2_siglip2,nano_nemotron_vl,radio,intern_vit}.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuplan.domain.model import Encoder, Linear, Part, Partition, Residence, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import MOST_LAYERS, Blueprint, Builder, Context
from gpuplan.engine.architectures.lfm2 import build_lfm2, build_lfm2_moe
from gpuplan.engine.architectures.nemotron import build_nemotron_h
from gpuplan.errors import ModelError

TOWER = "vision"
MOST_PATCH = 4096
MOST_TILES = 13
"""Twelve tiles and a thumbnail: the largest image of Nemotron's processor."""
RADIO_SIZES = {
    "vit_small_patch16_224": (384, 12, 6, 1536),
    "vit_base_patch16_224": (768, 12, 12, 3072),
    "vit_large_patch16_224": (1024, 24, 16, 4096),
    "vit_huge_patch16_224": (1280, 32, 16, 5120),
}
"""Hidden size, layers, heads and MLP width by the name of the backbone (transformers_utils/configs/radio.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower:
    """Sizes of a vision transformer."""

    hidden: int
    layers: int
    heads: int
    wide: int

    def encoder(self, tokens: int, patches: int) -> Encoder:
        return Encoder(
            kind=TOWER,
            heads=self.heads,
            hidden=self.hidden,
            layers=self.layers,
            intermediate=self.wide,
            tokens_per_item=max(1, tokens),
            patches_per_item=max(1, patches),
        )


def _text(context: Context, *keys: str) -> Context:
    """The context of the language model alone."""
    view = context.config.view(*keys)
    if not view.values:
        raise context.config.error(keys[0], "is missing")
    return replace(context, config=view)


def _behind(built: Blueprint, text: Context, parts: tuple[Part, ...], encoder: Encoder) -> Blueprint:
    towers = tuple(ResidentPart(part=part, residence=Residence.EVERY, tower=TOWER) for part in parts)
    return replace(built, parts=(*built.parts, *towers), encoders=(encoder,), text_view=text.config)


def _blocks(context: Context, size: Tower, path: str, *, scales: bool) -> tuple[Part, ...]:
    """Attention, MLP and LayerNorms, all with biases; `scales`: a learned one after each."""
    units = Partition(units=size.heads, unit_size=size.hidden // size.heads)
    quantized = not scales
    linears: tuple[Linear, ...] = (
        context.linear(
            f"{path}.qkv_proj",
            size.hidden,
            (units, units, units),
            Shard.COLUMN,
            bias=True,
            quantized=quantized,
        ),
        context.linear(f"{path}.out_proj", units, size.hidden, Shard.ROW, bias=True, quantized=quantized),
        context.linear(f"{path}.fc1", size.hidden, size.wide, Shard.COLUMN, bias=True, quantized=quantized),
        context.linear(f"{path}.fc2", size.wide, size.hidden, Shard.ROW, bias=True, quantized=quantized),
    )
    vectors = context.norm("norms", (6 if scales else 4) * size.hidden)
    block: tuple[Part, ...] = (*linears, vectors)
    return block * size.layers


def build_lfm2_vl(context: Context) -> Blueprint:
    """LFM2-VL: SigLIP 2 with a replicated projector in front of LFM2."""
    config = context.config
    text = _text(context, "text_config")
    experts = "moe" in text.config.text("model_type")
    built = (build_lfm2_moe if experts else build_lfm2)(text)
    vision = config.view("vision_config")
    size = Tower(
        hidden=vision.integer("hidden_size", default=768),
        layers=vision.integer("num_hidden_layers", default=12, most=MOST_LAYERS),
        heads=vision.integer("num_attention_heads", default=12),
        wide=vision.integer("intermediate_size", default=3072),
    )
    _divided(vision, size)
    patch = vision.integer("patch_size", default=16, most=MOST_PATCH)
    positions = vision.integer("num_patches", default=256)
    inputs = vision.integer("num_channels", default=3, most=64) * patch * patch
    factor = config.integer("downsample_factor", default=2, most=64)
    wide = config.integer("projector_hidden_size", default=2560)
    merged = size.hidden * factor * factor
    bias = config.flag("projector_bias", default=True)
    learned = Partition(units=(inputs + 1 + positions + 2) * size.hidden)
    normed = config.flag("projector_use_layernorm", default=True)
    outer: tuple[Part, ...] = (
        Tensor(name="embeddings and last norm", partition=learned, itemsize=context.itemsize),
        *((context.norm("projector norm", merged, bias=True),) if normed else ()),
        _replicated(context, merged, wide, bias=bias),
        _replicated(context, wide, built.hidden, bias=bias),
    )
    tokens = config.integer("max_image_tokens", default=256) * config.integer(
        "max_tiles", default=10, most=1024
    )
    blocks = _blocks(context, size, "vision_tower.vision_model.encoder.layers.0", scales=False)
    return _behind(built, text, (*outer, *blocks), size.encoder(tokens, tokens * factor * factor))


def _divided(vision: ConfigView, size: Tower) -> None:
    if size.hidden % size.heads:
        raise vision.error("num_attention_heads", f"is {size.heads}, which does not divide {size.hidden}")


def _replicated(context: Context, inputs: int, outputs: int, *, bias: bool) -> Linear:
    return context.linear("projector", inputs, outputs, Shard.REPLICATED, bias=bias, quantized=False)


def build_nemotron_h_vl(context: Context) -> Blueprint:
    """Nemotron-H VL and Omni: RADIO and a two-layer projector; one pipeline stage."""
    config = context.config
    text = _text(context, "text_config", "llm_config")
    built = replace(build_nemotron_h(text), supports_pipeline=False)
    vision = config.view("vision_config")
    size = _radio_size(vision)
    patch = vision.integer("patch_size", default=config.integer("patch_size", default=16), most=MOST_PATCH)
    ratio = config.number("downsample_ratio", default=0.5)
    if not 1 / 64 <= ratio <= 1:
        raise config.error("downsample_ratio", "must lie between 1/64 and 1")
    merged = size.hidden * round(1 / ratio) ** 2
    wide = config.integer("projector_hidden_size", default=5120)
    outer: tuple[Part, ...] = (
        *_radio_patches(context, vision, size.hidden, patch),
        context.norm("projector norm", merged),
        _replicated(context, merged, wide, bias=False),
        _replicated(context, wide, built.hidden, bias=False),
    )
    if text.config.integer("num_nextn_predict_layers", default=0, least=0):
        outer = (*outer, context.norm("vision_final_layernorm", size.hidden, bias=True))
    tile = config.integer("force_image_size", default=512, most=1 << 16) // patch
    encoder = size.encoder(int(tile * tile * ratio * ratio) * MOST_TILES, tile * tile * MOST_TILES)
    built = _behind(built, text, (*outer, *_blocks(context, size, "vision_model", scales=True)), encoder)
    if "sound_config" not in config:
        return built
    note = "the sound encoder (Parakeet, well under 2 GiB) is not counted"
    return replace(built, assumptions=(*built.assumptions, note))


def _radio_size(vision: ConfigView) -> Tower:
    name = vision.view("args").text("model", default="vit_huge_patch16_224")
    if name not in RADIO_SIZES:
        raise ModelError(
            f"{vision.place}: args.model {name[:60]!r} is not a RADIO backbone vLLM knows",
            hint=f"it knows {', '.join(sorted(RADIO_SIZES))}",
        )
    hidden, layers, heads, wide = RADIO_SIZES[name]
    return Tower(hidden=hidden, layers=layers, heads=heads, wide=wide)


def _radio_patches(context: Context, vision: ConfigView, hidden: int, patch: int) -> tuple[Tensor, ...]:
    """Patch projections of images and of videos, positions up to the largest image, class and register tokens."""
    args = vision.view("args")
    side = max(1, round(args.integer("cpe_max_size", default=2048, most=1 << 16) / patch))
    frames = vision.integer("video_temporal_patch_size", default=1, most=64)
    teachers = {
        t.get("name")
        for t in args.items("teachers")
        if isinstance(t, Mapping) and isinstance(t.get("name"), str)
    }
    tokens = len(teachers) if args.flag("cls_token_per_teacher") and teachers else 1
    multiple = args.optional_integer("register_multiple", least=1, most=4096)
    registers = multiple - tokens % multiple if multiple else 0
    inputs = 3 * patch * patch * (1 + (frames if frames > 1 else 0))
    learned = Partition(units=(inputs + side * side + tokens + registers) * hidden)
    return (Tensor(name="patch_generator", partition=learned, itemsize=context.itemsize),)


BUILDERS: dict[str, Builder] = {
    "Lfm2VlForConditionalGeneration": build_lfm2_vl,
    "NemotronH_Nano_VL_V2": build_nemotron_h_vl,
    "NemotronH_Nano_Omni_Reasoning_V3": build_nemotron_h_vl,
    "NemotronH_Super_Omni_Reasoning_V3": build_nemotron_h_vl,
    "NemotronH_Omni_Reasoning_V3": build_nemotron_h_vl,
}
