"""Weights of families and quantizations beyond the first table, against what vLLM's own classes allocate.

Recorded by `tests/tools/record_vllm_weights.py` from vLLM 0.32 (retired families from 0.19): per model and row the
parameter and buffer bytes of each pipeline rank's first tensor-parallel rank, [parameters, buffers].
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gpuplan.engine.architectures import describe
from gpuplan.engine.architectures.drafts import draft_architecture
from gpuplan.engine.weights import RankWeights, Split, rank_weights

ROOT = Path(__file__).parents[2]
CATALOGUE = ROOT / "gpuplan" / "sources" / "catalogue" / "configs"
CAPABILITY = {"sm80": "8.0", "sm89": "8.9", "sm90": "9.0", "sm100": "10.0"}
PAD_OF_BUFFERS = 1e-4
"""Tables of one value, expert maps and the like are left out of the buffers."""

Entry = dict[str, Any]


def _entries() -> dict[str, Entry]:
    lines = gzip.decompress(
        (ROOT / "tests" / "data" / "vllm-weights-more.jsonl.gz").read_bytes()
    ).splitlines()
    return {entry["name"]: entry for entry in map(json.loads, lines)}


ENTRIES = _entries()


def _weights(entry: Entry, row: dict[str, Any]) -> list[RankWeights]:
    config: dict[str, Any] = entry.get("config", {})
    beside = entry.get("hf_quant_config")
    if "catalogue" in entry:
        kept = json.loads((CATALOGUE / entry["catalogue"]).read_text())
        config, beside = kept["config"], beside or kept.get("hf_quant_config")
    if "draft" in entry:
        config = entry["draft"]
        config = {
            **config,
            "architectures": [draft_architecture(entry["method"], config["architectures"][0])],
        }
        config = {**config, "num_heads": 3} if entry["method"] == "medusa" else config
    profile = describe(entry["name"].replace(": ", ":"), config, hf_quant_config=beside)
    assert profile.recognised
    tensor, expert = row["tp"], row["expert_parallel"]
    split = Split(
        tensor=tensor,
        expert_ranks=tensor if expert else 1,
        expert_tensor=1 if expert else tensor,
        compute_capability=CAPABILITY[row["gpu_arch"]],
    )
    return [rank_weights(profile, split, stage=stage, stages=row["pp"]) for stage in range(row["pp"])]


def test_there_are_hundreds_of_rows() -> None:
    assert sum(len(entry["rows"]) for entry in ENTRIES.values()) > 500


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_weights_are_exact_to_the_byte(name: str) -> None:
    entry = ENTRIES[name]
    for row in entry["rows"]:
        made = _weights(entry, row)
        label = f"{name} tp{row['tp']} pp{row['pp']} {row['gpu_arch']}"
        assert [weights.parameters for weights in made] == [parameters for parameters, _ in row["ranks"]], (
            label
        )
        for weights, (parameters, buffers) in zip(made, row["ranks"], strict=True):
            assert abs(weights.buffers - buffers) <= PAD_OF_BUFFERS * parameters, label
