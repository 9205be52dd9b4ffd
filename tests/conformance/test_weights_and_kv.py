"""Weights and cache pages of every row against what vLLM 0.32.0's own model classes allocate.

`vllm-weights-and-kv.jsonl` holds, for one (model, tp, pp, expert parallel, KV dtype, GPU generation), the parameter
bytes of each pipeline rank and its cache layers by identical geometry.
"""

import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.model import CacheKind, ModelProfile
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.architectures import describe
from gpuplan.engine.kv_pages import CacheSettings, page_lists
from gpuplan.engine.versions import version_of
from gpuplan.engine.weights import RankWeights, Split, rank_weights, stage_layers

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


@cache
def _profile(config_file: str, runner: str | None) -> ModelProfile:
    config = _document(DATA / "configs" / config_file)
    assert config is not None, config_file
    beside = _document(DATA / "configs" / config_file.replace(".json", ".hf_quant_config.json"))
    return describe(config_file, config, hf_quant_config=beside, pooling=runner == "pooling")


def _rows() -> list[Row]:
    lines = gzip.decompress((DATA / "vllm-weights-and-kv.jsonl.gz").read_bytes()).splitlines()
    return [json.loads(line) for line in lines]


ROWS = _rows()
FILES = tuple(dict.fromkeys(row["config_file"] for row in ROWS))
ROWS_OF = {name: [row for row in ROWS if row["config_file"] == name] for name in FILES}


def _label(row: Row) -> str:
    expert = " ep" if row["expert_parallel"] else ""
    return (
        f"{row['config_file']} tp{row['tp']} pp{row['pp']}{expert} {row['kv_cache_dtype']} {row['gpu_arch']}"
    )


def _rank_weights(row: Row) -> list[tuple[RankWeights, dict[str, Any]]]:
    """What the engine says and what vLLM allocates, per pipeline rank."""
    profile = _profile(row["config_file"], row.get("runner"))
    split = Split(
        tensor=row["tp"],
        expert_ranks=row["tp"] if row["expert_parallel"] else 1,
        expert_tensor=1 if row["expert_parallel"] else row["tp"],
        compute_capability=CAPABILITY[row["gpu_arch"]],
    )
    return [
        (rank_weights(profile, split, stage=rank["pp_rank"], stages=row["pp"]), rank) for rank in row["ranks"]
    ]


@pytest.mark.parametrize("config_file", FILES)
def test_weights_of_every_rank_are_exact_to_the_byte(config_file: str) -> None:
    wrong = {
        f"{_label(row)} stage {rank['pp_rank']}": weights.parameters - rank["weight_bytes"]
        for row in ROWS_OF[config_file]
        for weights, rank in _rank_weights(row)
        if weights.parameters != rank["weight_bytes"]
    }
    assert not wrong


@pytest.mark.parametrize("config_file", FILES)
def test_buffers_of_every_rank_are_within_a_ten_thousandth_of_its_weights(config_file: str) -> None:
    """Rotary caches are exact; small tables (expert maps, scales of one value) are left out."""
    for row in ROWS_OF[config_file]:
        for weights, rank in _rank_weights(row):
            difference = abs(weights.buffers - rank["buffer_bytes"])
            assert difference <= 1e-4 * rank["weight_bytes"], _label(row)


def _wanted_pages(rank: dict[str, Any]) -> Counter[tuple[str, int]]:
    pages: Counter[tuple[str, int]] = Counter()
    for group in rank["kv_groups"]:
        if group["kind"] == "mamba":
            size = rank.get("mamba_page_bytes_padded") or group["state_bytes_per_layer"]
        else:
            block = group.get("page_block_size") or rank["block_size"]
            size = group.get("padded_page_bytes") or int(group["bytes_per_token_per_layer"] * block)
        pages[group["kind"], size] += group["layers"]
    return pages


@pytest.mark.parametrize("config_file", FILES)
def test_cache_pages_of_every_rank(config_file: str) -> None:
    for row in ROWS_OF[config_file]:
        profile = _profile(config_file, row.get("runner"))
        settings = CacheSettings(
            version=version_of("0.32.0"),
            engine=EngineArguments(kv_cache_dtype=row["kv_cache_dtype"]),
            tensor=row["tp"],
            pipeline=row["pp"],
            compute_capability=CAPABILITY[row["gpu_arch"]],
        )
        lists = page_lists(profile, settings)
        bounds = stage_layers(profile.layer_count, row["pp"])
        for rank in row["ranks"]:
            first, last = bounds[rank["pp_rank"]]
            pages = Counter(
                ("mla" if page.kind is CacheKind.INDEXER else page.kind.value, page.page_bytes)
                for layer in lists[first:last]
                for page in layer
            )
            assert (first, last) == tuple(rank["layer_range"]), _label(row)
            assert pages == _wanted_pages(rank), _label(row)
