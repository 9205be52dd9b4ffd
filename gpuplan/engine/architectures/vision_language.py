"""Tiled towers before any language model: InternVL, Idefics 3, SmolVLM, Command A Vision, PaddleOCR-VL.

vLLM 0.32: vllm/model_executor/models/{intern_vit,internvl,interns1,interns1_vit,idefics3,smolvlm,cohere2_vision,paddleocr_vl}.py.
"""

from dataclasses import replace

from gpuplan.domain.model import Encoder, Part, Partition, ResidentPart, Shard
from gpuplan.engine.architectures.clip_vision import MOST_SIDE, Tower, clip_tower, tower_of
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import MOST_LAYERS, Blueprint, Builder, Context
from gpuplan.engine.architectures.qwen_vl import mrope
from gpuplan.engine.architectures.text_builders import BY_ARCHITECTURE, text_builder
from gpuplan.engine.architectures.wrapping import inherited, repeated, tower_parts, with_towers

INTERNVL_TILES = 12
IDEFICS_TILES = 16
COHERE_TILES = 12
"""Tiles an image is cut into at most, without its overview."""
LARGEST_PADDLE_IMAGE = 2_822_400
"""Pixels of the largest image PaddleOCR-VL's preprocessor lets through."""


def _encoder(tower: Tower, tokens: int, tiles: int) -> Encoder:
    return Encoder(
        kind="vision",
        heads=tower.heads,
        hidden=tower.hidden,
        layers=tower.layers,
        intermediate=tower.wide,
        tokens_per_item=max(1, tokens * tiles),
        patches_per_item=tower.positions * tiles,
    )


