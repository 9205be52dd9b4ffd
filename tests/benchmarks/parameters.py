"""Parameters per rank as gpuplan counts them, beside what vLLM 0.32.0's own model classes create.

`tests/data/vllm-weights-and-kv.jsonl.gz` holds one row for each (model, tp, pp, expert parallel, KV dtype, GPU generation).
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuplan.domain.model import ModelProfile
from gpuplan.engine.architectures import describe
from gpuplan.engine.weights import RankWeights, Split, rank_weights

DATA = Path(__file__).parents[1] / "data"
CAPABILITY = {
    "sm80": "8.0",
    "sm89": "8.9",
    "sm90": "9.0",
    "sm100": "10.0",
    "sm103": "10.3",
    "sm120": "12.0",
    "sm121": "12.1",
}

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One rank of one row, in bytes."""

    config: str
    label: str
    counted: int
    created: int

    @property
    def exact(self) -> bool:
        return self.counted == self.created

    @property
    def error(self) -> float:
        """Percent; positive counts too little."""
        return 100 * (self.created - self.counted) / self.created


@cache
def rows() -> tuple[Row, ...]:
    lines = gzip.decompress((DATA / "vllm-weights-and-kv.jsonl.gz").read_bytes()).splitlines()
    return tuple(json.loads(line) for line in lines)


@cache
def profile_of(config_file: str, runner: str | None) -> ModelProfile:
    config = _document(DATA / "configs" / config_file)
    assert config is not None, config_file
    beside = _document(DATA / "configs" / config_file.replace(".json", ".hf_quant_config.json"))
    return describe(config_file, config, hf_quant_config=beside, pooling=runner == "pooling")


def _document(path: Path) -> dict[str, Any] | None:
    packed = path.with_name(path.name + ".gz")
    if packed.exists():
        content = gzip.decompress(packed.read_bytes())
    elif path.exists():
        content = path.read_bytes()
    else:
        return None
    document: dict[str, Any] = json.loads(content)
    return document


def label(row: Row) -> str:
    expert = " ep" if row["expert_parallel"] else ""
    return (
        f"{row['config_file']} tp{row['tp']} pp{row['pp']}{expert} {row['kv_cache_dtype']} {row['gpu_arch']}"
    )


def rank_pairs(row: Row) -> Iterator[tuple[RankWeights, dict[str, Any]]]:
    """What gpuplan counts and what vLLM creates, per pipeline rank."""
    profile = profile_of(row["config_file"], row.get("runner"))
    split = Split(
        tensor=row["tp"],
        expert_ranks=row["tp"] if row["expert_parallel"] else 1,
        expert_tensor=1 if row["expert_parallel"] else row["tp"],
        compute_capability=CAPABILITY[row["gpu_arch"]],
    )
    for rank in row["ranks"]:
        yield rank_weights(profile, split, stage=rank["pp_rank"], stages=row["pp"]), rank


@cache
def compared_rows() -> tuple[Compared, ...]:
    """Every rank of every row."""
    return tuple(
        Compared(
            config=row["config_file"],
            label=f"{label(row)} stage {rank['pp_rank']}",
            counted=weights.parameters,
            created=rank["weight_bytes"],
        )
        for row in rows()
        for weights, rank in rank_pairs(row)
    )


def wide_table() -> tuple[int, int]:
    """(models, rows) of the second table, which `tests/conformance/test_weights_more.py` holds to the byte."""
    entries = [
        json.loads(line)
        for line in gzip.decompress((DATA / "vllm-weights-more.jsonl.gz").read_bytes()).splitlines()
    ]
    return len(entries), sum(len(entry["rows"]) for entry in entries)
