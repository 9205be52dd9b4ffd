"""LLaVA and its kin: a CLIP, SigLIP or Pixtral tower, a small projector, any language model.

vLLM 0.32: vllm/model_executor/models/{llava,llava_next,llava_next_video,llava_onevision,mistral3,paligemma,pixtral}.py.
"""

from dataclasses import replace

from gpuplan.domain.model import Embedding, Encoder, Part, Partition, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.clip_vision import Tower, clip_tower, layers_used, tower_of
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import MOST_LAYERS, Blueprint, Builder, Context
from gpuplan.engine.architectures.text_builders import text_builder
from gpuplan.engine.architectures.wrapping import (
    inherited,
    repeated,
    tower_buffer,
    tower_parts,
    with_towers,
)

MOST_PINPOINTS = 4096
VIDEO_FRAMES, POOLED = 32, 4
"""Frames of a video as the processor samples them, and tokens pooled into one."""
ONEVISION_TILES = 9


def build_llava(context: Context) -> Blueprint:
    """LLaVA 1.5 and what it inspired: one image, one grid of tokens."""
    view, vision = _parts_of(context)
    if vision.text("model_type") == "pixtral":
        return _pixtral(context, view, vision, merge=1)
    tower = tower_of(vision)
    used = layers_used(context, tower.layers, -2)
    projector = _projector(context, tower.hidden, view.integer("hidden_size", default=4096))
    parts = clip_tower(context, tower, "vision_tower.vision_model", used=used)
    return _with(
        context,
        view,
        (*parts, *tower_parts(projector)),
        _encoder(tower, used, tower.patches, tower.positions),
    )


def build_llava_next(context: Context) -> Blueprint:
    """LLaVA-NeXT: an overview and as many tiles as the largest grid holds, with a vector that ends rows."""
    view, vision = _parts_of(context)
    tower = tower_of(vision)
    hidden = view.integer("hidden_size", default=4096)
    used = layers_used(context, tower.layers, -2)
    parts = clip_tower(context, tower, "vision_tower.vision_model", used=used)
    projector = (*_projector(context, tower.hidden, hidden), context.norm("image_newline", hidden))
    tokens, tiles = _tiled(context.config, tower)
    encoder = _encoder(tower, used, tokens, tiles * tower.positions)
    return _with(context, view, (*parts, *tower_parts(projector)), encoder)


