"""Weights and cache pages of every row against what vLLM 0.32.0's own model classes allocate.

`vllm-weights-and-kv.jsonl` holds, for one (model, tp, pp, expert parallel, KV dtype, GPU generation), the parameter
bytes of each pipeline rank and its cache layers by identical geometry.
"""

from collections import Counter
from typing import Any

import pytest

from gpuplan.domain.model import CacheKind
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.kv_pages import CacheSettings, page_lists
from gpuplan.engine.versions import version_of
from gpuplan.engine.weights import stage_layers
from tests.benchmarks.parameters import CAPABILITY, compared_rows, label, profile_of, rank_pairs, rows

ROWS = rows()
FILES = tuple(dict.fromkeys(row["config_file"] for row in ROWS))
ROWS_OF = {name: [row for row in ROWS if row["config_file"] == name] for name in FILES}


@pytest.mark.parametrize("config_file", FILES)
def test_weights_of_every_rank_are_exact_to_the_byte(config_file: str) -> None:
    wrong = [row for row in compared_rows() if row.config == config_file and not row.exact]
    assert not wrong


@pytest.mark.parametrize("config_file", FILES)
def test_buffers_of_every_rank_are_within_a_ten_thousandth_of_its_weights(config_file: str) -> None:
    """Rotary caches are exact; small tables (expert maps, scales of one value) are left out."""
    for row in ROWS_OF[config_file]:
        for weights, rank in rank_pairs(row):
            difference = abs(weights.buffers - rank["buffer_bytes"])
            assert difference <= 1e-4 * rank["weight_bytes"], label(row)


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
        profile = profile_of(config_file, row.get("runner"))
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
            assert (first, last) == tuple(rank["layer_range"]), label(row)
            assert pages == _wanted_pages(rank), label(row)
