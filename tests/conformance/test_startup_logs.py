"""Memory of real vLLM start-ups against what the engine printed.

`vllm-startup-logs.jsonl` holds logged starts, the corrections what single points state wrongly or leave out,
`vllm-startup-logs-configs.json.gz` the config of each model. Errors are in percent, per GPU; positive promises more room
than the log shows. GB10 stands apart: its memory is the host's.
"""

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest

from gpuplan.domain.memory import RankMemory
from gpuplan.errors import GpuplanError
from gpuplan.operations.estimate import make_estimate
from gpuplan.operations.plan import ServingOptions
from gpuplan.units import GIB

DATA = Path(__file__).parents[1] / "data"
TOTALS = {
    "A100 80GB": 79.25,
    "A100-SXM4-80GB": 79.25,
    "H100": 79.18,
    "H100 80GB HBM3": 79.18,
    "L40S": 44.39,
    "RTX 4080": 15.99,
    "RTX 4090": 23.52,
    "RX 9070 XT": 15.92,
    "T4": 14.56,
}
"""GiB the driver reports where the log does not."""
ROUNDING = 0.005

Point = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One logged start beside its estimate (GiB)."""

    name: str
    rank: RankMemory
    weights: float | None
    kv: float | None
    total: float | None
    budget: float | None

    @property
    def weights_error(self) -> float:
        assert self.weights is not None
        loaded = (self.rank.weights.bytes + self.rank.weights_extra.bytes) / GIB
        return 100 * (self.weights - loaded) / self.weights

    @property
    def kv_error(self) -> float:
        assert self.kv is not None
        assert self.budget is not None
        return 100 * (self.rank.kv_cache_bytes / GIB - self.kv) / self.budget

    @property
    def width(self) -> float:
        assert self.total is not None
        return 100 * (self.rank.kv_cache_high - self.rank.kv_cache_low) / GIB / self.total

    @property
    def safe(self) -> bool:
        assert self.kv is not None
        return self.rank.kv_cache_low / GIB <= self.kv + ROUNDING

    @property
    def inside(self) -> bool:
        assert self.kv is not None
        return self.safe and self.kv - ROUNDING <= self.rank.kv_cache_high / GIB


def _version(point: Point) -> str | None:
    for key in ("vllm_version_inferred", "vllm_version"):
        match = re.match(r"0\.(\d+)(?:\.(\d+))?", point.get(key) or "")
        if match and int(match[1]) > 1:
            return f"0.{match[1]}.{match[2] or 0}"
    return None


def _utilization(point: Point, version: str | None) -> float | None:
    """As stated; the default where the log shows the whole configuration."""
    if point.get("gpu_memory_utilization"):
        return float(point["gpu_memory_utilization"])
    if version and "dtype" in point and "pp" in point:
        return 0.92 if tuple(map(int, version.split("."))) >= (0, 20, 1) else 0.9
    return None


def _quantized(config: dict[str, Any]) -> bool:
    return "quantization_config" in config or "quantization_config" in (config.get("text_config") or {})


def _speculative(point: Point) -> str | None:
    text = point.get("speculative_config", "")
    method, count = re.search(r"method='(mtp|ngram)'", text), re.search(r"num_spec_tokens=(\d+)", text)
    if not method or not count:
        return None
    return json.dumps({"method": method[1], "num_speculative_tokens": int(count[1])})


def _arguments(point: Point, config: dict[str, Any], utilization: float | None) -> list[str]:
    other = point.get("other_args") or {}
    named = other if isinstance(other, dict) else {}
    values = {
        "--tensor-parallel-size": point["tp"],
        "--pipeline-parallel-size": point.get("pp"),
        "--dtype": point.get("dtype"),
        "--block-size": point.get("block_size"),
        "--kv-cache-dtype": point.get("kv_cache_dtype"),
        "--max-model-len": point.get("max_model_len"),
        "--max-num-seqs": point.get("max_num_seqs"),
        "--max-num-batched-tokens": point.get("max_num_batched_tokens"),
        "--gpu-memory-utilization": utilization or 0.9,
        "--cpu-offload-gb": point.get("cpu_offload_gb"),
        "--quantization": None if _quantized(config) else point.get("quantization"),
        "--runner": "pooling" if "embedding" in point["model"].lower() else None,
        "--speculative-config": _speculative(point),
    }
    switches = {
        "--enforce-eager": point.get("enforce_eager"),
        "--enable-expert-parallel": point.get("ep"),
        "--language-model-only": named.get("language_model_only") == "True",
        "--no-enable-prefix-caching": named.get("enable_prefix_caching") == "False",
    }
    words = [
        word for flag, value in values.items() if value not in (None, "auto") for word in (flag, str(value))
    ]
    return [*words, *(flag for flag, on in switches.items() if on), *point.get("extra_args", [])]


def _compared(point: Point, config: dict[str, Any], place: Path) -> Comparison | None:
    log, version = point["observed"], _version(point)
    utilization = _utilization(point, version)
    kv = log.get("available_kv_cache_gib", 0)
    total = point.get("gpu_memory_total_gib") or TOTALS.get(point.get("gpu") or "")
    enough = (log.get("weights_gib", 40) + max(kv, 8) + 8) / (utilization or 0.9)
    count = max(point.get("n_gpus") or 1, point["tp"] * point.get("pp", 1))
    excluded = point.get("exclude", ())
    try:
        made = make_estimate(
            str(place),
            f"custom={total or enough:.2f}GiB:{count}",
            None,
            ServingOptions(vllm_version=version, engine_args=tuple(_arguments(point, config, utilization))),
        )
    except GpuplanError:
        return None
    assert made.candidate is not None
    memory = made.candidate.memory
    assert memory is not None
    logged = kv if kv > 0 and total and utilization and "c" not in excluded else None
    return Comparison(
        name=point["id"],
        rank=min(memory.ranks, key=lambda rank: rank.kv_cache_bytes),
        weights=log.get("weights_gib") if "a" not in excluded else None,
        kv=logged if point.get("gpu") != "GB10" else None,
        total=total,
        budget=total * utilization if total and utilization else None,
    )


def _points() -> Iterator[tuple[Point, str, dict[str, Any]]]:
    corrections = json.loads((DATA / "vllm-startup-logs-corrections.json").read_text())
    models = json.loads(gzip.decompress((DATA / "vllm-startup-logs-configs.json.gz").read_bytes()))
    for line in (DATA / "vllm-startup-logs.jsonl").read_text().splitlines():
        point = json.loads(line)
        point |= corrections.get(point["id"], {})
        name = models["of_point"].get(point["id"])
        if name is not None and "all" not in point.get("exclude", ()):
            yield point, name, models["configs"][name]


@cache
def _comparisons(place: Path) -> tuple[Comparison, ...]:
    found = []
    for point, name, config in _points():
        directory = place / name
        directory.mkdir(exist_ok=True)
        (directory / "config.json").write_text(json.dumps(config))
        compared = _compared(point, config, directory)
        if compared is not None:
            found.append(compared)
    return tuple(found)


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, ...]:
    return _comparisons(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def pools(starts: tuple[Comparison, ...]) -> tuple[Comparison, ...]:
    """Those whose KV cache can be compared."""
    return tuple(start for start in starts if start.kv is not None and start.budget is not None)


def _share(found: list[bool]) -> float:
    return 100 * sum(found) / len(found)


def test_enough_starts_are_compared(starts: tuple[Comparison, ...], pools: tuple[Comparison, ...]) -> None:
    assert len(starts) >= 90
    assert len(pools) >= 30


def test_loaded_weights(starts: tuple[Comparison, ...]) -> None:
    errors = [start.weights_error for start in starts if start.weights]
    assert median(map(abs, errors)) < 0.1
    assert fmean(map(abs, errors)) < 1
    assert _share([abs(error) <= 2 for error in errors]) >= 90


def test_room_for_the_cache(pools: tuple[Comparison, ...]) -> None:
    errors = [start.kv_error for start in pools]
    assert median(map(abs, errors)) < 1
    assert fmean(map(abs, errors)) < 2


def test_room_is_rarely_promised_that_is_not_there(pools: tuple[Comparison, ...]) -> None:
    assert _share([start.kv_error > 1 for start in pools]) <= 20
    assert _share([start.safe for start in pools]) >= 90


def test_ranges_hold_the_log_and_are_narrow(pools: tuple[Comparison, ...]) -> None:
    assert _share([start.inside for start in pools]) >= 90
    assert median(start.width for start in pools) < 4
