"""Gemma 1 to 3: scaled embeddings on every pipeline stage, sliding layers, SigLIP before Gemma 3.

vLLM 0.32: vllm/model_executor/models/{gemma,gemma2,gemma3,gemma3_mm}.py.
"""

from gpuplan.domain.model import Encoder, Part, Partition, Tensor
from gpuplan.engine.architectures.clip_vision import clip_tower, tower_of
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import Blueprint, Context
from gpuplan.engine.architectures.decoder import HeadNorms, Recipe, Sizes, decoder, sliding_layers
from gpuplan.engine.architectures.rotary import tables_in_use, text_rotary
from gpuplan.engine.architectures.wrapping import inherited, tower_parts, with_towers

HEAD_SIZE = 256
GEMMA2_WINDOW, GEMMA3_WINDOW = 4096, 4096
GEMMA2_PERIOD, GEMMA3_PERIOD = 2, 6
"""Every so-manieth layer is full."""
LOCAL_ROTATION = ConfigView({}, "rope_parameters")


def _sizes(config: ConfigView, *, kv_default: int | None = None) -> Sizes:
    """Gemma's heads are 256 wide whatever the hidden size."""
    view = (
        config if "head_dim" in config else ConfigView({**config.values, "head_dim": HEAD_SIZE}, config.place)
    )
    return Sizes.of(view, kv_default=kv_default)


def build_gemma(context: Context) -> Blueprint:
    """Gemma 1."""
    config = context.config
    size = _sizes(config)
    rotary = text_rotary(_with_positions(config, 8192), size.head_size, context.itemsize)
    recipe = Recipe(
        tied=config.flag("tie_word_embeddings", default=True), everywhere=True, norm_everywhere=True
    )
    return decoder(context, size, recipe, rotary)


def build_gemma2(context: Context) -> Blueprint:
    """Gemma 2: four norms a layer, every other layer slides."""
    config = context.config
    size = _sizes(config, kv_default=4)
    bias = config.flag("attention_bias")
    recipe = Recipe(
        qkv_bias=bias,
        output_bias=bias,
        norms=4,
        sliding=sliding_layers(config, size.layers, period=GEMMA2_PERIOD),
        window=config.integer("sliding_window", default=GEMMA2_WINDOW),
        tied=config.flag("tie_word_embeddings", default=True),
        everywhere=True,
        norm_everywhere=True,
    )
    rotary = text_rotary(_with_positions(config, 8192), size.head_size, context.itemsize)
    return decoder(context, size, recipe, rotary)


def build_gemma3(context: Context) -> Blueprint:
    """Gemma 3 without its tower: the full layers rotate with their own, scaled table."""
    config = context.config
    size = _sizes(config, kv_default=4)
    bias = config.flag("attention_bias")
    period = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=GEMMA3_PERIOD)
    positions = _with_positions(config, 131072)
    causal = not config.flag("use_bidirectional_attention")
    recipe = Recipe(
        qkv_bias=bias,
        output_bias=bias,
        norms=4,
        head_norms=HeadNorms.HEAD,
        sliding=sliding_layers(config, size.layers, period=period),
        window=config.integer("sliding_window", default=GEMMA3_WINDOW),
        tied=config.flag("tie_word_embeddings", default=True),
        everywhere=True,
        norm_everywhere=True,
        caches=causal,
    )
    scaled = text_rotary(positions, size.head_size, context.itemsize, layer_type="full_attention")
    local = text_rotary(positions, size.head_size, context.itemsize, rope=LOCAL_ROTATION)
    return decoder(context, size, recipe, *tables_in_use(recipe.sliding, local, scaled))


def _with_positions(config: ConfigView, default: int) -> ConfigView:
    if "max_position_embeddings" in config:
        return config
    return ConfigView({**config.values, "max_position_embeddings": default}, config.place)


def build_gemma3_vision(context: Context) -> Blueprint:
    """Gemma 3 with SigLIP; a plain matrix projects its pooled patches."""
    config = context.config
    view = inherited(context, "text_config")
    hidden = view.integer("hidden_size", default=2304)
    vision = config.view("vision_config")
    tower = tower_of(vision, clip=False)
    head = vision.flag("vision_use_head", default=False)
    parts = clip_tower(context, tower, "vision_tower.vision_model", head=head)
    projector: tuple[Part, ...] = (
        Tensor(
            name="projection", partition=Partition(units=tower.hidden * hidden), itemsize=context.itemsize
        ),
        context.norm("mm_soft_emb_norm", tower.hidden),
    )
    encoder = Encoder(
        kind="vision",
        heads=tower.heads,
        hidden=tower.hidden,
        layers=tower.layers,
        intermediate=tower.wide,
        tokens_per_item=config.integer("mm_tokens_per_image", default=256),
        patches_per_item=tower.patches,
    )
    return with_towers(context, build_gemma3, view, (*parts, *tower_parts(projector)), (encoder,))


BUILDERS = {
    "GemmaForCausalLM": build_gemma,
    "Gemma2ForCausalLM": build_gemma2,
    "Gemma2Model": build_gemma2,
    "Gemma3ForCausalLM": build_gemma3,
    "Gemma3TextModel": build_gemma3,
    "Gemma3ForConditionalGeneration": build_gemma3_vision,
}
