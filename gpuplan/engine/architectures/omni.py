"""Thinkers of Qwen2.5-Omni and Qwen3-Omni: an audio encoder and a vision tower before a Qwen decoder.

vLLM 0.32: vllm/model_executor/models/{qwen2_5_omni_thinker,qwen3_omni_moe_thinker}.py.
"""

from dataclasses import replace

from gpuplan.domain.model import Encoder, Part, Partition, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.audio import whole_encoder
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import MOST_LAYERS, Blueprint, Builder, Context
from gpuplan.engine.architectures.dense import build_qwen2, build_qwen3
from gpuplan.engine.architectures.moe import build_qwen3_moe
from gpuplan.engine.architectures.quantizer import NoQuantizer
from gpuplan.engine.architectures.qwen_vision import qwen3_vision
from gpuplan.engine.architectures.qwen_vl import mrope, qwen2_5_tower, text_of
from gpuplan.engine.architectures.rotary import MROPE_TIMES
from gpuplan.engine.architectures.wrapping import repeated, tower_buffer, tower_parts, with_towers

FLOAT32 = 4
SOURCE_POSITIONS = 1500
AUDIO_TOKENS = 7500
"""Five minutes, the longest the feature extractor of Qwen2.5-Omni takes, at 25 tokens a second."""
AUDIO_TOKENS_OF_QWEN3 = 390
"""Thirty seconds at 13 tokens a second."""


def _thinker(context: Context) -> Context:
    """The context of the thinker, which is all vLLM serves."""
    config = context.config
    return replace(context, config=config.view("thinker_config")) if "thinker_config" in config else context


def build_qwen2_5_omni(context: Context) -> Blueprint:
    """Qwen2.5-Omni: Whisper's encoder with computed positions, Qwen2.5-VL's tower."""
    context = _thinker(context)
    view, audio = text_of(context), context.config.view("audio_config")
    width, out = audio.integer("d_model", default=1280), audio.integer("output_dim", default=3584)
    source = audio.integer("max_source_positions", default=SOURCE_POSITIONS)
    ears, listener = whole_encoder(
        context, audio, projected=AUDIO_TOKENS, projector=(width + 1) * out + 2 * out, learned_positions=False
    )
    eyes, watcher = qwen2_5_tower(context)
    towers = (*ears, _computed_positions(source, width), *eyes)
    return with_towers(context, mrope(build_qwen2, times=MROPE_TIMES), view, towers, (watcher, listener))


def _computed_positions(positions: int, width: int) -> ResidentPart:
    """Sines of every position, in float32."""
    part = Tensor(name="audio positions", partition=Partition(units=positions * width), itemsize=FLOAT32)
    return tower_buffer(part, tower="audio")


def build_qwen3_omni(context: Context) -> Blueprint:
    """Qwen3-Omni: its own audio encoder, split where its heads divide, and Qwen3-VL's tower."""
    context = _thinker(context)
    view = text_of(context)
    ears, listener = _qwen3_audio(context, context.config.view("audio_config"))
    eyes, watcher = qwen3_vision(context, context.config.view("vision_config"))
    builder = mrope(build_qwen3_moe, times=MROPE_TIMES)
    return with_towers(context, builder, view, (*ears, *eyes), (watcher, listener))


def build_qwen3_asr(context: Context) -> Blueprint:
    """Qwen3-ASR: the same audio encoder, never quantized, before Qwen3."""
    context = _thinker(context)
    plain = replace(context, quantizer=NoQuantizer())
    ears, listener = _qwen3_audio(plain, context.config.view("audio_config"))
    return with_towers(context, mrope(build_qwen3), text_of(context), ears, (listener,))


def _qwen3_audio(context: Context, audio: ConfigView) -> tuple[tuple[ResidentPart, ...], Encoder]:
    hidden = audio.integer("d_model", default=1280)
    heads = audio.integer("encoder_attention_heads", default=20)
    wide = audio.integer("encoder_ffn_dim", default=5120)
    count = audio.integer("encoder_layers", default=32, most=MOST_LAYERS)
    middle = audio.integer("downsample_hidden_size", default=480)
    out = audio.integer("output_dim", default=3584)
    bins = audio.integer("num_mel_bins", default=128, most=1 << 16)
    if hidden % heads:
        raise audio.error("encoder_attention_heads", f"is {heads}, which does not divide d_model {hidden}")
    joined = middle * ((((bins + 1) // 2 + 1) // 2 + 1) // 2)
    convolutions = 10 * middle + 2 * (9 * middle + 1) * middle + joined * hidden
    projections = (hidden + 1) * hidden + (hidden + 1) * out
    outside = context.norm("convolutions, norm, projections", convolutions + 2 * hidden + projections)
    one = Partition(units=heads, unit_size=hidden // heads)
    layers: list[Part] = []
    for index in range(count):
        path = f"audio_tower.layers.{index}"
        linears = (
            context.linear(f"{path}.self_attn.qkv_proj", hidden, (one, one, one), Shard.COLUMN, bias=True),
            context.linear(f"{path}.self_attn.out_proj", one, hidden, Shard.ROW, bias=True),
            context.linear(f"{path}.fc1", hidden, wide, Shard.COLUMN, bias=True),
            context.linear(f"{path}.fc2", wide, hidden, Shard.ROW, bias=True),
        )
        layers += (*repeated(linears, "audio"), context.norm("two norms", 2 * hidden, bias=True))
    encoder = Encoder(
        kind="audio",
        heads=heads,
        hidden=hidden,
        layers=count,
        intermediate=wide,
        tokens_per_item=AUDIO_TOKENS_OF_QWEN3,
        patches_per_item=AUDIO_TOKENS_OF_QWEN3,
    )
    source = audio.integer("max_source_positions", default=SOURCE_POSITIONS)
    parts = (*tower_parts((outside,), tower="audio"), *tower_parts(layers, tower="audio", heads=heads))
    return (*parts, _computed_positions(source, hidden)), encoder


BUILDERS: dict[str, Builder] = {
    "Qwen2_5OmniModel": build_qwen2_5_omni,
    "Qwen2_5OmniForConditionalGeneration": build_qwen2_5_omni,
    "Qwen3OmniMoeForConditionalGeneration": build_qwen3_omni,
    "Qwen3ASRForConditionalGeneration": build_qwen3_asr,
    "Qwen3ASRRealtimeGeneration": build_qwen3_asr,
}
