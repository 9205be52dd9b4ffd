"""What a GPU's compute capability allows: the engine at all, a data type, a quantization method.

vLLM 0.33: `platforms/cuda.py` supported_dtypes and check_if_supports_dtype, `config/model.py` _resolve_auto_dtype,
`get_min_capability` of each quantization config.
"""

from collections.abc import Sequence

from gpuplan.domain.model import ModelProfile
from gpuplan.engine.divisibility import Rule, Violation

LEAST = 70
"""The second-generation engine runs from Volta on."""
BFLOAT16 = 80
QUANTIZATION = {
    "awq": 75,
    "awq_marlin": 75,
    "auto_awq": 75,
    "gptq": 60,
    "auto_gptq": 60,
    "gptq_marlin": 75,
    "fp8": 75,
    "modelopt": 80,
    "modelopt_fp4": 75,
    "modelopt_mxfp8": 80,
    "modelopt_mixed": 75,
    "mxfp4": 80,
    "gpt_oss_mxfp4": 80,
    "compressed-tensors": 75,
    "torchao": 75,
    "experts_int8": 80,
    "fbgemm_fp8": 80,
    "moe_wna16": 70,
}
NO_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})
"""Model types that are numerically unstable in float16."""


def capability(text: str | None) -> int | None:
    """`8.9` as 89; None when unknown or not NVIDIA's."""
    major, _, minor = (text or "").partition(".")
    return int(major) * 10 + int(minor) if major.isdecimal() and minor.isdecimal() else None


def unsupported(
    profile: ModelProfile, capabilities: Sequence[str | None], asked_dtype: str, devices: Sequence[str]
) -> Violation | None:
    """The first thing one of the GPUs cannot do; None where all can, or nothing is known of them.

    `capabilities` and `devices` (names) are one per GPU; `asked_dtype` is `--dtype`.
    """
    if profile.dtype == "float16" and profile.model_type in NO_FLOAT16:
        return _violation(Rule.DTYPE, profile.name, 0, BFLOAT16, _unstable(profile))
    known = [
        (value, name) for value, name in zip(map(capability, capabilities), devices, strict=True) if value
    ]
    if not known:
        return None
    lowest, name = min(known)
    if lowest < LEAST:
        return _violation(
            Rule.TOO_OLD, name, lowest, LEAST, f"{name} has compute capability {_shown(lowest)}"
        )
    least = QUANTIZATION.get(profile.quantization or "", 0)
    if lowest < least:
        line = (
            f"The quantization method {profile.quantization} is not supported for the current GPU. "
            f"Minimum capability: {least}. Current capability: {lowest}."
        )
        return _violation(Rule.QUANTIZATION, name, lowest, least, line)
    if lowest < BFLOAT16 and profile.dtype == "bfloat16":
        return _bfloat16(profile, asked_dtype, lowest, name, mixed=max(known)[0] >= BFLOAT16)
    return None


def _bfloat16(profile: ModelProfile, asked: str, lowest: int, name: str, *, mixed: bool) -> Violation | None:
    """`auto` falls back to float16 where every card lacks bfloat16 and the model bears it."""
    if asked == "auto" and not mixed and profile.model_type not in NO_FLOAT16:
        return None
    if asked == "auto" and not mixed:
        line = _unstable(profile)
    else:
        line = (
            "Bfloat16 is only supported on GPUs with compute capability of at least 8.0. "
            f"Your {name} GPU has compute capability {_shown(lowest)}. "
            "You can use float16 instead by explicitly setting the `dtype` flag in CLI, for example: --dtype=half."
        )
    return _violation(Rule.DTYPE, name, lowest, BFLOAT16, line)


def _unstable(profile: ModelProfile) -> str:
    return (
        f"The model type {profile.model_type!r} does not support float16. "
        "Reason: Numerical instability. Please use bfloat16 or float32 instead."
    )


def _shown(value: int) -> str:
    return f"{value // 10}.{value % 10}"


def _violation(rule: Rule, name: str, value: int, least: int, line: str) -> Violation:
    return Violation(rule=rule, part=name, value=value, ranks=least, line=line)
