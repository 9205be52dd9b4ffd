"""Logged starts of vLLM beside what gpuplan says of them, one by one.

A start is a line of a corpus: what the engine was given and what it printed. Every start whose model's config is known is
asked about as a user would ask (`gpuplan estimate`), on a card of which only the size is told. Errors are in percent, per GPU;
positive promises more room than the log shows.
"""

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuplan.domain.memory import MemoryEstimate
from gpuplan.errors import GpuplanError
from gpuplan.operations.estimate import make_estimate
from gpuplan.operations.plan import ServingOptions
from gpuplan.units import GIB

DATA = Path(__file__).parents[1] / "data"
PUBLISHED, COLLECTED = "vllm-startup-logs", "vllm-startup-logs-more"
"""Two samples of public logs: the second was collected later, while the rules were there."""
EXCUSED = DATA / "vllm-startup-logs-excused.json"
"""What of one start does not count, and why."""
GB10 = "GB10"
"""Its memory is the host's: compared apart."""
LEAST_CACHE_GIB = 2.0
"""Logs print two decimals: below this, rounding alone is over 0.25 %."""
ROUNDING_GIB = 0.005
TOTALS_GIB = {
    "A100": 39.39,
    "A100 80GB": 79.25,
    "A100-SXM4-80GB": 79.25,
    "B300": 267.69,
    GB10: 119.63,
    "GH200 96GB": 95.0,
    "H100": 79.18,
    "H100 80GB HBM3": 79.18,
    "H100 NVL": 93.02,
    "H20": 95.1,
    "H200": 139.8,
    "L4": 22.03,
    "L40S": 44.39,
    "MI300X": 191.98,
    "RTX 3090": 23.58,
    "RTX 4060": 8.0,
    "RTX 4080": 15.99,
    "RTX 4090": 23.52,
    "RTX 5090": 31.36,
    "RTX A5000": 23.54,
    "RTX PRO 6000 Blackwell": 94.97,
    "RX 9070 XT": 15.92,
    "T4": 14.56,
}
"""What the driver reports as total memory, read in logs of such cards: where a log does not state its own."""
CHECKS = {
    "free_memory": r"free memory on device",
    "no_kv_room": r"no available memory for the cache blocks|no kv cache room",
    "out_of_memory": r"out ?of ?memory|\boom\b",
    "too_long": (
        r"to serve at least one request|max seq len .* is larger than|kv cache too small|"
        r"no kv cache room at max-model-len"
    ),
}
"""A failing check and how the engine, or a person who tells of it, words it."""
PASSED_ON = re.compile(
    r"--(?:decode-context-parallel-size|kv-cache-memory-bytes) \d+|--disable-custom-all-reduce"
)

Point = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One logged start and what came of the comparison."""

    name: str
    corpus: str
    family: str
    gpu: str
    version: str
    errors: dict[str, float] = field(default_factory=dict)
    """By measure (`accuracy.MEASURES`)."""
    usable: frozenset[str] = frozenset()
    """Measures this log has a value for; one without an error was not answered."""
    verdict: str | None = None
    """`right`, `missed failure` or `false alarm`; None: the log does not tell."""
    check_right: bool | None = None
    """Whether the failing check was named; None: nothing failed, or none was named."""
    width: float | None = None
    """Of the range of the KV cache, in percent of the GPU's memory."""
    inside: bool | None = None
    safe: bool | None = None
    """The low end of the range is at most what the log shows."""
    refused: str | None = None
    """Why there is no estimate."""
    excused: dict[str, str] = field(default_factory=dict)
    """Measures (and `verdict`) this log does not count against, each with the reason."""


def corpus(name: str, models: Path) -> Iterator[Start]:
    """Every start of a corpus that can be compared; `models` is a directory for the configs."""
    corrections, excused = _document(DATA / f"{name}-corrections.json"), _document(EXCUSED)
    packed = DATA / f"{name}-configs.json.gz"
    if not packed.exists():
        return
    known = json.loads(gzip.decompress(packed.read_bytes()))
    for line in (DATA / f"{name}.jsonl").read_text().splitlines():
        point: Point = json.loads(line)
        point |= corrections.get(point["id"], {})
        point["excused"] = excused.get(point["id"], {})
        model = known["of_point"].get(point["id"])
        if model is None or "all" in point.get("exclude", ()) or not point.get("tp"):
            continue
        place = models / model
        if not place.exists():
            place.mkdir()
            (place / "config.json").write_text(json.dumps(known["configs"][model]))
        started = _start(name, point, known["configs"][model], place)
        if started is not None:
            yield started


