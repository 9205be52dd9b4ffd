"""Memory of the multimodal tower's dry run, and what of it stays alive under the language model's.

`profile_run` encodes as many of the largest items as the encoder budget holds (max_num_batched_tokens, or one item) and
keeps their embeddings while the language model runs; the first model runner keeps the pixel values (float32) as well.
Releases 0.11 to 0.13 widened each item's embeddings to the whole budget. Per patch the tower holds two streams, and
either its MLP's two widths or what attention has alive: packed and rotated queries, keys and values, in float32 with
torch's rotary up to 0.10, with a fused one up to 0.13. Logged: Qwen2-VL-2B 0.10.2 2.65 GiB for 65,536 patches,
Qwen3-VL-30B 0.11 and 0.12, Qwen3.6-27B 0.27.
"""

from dataclasses import dataclass

from gpuplan.domain.model import Encoder, ModelProfile
from gpuplan.engine.rank_setting import RankSetting
from gpuplan.engine.versions import EngineVersion
from gpuplan.units import ceil_div

STREAMS = 2
ROTATED_IN_FLOAT32 = 12
ROTATED_FUSED = 13
ROTATED = 7
FUSED_SINCE = EngineVersion(0, 11)
PLAIN_SINCE = EngineVersion(0, 14)
PIXEL_BYTES = 4
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
    if setting.runner_v2 and setting.stage > 0:
        return NOTHING
    encoders = [encoder for encoder in profile.encoders if _allowed(encoder, setting)]
    if not encoders:
        return NOTHING
    encoder = max(encoders, key=lambda item: _planned(item, setting))
    planned = _planned(encoder, setting)
    budget = max(setting.max_num_batched_tokens, planned)
    items = max(1, min(budget // planned, setting.max_num_seqs * _limit(encoder, setting)))
    patches = items * encoder.patches_per_item
    inputs = (encoder.inputs_per_patch or DEFAULT_INPUTS) * patches
    itemsize, width = profile.itemsize, profile.hidden * encoder.output_levels
    expanded = FUSED_SINCE <= setting.version < PLAIN_SINCE
    outputs = (budget if expanded else items * encoder.tokens_per_item) * width * itemsize
    ranks = 1 if encoder.data_parallel or engine.mm_encoder_tp_mode == "data" else setting.parallelism.tensor
    inside = STREAMS * encoder.hidden + ceil_div(
        max(_attention(setting.version) * encoder.hidden, 2 * encoder.intermediate), ranks
    )
    pixels = PIXEL_BYTES * inputs
    return EncoderMemory(
        items=items,
        patches=patches,
        peak=patches * inside * itemsize + pixels + inputs * itemsize,
        kept=outputs + (0 if setting.runner_v2 else pixels),
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


def _limit(encoder: Encoder, setting: RankSetting) -> int:
    """Items per prompt: as many as `--limit-mm-per-prompt` says, else no bound that matters."""
    stated = setting.engine.limit_mm_per_prompt
    values = [
        stated.get(name)
        for name in (("image", "video") if encoder.kind == "vision" else (encoder.kind,))
        if name in stated
    ]
    counts = [value.get("count", 1) if isinstance(value, dict) else value for value in values]
    numbers = [count for count in counts if isinstance(count, int)]
    return max(numbers) if numbers and len(numbers) == (2 if encoder.kind == "vision" else 1) else 999


def _allowed(encoder: Encoder, setting: RankSetting) -> bool:
    return _limit(encoder, setting) > 0
