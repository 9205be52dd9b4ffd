"""Latent-attention models against what vLLM's own model classes allocate."""

import json
from collections import Counter
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.model import Cache, CacheKind, ModelProfile
from gpuplan.engine.architectures import describe
from gpuplan.engine.architectures.mla import IndexerShape
from gpuplan.engine.weights import Indivisible, Split, rank_weights, stage_layers
from gpuplan.engine.weights_extra import ABSORBED, CHOICE, GROUPS, extra_bytes
from gpuplan.errors import GpuplanError, ModelError
from gpuplan.units import MIB, round_up

DATA = Path(__file__).parents[3] / "data" / "mla"
ROWS = [json.loads(line) for line in (DATA / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
CAPABILITY = {"sm90": "9.0", "sm100": "10.0"}


def config(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))
    return found


@cache
def profile(name: str) -> ModelProfile:
    beside = DATA / f"{name}.hf_quant_config.json"
    quantization = json.loads(beside.read_text(encoding="utf-8")) if beside.exists() else None
    return describe(name, config(name), hf_quant_config=quantization)


def row_name(row: dict[str, Any]) -> str:
    return (
        f"{row['config_file']} tp{row['tp']} pp{row['pp']} {row['gpu_arch']} {row['kv_cache_dtype_resolved']}"
    )


def split_of(row: dict[str, Any]) -> Split:
    whole = row["expert_parallel"]
    return Split(
        tensor=row["tp"],
        expert_ranks=row["tp"] if whole else 1,
        expert_tensor=1 if whole else row["tp"],
        compute_capability=CAPABILITY[row["gpu_arch"]],
    )


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_parameters_are_exact_on_every_stage(row: dict[str, Any]) -> None:
    model = profile(row["config_file"].removesuffix(".json"))
    for stage, rank in enumerate(row["ranks"]):
        counted = rank_weights(model, split_of(row), stage=stage, stages=row["pp"])
        assert counted.parameters == rank["weight_bytes"]
        assert abs(counted.buffers - rank["buffer_bytes"]) <= rank["weight_bytes"] // 1000


def bytes_per_token(cache: Cache, row: dict[str, Any]) -> float:
    float8 = row["kv_cache_dtype_resolved"].startswith("fp8")
    if cache.fixed_bytes_per_token is not None:
        return cache.fixed_bytes_per_token / cache.tokens_per_state
    if float8 and cache.packed_float8_bytes and row["gpu_arch"] == "sm90":
        return cache.packed_float8_bytes
    vectors = 2 * cache.heads // row["tp"] if cache.kind is CacheKind.FULL else 1
    return vectors * cache.head_size * (1 if float8 else 2)


def padded_page(cache: Cache) -> int | None:
    """Bytes of a page, None where nothing is padded."""
    if cache.page_tokens is None or cache.fixed_bytes_per_token is None:
        return None
    page = cache.page_tokens // cache.tokens_per_state * cache.fixed_bytes_per_token
    padded = round_up(page, cache.page_alignment)
    return padded if padded != page else None


def geometry(cache: Cache, row: dict[str, Any]) -> tuple[object, ...]:
    if cache.states:
        return tuple(
            tuple(
                size // row["tp"] if axis == state.sharded_axis else size
                for axis, size in enumerate(state.shape)
            )
            for state in cache.states
        )
    kind = CacheKind.LATENT if cache.kind is CacheKind.INDEXER else cache.kind
    return (
        kind.value,
        cache.head_size,
        bytes_per_token(cache, row),
        cache.window,
        cache.tokens_per_state,
        padded_page(cache),
    )


def expected_geometry(group: dict[str, Any]) -> tuple[object, ...]:
    if group["kind"] == "mamba":
        return tuple(tuple(shape) for shape in group["state_shapes"])
    return (
        group["kind"],
        group["head_size"],
        group["bytes_per_token_per_layer"],
        group["sliding_window"],
        group.get("tokens_per_state", 1),
        group.get("padded_page_bytes"),
    )


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_caches_are_those_the_engine_registers(row: dict[str, Any]) -> None:
    model = profile(row["config_file"].removesuffix(".json"))
    for (first, last), rank in zip(stage_layers(model.layer_count, row["pp"]), row["ranks"], strict=True):
        found = Counter(
            geometry(cache, row)
            for kind in model.layer_order[first:last]
            for cache in model.layer_kinds[kind].caches
        )
        expected: Counter[tuple[object, ...]] = Counter()
        for group in rank["kv_groups"]:
            expected[expected_geometry(group)] += group["layers"]
        assert found == expected


def test_shared_indexers_stand_where_the_frequency_says() -> None:
    indexer = IndexerShape(heads=32, head=128, frequency=4, offset=3)
    assert [index for index in range(12) if indexer.stands_on(index)] == [0, 1, 2, 6, 10]
    assert not IndexerShape(heads=1, head=128, pattern="FSF").stands_on(1)
    assert IndexerShape(heads=1, head=128, pattern="FSF").stands_on(5)


def test_every_draft_layer_has_its_own_indexer() -> None:
    model = profile("nvidia__GLM-5.2-NVFP4")
    assert model.draft_order
    kinds = {cache.kind for cache in model.draft_kinds[0].caches}
    assert kinds == {CacheKind.INDEXER, CacheKind.LATENT}


def test_a_draft_layer_is_loaded_on_the_last_stage_only() -> None:
    model = profile("deepseek-ai__DeepSeek-R1")
    split = Split(tensor=8, expert_tensor=8)
    for stage, grows in ((0, False), (1, True)):
        plain = rank_weights(model, split, stage=stage, stages=2)
        drafting = rank_weights(model, split, stage=stage, stages=2, draft_layers=1)
        assert (drafting.parameters > plain.parameters) is grows


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(Indivisible):
        rank_weights(profile("zai-org__GLM-5"), Split(tensor=3, expert_tensor=3))


def test_token_sharded_experts_stand_whole_on_every_rank() -> None:
    model = profile("deepseek-ai__DeepSeek-R1")
    divided = Split(tensor=4, expert_ranks=8)
    whole = Split(tensor=4, expert_ranks=8, token_sharded_experts=True)
    layers, hidden, width = 58, 7168, 2048
    missing = layers * 3 * hidden * width * 3 // 4
    difference = rank_weights(model, whole).parameters - rank_weights(model, divided).parameters
    assert missing <= difference <= missing * 1.01


def test_quantized_up_projections_are_kept_dequantized() -> None:
    model = profile("deepseek-ai__DeepSeek-R1")
    assert dict(extra_bytes(model, Split(tensor=8))) == {ABSORBED: 61 * 16 * 256 * 512 * 2}
    assert sum(size for _, size in extra_bytes(model, Split(tensor=8), stages=2)) < 128 * MIB
    assert extra_bytes(profile("deepseek-ai__DeepSeek-V2-Lite"), Split()) == ()


def test_indexers_bring_their_buffers() -> None:
    added = dict(extra_bytes(profile("zai-org__GLM-5"), Split(tensor=8), batched_tokens=8192, sequences=256))
    assert added[CHOICE] == 64 * MIB
    assert added[GROUPS] == 78 * 257 * 2049 * 4
    assert ABSORBED not in added


WRONG: tuple[Any, ...] = (None, -1, 0, 1e300, "x", [], [None], {}, True, 2**70)


@pytest.mark.parametrize(
    "name",
    [
        "deepseek-ai__DeepSeek-V3.2",
        "nvidia__DeepSeek-V4-Flash-NVFP4",
        "Kimi-Linear-48B",
        "LongCat-Flash-Chat",
    ],
)
def test_wrong_values_are_refused_or_described_but_never_crash(name: str) -> None:
    original = config(name)
    original.pop("quantization_config", None)
    small = {"num_hidden_layers": 3, "num_layers": 3}
    original |= {key: value for key, value in small.items() if key in original}
    for key in original:
        for value in WRONG:
            with suppress(GpuplanError):
                rank_weights(describe("wrong", {**original, key: value}), Split(tensor=2, expert_tensor=2))


@pytest.mark.parametrize(
    "key", ["kv_lora_rank", "qk_rope_head_dim", "v_head_dim", "hidden_size", "vocab_size"]
)
def test_a_missing_width_is_named(key: str) -> None:
    broken = config("deepseek-ai__DeepSeek-R1")
    del broken[key]
    with pytest.raises(ModelError, match=key):
        describe("broken", broken)


def test_models_with_norms_around_the_mlp_differ_by_them_alone() -> None:
    base = {**config("deepseek-ai__DeepSeek-R1"), "router_enable_expert_bias": True, "sandwich_norm": True}
    plain = rank_weights(describe("v3", base), Split()).parameters
    for architecture, norms in (("AXK1ForCausalLM", 1), ("PanguUltraMoEForCausalLM", 2)):
        other = rank_weights(describe("other", {**base, "architectures": [architecture]}), Split()).parameters
        assert other - plain == norms * 61 * 7168 * 2
