"""What a vLLM server's `/metrics` says of its load, in the text format of Prometheus; names of every release since 0.6."""

import re
from collections.abc import Iterator
from math import isfinite

from gpuplan.domain.deployment import Load

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
SERVED = "vllm:request_success_total"
TOKENS = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")
CACHE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")
"""The second until 0.10 (`vllm/v1/metrics/loggers.py`); both are shares, 0 to 1, whatever their names say."""
_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][\w:]{0,100})(?:\{[^\n]{0,4000}\})?\s+(?P<value>[-+.\deE]{1,40}|NaN|[+-]Inf)(?:\s+\d+)?\s*"
)


def load_of(text: str) -> Load:
    """Requests of all engines of a server summed, and the fullest KV cache; None for what is not told."""
    values: dict[str, list[float]] = {}
    for name, value in _samples(text):
        values.setdefault(name, []).append(value)
    shares = next((values[name] for name in CACHE if name in values), None)
    return Load(
        running=_total(values.get(RUNNING)),
        waiting=_total(values.get(WAITING)),
        kv_cache_share=min(1.0, max(0.0, *shares)) if shares else None,
        requests=_total(values.get(SERVED)),
        tokens=_total([value for name in TOKENS for value in values.get(name, ())] or None),
    )


def _samples(text: str) -> Iterator[tuple[str, float]]:
    wanted = {RUNNING, WAITING, SERVED, *TOKENS, *CACHE}
    for line in text.splitlines():
        if not line.startswith("vllm:"):
            continue
        sample = _SAMPLE.fullmatch(line)
        if sample is None or sample["name"] not in wanted:
            continue
        try:
            value = float(sample["value"])
        except ValueError:
            continue
        if isfinite(value):
            yield sample["name"], value


def _total(values: list[float] | None) -> int | None:
    return round(sum(values)) if values is not None else None
