"""Families measured against the parameters, buffers and caches that vLLM 0.32's own model classes build."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.model import ModelProfile
from gpuplan.engine.architectures import describe
from gpuplan.engine.weights import Split, rank_weights, stage_layers
from gpuplan.errors import GpuplanError

MEASURED = [
    json.loads(line)
    for line in (Path(__file__).parents[3] / "data" / "families" / "vllm-0.32.jsonl").read_text().splitlines()
]
BUFFER_TOLERANCE = 0.001
WRONG: tuple[Any, ...] = (-1, 2**40, [1, "x"], None)
"""None: left out."""
CHEAP_LAYERS = 8


def named(entry: dict[str, Any]) -> str:
    return str(entry["name"])


def caches_of(profile: ModelProfile, first: int, last: int, tensor: int) -> list[list[Any]]:
    """Layers by kind, KV heads on a rank, head size and window."""
    counts: dict[tuple[Any, ...], int] = {}
    for kind in profile.layer_order[first:last]:
        for cache in profile.layer_kinds[kind].caches:
            key = (cache.kind.value, max(1, cache.heads // tensor), cache.head_size, cache.window)
            counts[key] = counts.get(key, 0) + 1
    return [[kind, count, heads, size, window] for (kind, heads, size, window), count in counts.items()]


@pytest.mark.parametrize("entry", MEASURED, ids=named)
def test_parameters_buffers_and_caches_are_vllms(entry: dict[str, Any]) -> None:
    for row in entry["rows"]:
        profile = describe(entry["name"], entry["config"], pooling=row["pooling"])
        assert profile.recognised
        bounds = stage_layers(profile.layer_count, row["pipeline"])
        split = Split(tensor=row["tensor"], expert_tensor=row["tensor"])
        for stage, measured in enumerate(row["ranks"]):
            weights = rank_weights(profile, split, stage=stage, stages=row["pipeline"])
            assert weights.parameters == measured["parameters"]
            slack = BUFFER_TOLERANCE * measured["parameters"]
            assert abs(weights.buffers - measured["buffers"]) <= slack
            assert sorted(caches_of(profile, *bounds[stage], row["tensor"]), key=str) == sorted(
                measured["caches"], key=str
            )


def wrong_configs(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The config with each of its numbers and lists, also the nested ones, made wrong or left out."""
    places = [()] + [(key,) for key, value in config.items() if isinstance(value, dict)]
    for place in places:
        holder = config[place[0]] if place else config
        for key in holder:
            if key == "architectures" or isinstance(holder[key], (str, bool)) or holder[key] is None:
                continue
            for value in WRONG:
                changed = copy.deepcopy(config)
                target = changed[place[0]] if place else changed
                if value is None:
                    del target[key]
                else:
                    target[key] = value
                yield changed


def shortened(config: dict[str, Any]) -> dict[str, Any]:
    """The config with few layers, so that many of them are described quickly."""
    for holder in (config, *(value for value in config.values() if isinstance(value, dict))):
        for key in ("num_hidden_layers", "depth", "n_layer", "num_kv_shared_layers"):
            if isinstance(holder.get(key), int):
                holder[key] = min(holder[key], CHEAP_LAYERS)
    return config


@pytest.mark.parametrize("entry", MEASURED, ids=named)
def test_wrong_values_are_one_plain_error(entry: dict[str, Any]) -> None:
    small = shortened(copy.deepcopy(entry["config"]))
    for changed in wrong_configs(small):
        try:
            profile = describe(entry["name"], changed)
            rank_weights(profile, Split(tensor=2, expert_tensor=2))
        except GpuplanError as error:
            message = error.message
        else:
            message = "described"
        assert message


def test_towers_are_left_out_for_the_language_model_alone() -> None:
    for entry in MEASURED:
        profile = describe(entry["name"], entry["config"])
        alone = rank_weights(profile, Split(language_model_only=True))
        whole = rank_weights(profile, Split())
        towers = any(part.tower for part in profile.parts)
        assert (alone.parameters < whole.parameters) == towers
        assert bool(profile.encoders) >= towers


def test_encoders_keep_nothing_and_decoders_as_classifiers_do() -> None:
    by_name = {entry["name"]: entry for entry in MEASURED}
    assert not any(kind.caches for kind in describe("bert", by_name["bert"]["config"]).layer_kinds)
    classifier = describe("llamacls", by_name["llamacls"]["config"])
    assert classifier.pooling
    assert all(kind.caches for kind in classifier.layer_kinds)
