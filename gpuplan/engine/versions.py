"""Which rule of the engine holds from which release.

Each boundary is the first published wheel in which the rule was found, among every minor release from 0.8 to 0.33
and most of their patches; rules of the KV cache alone are in `engine.kv_rules`. Where releases between two of these
were not read for a rule, its docstring says so.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import total_ordering
from typing import Literal

from gpuplan.errors import UsageError
from gpuplan.units import GIB

_VERSION = re.compile(r"\s*v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?(.*)", re.DOTALL)
_PRERELEASE = re.compile(r"\.?-?(a|b|rc|dev|alpha|beta)\.?\d*", re.IGNORECASE)
_LOCAL = re.compile(r"([.+-][A-Za-z0-9][A-Za-z0-9.+_-]*)?")


@total_ordering
@dataclass(frozen=True, slots=True)
class EngineVersion:
    """A vLLM release X.Y.Z, with a fourth part for post-fixes such as 0.9.0.1.

    Pre-releases count as their release. A build of the main branch, `0.19.2rc1.dev206`, is named after the last tag and
    the commits since: it lies between the releases of 0.19 and 0.20.0, has the rules of the former for sure, and of the
    latter those that had been merged. Logged: dev134 and dev206 of it plan their KV cache as 0.19.1 does.
    """

    major: int
    minor: int
    patch: int = 0
    fix: int = 0

    @classmethod
    def parse(cls, text: str) -> "EngineVersion":
        """Read `0.33.0`, `v0.33.0`, `0.9.0.1`, `0.20` or `0.11.1rc3.dev29+g0a1b2c3`.

        Raises UsageError for anything else.
        """
        match = _VERSION.fullmatch(text)
        suffix = match.group(5).strip() if match else ""
        if match is None or not _is_suffix(suffix):
            raise UsageError(
                f"{text[:40]!r} is not a vLLM version", hint=f"write for example --vllm-version {DEFAULT}"
            )
        major, minor, patch, fix = (int(part or 0) for part in match.groups()[:4])
        return cls(major, minor, patch, fix)

    @property
    def release(self) -> tuple[int, int, int, int]:
        return (self.major, self.minor, self.patch, self.fix)

    @property
    def supported(self) -> bool:
        """Whether rules are known for it: 0.8 and newer. Versions above the newest one read use its rules."""
        return self >= OLDEST

    def __lt__(self, other: "EngineVersion") -> bool:
        return self.release < other.release

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        return f"{text}.{self.fix}" if self.fix else text


def _is_suffix(suffix: str) -> bool:
    prerelease = _PRERELEASE.match(suffix)
    rest = suffix[prerelease.end() :] if prerelease else suffix
    return _LOCAL.fullmatch(rest) is not None


DEFAULT = EngineVersion(0, 33, 0)
OLDEST = EngineVersion(0, 8, 0)
RUNNER_V2_SINCE = EngineVersion(0, 29)
"""Model Runner V2 is the default from here, from 0.22 to 0.28 for some architectures (`engine.rank_setting.runner_v2`)."""
CONSUMED_SINCE = EngineVersion(0, 27)
"""What is taken beside the KV cache is free memory lost, as the device tells it, plus the transient torch peak
(`memory_profiling`, `total_consumed`); before, the sum of weights, torch's peak and the non-torch increase."""

_FIRST_YEAR = 20
"""Images of a vendor's own are tagged by year and month, `25.09-py3`: no release of vLLM."""


def stated_version(text: str) -> EngineVersion | None:
    """The release that a tag or a label states; None where it states none."""
    try:
        version = EngineVersion.parse(text)
    except UsageError:
        return None
    return version if version.major < _FIRST_YEAR else None


def version_of(text: str | None) -> EngineVersion:
    """The version asked for, or the default.

    Raises UsageError when it is malformed or older than the rules reach.
    """
    if text is None:
        return DEFAULT
    version = EngineVersion.parse(text)
    if not version.supported:
        raise UsageError(
            f"vLLM {version} is older than {OLDEST}, the oldest release whose rules are known",
            hint=f"plan for a newer release, for example --vllm-version {DEFAULT}",
        )
    return version


