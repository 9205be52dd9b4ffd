"""MiniCPM-V 2.5, 2.6, 4 and 4.5, MiniCPM-o 2.6 and 4.5: an Idefics 2 tower, a resampler to a fixed number of tokens, a decoder.

vLLM 0.32: vllm/model_executor/models/{minicpmv,minicpmo,idefics2_vision_model}.py, layers/resampler.py.
"""

from collections.abc import Mapping

from gpuplan.domain.model import Encoder, Part, Partition, ResidentPart, Shard, Tensor
from gpuplan.engine.architectures.audio import SOURCE_POSITIONS, whole_encoder
from gpuplan.engine.architectures.clip_vision import Tower, clip_tower, tower_of
from gpuplan.engine.architectures.config_view import ConfigView
from gpuplan.engine.architectures.context import Blueprint, Builder, Context
from gpuplan.engine.architectures.dense import build_qwen2, build_qwen3
from gpuplan.engine.architectures.misc_dense import build_llama_like
from gpuplan.engine.architectures.wrapping import tower_buffer, tower_parts, with_towers

SIDES = 70
"""Positions along each side of the resampler's table."""
FRAMES = 36000
"""Positions in time of 4.5's resampler."""
SLICES = 9
LANGUAGE: Mapping[str, Builder] = {
    "2.5": build_llama_like,
    "2.6": build_qwen2,
    "4.0": build_llama_like,
    "4.5": build_qwen3,
}


def _version(config: ConfigView) -> str:
    """The release: `version` as a number, else told by the widths (minicpmv.py `MiniCPMV.__new__`)."""
    value = config.raw("version")
    if value is None:
        wide = config.integer("hidden_size") == 2304 and config.integer("query_num", default=64) == 64
        return "2.0" if wide else "2.5"
    text = str(value)
    return text if "." in text else f"{text}.0"


def build_minicpm_v(context: Context) -> Blueprint:
    """The decoder named by the release; tower and resampler whole on every pipeline stage."""
    config = context.config
    version = _version(config)
    builder = LANGUAGE.get(version)
    if builder is None:
        raise config.error("version", f"is {version[:20]}, a release that is not known")
    towers, encoder = minicpm_towers(context, version)
    return with_towers(context, builder, config, towers, (encoder,), prefix="llm.")


def minicpm_towers(context: Context, version: str) -> tuple[tuple[ResidentPart, ...], Encoder]:
    """The tower, without its last layer where the config says so, and the resampler."""
    config = context.config
    tower = tower_of(config.view("vision_config"), clip=False)
    used = tower.layers - 1 if config.flag("drop_vision_last_layer") else tower.layers
    eyes = tuple(
        part
        for part in clip_tower(context, tower, "vpm", used=used, post_norm=True, any_width=True)
        if not part.buffer
    )
    queries = config.integer("query_num", default=64, most=1 << 16)
    encoder = Encoder(
        kind="vision",
        heads=tower.heads,
        hidden=tower.hidden,
        layers=used,
        intermediate=tower.wide,
        tokens_per_item=queries * (SLICES + 1),
        patches_per_item=tower.positions * (SLICES + 1),
    )
    return (*eyes, *_resampler(context, tower, config.integer("hidden_size"), queries, version)), encoder


def _resampler(
    context: Context, tower: Tower, width: int, queries: int, version: str
) -> tuple[ResidentPart, ...]:
    """Queries, torch's own attention, three norms and a matrix, whole on every rank; tables of sines."""
    attention = 4 * width * (width + 1)
    parts: list[Part] = [
        context.norm("query, attention, norms, proj", queries * width + attention + 6 * width + width * width)
    ]
    if tower.hidden != width:
        parts.append(context.linear("resampler.kv_proj", tower.hidden, width, Shard.REPLICATED))
    rows = SIDES * SIDES + (FRAMES if version == "4.5" else 0)
    table = Tensor(name="positions", partition=Partition(units=rows * width), itemsize=context.itemsize)
    return (*tower_parts(parts), tower_buffer(table))


def build_minicpm_o(context: Context) -> Blueprint:
    """MiniCPM-V with Whisper's encoder and two matrices to the width of the decoder."""
    config = context.config
    version = _version(config) if "version" in config else "2.6"
    builder = LANGUAGE.get(version)
    if builder is None or version not in {"2.6", "4.5"}:
        raise config.error("version", f"is {version[:20]}, a release that is not known")
    eyes, watcher = minicpm_towers(context, version)
    audio = config.view("audio_config")
    hidden = config.integer("hidden_size")
    narrow = audio.integer("encoder_ffn_dim", default=4096) // 4
    projector = (narrow + 1) * hidden + (hidden + 1) * hidden
    step = config.integer("audio_pool_step", default=2, most=64)
    ears, listener = whole_encoder(
        context, audio, projected=max(1, SOURCE_POSITIONS // step), projector=projector
    )
    return with_towers(context, builder, config, (*eyes, *ears), (watcher, listener), prefix="llm.")


BUILDERS: dict[str, Builder] = {"MiniCPMV": build_minicpm_v, "MiniCPMO": build_minicpm_o}
