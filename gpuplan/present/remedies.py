"""Remedies in words: what to change, and what it costs."""

from collections.abc import Callable, Mapping
from typing import Any

from gpuplan.domain.plan import Remedy
from gpuplan.present.numbers import count, gib, percent, tokens
from gpuplan.units import plural

Words = tuple[str, str]


def word_remedy(remedy: Remedy) -> Words:
    """(headline, cost) of a remedy."""
    return _WORDS[remedy.kind](remedy.change, remedy.figures)


def option(change: Mapping[str, Any]) -> str:
    """The change as it is typed: our options first, the engine's behind `--`."""
    ours = [f"{key} {value}" for key, value in change.items() if key in OURS]
    engine = [
        key if value is True else f"{key} {value}"
        for key, value in change.items()
        if key not in OURS and key.startswith("--")
    ]
    return " ".join([*ours, *(["--", *engine] if engine else [])])


OURS = ("--context", "--concurrency", "--kv-cache-dtype", "--replicas", "--strategy", "--gpus")


def _context(change: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{option(change)}: the longest context that fits here",
        f"{tokens(figures['context'])} instead of {tokens(figures['asked'])}",
    )


def _concurrency(change: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{option(change)}: as many requests as the KV cache holds",
        f"{plural(figures['concurrency'], 'request')} at once instead of {count(figures['asked'])}",
    )


def _sequences(change: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{option(change)}: a smaller sampler peak leaves {gib(figures['gained_bytes'])} more for the KV cache",
        f"at most {plural(figures['sequences'], 'request')} run at once instead of {count(figures['asked'])}",
    )


def _batched(change: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{option(change)}: a smaller batch leaves {gib(figures['gained_bytes'])} more for the KV cache",
        "long prompts are read in more, smaller steps",
    )


def _kv_dtype(change: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{option(change)}: the KV cache takes half the bytes",
        "a small loss of accuracy; needs a GPU and kernel that support fp8",
    )


def _dtype(change: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{option(change)}: run in float16 instead of bfloat16",
        "a smaller range of numbers; most models bear it",
    )


def _utilization(change: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    direction = "more" if figures["share"] > figures["asked"] else "less"
    return (
        f"{option(change)}: {direction} of each GPU for the engine ({percent(figures['share'])} instead of {percent(figures['asked'])})",
        "less room for other processes" if direction == "more" else "a smaller KV cache",
    )


def _shape(change: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    gpus, asked = figures["gpus"], figures["asked"]
    cost = (
        "no more GPUs than asked for" if gpus <= asked else f"{plural(gpus, 'GPU')} instead of {count(asked)}"
    )
    return (f"{option(change)}: {figures['shape']} on {figures['where']}", cost)


def _sibling(change: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{change['model']}: the same model with {figures['quantization']} weights",
        f"{gib(figures['weights_bytes'])} of weights instead of {gib(figures['asked_bytes'])}; some loss of accuracy",
    )


def _more_gpus(change: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{plural(figures['gpus'], 'GPU')} of kind {figures['device']} on one host would do ({figures['shape']})",
        f"{plural(figures['more'], 'GPU')} more than there is",
    )


_WORDS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Words]] = {
    "context": _context,
    "concurrency": _concurrency,
    "max_num_seqs": _sequences,
    "max_num_batched_tokens": _batched,
    "kv_cache_dtype": _kv_dtype,
    "dtype": _dtype,
    "gpu_memory_utilization": _utilization,
    "shape": _shape,
    "sibling": _sibling,
    "more_gpus": _more_gpus,
}
KINDS = tuple(_WORDS)