def _document(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return document


def _start(corpus: str, point: Point, config: dict[str, Any], place: Path) -> Start | None:
    version = _release(point)
    utilization = _utilization(point, version)
    total = _total(point)
    budget = total * utilization if total and utilization else None
    truth = _comparable(point, budget)
    if not truth:
        return None
    about = Start(
        name=point["id"],
        corpus=corpus,
        family=str(config.get("model_type") or "unknown"),
        gpu=point.get("gpu") or "not stated",
        version=version or "not stated",
        usable=frozenset(truth),
        excused=point["excused"],
    )
    try:
        estimate, starts, check = _asked(point, config, place, version, utilization, total)
    except GpuplanError as error:
        return replace(about, refused=str(error))
    found = _errors(truth, estimate, point, budget)
    verdict, right = _judged(truth.get("verdict"), starts, check)
    return replace(
        about,
        errors=found,
        verdict=verdict,
        check_right=right,
        **(
            _range(point, estimate, total) if total and {"kv_budget", "shared_kv_budget"} & set(found) else {}
        ),
    )


def _asked(
    point: Point,
    config: dict[str, Any],
    place: Path,
    version: str | None,
    utilization: float | None,
    total: float | None,
) -> tuple[MemoryEstimate, bool, str | None]:
    """(estimate, whether the engine would start, the check that fails)."""
    log = point["observed"]
    # where the log names no GPU, one that is large enough: weights and geometry do not depend on it
    enough = (log.get("weights_gib", 40) + max(log.get("available_kv_cache_gib", 0), 8) + 8) / (
        utilization or 0.9
    )
    printed = re.search(r"Free memory on device [^(]*\(([\d.]+)/", log.get("outcome", ""))
    free = printed[1] if printed else log.get("free_at_start_gib")
    made = make_estimate(
        str(place),
        f"custom={total or enough:.2f}GiB:{_count(point)}",
        f"{free}GiB" if free else None,
        ServingOptions(vllm_version=version, engine_args=tuple(_arguments(point, config, utilization))),
    )
    candidate = made.candidate
    if candidate.memory is None:
        raise GpuplanError(candidate.engine.error or "no estimate")
    failed = sorted(_checks(candidate.engine.error))
    return candidate.memory, candidate.engine.starts, failed[0] if failed else None


def _release(point: Point) -> str | None:
    """X.Y.Z; None for builds whose number says nothing."""
    for key in ("vllm_version_inferred", "vllm_version"):
        match = re.match(r"0\.(\d+)(?:\.(\d+))?", point.get(key) or "")
        if match and int(match[1]) > 1:
            return f"0.{match[1]}.{match[2] or 0}"
    return None


def _utilization(point: Point, version: str | None) -> float | None:
    """As stated; the engine's default where the log shows its whole configuration."""
    if point.get("gpu_memory_utilization"):
        return float(point["gpu_memory_utilization"])
    if version and "dtype" in point and "pp" in point:
        return 0.92 if tuple(map(int, version.split("."))) >= (0, 20, 1) else 0.9
    return None


def _total(point: Point) -> float | None:
    """GiB."""
    text = re.search(
        r"[\d.]+/([\d.]+) GiB\)|total capacity of ([\d.]+) GiB", point["observed"].get("outcome", "")
    )
    printed = float(text[1] or text[2]) if text else None
    return point.get("gpu_memory_total_gib") or printed or TOTALS_GIB.get(point.get("gpu") or "")


def _count(point: Point) -> int:
    return max(int(point.get("n_gpus") or 1), int(point["tp"]) * int(point.get("pp", 1)))


def _checks(text: str | None) -> set[str]:
    return {name for name, pattern in CHECKS.items() if re.search(pattern, text or "", re.IGNORECASE)}


_SCORING = {
    "weights": "a",
    "tokens_per_gib": "b",
    "requests_per_gib": "b",
    "verdict": "v",
}


def _comparable(point: Point, budget: float | None) -> dict[str, Any]:
    """Measure to logged value, of those this log has and nothing excludes."""
    log, shared = point["observed"], point.get("gpu") == GB10
    kv, tokens, requests = (
        log.get("available_kv_cache_gib", 0),
        log.get("kv_cache_tokens"),
        log.get("max_concurrency", 0),
    )
    if "available_kv_cache_gib_by_rank" in log:
        tokens = requests = 0  # printed for another rank than the smallest
    if log.get("max_concurrency_at_len") != point.get("max_model_len"):
        requests = 0
    truth: dict[str, Any] = {}
    if log.get("weights_gib"):
        truth["weights"] = log["weights_gib"]
    if kv >= LEAST_CACHE_GIB and tokens:
        truth["tokens_per_gib"] = tokens / kv
    if kv >= LEAST_CACHE_GIB and requests >= 2:
        truth["requests_per_gib"] = requests / kv
    if budget:
        if kv > 0:
            truth |= {"shared_kv_budget": kv} if shared else {"kv_budget": kv, "kv": kv}
            if tokens:
                truth["shared_kv_tokens" if shared else "kv_tokens"] = tokens
            if requests and not shared:
                truth["concurrency"] = requests
        outcome = log.get("outcome", "")
        if outcome == "started" or _checks(outcome):
            truth["verdict"] = _checks(outcome) or "started"
    left_out = set(point.get("exclude", ()))
    return {name: value for name, value in truth.items() if _SCORING.get(name, "c") not in left_out}


def _quantized(config: dict[str, Any]) -> bool:
    return "quantization_config" in config or "quantization_config" in (config.get("text_config") or {})


def _speculative(point: Point) -> str | None:
    """The option for methods that need no second checkpoint."""
    text = point.get("speculative_config", "")
    method, count = re.search(r"method='(mtp|ngram)'", text), re.search(r"num_spec_tokens=(\d+)", text)
    if not method or not count:
        return None
    return json.dumps({"method": method[1], "num_speculative_tokens": int(count[1])})


def _arguments(point: Point, config: dict[str, Any], utilization: float | None) -> list[str]:
    """The logged inputs in the engine's own syntax."""
    other = point.get("other_args") or {}
    named = other if isinstance(other, dict) else {}
    values = {
        "--tensor-parallel-size": point["tp"],
        "--pipeline-parallel-size": point.get("pp"),
        "--data-parallel-size": _count(point) // (point["tp"] * point.get("pp", 1)),
        "--dtype": point.get("dtype"),
        "--block-size": point.get("block_size"),
        "--kv-cache-dtype": point.get("kv_cache_dtype"),
        "--max-model-len": point.get("max_model_len"),
        "--max-num-seqs": point.get("max_num_seqs"),
        "--max-num-batched-tokens": point.get("max_num_batched_tokens"),
        "--gpu-memory-utilization": utilization or 0.9,
        "--cpu-offload-gb": point.get("cpu_offload_gb"),
        # a quantized checkpoint says so itself; what remains is conversion while loading
        "--quantization": None if _quantized(config) else point.get("quantization"),
        # the engine finds this in modules.json, which a config.json does not show
        "--runner": "pooling" if "embedding" in point["model"].lower() else None,
        "--speculative-config": _speculative(point),
    }
    switches = {
        "--enforce-eager": point.get("enforce_eager"),
        "--enable-expert-parallel": point.get("ep"),
        "--language-model-only": named.get("language_model_only") == "True",
        "--enable-prefix-caching": named.get("enable_prefix_caching") == "True",
        "--no-enable-prefix-caching": named.get("enable_prefix_caching") == "False",
    }
    words = [
        word for flag, value in values.items() if value not in (None, "auto") for word in (flag, str(value))
    ]
    words += [flag for flag, on in switches.items() if on]
    passed = " ".join(PASSED_ON.findall(other)).split() if isinstance(other, str) else []
    return [*words, *passed, *point.get("extra_args", [])]


def _errors(
    truth: dict[str, Any], estimate: MemoryEstimate, point: Point, budget: float | None
) -> dict[str, float]:
    first = estimate.ranks[0]
    kv = min(rank.kv_cache_bytes for rank in estimate.ranks) / GIB
    tokens, requests, length = (
        estimate.kv_cache_tokens,
        estimate.max_concurrency,
        point.get("max_model_len"),
    )
    rate = tokens / kv if tokens and kv > 0 else None
    per_request = rate / length if rate and length else None
    values = {
        "weights": (first.weights.bytes + first.weights_extra.bytes) / GIB,
        "tokens_per_gib": rate,
        "requests_per_gib": requests / kv if requests and kv > 0 else per_request,
        "kv_budget": kv,
        "kv": kv,
        "kv_tokens": tokens,
        "concurrency": requests,
    }
    found = {}
    for name, true in truth.items():
        value = values.get(name.removeprefix("shared_"))
        if value is None:
            continue
        base = budget if name.endswith("kv_budget") else true
        assert base is not None
        found[name] = 100 * (value - true) / base * (-1 if name == "weights" else 1)
    return found


def _judged(true: Any, starts: bool, check: str | None) -> tuple[str | None, bool | None]:
    if true is None:
        return None, None
    started = true == "started"
    if starts == started:
        return "right", check in true if not started and check else None
    return ("missed failure" if starts else "false alarm"), None


def _range(point: Point, estimate: MemoryEstimate, total: float) -> dict[str, Any]:
    kv = point["observed"]["available_kv_cache_gib"]
    rank = min(estimate.ranks, key=lambda rank: rank.kv_cache_bytes)
    low, high = rank.kv_cache_low / GIB, rank.kv_cache_high / GIB
    safe = low <= kv + ROUNDING_GIB
    return {
        "width": 100 * (high - low) / total,
        "safe": safe,
        "inside": safe and kv - ROUNDING_GIB <= high,
    }
