"""Gemma 3n: alternating updates, low-rank residuals, per-layer embeddings, half the layers without a cache of their own.

vLLM 0.32: vllm/model_executor/models/{gemma3n,gemma3n_mm}.py; the vision tower is timm's MobileNet V5.
"""

from dataclasses import replace

from gpuplan.domain.model import (
    Embedding,
    Encoder,
    Layer,
    Part,
    Partition,
    Residence,
    ResidentPart,
    Shard,
    Tensor,
)
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
from gpuplan.engine.architectures.decoder import sliding_layers
from gpuplan.engine.architectures.rotary import tables_in_use, text_rotary
from gpuplan.engine.architectures.wrapping import inherited, tower_parts, with_towers

PERIOD = 5
"""Every fifth layer is full."""
FLOAT32 = 4
MOBILENET_PARAMETERS = 294_000_000
"""MobileNet V5 300M's encoder, whose sizes no config gives."""
VISION_TOKENS, AUDIO_TOKENS = 256, 188
LOCAL_ROTATION = ConfigView({}, "rope_parameters")


def build_gemma3n(context: Context) -> Blueprint:
    """The language model; pipeline parallelism is not supported."""
    config = context.config
    hidden, count = config.integer("hidden_size", default=2048), layer_count(config)
    shared = config.integer("num_kv_shared_layers", default=15, least=0)
    if shared > count:
        raise config.error("num_kv_shared_layers", f"is {shared}, more than the {count} layers")
    sliding = sliding_layers(config, count, period=PERIOD)
    inputs = config.integer("altup_num_inputs", default=4, most=256)
    narrow = config.integer("hidden_size_per_layer_input", default=256)
    vocabulary = config.integer("vocab_size", default=262400)
    head = config.integer("head_dim", default=256)
    layers = tuple(
        _layer(context, config, index, sliding[index], index >= count - shared) for index in range(count)
    )
    table = Embedding(
        name="embed_tokens_per_layer",
        rows=config.integer("vocab_size_per_layer_input", default=262144),
        width=count * narrow,
        itemsize=context.itemsize,
    )
    every: tuple[Part, ...] = (
        table,
        context.linear("model.self_decoder.per_layer_model_projection", hidden, count * narrow, Shard.COLUMN),
        context.norm("per_layer_projection_norm, norm", narrow + hidden),
        *(
            context.linear(f"model.altup_projections.{index}", hidden, hidden, Shard.COLUMN)
            for index in range(2 * (inputs - 1))
        ),
    )
    tables = context.vocabulary_parts(vocabulary, hidden, tied=True, everywhere=True)
    positions = config.integer("max_position_embeddings", default=32768, least=0)
    view = ConfigView({**config.values, "max_position_embeddings": positions}, config.place)
    rotary = tables_in_use(
        sliding,
        text_rotary(view, head, context.itemsize, rope=LOCAL_ROTATION),
        text_rotary(view, head, context.itemsize, layer_type="full_attention"),
    )
    return Blueprint(
        layers=layers,
        parts=(*tables, *(ResidentPart(part=part, residence=Residence.EVERY) for part in every), *rotary),
        hidden=hidden,
        vocabulary=vocabulary,
        attention_heads=config.integer("num_attention_heads", default=8),
        kv_heads=config.integer("num_key_value_heads", default=2),
        head_size=head,
        supports_pipeline=False,
    )


def _wide(config: ConfigView, index: int) -> int:
    """Width of a layer's MLP: one number, or one per layer."""
    value = config.raw("intermediate_size")
    if isinstance(value, (list, tuple)):
        if index >= len(value):
            raise config.error("intermediate_size", "does not hold one number for each layer")
        return ConfigView({"intermediate_size": value[index]}, config.place).integer("intermediate_size")
    return config.integer("intermediate_size", default=16384)