class GraphAccounting(StrEnum):
    """What memory profiling does with the CUDA graphs it will capture later."""

    ABSENT = "absent"
    """Not estimated: graphs come on top of the requested memory."""
    LOGGED = "logged"
    """Estimated and printed only."""
    SUBTRACTED = "subtracted"
    """The estimate is taken from the KV cache."""


class TokensLine(StrEnum):
    """What "GPU KV cache size: N tokens" counts."""

    BLOCKS = "blocks"
    """blocks × block size."""
    GROUPS = "groups"
    """blocks // KV groups × smallest block size (× context-parallel ranks)."""
    CONCURRENCY = "concurrency"
    """int(maximum concurrency × max_model_len)."""


def default_gpu_memory_utilization(version: EngineVersion) -> float:
    """0.9 up to 0.19, 0.92 from 0.20.0 (`CacheConfig.gpu_memory_utilization`)."""
    return 0.92 if version >= EngineVersion(0, 20) else 0.9


def graph_accounting(version: EngineVersion) -> GraphAccounting:
    """Absent up to 0.17, logged in 0.18 and 0.19, subtracted from 0.20.0.

    `VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS` and its default (`vllm/envs.py`, `v1/worker/gpu_worker.py`).
    """
    if version >= EngineVersion(0, 20):
        return GraphAccounting.SUBTRACTED
    return GraphAccounting.LOGGED if version >= EngineVersion(0, 18) else GraphAccounting.ABSENT


def tokens_line(version: EngineVersion) -> TokensLine:
    """Blocks up to 0.9.0, groups from 0.9.1, concurrency from 0.20.1 (`v1/core/kv_cache_utils.py`)."""
    if version >= EngineVersion(0, 20, 1):
        return TokensLine.CONCURRENCY
    return TokensLine.GROUPS if version >= EngineVersion(0, 9, 1) else TokensLine.BLOCKS


def null_block_reserved(version: EngineVersion) -> bool:
    """Whether start-up checks leave one block out of the budget: from 0.29 (`get_kv_cache_configs`)."""
    return version >= EngineVersion(0, 29)


def group_padding_factor(version: EngineVersion) -> float:
    """Largest ratio of layer counts at which unlike KV groups are padded to the bigger one.

    1.0 (never) up to 0.11, 1.25 from 0.12.0, 1.5 from 0.18.0 (`_get_kv_cache_groups_uniform_page_size`).
    """
    if version >= EngineVersion(0, 18):
        return 1.5
    return 1.25 if version >= EngineVersion(0, 12) else 1.0


def in_flight_batches(version: EngineVersion, *, async_scheduling: bool, pipeline: int) -> int:
    """Batches of `max_num_batched_tokens` whose blocks a sliding-window or chunked layer keeps for a request.

    1 up to 0.25; from 0.26.0 the pipeline depth, one more with asynchronous scheduling,
    which the first model runner has only without pipeline stages (`VllmConfig.max_concurrent_batches`). The
    runner is the version's default.
    """
    if version < EngineVersion(0, 26):
        return 1
    if not async_scheduling:
        return pipeline
    if version >= RUNNER_V2_SINCE:
        return pipeline + 1
    return 2 if pipeline <= 1 else pipeline


def default_async_scheduling(version: EngineVersion, *, pipeline: int = 1) -> bool:
    """Off up to 0.13, on from 0.14, with pipeline stages from 0.15.

    The engine switches it off for executors and speculative methods that lack it
    (`VllmConfig.__post_init__`).
    """
    return version >= (EngineVersion(0, 14) if pipeline <= 1 else EngineVersion(0, 15))


def ray_in_image(version: EngineVersion) -> bool:
    """Whether the official image carries Ray: a dependency up to 0.17, gone from 0.18.0 (package metadata)
    (S1.7).
    """
    return version < EngineVersion(0, 18)


SMALL_LIMITS = (2048, 256)
"""(max_num_batched_tokens, max_num_seqs) of a server on a small card."""


