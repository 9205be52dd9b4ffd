"""Blocks, tokens and concurrency against lines that real engines printed."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.model import CacheKind, ModelProfile
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.architectures import describe
from gpuplan.engine.kv_cache import checked_bytes, geometry, largest_context, pool, usable_bytes
from gpuplan.engine.kv_pages import CacheSettings
from gpuplan.engine.versions import version_of
from gpuplan.units import GIB

CONFIGS = Path(__file__).parents[2] / "data" / "configs"


def profile(name: str) -> ModelProfile:
    path = CONFIGS / f"{name}.json"
    text = (
        path.read_text()
        if path.exists()
        else gzip.decompress((CONFIGS / f"{name}.json.gz").read_bytes()).decode()
    )
    return describe(name, json.loads(text))


def settings(version: str, **changes: Any) -> CacheSettings:
    return CacheSettings(version=version_of(version), **changes)


@pytest.mark.parametrize(
    ("name", "version", "tensor", "batch", "kv_gib", "context", "tokens", "concurrency"),
    [
        # start-up logs: gpt-oss-120b on 4 A100; GLM-5.1 and DeepSeek keep latents whole on every rank
        ("openai__gpt-oss-120b", "0.10.1.1", 4, 2048, 45.32, 16384, 2_640_144, 284.25),
        ("google__gemma-3-1b-it", "0.11.0", 1, 2048, 25.39, 2048, 950_864, 461.2),
    ],
)
def test_pool_is_what_the_engine_printed(
    name: str,
    version: str,
    tensor: int,
    batch: int,
    kv_gib: float,
    context: int,
    tokens: int,
    concurrency: float,
) -> None:
    options = settings(version, tensor=tensor, max_num_batched_tokens=batch)
    (stage,) = geometry(profile(name), options, stages=1)
    made = pool([(stage, int(kv_gib * GIB))], options, context)
    # the log rounds the GiB to two decimals
    assert made.tokens == pytest.approx(tokens, rel=0.005 / kv_gib + 1e-4)
    assert made.concurrency == pytest.approx(concurrency, rel=0.005 / kv_gib + 1e-4)


def test_hybrid_pool_is_what_the_engine_printed() -> None:
    """Qwen3-Next, TP 2, fp8 KV: blocks of 1,072 tokens, 767,552 tokens, 84.29 requests of 32,768 tokens in 17.58 GiB."""
    model = profile("Qwen__Qwen3-Next-80B-A3B-Instruct")
    options = settings("0.11.0", tensor=2, engine=EngineArguments(kv_cache_dtype="fp8"))
    (stage,) = geometry(model, options, stages=1)
    made = pool([(stage, int(17.58 * GIB))], options, 32768)
    assert stage.block_size == 1072
    assert made.tokens == pytest.approx(767_552, rel=1e-3)
    assert made.concurrency == pytest.approx(84.29, rel=1e-3)


def test_latent_cache_is_not_divided_by_tensor_parallel() -> None:
    model = profile("deepseek-ai__DeepSeek-R1")
    sizes = {
        tensor: geometry(model, settings("0.33.0", tensor=tensor), stages=1)[0].block_bytes
        for tensor in (1, 8)
    }
    assert sizes[1] == sizes[8] == 61 * 1152 * 16


def test_kv_heads_are_replicated_beyond_their_number() -> None:
    model = profile("Qwen__Qwen3-30B-A3B")
    sizes = [
        geometry(model, settings("0.33.0", tensor=tensor), stages=1)[0].block_bytes for tensor in (1, 2, 4, 8)
    ]
    assert sizes == [sizes[0], sizes[0] // 2, sizes[0] // 4, sizes[0] // 4]


def test_fp8_halves_the_pages() -> None:
    model = profile("Qwen__Qwen3-32B")
    full = geometry(model, settings("0.33.0"), stages=1)[0].block_bytes
    half = geometry(model, settings("0.33.0", engine=EngineArguments(kv_cache_dtype="fp8")), stages=1)[
        0
    ].block_bytes
    assert half * 2 == full


def test_pipeline_stages_hold_their_own_layers() -> None:
    model = profile("Qwen__Qwen3-32B")
    whole = geometry(model, settings("0.33.0"), stages=1)[0].block_bytes
    parts = geometry(model, settings("0.33.0", pipeline=3), stages=3)
    assert sum(stage.block_bytes for stage in parts) == whole
    uneven = geometry(model, settings("0.33.0", pipeline=2), stages=2, layer_partition=(48, 16))
    assert uneven[0].block_bytes == 3 * uneven[1].block_bytes


def test_windows_cost_no_more_than_themselves() -> None:
    model = profile("openai__gpt-oss-120b")
    options = settings("0.24.0", max_num_batched_tokens=2048)
    (stage,) = geometry(model, options, stages=1)
    sliding = [group for group in stage.groups if group.kind is CacheKind.SLIDING]
    assert len(sliding) == 1
    assert stage.blocks_for(131072) == 131072 // 16 + (127 + 2048 + 15) // 16 + 1
    whole = settings(
        "0.24.0", max_num_batched_tokens=2048, engine=EngineArguments(disable_hybrid_kv_cache_manager=True)
    )
    (without,) = geometry(model, whole, stages=1)
    assert without.blocks_for(131072) * without.block_bytes > stage.blocks_for(131072) * stage.block_bytes


def test_hybrid_block_follows_the_recurrent_state() -> None:
    model = profile("Qwen__Qwen3.5-9B")
    (stage,) = geometry(model, settings("0.32.0", tensor=2), stages=1)
    assert stage.block_size == 528
    assert {group.kind for group in stage.groups} == {CacheKind.FULL, CacheKind.STATE}


def test_null_block_is_left_out_of_the_checks_from_0_29() -> None:
    model = profile("Qwen__Qwen3-32B")
    (stage,) = geometry(model, settings("0.33.0"), stages=1)
    assert usable_bytes(stage, 10 * GIB, settings("0.33.0")) == 10 * GIB - stage.block_bytes
    assert usable_bytes(stage, 10 * GIB, settings("0.24.0")) == 10 * GIB


@pytest.mark.parametrize("name", ["Qwen__Qwen3-32B", "openai__gpt-oss-120b", "Qwen__Qwen3.5-9B"])
@pytest.mark.parametrize("concurrency", [1, 7])
def test_largest_context_is_the_last_that_fits(name: str, concurrency: int) -> None:
    options = settings("0.33.0")
    (stage,) = geometry(profile(name), options, stages=1)
    room = 3 * GIB
    longest = largest_context([(stage, room)], options, 10**6, concurrency)
    usable = usable_bytes(stage, room, options)
    assert stage.blocks_for(longest) * concurrency * stage.block_bytes <= usable
    assert longest == 10**6 or stage.blocks_for(longest + 1) * concurrency * stage.block_bytes > usable


def test_nothing_fits_where_nothing_is_left() -> None:
    options = settings("0.33.0")
    (stage,) = geometry(profile("Qwen__Qwen3-32B"), options, stages=1)
    assert largest_context([(stage, -GIB)], options, 1000) == 0
    assert pool([(stage, -GIB)], options, 1000).blocks == 0


@pytest.mark.parametrize(
    ("name", "version", "tensor", "batch", "kv_gib", "context", "prefixes", "tokens", "concurrency"),
    [
        # start-up logs: no prefix caching by default up to 0.27; Gemma 4 makes unlike pages equal
        ("nvidia__Qwen3.6-27B-NVFP4", "0.27.1", 2, 8192, 44.73, 65536, None, 1_407_894, 21.48),
        ("google__gemma-4-26B-A4B", "0.20.0", 1, 4096, 40.61, 8192, None, 177_440, 35.75),
    ],
)
def test_hybrid_pools_of_newer_releases(
    name: str,
    version: str,
    tensor: int,
    batch: int,
    kv_gib: float,
    context: int,
    prefixes: bool | None,
    tokens: int,
    concurrency: float,
) -> None:
    engine = EngineArguments(enable_prefix_caching=prefixes, kv_cache_dtype="bfloat16")
    options = settings(version, tensor=tensor, max_num_batched_tokens=batch, engine=engine)
    (stage,) = geometry(profile(name), options, stages=1)
    made = pool([(stage, int(kv_gib * GIB))], options, context)
    assert made.tokens == pytest.approx(tokens, rel=2e-3)
    assert made.concurrency == pytest.approx(concurrency, rel=2e-3)


def test_a_prefix_cache_takes_states_more() -> None:
    """GDN: one state without, two with; 0.33 keeps a third for FlashInfer's checkpoints and aligns blocks to 64."""
    model = profile("Qwen__Qwen3.5-9B")
    found = []
    for version, prefixes in (("0.28.0", False), ("0.28.0", None), ("0.33.0", None)):
        engine = EngineArguments(enable_prefix_caching=prefixes)
        (stage,) = geometry(model, settings(version, engine=engine, compute_capability="9.0"), stages=1)
        states = [group.state_blocks for group in stage.groups if group.kind is CacheKind.STATE]
        found.append((set(states), stage.block_size))
    assert found == [({1}, 528), ({2}, 528), ({3}, 576)]