def build_internvl(context: Context) -> Blueprint:
    """InternVL in OpenGVLab's form: `llm_config`, a tower whose attention is split where its heads divide."""
    config = context.config
    view = inherited(context, "llm_config" if "llm_config" in config else "text_config")
    vision = config.view("vision_config")
    tower = _intern_tower(vision, vision.integer("image_size", default=448, most=MOST_SIDE))
    select = config.raw("select_layer")
    used = (
        tower.layers
        if not isinstance(select, int)
        else tower.layers + select + 1
        if select < 0
        else select + 1
    )
    if not 0 < used <= tower.layers:
        raise config.error("select_layer", f"names no layer of {tower.layers}")
    parts = [part for index in range(used) for part in _intern_layer(context, tower, vision, index)]
    ratio = _ratio(config)
    text_hidden = view.integer("hidden_size")
    joined = tower.hidden * ratio * ratio
    outside = (
        _intern_stem(context, tower),
        context.norm("mlp1", 2 * joined + (joined + 1) * text_hidden + (text_hidden + 1) * text_hidden),
    )
    tiles = config.integer("max_dynamic_patch", default=INTERNVL_TILES, most=4096) + 1
    towers = (*tower_parts(outside), *(_split_by_heads(part, tower) for part in parts))
    encoder = _encoder(tower, tower.patches // (ratio * ratio), tiles)
    return with_towers(context, text_builder(view), view, towers, (encoder,))


def _split_by_heads(part: Part, tower: Tower) -> ResidentPart:
    """Attention stands whole where the heads do not divide; the MLP is split all the same."""
    alone = tower.heads if part.name.startswith("vision attn") else None
    return tower_parts((part,), heads=alone)[0]


def _ratio(config: ConfigView) -> int:
    """Patches joined along each side."""
    ratio = config.number("downsample_ratio", default=0.5)
    if not 0 < ratio <= 1:
        raise config.error("downsample_ratio", "must lie between 0 and 1")
    return min(4096, int(1 / ratio))


def _intern_tower(vision: ConfigView, image: int) -> Tower:
    hidden = vision.integer("hidden_size", default=3200)
    heads = vision.integer("num_attention_heads", default=25)
    if hidden % heads:
        raise vision.error("num_attention_heads", f"is {heads}, which does not divide hidden_size {hidden}")
    value = vision.raw("patch_size")
    sides = value if isinstance(value, (list, tuple)) and value else [value if value is not None else 14]
    patch = ConfigView({"patch_size": sides[0]}, vision.place).integer("patch_size", most=MOST_SIDE)
    return Tower(
        hidden=hidden,
        heads=heads,
        wide=vision.integer("intermediate_size", default=12800),
        layers=vision.integer("num_hidden_layers", default=48, most=MOST_LAYERS),
        patch=patch,
        image=max(patch, image),
        channels=vision.integer("num_channels", default=3, most=64),
        class_token=True,
    )


def _intern_stem(context: Context, tower: Tower) -> Part:
    """Patches with bias, class token and positions."""
    kernel = tower.channels * tower.patch * tower.patch
    return context.norm("patches, class token, positions", tower.hidden * (kernel + 2 + tower.positions))


def _intern_layer(context: Context, tower: Tower, vision: ConfigView, index: int) -> tuple[Part, ...]:
    path, hidden = f"vision_model.encoder.layers.{index}", tower.hidden
    one = Partition(units=tower.heads, unit_size=hidden // tower.heads)
    norms = 2 * hidden if vision.text("norm_type", default="rms_norm") == "rms_norm" else 4 * hidden
    inner = 2 * hidden if vision.flag("qk_normalization", default=True) else 0
    attention = (
        context.linear(
            f"{path}.attn.qkv", hidden, (one, one, one), Shard.COLUMN, bias=vision.flag("qkv_bias")
        ),
        context.linear(f"{path}.attn.proj", one, hidden, Shard.ROW, bias=True),
    )
    mlp = (
        context.linear(f"{path}.mlp.fc1", hidden, tower.wide, Shard.COLUMN, bias=True),
        context.linear(f"{path}.mlp.fc2", tower.wide, hidden, Shard.ROW, bias=True),
    )
    return (
        *repeated(attention, "vision attn"),
        *repeated(mlp, "vision mlp"),
        context.norm("norms, scales, q_norm, k_norm", norms + 2 * hidden + inner),
    )


def build_intern_s1(context: Context) -> Blueprint:
    """InternVL and Intern-S1 in transformers' form: attention whole on every rank."""
    config = context.config
    view = inherited(context, "text_config")
    vision = config.view("vision_config")
    value = vision.raw("image_size")
    sides = value if isinstance(value, (list, tuple)) and value else [value if value is not None else 448]
    image = ConfigView({"image_size": sides[0]}, vision.place).integer("image_size", most=MOST_SIDE)
    tower = _intern_tower(vision, image)
    ratio = _ratio(config)
    joined, text_hidden = tower.hidden * ratio * ratio, view.integer("hidden_size")
    projector = 2 * joined + (joined + 1) * text_hidden + (text_hidden + 1) * text_hidden
    parts: list[Part] = [_intern_stem(context, tower), context.norm("projector", projector)]
    for index in range(tower.layers):
        parts += _intern_s1_layer(context, tower, vision, index)
    encoder = _encoder(tower, tower.patches // (ratio * ratio), INTERNVL_TILES + 1)
    return with_towers(context, text_builder(view, default="qwen2"), view, tower_parts(parts), (encoder,))


def _intern_s1_layer(context: Context, tower: Tower, vision: ConfigView, index: int) -> tuple[Part, ...]:
    path, hidden = f"vision_tower.encoder.layer.{index}", tower.hidden
    bias = vision.flag("attention_bias")
    norms = 2 * hidden if vision.text("norm_type", default="layer_norm") == "rms_norm" else 4 * hidden
    inner = 2 * hidden if vision.flag("use_qk_norm") else 0
    linears = (
        *(
            context.linear(f"{path}.attention.{name}", hidden, hidden, Shard.REPLICATED, bias=bias)
            for name in ("q_proj", "k_proj", "v_proj")
        ),
        context.linear(f"{path}.attention.projection_layer", hidden, hidden, Shard.REPLICATED, bias=True),
        context.linear(f"{path}.mlp.fc1", hidden, tower.wide, Shard.COLUMN, bias=True),
        context.linear(f"{path}.mlp.fc2", tower.wide, hidden, Shard.ROW, bias=True),
    )
    return (*repeated(linears, "vision"), context.norm("norms, scales", norms + 2 * hidden + inner))


def build_idefics3(context: Context) -> Blueprint:
    """Idefics 3 and SmolVLM: one matrix on every rank joins patches; no pipeline parallelism."""
    config = context.config
    view = inherited(context, "text_config")
    tower = tower_of(config.view("vision_config"), clip=False)
    scale = config.integer("scale_factor", default=2, most=4096)
    path = "model.vision_model"
    towers = tuple(
        part for part in clip_tower(context, tower, path, post_norm=True, any_width=True) if not part.buffer
    )
    joined = tower.hidden * scale * scale
    connector = context.linear(
        "model.connector.modality_projection.proj", joined, view.integer("hidden_size"), Shard.REPLICATED
    )
    encoder = _encoder(tower, max(1, tower.patches // (scale * scale)), IDEFICS_TILES + 1)
    made = with_towers(
        context,
        text_builder(view),
        view,
        (*towers, *tower_parts((connector,))),
        (encoder,),
        prefix="model.text_",
    )
    return replace(made, supports_pipeline=False)


def build_cohere2_vision(context: Context) -> Blueprint:
    """Command A Vision: SigLIP, patches joined two by two, a gated projector."""
    config = context.config
    view = inherited(context, "text_config")
    tower = tower_of(config.view("vision_config"), clip=False)
    down = config.integer("downsample_factor", default=2, most=4096)
    wide = config.integer("alignment_intermediate_size", default=36864)
    half = Partition(units=max(1, wide // 2))
    hidden = view.integer("hidden_size", default=8192)
    path = "multi_modal_projector"
    projector = (
        context.linear(f"{path}.linear_1", tower.hidden * down * down, (half, half), Shard.COLUMN, bias=True),
        context.linear(f"{path}.linear_2", half, hidden, Shard.ROW, bias=True),
    )
    towers = (*clip_tower(context, tower, "vision_tower.vision_model"), *tower_parts(projector))
    encoder = _encoder(tower, max(1, tower.patches // (down * down)), COHERE_TILES + 1)
    return with_towers(context, text_builder(view, default="cohere2"), view, towers, (encoder,))


def build_paddleocr_vl(context: Context) -> Blueprint:
    """PaddleOCR-VL: SigLIP on images of any size, a projector whole on every rank, ERNIE 4.5; no pipeline parallelism."""
    config = context.config
    view = inherited(context, "text_config") if "text_config" in config else config
    vision = config.view("vision_config")
    tower = tower_of(vision, clip=False)
    merge = vision.integer("spatial_merge_size", default=2, most=64)
    joined, hidden = tower.hidden * merge * merge, view.integer("hidden_size", default=1024)
    projector = context.norm("projector", 2 * tower.hidden + (joined + 1) * joined + (joined + 1) * hidden)
    tokens = max(1, LARGEST_PADDLE_IMAGE // (tower.patch * merge) ** 2)
    encoder = replace(
        _encoder(tower, tokens, 1), tokens_per_item=tokens, patches_per_item=tokens * merge * merge
    )
    towers = (*clip_tower(context, tower, "visual.vision_model", post_norm=True), *tower_parts((projector,)))
    builder = mrope(BY_ARCHITECTURE["Ernie4_5ForCausalLM"])
    return replace(with_towers(context, builder, view, towers, (encoder,)), supports_pipeline=False)


BUILDERS: dict[str, Builder] = {
    "InternVLChatModel": build_internvl,
    "InternVLForConditionalGeneration": build_intern_s1,
    "InternS1ForConditionalGeneration": build_intern_s1,
    "Idefics3ForConditionalGeneration": build_idefics3,
    "SmolVLMForConditionalGeneration": build_idefics3,
    "Cohere2VisionForConditionalGeneration": build_cohere2_vision,
    "PaddleOCRVLForConditionalGeneration": build_paddleocr_vl,
    "SkyworkR1VChatModel": build_internvl,
    "H2OVLChatModel": build_internvl,
}
