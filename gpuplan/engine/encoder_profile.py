"""Memory of the multimodal tower's dry run, and what of it stays alive under the language model's.

`profile_run` encodes as many of the largest items as the encoder budget holds (max_num_batched_tokens, or one item) and
keeps their embeddings while the language model runs; the first model runner keeps the pixel values as well, which the
processor casts to the model's type. Releases 0.11 and 0.12 widened each item's embeddings to the whole budget and kept the
last item's own beside them. Per patch the tower holds four streams (a block's input, its normalised copy, the positions'
embedding, the output), and either its MLP's two widths or what attention has alive: packed and rotated queries, keys and
values, in float32 with torch's rotary up to 0.10, with a fused one up to 0.13. Logged: Qwen2-VL-2B 0.10.2 2.65 GiB for
65,536 patches, Qwen3.5-9B 0.19 1.8; kept: Qwen3-VL-30B 2.72 under 0.11 and 0.12, 0.45 under 0.13.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuplan.domain.model import Encoder, ModelProfile
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.rank_setting import RankSetting, runner_v2
from gpuplan.engine.versions import EngineVersion
from gpuplan.units import ceil_div

STREAMS = 4
ROTATED_IN_FLOAT32 = 12
ROTATED_FUSED = 11
ROTATED = 8
FUSED_SINCE = EngineVersion(0, 11)
PLAIN_SINCE = EngineVersion(0, 14)
WIDENED_SINCE = EngineVersion(0, 11)
WIDENED_UNTIL = EngineVersion(0, 13)
LEFT_OUT_BY_QWEN3_VL = EngineVersion(0, 11)
LEFT_OUT_SINCE = EngineVersion(0, 15)
UNLIMITED = 999
DEFAULT_INPUTS = 3 * 14 * 14


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderMemory:
    """Bytes: `peak` while the tower runs, `kept` while the language model does."""

    items: int
    patches: int
    peak: int
    kept: int


NOTHING = EncoderMemory(items=0, patches=0, peak=0, kept=0)


def encoder_memory(profile: ModelProfile, setting: RankSetting) -> EncoderMemory:
    """The tower whose items have most tokens; nothing without towers, or where they are not profiled."""
    engine = setting.engine
    if engine.language_model_only or engine.skip_mm_profiling:
        return NOTHING
    second = runner_v2(profile, setting)
    if second and setting.stage > 0:
        return NOTHING
    encoders = [encoder for encoder in profile.encoders if _limit(encoder, engine) > 0]
    if not encoders:
        return NOTHING
    encoder = max(encoders, key=lambda item: _planned(item, setting))
    planned = _planned(encoder, setting)
    budget = max(setting.max_num_batched_tokens, planned)
    items = max(1, min(budget // planned, setting.max_num_seqs * _limit(encoder, engine)))
    patches = items * encoder.patches_per_item
    inputs = (encoder.inputs_per_patch or DEFAULT_INPUTS) * patches
    itemsize, width = profile.itemsize, profile.hidden * encoder.output_levels
    widened = WIDENED_SINCE <= setting.version < WIDENED_UNTIL
    outputs = (
        (budget + encoder.tokens_per_item if widened else items * encoder.tokens_per_item) * width * itemsize
    )
    ranks = 1 if encoder.data_parallel or engine.mm_encoder_tp_mode == "data" else setting.parallelism.tensor
    inside = STREAMS * encoder.hidden + ceil_div(
        max(_attention(setting.version) * encoder.hidden, 2 * encoder.intermediate), ranks
    )
    pixels = inputs * itemsize
    return EncoderMemory(
        items=items,
        patches=patches,
        peak=patches * inside * itemsize + pixels,
        kept=outputs + (0 if second else pixels),
    )


def _attention(version: EngineVersion) -> int:
    if version >= PLAIN_SINCE:
        return ROTATED
    return ROTATED_FUSED if version >= FUSED_SINCE else ROTATED_IN_FLOAT32


def _planned(encoder: Encoder, setting: RankSetting) -> int:
    """Tokens of one item in the engine's own budget."""
    if FUSED_SINCE <= setting.version < EngineVersion(0, 19) and encoder.formatted_tokens_per_item:
        return encoder.formatted_tokens_per_item
    return max(1, encoder.tokens_per_item)


def _limit(encoder: Encoder, engine: EngineArguments) -> int:
    """Items per prompt: as many as `--limit-mm-per-prompt` says of all its modalities, else no bound that matters."""
    names = ("image", "video") if encoder.kind == "vision" else (encoder.kind,)
    counts = []
    for name in names:
        stated = engine.limit_mm_per_prompt.get(name)
        counts.append(stated.get("count") if isinstance(stated, Mapping) else stated)
    return max((count if isinstance(count, int) else UNLIMITED for count in counts), default=UNLIMITED)


def towers_left_out(profile: ModelProfile, engine: EngineArguments, version: EngineVersion) -> bool:
    """Whether the engine builds no tower, as `--limit-mm-per-prompt` allows no item of any modality.

    From 0.15 for every tower (`_mark_tower_model` in interfaces.py), for Qwen3-VL from 0.11.
    """
    since = LEFT_OUT_BY_QWEN3_VL if profile.architecture.startswith("Qwen3VL") else LEFT_OUT_SINCE
    return (
        version >= since
        and bool(profile.encoders)
        and all(_limit(encoder, engine) == 0 for encoder in profile.encoders)
    )