def build_llava_next_video(context: Context) -> Blueprint:
    """LLaVA-NeXT-Video: pooled frames, a projector whole on every rank."""
    view, vision = _parts_of(context)
    tower = tower_of(vision)
    hidden = view.integer("hidden_size", default=4096)
    used = layers_used(context, tower.layers, -2)
    parts = clip_tower(context, tower, "vision_tower.vision_model", used=used)
    projector = _whole_projector(context, tower.hidden, hidden)
    stride = context.config.integer("spatial_pool_stride", default=2, most=64)
    tokens = max(1, tower.patches // stride**2) * VIDEO_FRAMES
    encoder = _encoder(tower, used, tokens, tower.positions * VIDEO_FRAMES)
    return _with(context, view, (*parts, *tower_parts(projector)), encoder)


def build_llava_onevision(context: Context) -> Blueprint:
    """LLaVA-OneVision: tiles scaled down to nine images' worth of tokens."""
    view, vision = _parts_of(context)
    tower = tower_of(vision)
    hidden = view.integer("hidden_size", default=4096)
    used = layers_used(context, tower.layers, -1)
    parts = clip_tower(context, tower, "vision_tower.vision_model", used=used, post_norm=False)
    projector = (*_whole_projector(context, tower.hidden, hidden), context.norm("image_newline", hidden))
    tokens, tiles = _tiled(context.config, tower)
    most = tower.patches * (ONEVISION_TILES + 1) + tower.image // tower.patch * ONEVISION_TILES
    encoder = _encoder(tower, used, min(tokens, most), tiles * tower.positions)
    return _with(context, view, (*parts, *tower_parts(projector)), encoder)


def build_paligemma(context: Context) -> Blueprint:
    """PaliGemma: SigLIP, one linear layer, Gemma."""
    view, vision = _parts_of(context)
    view = (
        view
        if "tie_word_embeddings" in view
        else ConfigView({**view.values, "tie_word_embeddings": True}, view.place)
    )
    tower = tower_of(vision, clip=False)
    width = context.config.integer("projection_dim", default=vision.integer("projection_dim", default=2048))
    parts = clip_tower(context, tower, "vision_tower.vision_model")
    projector = (context.norm("projector", (tower.hidden + 1) * width),)
    encoder = _encoder(tower, tower.layers, tower.patches, tower.positions)
    return _with(context, view, (*parts, *tower_parts(projector)), encoder, default="gemma")


def build_mistral3(context: Context) -> Blueprint:
    """Mistral Small 3.1 and later: Pixtral with neighbouring patches merged."""
    view, vision = _parts_of(context)
    return _pixtral(
        context, view, vision, merge=context.config.integer("spatial_merge_size", default=2, most=64)
    )


def _parts_of(context: Context) -> tuple[ConfigView, ConfigView]:
    """Configs of the language model and the tower."""
    config = context.config
    view = inherited(context, "text_config")
    return view, config.view("vision_config")


def _with(
    context: Context,
    view: ConfigView,
    towers: tuple[ResidentPart, ...],
    encoder: Encoder,
    *,
    default: str = "llama",
) -> Blueprint:
    return with_towers(context, text_builder(view, default=default), view, towers, (encoder,))


def _encoder(tower: Tower, used: int, tokens: int, patches: int) -> Encoder:
    return Encoder(
        kind="vision",
        heads=tower.heads,
        hidden=tower.hidden,
        layers=used,
        intermediate=tower.wide,
        tokens_per_item=max(1, tokens),
        patches_per_item=patches,
    )


def _projector(
    context: Context,
    inputs: int,
    hidden: int,
    *,
    bias_default: bool = True,
    path: str = "multi_modal_projector",
) -> tuple[Part, ...]:
    """Two linear layers, split by columns and rows."""
    bias = context.config.flag("multimodal_projector_bias", default=bias_default)
    return (
        context.linear(f"{path}.linear_1", inputs, hidden, Shard.COLUMN, bias=bias),
        context.linear(f"{path}.linear_2", hidden, hidden, Shard.ROW, bias=bias),
    )


def _whole_projector(context: Context, inputs: int, hidden: int) -> tuple[Part, ...]:
    """The same of torch's own layers, on every rank."""
    biases = 2 * hidden if context.config.flag("multimodal_projector_bias", default=True) else 0
    return (context.norm("projector", inputs * hidden + hidden * hidden + biases),)


def _tiled(config: ConfigView, tower: Tower) -> tuple[int, int]:
    """Most tokens and tiles (overview included) over the grids an image may be cut into."""
    pinpoints = config.items("image_grid_pinpoints")
    if len(pinpoints) > MOST_PINPOINTS:
        raise config.error("image_grid_pinpoints", f"holds {len(pinpoints)} entries")
    side = tower.image // tower.patch
    tokens, tiles = tower.patches, 1
    for pair in pinpoints:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not all(isinstance(n, int) for n in pair):
            raise config.error("image_grid_pinpoints", "is not a list of heights and widths")
        rows, columns = (min(4096, max(1, n // tower.image)) for n in pair)
        tokens = max(tokens, tower.patches + rows * side * (columns * side + 1))
        tiles = max(tiles, rows * columns + 1)
    return tokens, tiles


def _pixtral(context: Context, view: ConfigView, vision: ConfigView, *, merge: int) -> Blueprint:
    """Pixtral's tower in transformers' form, with the merger of Mistral 3 where `merge` is more than 1."""
    hidden = vision.integer("hidden_size", default=1024)
    heads = vision.integer("num_attention_heads", default=16)
    size = vision.integer("head_dim", default=max(1, hidden // heads))
    wide = vision.integer("intermediate_size", default=4096)
    layers = vision.integer("num_hidden_layers", default=24, most=MOST_LAYERS)
    patch = vision.integer("patch_size", default=16, most=4096)
    image = vision.integer("image_size", default=1024, least=patch, most=1 << 16)
    used = layers_used(context, layers, -1)
    channels = vision.integer("num_channels", default=3, most=64)
    parts: list[Part] = [context.norm("patch_conv, ln_pre", channels * patch * patch * hidden + hidden)]
    for index in range(used):
        parts += _pixtral_layer(
            context, f"vision_tower.transformer.layers.{index}", hidden, heads, size, wide
        )
    text_hidden = view.integer("hidden_size", default=4096)
    if merge > 1 or context.architecture.startswith("Mistral3"):
        parts.append(context.norm("projector norm, merging_layer", hidden + merge * merge * hidden * hidden))
        parts += _projector(context, hidden, text_hidden, bias_default=False)
    else:
        parts += _projector(context, hidden, text_hidden)
    frequencies = Tensor(name="frequencies", partition=Partition(units=size), itemsize=4)
    side = max(1, image // (patch * merge))
    encoder = Encoder(
        kind="vision",
        heads=heads,
        hidden=hidden,
        layers=used,
        intermediate=wide,
        tokens_per_item=side * (side + 1),
        patches_per_item=(image // patch) ** 2,
    )
    return _with(context, view, (*tower_parts(parts), tower_buffer(frequencies)), encoder, default="mistral")


def _pixtral_layer(
    context: Context, path: str, hidden: int, heads: int, size: int, wide: int
) -> tuple[Part, ...]:
    one = Partition(units=heads, unit_size=size)
    attention = (
        context.linear(
            f"{path}.attention.qkv_proj",
            hidden,
            (one, one, one),
            Shard.COLUMN,
            fused=("q_proj", "k_proj", "v_proj"),
        ),
        context.linear(f"{path}.attention.o_proj", one, hidden, Shard.ROW),
    )
    mlp = context.gated_mlp(f"{path}.feed_forward", hidden, wide)
    return (*repeated((*attention, *mlp), "vision"), context.norm("attention_norm, ffn_norm", 2 * hidden))


def build_pixtral(context: Context) -> Blueprint:
    """Pixtral in Mistral's own form (`params.json` turned into a config): adapter instead of projector."""
    view, vision = _parts_of(context)
    view = view if "hidden_size" in view else context.config
    return _pixtral(replace(context, architecture="Pixtral"), view, vision, merge=1)


CLIP_LARGE = ConfigView(
    {
        "model_type": "clip_vision_model",
        "hidden_size": 1024,
        "image_size": 336,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "patch_size": 14,
    },
    "CLIP ViT-L/14",
)
"""The tower of Phi-3-vision, which no config spells out."""
PHI_TILES = 16


def build_phi3_vision(context: Context) -> Blueprint:
    """Phi-3-vision and Phi-3.5-vision (phi3v.py): CLIP, a projector over two by two patches, an embedding of its own."""
    config = context.config
    tower = tower_of(CLIP_LARGE)
    processor = config.view("img_processor")
    index = processor.raw("layer_idx")
    used = tower.layers - 1 if not isinstance(index, int) or isinstance(index, bool) else index + 1
    used = tower.layers + used if used <= 0 else used
    if not 0 < used <= tower.layers:
        raise config.error("img_processor", f"names no layer of {tower.layers}")
    made = text_builder(ConfigView({"model_type": "llama"}, config.place))(context)
    hidden, joined = made.hidden, 4 * processor.integer("image_dim_out", default=tower.hidden)
    projector = context.norm(
        "separators, projector", 2 * joined + (joined + 1) * hidden + (hidden + 1) * hidden
    )
    table = Embedding(name="embed_tokens", rows=made.vocabulary, width=hidden, itemsize=context.itemsize)
    towers = (
        *clip_tower(context, tower, "vision_embed_tokens.img_processor.vision_model", used=used),
        *tower_parts((projector, table)),
    )
    tokens = (tower.patches // 4 + tower.image // tower.patch // 2) * (PHI_TILES + 1) + 1
    encoder = _encoder(tower, used, tokens, tower.positions * (PHI_TILES + 1))
    return replace(made, parts=(*made.parts, *towers), encoders=(encoder,))


BUILDERS: dict[str, Builder] = {
    "LlavaForConditionalGeneration": build_llava,
    "LlavaNextForConditionalGeneration": build_llava_next,
    "LlavaNextVideoForConditionalGeneration": build_llava_next_video,
    "LlavaOnevisionForConditionalGeneration": build_llava_onevision,
    "Mistral3ForConditionalGeneration": build_mistral3,
    "LightOnOCRForConditionalGeneration": build_mistral3,
    "PaliGemmaForConditionalGeneration": build_paligemma,
    "Phi3VForCausalLM": build_phi3_vision,
    "PixtralForConditionalGeneration": build_pixtral,
}
