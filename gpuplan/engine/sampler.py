"""Memory of the sampler's dry run: rows × vocabulary × bytes per logit.

The last pipeline stage computes logits for min(max_num_seqs, batched tokens) rows, gathered over the whole vocabulary
on every tensor-parallel rank, and samples them with top-k and top-p (`_dummy_sampler_run`). What is alive per logit:

* PyTorch-native, up to 0.15 (`apply_top_k_top_p` sorts): logits 2 (model dtype) + float32 copy 4 + sorted values 4 +
  indices 8 + torch's segmented sort (reverse indices 8, cub's alternate keys and values 12) = 38 bytes. Below 128 rows
  torch sorts keys and segments in full (`segmented_sort_pairs_by_full_sort`): 50 bytes. Logged: 38.4 to 38.9 bytes with
  1024 rows on H100 (Qwen3, Llama-3, gpt-oss, 0.10 to 0.12), a step of 0.92 GiB from 64 to 256 rows (Qwen3-VL-30B 0.12).
* Triton from 0.16 (`apply_top_k_top_p_triton`, a buffer of one row per multiprocessor stays) and FlashInfer (default from
  0.21 where it supports the GPU, then without that buffer; in images of 0.9 and 0.10):
  2 + float32 copy 4 + probabilities or masked logits 4 + noise or probabilities 4 = 14 bytes. Logged: 0.19.0 H100
  Llama-3.1-8B 1.89 GiB, Qwen3-30B-A3B 2.68 GiB at 1024 rows; 0.10.1 A100 with FlashInfer, 256 rows.
* The second runner samples requests without filters, so its dry run holds the logits alone (and their copies while they
  are gathered); from 0.33 it runs once more with every feature on (`SamplingParams.for_sampler_warmup`). Its token
  counts for penalties, 4 + 1/8 bytes (gpu/sample/penalties.py), exist before profiling: they count from 0.27, where what
  is consumed is read from the device (`memory_profiling`). Up to 0.28 the engine may fall back to the first runner: its
  sampler is the high end.

Speculative decoding warms the first runner's rejection sampler with two rows per sequence.
"""

from dataclasses import dataclass

from gpuplan.domain.model import ModelProfile
from gpuplan.engine.rank_setting import BIG_CARD, HOPPER, RankSetting, runner_v2
from gpuplan.engine.versions import CONSUMED_SINCE, RUNNER_V2_SINCE, EngineVersion
from gpuplan.units import round_up

TRITON_SINCE = EngineVersion(0, 16)
FLASHINFER_SINCE = EngineVersion(0, 21)
FLASHINFER_WITHOUT_TURING_SINCE = EngineVersion(0, 24)
FLASHINFER_IN_IMAGES_UNTIL = EngineVersion(0, 11)
FLASHINFER_IN_IMAGES_SINCE = EngineVersion(0, 9)
WARMED_TWICE_SINCE = EngineVersion(0, 33)
SORTED = 38.0
SORTED_WHOLE = 50.0
UNSORTED = 14.0
SPECULATIVE = 24.0
"""Bytes per logit."""
WHOLE_SORT_BELOW = 128
LEAST_TRITON_ROWS = 8
COUNTS = 4.125
"""Bytes per sequence and word of the vocabulary."""
MULTIPROCESSORS = {HOPPER: 132, 8: 108, 10: 148, 12: 170}
"""By major compute capability, of the largest card (data sheets of H100, A100, B200, RTX 5090)."""
ROCM_DOUBT = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerMemory:
    """Bytes of the dry run: while it runs, the range of that (another sampler or sort), and what is kept afterwards."""

    rows: int
    bytes_per_logit: float
    likely: int
    low: int
    high: int
    kept: int


NOTHING = SamplerMemory(rows=0, bytes_per_logit=0, likely=0, low=0, high=0, kept=0)


def sampler_memory(profile: ModelProfile, setting: RankSetting) -> SamplerMemory:
    """What sampling takes on this rank; nothing for pooling models and all but the last pipeline stage."""
    if not setting.last_stage or profile.pooling:
        return NOTHING
    second = runner_v2(profile, setting)
    rows = min(setting.max_num_seqs, setting.max_num_batched_tokens)
    logits = rows * round_up(profile.vocabulary, 64)
    gathered = _gathered(profile, setting)
    rate = most = bytes_per_logit(setting.version, rows)
    if second and setting.version < WARMED_TWICE_SINCE:
        rate = gathered
        most = rate if setting.version >= RUNNER_V2_SINCE else most
    elif setting.engine.speculative_tokens:
        rate = most = max(rate, SPECULATIVE)
    images = FLASHINFER_IN_IMAGES_SINCE <= setting.version < FLASHINFER_IN_IMAGES_UNTIL
    return SamplerMemory(
        rows=rows,
        bytes_per_logit=rate,
        likely=int(logits * rate),
        low=int(logits * min(rate, UNSORTED)) if images else int(logits * rate),
        high=int(logits * most * _doubt(setting)),
        kept=_kept(profile, setting, rows=rows, second=second),
    )


def _gathered(profile: ModelProfile, setting: RankSetting) -> float:
    """Bytes per logit of the model's own type: a rank's share, all ranks' shares, and those in order."""
    ranks = setting.parallelism.tensor
    return profile.itemsize * (1.0 if ranks == 1 else 2 + 1 / ranks)


def _kept(profile: ModelProfile, setting: RankSetting, *, rows: int, second: bool) -> int:
    if second:
        counted = setting.version >= CONSUMED_SINCE
        return int(setting.max_num_seqs * profile.vocabulary * COUNTS) if counted else 0
    if setting.version < TRITON_SINCE or rows < LEAST_TRITON_ROWS or flashinfer(setting):
        return 0
    return min(rows, MULTIPROCESSORS.get(setting.generation or HOPPER, 132)) * profile.vocabulary * 4


def flashinfer(setting: RankSetting) -> bool:
    """Whether FlashInfer samples by default (`flashinfer_sampler_supported`); an unknown GPU is taken to support it."""
    if setting.version < FLASHINFER_SINCE or setting.backend not in ("", "cuda"):
        return False
    least = (8, 0) if setting.version >= FLASHINFER_WITHOUT_TURING_SINCE else (7, 5)
    return setting.capability is None or setting.capability >= least


def _doubt(setting: RankSetting) -> float:
    """By how much a sort may hold more: rocPRIM's needs half as much again (RX 9070 XT, 0.14)."""
    if setting.version >= TRITON_SINCE:
        return 1.05
    if setting.backend not in ("", "cuda"):
        return ROCM_DOUBT
    return 1.25 if setting.generation is None and setting.total_bytes < BIG_CARD else 1.05


def bytes_per_logit(version: EngineVersion, rows: int) -> float:
    """Bytes alive per logit at the sampler's peak, in CUDA's default sampler of the version."""
    if version >= TRITON_SINCE:
        return UNSORTED
    return SORTED_WHOLE if 1 < rows < WHOLE_SORT_BELOW else SORTED