def test_older_checks_let_hybrid_models_start_that_hold_no_request() -> None:
    """0.14 to 0.18 look at the first group only: sliding layers of gpt-oss, whatever the context."""
    model = profile("openai__gpt-oss-20b")
    needs = []
    for version in ("0.13.0", "0.18.0", "0.19.0"):
        options = settings(version, max_num_batched_tokens=2048)
        (stage,) = geometry(model, options, stages=1)
        needs.append(checked_bytes(stage, options, 131072))
    assert needs[1] < needs[0] / 10
    assert needs[0] == needs[2]


def test_skipped_layers_keep_their_type() -> None:
    model = profile("Qwen__Qwen3-32B")
    plain, narrow, mixed = (
        geometry(model, settings("0.33.0", engine=engine), stages=1)[0].block_bytes
        for engine in (
            EngineArguments(),
            EngineArguments(kv_cache_dtype="fp8"),
            EngineArguments(kv_cache_dtype="fp8", kv_cache_dtype_skip_layers=("0", "63")),
        )
    )
    assert mixed == narrow + 2 * (plain - narrow) // model.layer_count


def test_turboquant_packs_keys_and_values_and_spares_the_ends() -> None:
    """4 bits, heads of 128: 64 + 2 bytes of key, 64 + 4 of value; two layers at either end stay bfloat16."""
    model = profile("Qwen__Qwen3-32B")
    engine = EngineArguments(kv_cache_dtype="turboquant_4bit_nc")
    (stage,) = geometry(model, settings("0.33.0", engine=engine), stages=1)
    assert stage.block_bytes == 16 * 8 * (60 * 134 + 4 * 512)


def test_context_parallel_ranks_share_a_request() -> None:
    model = profile("deepseek-ai__DeepSeek-V2-Lite")
    needed = [
        geometry(model, settings(version, decode_context=2, prefill_context=4), stages=1)[0].blocks_for(16384)
        for version in ("0.12.0", "0.33.0")
    ]
    assert needed == [16384 // 8 // 16, 16384 // 2 // 16]


def test_state_lengths_bound_the_printed_tokens() -> None:
    """Up to 0.20.0 the line counts the smallest block, and an uncached state's is the context itself."""
    model = profile("Qwen__Qwen3-Next-80B-A3B-Instruct")
    options = settings("0.19.1", tensor=2)
    (stage,) = geometry(model, options, stages=1)
    short, long = (pool([(stage, 10 * GIB)], options, context).tokens for context in (100, 32768))
    assert short == long // stage.block_size * 100
