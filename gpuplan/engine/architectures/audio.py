"""Speech: Whisper with cross attention, and Whisper's encoder before a language model.

vLLM 0.32: vllm/model_executor/models/{whisper,qwen2_audio}.py.
"""

from gpuplan.domain.model import (
    Cache,
    CacheKind,
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
from gpuplan.engine.architectures.context import MOST_LAYERS, Blueprint, Builder, Context, attention_cache
from gpuplan.engine.architectures.text_builders import text_builder
from gpuplan.engine.architectures.wrapping import inherited, repeated, tower_parts, with_towers

SOURCE_POSITIONS = 1500
KERNEL = 3
FLOAT32 = 4
AUDIO_TOKENS = 750
"""Tokens of 30 seconds after pooling by two."""


def build_whisper(context: Context) -> Blueprint:
    """Whisper: an encoder, and decoder layers with a cache of their own and one of the encoder's output."""
    config = context.config
    hidden, heads = (
        config.integer("d_model", default=512),
        config.integer("decoder_attention_heads", default=8),
    )
    if hidden % heads:
        raise config.error("decoder_attention_heads", f"is {heads}, which does not divide d_model {hidden}")
    size = hidden // heads
    wide = config.integer("decoder_ffn_dim", default=2048)
    count = config.integer("decoder_layers", "num_hidden_layers", default=6, most=MOST_LAYERS)
    cross = Cache(kind=CacheKind.CROSS, heads=heads, head_size=size)

    def layer(index: int) -> Layer:
        path = f"model.decoder.layers.{index}"
        return Layer(
            name="decoder",
            parts=(
                *_attention(context, f"{path}.self_attn", hidden, heads),
                *_cross_attention(context, f"{path}.encoder_attn", hidden, heads),
                *_mlp(context, f"{path}.mlp", hidden, wide),
                context.norm("three norms", 3 * hidden, bias=True),
            ),
            caches=(attention_cache(heads, size), cross),
            intermediate=wide,
        )

    vocabulary = config.integer("vocab_size", default=51865)
    table = Embedding(
        name="embed_tokens",
        rows=vocabulary,
        width=hidden,
        itemsize=context.itemsize,
        padding=1,
        sharded=False,
    )
    positions = config.integer("max_target_positions", default=448)
    outside: tuple[Part, ...] = (
        table,
        context.norm("positions", positions * hidden),
        context.norm("layer_norm", hidden, bias=True),
    )
    encoder_layers = config.integer("encoder_layers", default=6, most=MOST_LAYERS)
    encoder_heads = config.integer("encoder_attention_heads", default=heads)
    encoder_wide = config.integer("encoder_ffn_dim", default=wide)
    encoder = whisper_encoder(
        context, config, "model.encoder", hidden, encoder_heads, encoder_wide, encoder_layers
    )
    source = config.integer("max_source_positions", default=SOURCE_POSITIONS)
    return Blueprint(
        layers=tuple(layer(index) for index in range(count)),
        parts=tuple(ResidentPart(part=part, residence=Residence.EVERY) for part in (*outside, *encoder)),
        hidden=hidden,
        vocabulary=vocabulary,
        attention_heads=heads,
        kv_heads=heads,
        head_size=size,
        encoders=(_facts(encoder_heads, hidden, encoder_layers, encoder_wide, tokens=source, frames=source),),
        supports_pipeline=False,
        text_view=ConfigView({**config.values, "max_position_embeddings": positions}, config.place),
    )


def _facts(heads: int, hidden: int, layers: int, wide: int, *, tokens: int, frames: int) -> Encoder:
    return Encoder(
        kind="audio",
        heads=heads,
        hidden=hidden,
        layers=layers,
        intermediate=wide,
        tokens_per_item=tokens,
        patches_per_item=frames,
    )


def whisper_encoder(
    context: Context, config: ConfigView, path: str, hidden: int, heads: int, wide: int, layers: int
) -> tuple[Part, ...]:
    """Two convolutions, positions and encoder layers divided over the ranks."""
    parts: list[Part] = [_stem(context, config, hidden), context.norm("layer_norm", hidden, bias=True)]
    for index in range(layers):
        parts += (
            *_attention(context, f"{path}.layers.{index}.self_attn", hidden, heads),
            *_mlp(context, f"{path}.layers.{index}.mlp", hidden, wide),
            context.norm("two norms", 2 * hidden, bias=True),
        )
    return tuple(parts)


def _stem(context: Context, config: ConfigView, hidden: int, *, learned_positions: bool = True) -> Tensor:
    """Convolutions over mel bins and time, and the learned positions."""
    bins = config.integer("num_mel_bins", default=80, most=1 << 16)
    source = config.integer("max_source_positions", default=SOURCE_POSITIONS) if learned_positions else 0
    return context.norm(
        "convolutions, positions",
        hidden * (KERNEL * bins + 1) + hidden * (KERNEL * hidden + 1) + source * hidden,
    )


def _attention(context: Context, path: str, hidden: int, heads: int) -> tuple[Part, ...]:
    one = Partition(units=heads, unit_size=max(1, hidden // heads))
    return repeated(
        (
            context.linear(
                f"{path}.qkv_proj",
                hidden,
                (one, one, one),
                Shard.COLUMN,
                bias=True,
                fused=("q_proj", "k_proj", "v_proj"),
            ),
            context.linear(f"{path}.out_proj", one, hidden, Shard.ROW, bias=True),
        ),
        "self",
    )


def _cross_attention(context: Context, path: str, hidden: int, heads: int) -> tuple[Part, ...]:
    one = Partition(units=heads, unit_size=max(1, hidden // heads))
    return (
        context.linear(f"{path}.q_proj", hidden, one, Shard.COLUMN, bias=True),
        context.linear(
            f"{path}.kv_proj", hidden, (one, one), Shard.COLUMN, bias=True, fused=("k_proj", "v_proj")
        ),
        context.linear(f"{path}.out_proj", one, hidden, Shard.ROW, bias=True),
    )


def _mlp(context: Context, path: str, hidden: int, wide: int) -> tuple[Part, ...]:
    return repeated(
        (
            context.linear(f"{path}.fc1", hidden, wide, Shard.COLUMN, bias=True),
            context.linear(f"{path}.fc2", wide, hidden, Shard.ROW, bias=True),
        ),
        "mlp",
    )


def whole_encoder(
    context: Context, audio: ConfigView, *, projected: int, projector: int = 0, learned_positions: bool = True
) -> tuple[tuple[ResidentPart, ...], Encoder]:
    """Whisper's encoder as transformers builds it, whole on every rank: no bias of the key projection."""
    hidden = audio.integer("d_model", "hidden_size", default=1280)
    heads = audio.integer("encoder_attention_heads", "num_attention_heads", default=20)
    wide = audio.integer("encoder_ffn_dim", "intermediate_size", default=4 * hidden)
    count = audio.integer("encoder_layers", "num_hidden_layers", default=32, most=MOST_LAYERS)
    one_layer = 4 * hidden * hidden + 3 * hidden + 2 * hidden * wide + wide + hidden + 4 * hidden
    bins = ConfigView({"num_mel_bins": 128, **audio.values}, audio.place)
    parts = (
        _stem(context, bins, hidden, learned_positions=learned_positions),
        context.norm("layer_norm", hidden, bias=True),
        *(context.norm("encoder layer", one_layer) for _ in range(count)),
        *((context.norm("projector", projector),) if projector else ()),
    )
    encoder = _facts(heads, hidden, count, wide, tokens=projected, frames=SOURCE_POSITIONS)
    return tower_parts(parts, tower="audio", tensor_parallel=False), encoder


def build_qwen2_audio(context: Context) -> Blueprint:
    """Qwen2-Audio: Whisper's encoder, one linear layer, Qwen2."""
    config = context.config
    view = inherited(context, "text_config")
    audio = config.view("audio_config")
    width = audio.integer("d_model", default=1280)
    hidden = view.integer("hidden_size", default=4096)
    parts, encoder = whole_encoder(context, audio, projected=AUDIO_TOKENS, projector=(width + 1) * hidden)
    return with_towers(context, text_builder(view, default="qwen2"), view, parts, (encoder,))


def build_voxtral(context: Context) -> Blueprint:
    """Voxtral (voxtral.py): Whisper's encoder divided over the ranks, two matrices over joined frames, Llama."""
    config = context.config
    view = inherited(context, "text_config")
    audio = config.view("audio_config")
    width = audio.integer("d_model", "hidden_size", default=1280)
    heads = audio.integer("encoder_attention_heads", "num_attention_heads", default=20)
    wide = audio.integer("encoder_ffn_dim", "intermediate_size", default=5120)
    count = audio.integer("encoder_layers", "num_hidden_layers", default=32, most=MOST_LAYERS)
    down = audio.integer("downsample_factor", default=4, most=4096)
    hidden = view.integer("hidden_size", default=3072)
    bins = ConfigView({"num_mel_bins": 128, **audio.values}, audio.place)
    encoder = whisper_encoder(context, bins, "whisper_encoder.whisper_encoder", width, heads, wide, count)
    positions = audio.integer("max_source_positions", default=SOURCE_POSITIONS)
    doubled = context.norm(
        "positions in float32", positions * width * (FLOAT32 - context.itemsize) // context.itemsize
    )
    adapter = context.norm("w_in, w_out", hidden * (down * width + hidden))
    facts = _facts(heads, width, count, wide, tokens=max(1, positions // down), frames=positions)
    towers = tower_parts((*encoder, doubled, adapter), tower="audio")
    return with_towers(context, text_builder(view), view, towers, (facts,))


BUILDERS: dict[str, Builder] = {
    "WhisperForConditionalGeneration": build_whisper,
    "VoxtralForConditionalGeneration": build_voxtral,
    "Qwen2AudioForConditionalGeneration": build_qwen2_audio,
}