def _layer(context: Context, config: ConfigView, index: int, slides: bool, shared: bool) -> Layer:
    path = f"model.layers.{index}"
    hidden = config.integer("hidden_size", default=2048)
    heads = config.integer("num_attention_heads", default=8)
    kv_heads = config.integer("num_key_value_heads", default=2)
    head = config.integer("head_dim", default=256)
    wide = _wide(config, index)
    bias = config.flag("attention_bias")
    qkv, output = context.attention(
        f"{path}.self_attn", hidden, heads, kv_heads, head, bias=bias, output_bias=bias
    )
    if shared:
        qkv = context.linear(f"{path}.self_attn.q_proj", hidden, heads * head, Shard.COLUMN, bias=bias)
    window = config.integer("sliding_window", default=512) if slides else None
    return Layer(
        name="sliding" if slides else "full",
        parts=parts_of(
            qkv,
            output,
            context.norm("q_norm, k_norm", head if shared else 2 * head),
            context.gated_mlp(f"{path}.mlp", hidden, wide),
            _updates(context, config, path, hidden),
            context.norm("five norms", 5 * hidden),
        ),
        caches=() if shared else (attention_cache(kv_heads, head, window=window),),
        intermediate=wide,
    )


def _updates(context: Context, config: ConfigView, path: str, hidden: int) -> tuple[Part, ...]:
    """Alternating updates, the low-rank residual and the per-layer input."""
    inputs = config.integer("altup_num_inputs", default=4, most=256)
    rank = config.integer("laurel_rank", default=64)
    narrow = config.integer("hidden_size_per_layer_input", default=256)
    return (
        context.linear(f"{path}.altup.correction_coefs", inputs, inputs, Shard.REPLICATED),
        context.linear(f"{path}.altup.prediction_coefs", inputs, inputs * inputs, Shard.REPLICATED),
        context.linear(f"{path}.altup.modality_router", hidden, inputs, Shard.REPLICATED),
        context.norm("router_norm, post_laurel_norm", 2 * hidden),
        Tensor(name="correct_output_scale", partition=Partition(units=hidden), itemsize=FLOAT32),
        context.linear(f"{path}.laurel.linear_left", hidden, rank, Shard.COLUMN),
        context.linear(f"{path}.laurel.linear_right", rank, hidden, Shard.ROW),
        context.linear(f"{path}.per_layer_input_gate", hidden, narrow, Shard.REPLICATED),
        context.linear(f"{path}.per_layer_projection", narrow, hidden, Shard.REPLICATED),
    )


def build_gemma3n_towers(context: Context) -> Blueprint:
    """With its towers, whole on every rank; the vision tower's size is the published one."""
    config = context.config
    view = inherited(context, "text_config")
    vision, audio = config.view("vision_config"), config.view("audio_config")
    text_hidden = view.integer("hidden_size", default=2048)
    seen = vision.integer("hidden_size", default=2048)
    heard = audio.integer("hidden_size", default=1536)
    layers = audio.integer("conf_num_hidden_layers", default=12, most=MOST_LAYERS)
    eyes = (
        context.norm("MobileNet V5", MOBILENET_PARAMETERS),
        *_embedder(context, "embed_vision", seen, text_hidden, vision.integer("vocab_size", default=128)),
    )
    ears = (
        context.norm("conformer", layers * 26 * heard * heard),
        *_embedder(context, "embed_audio", heard, text_hidden, audio.integer("vocab_size", default=128)),
    )
    encoders = (
        _facts("vision", heads=8, hidden=seen, layers=1, tokens=VISION_TOKENS),
        _facts("audio", heads=8, hidden=heard, layers=layers, tokens=AUDIO_TOKENS),
    )
    towers = (
        *tower_parts(eyes, tensor_parallel=True),
        *tower_parts(ears, tower="audio", tensor_parallel=True),
    )
    made = with_towers(context, build_gemma3n, view, towers, encoders)
    return replace(made, assumptions=("the towers of Gemma 3n are counted with their published sizes",))


def _embedder(context: Context, path: str, width: int, text_hidden: int, vocabulary: int) -> tuple[Part, ...]:
    return (
        Embedding(name=path, rows=vocabulary, width=width, itemsize=context.itemsize),
        context.norm("embedding norms", 2 * width),
        context.linear(f"{path}.embedding_projection", width, text_hidden, Shard.ROW),
    )


def _facts(kind: str, *, heads: int, hidden: int, layers: int, tokens: int) -> Encoder:
    return Encoder(
        kind=kind,
        heads=heads,
        hidden=hidden,
        layers=layers,
        intermediate=4 * hidden,
        tokens_per_item=tokens,
        patches_per_item=tokens,
        data_parallel=True,
    )


BUILDERS: dict[str, Builder] = {
    "Gemma3nForCausalLM": build_gemma3n,
    "Gemma3nForConditionalGeneration": build_gemma3n_towers,
}