def batch_defaults(
    version: EngineVersion,
    device_total_bytes: int | None,
    device_name: str = "",
    compute_capability: str | None = None,
    usage: Literal["serve", "llm"] = "serve",
    *,
    sliced: bool = False,
) -> tuple[int, int]:
    """(max_num_batched_tokens, max_num_seqs) before the model limits them (`EngineArgs.get_batch_defaults`).

    Big cards have 70 GiB or more; A100 left that tier in 0.9, and cards with 160 GiB got a tier of their own in
    0.28 (in 0.27.1 not yet). Unknown memory is the small tier, as where no GPU is seen. GB10 and Thor are of it
    in every release before 0.33, and so is a MIG slice: NVML does not tell the memory of an integrated GPU, nor in a
    slice's container that of its card, and the error counts as no memory
    (`NvmlCudaPlatform.get_device_total_memory`). 0.33 asks CUDA instead and names GB10 as small.
    """
    total = device_total_bytes or 0
    small = SMALL_LIMITS if usage == "serve" else (8192, 256)
    untold = sliced or compute_capability == "11.0"
    if compute_capability == "12.1" or (untold and version < EngineVersion(0, 33)):
        return small
    if version >= EngineVersion(0, 28) and total >= 160 * GIB:
        return (16384, 1024)
    if total < 70 * GIB:
        return small
    if version >= EngineVersion(0, 9) and "a100" in device_name.lower():
        return small
    return (8192, 1024) if usage == "serve" else (16384, 1024)


def pooling_in_chunks(version: EngineVersion) -> bool:
    """Whether causal pooling models take prompts in chunks: from 0.10.1 (vLLM pull request 20930).

    Before, as bidirectional ones ever, they take a prompt whole: max_num_batched_tokens below max_model_len is
    refused (`SchedulerConfig`).
    """
    return version >= EngineVersion(0, 10, 1)


_QUANTIZATION_REMOVED = {
    "gguf": EngineVersion(0, 24),
    "bitsandbytes": EngineVersion(0, 28),
    "aqlm": EngineVersion(0, 10, 2),
    "cpu_awq": EngineVersion(0, 24),
    "deepspeedfp": EngineVersion(0, 17, 1),
    "neuron_quant": EngineVersion(0, 10, 2),
    "nvfp4": EngineVersion(0, 9, 2),
    "marlin": EngineVersion(0, 10, 2),
    "qqq": EngineVersion(0, 10, 2),
    "petit_nvfp4": EngineVersion(0, 20),
    "ptpc_fp8": EngineVersion(0, 19, 1),
    "tpu_int8": EngineVersion(0, 14, 1),
    "auto-round": EngineVersion(0, 17, 1),
    "bitblas": EngineVersion(0, 17, 1),
    "gptq_bitblas": EngineVersion(0, 17, 1),
    "gptq_marlin_24": EngineVersion(0, 17, 1),
    "hqq": EngineVersion(0, 17, 1),
    "ipex": EngineVersion(0, 17, 1),
    "rtn": EngineVersion(0, 17, 1),
}


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


QUANTIZATION_METHODS = _words(
    """
    awq auto_awq awq_marlin fp8 fbgemm_fp8 fp_quant modelopt modelopt_fp4 modelopt_mxfp8
    modelopt_mixed auto_gptq gptq gptq_marlin humming compressed-tensors experts_int8 quark moe_wna16
    torchao inc mxfp4 gpt_oss_mxfp4 deepseek_v4_fp8 online fp8_per_tensor fp8_per_block
    fp8_per_channel int8_per_channel_weight_only nvfp4_per_token mxfp8
    """
)
"""`--quantization` of 0.33 (`model_executor/layers/quantization/__init__.py`)."""


def quantization_removed(version: EngineVersion, method: str) -> EngineVersion | None:
    """The release without the quantization method in its tree, if `version` is that one or newer.

    gguf was last seen in 0.22 and became a plugin by 0.24; bitsandbytes was last seen in 0.26 and is gone in
    0.28.
    """
    removed = _QUANTIZATION_REMOVED.get(method)
    return removed if removed is not None and version >= removed else None


def removed_quantizations() -> frozenset[str]:
    """Methods some supported release had and 0.33 has not."""
    return frozenset(_QUANTIZATION_REMOVED)
