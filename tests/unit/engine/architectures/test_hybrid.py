"""Hybrid and recurrent models against what vLLM's own model classes allocate, and against damaged configs."""

import json
import math
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpuplan.domain.model import CacheKind, Linear, ModelProfile, StateShape
from gpuplan.engine.architectures import describe
from gpuplan.engine.weights import Indivisible, Split, rank_weights, stage_layers
from gpuplan.errors import GpuplanError, ModelError

DATA = Path(__file__).parents[3] / "data" / "hybrid"
MODELS: dict[str, dict[str, Any]] = json.loads((DATA / "models.json").read_text(encoding="utf-8"))
ROWS = [json.loads(line) for line in (DATA / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
CAPABILITY = {"sm90": "9.0", "sm100": "10.0"}
BYTES = {"bfloat16": 2, "float32": 4}
ABSURD: tuple[Any, ...] = (None, 0, -1, 2**40, "x", [], {})


@cache
def profile(name: str) -> ModelProfile:
    return describe(name, MODELS[name]["config"], hf_quant_config=MODELS[name].get("hf_quant_config"))


def changed(name: str, **values: Any) -> dict[str, Any]:
    return {**MODELS[name]["config"], **values}


def row_name(row: dict[str, Any]) -> str:
    return f"{row['model']} tp{row['tp']} pp{row['pp']}"


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_weights_are_those_of_the_engine(row: dict[str, Any]) -> None:
    split = Split(tensor=row["tp"], expert_tensor=row["tp"], compute_capability=CAPABILITY[row["gpu_arch"]])
    stages = range(row["pp"])
    predicted = [
        rank_weights(profile(row["model"]), split, stage=stage, stages=row["pp"]).parameters
        for stage in stages
    ]
    assert predicted == [rank["weight_bytes"] for rank in row["ranks"]]


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_every_layer_keeps_what_the_engine_keeps(row: dict[str, Any]) -> None:
    model, ranks = profile(row["model"]), row["tp"]
    bounds = stage_layers(model.layer_count, row["pp"])
    for rank, (first, last) in zip(row["ranks"], bounds, strict=True):
        expected: Counter[tuple[Any, ...]] = Counter()
        for group in rank["kv_groups"]:
            if group["kind"] == "mamba":
                key: tuple[Any, ...] = (str(group["state_shapes"]), group["state_bytes_per_layer"])
                assert all(dtype in BYTES for dtype in group["state_dtypes"])
            else:
                key = (group["kind"], group["kv_heads"], group["head_size"])
            expected[key] += group["layers"]
        kept: Counter[tuple[Any, ...]] = Counter()
        for kind in model.layer_order[first:last]:
            for held in model.layer_kinds[kind].caches:
                if held.kind is CacheKind.STATE:
                    shapes = [list(state.on_rank(ranks)) for state in held.states]
                    size = sum(math.prod(state.on_rank(ranks)) * state.itemsize for state in held.states)
                    kept[str(shapes), size] += 1
                else:
                    kept[held.kind, max(1, held.heads // ranks), held.head_size] += 1
        assert kept == expected


def test_a_single_group_of_a_state_space_is_on_every_rank() -> None:
    states = next(
        c for c in profile("granite4tiny").layer_kinds[0].caches if c.kind is CacheKind.STATE
    ).states
    convolution = states[0]
    assert convolution.on_rank(1) == (3, 3072 + 2 * 128)
    assert convolution.on_rank(8) == (3, 3072 // 8 + 2 * 128)


def test_speculative_tokens_lengthen_the_convolution_only() -> None:
    states = next(c for c in profile("q3next").layer_kinds[0].caches if c.kind is CacheKind.STATE).states
    plain = [state.on_rank(4) for state in states]
    drafting = [state.on_rank(4, 2) for state in states]
    assert drafting[0][0] == plain[0][0] + 2
    assert drafting[1] == plain[1]


def test_groups_that_do_not_divide_are_refused() -> None:
    model = describe("m", changed("mamba2", n_groups=8))
    with pytest.raises(Indivisible, match="conv1d: 8 is not divisible by 16"):
        rank_weights(model, Split(tensor=16, expert_tensor=16))


def test_a_whole_state_is_on_every_rank_without_a_sharded_axis() -> None:
    state = StateShape(shape=(2, 3), sharded_axis=None, itemsize=2, dtype_setting="conv")
    assert state.on_rank(4) == (2, 3)


@pytest.mark.parametrize(
    ("wish", "size"), [("float32", 4), ("bfloat16", 2), ("torch.float16", 2), ("auto", 2), (None, 2)]
)
def test_the_config_rules_the_type_of_the_state(wish: str | None, size: int) -> None:
    text = describe("m", changed("q35text", mamba_ssm_dtype=wish))
    assert [int(state.itemsize) for state in text.layer_kinds[0].caches[0].states] == [2, size]


def test_nemotron_keeps_its_state_in_float32_unless_told_otherwise() -> None:
    config = changed("nemotron3super")
    del config["mamba_ssm_cache_dtype"]
    states = describe("m", config).layer_kinds[0].caches[0].states
    assert [int(state.itemsize) for state in states] == [2, 4]


def test_the_vision_tower_is_left_out_for_text_alone() -> None:
    model = profile("q35tied")
    whole = rank_weights(model, Split(), stages=1)
    text = rank_weights(model, Split(language_model_only=True), stages=1)
    assert whole.towers > 0
    assert text.towers == 0
    assert whole.parameters - text.parameters == whole.towers
    assert whole.buffers > text.buffers


def test_the_profile_run_sees_the_largest_image() -> None:
    (encoder,) = profile("q35tied").encoders
    assert (encoder.tokens_per_item, encoder.patches_per_item) == (16384, 65536)
    assert (encoder.heads, encoder.hidden, encoder.intermediate, encoder.layers) == (16, 1152, 4304, 3)


def test_towers_under_data_parallel_are_whole_on_every_rank() -> None:
    model = profile("q35tied")
    whole = rank_weights(model, Split()).towers
    assert rank_weights(model, Split(tensor=2, towers_data_parallel=True)).towers == whole
    assert rank_weights(model, Split(tensor=2)).towers < whole


def test_draft_layers_are_added_only_when_asked_for() -> None:
    model = profile("nemotron3super")
    assert len(model.draft_order) == 1
    drafting = rank_weights(model, Split(), draft_layers=1)
    plain = rank_weights(model, Split())
    assert drafting.parameters > plain.parameters
    assert drafting.experts == plain.experts // 2 * 3
    assert [cache.kind for cache in model.draft_kinds[0].caches] == [CacheKind.FULL]


def test_a_draft_of_qwen_joins_embedding_and_hidden_state_once() -> None:
    one = describe("m", changed("q35text", mtp_num_hidden_layers=1))
    two = describe("m", changed("q35text", mtp_num_hidden_layers=2))
    plain = rank_weights(one, Split()).parameters
    first = rank_weights(one, Split(), draft_layers=1).parameters - plain
    both = rank_weights(two, Split(), draft_layers=2).parameters - plain
    hidden = MODELS["q35text"]["config"]["hidden_size"]
    assert 2 * first - both == (2 * hidden * hidden + 3 * hidden) * 2


def test_shared_experts_stand_whole_where_the_input_is_sharded_by_tokens() -> None:
    model = profile("q35moetext")
    split = Split(tensor=2, expert_ranks=2)
    sharded = Split(tensor=2, expert_ranks=2, token_sharded_experts=True)
    assert rank_weights(model, sharded).parameters > rank_weights(model, split).parameters


def test_a_gated_mixer_is_replicated_beside_integer_kernels() -> None:
    """AWQ and GPTQ kernels do not take the few outputs a rank would have."""
    parts = {part.name: part for part in profile("q35gptq").layer_kinds[0].parts}
    mixer = parts["linear_attn.in_proj_ba"]
    assert isinstance(mixer, Linear)
    assert mixer.shard == "replicated"


def test_a_pruned_nemotron_has_its_own_sizes_per_layer() -> None:
    blocks = [
        {"block_type": "mamba"},
        {"block_type": "moe", "n_routed_experts": 8, "moe_intermediate_size": 512},
        {"block_type": "attention", "sliding_window": 4096},
        {"block_type": "moe", "n_routed_experts": 16},
    ]
    config = changed("nemotron3super", block_configs=blocks)
    del config["hybrid_override_pattern"]
    model = describe("m", config)
    assert model.expert_count == 16
    assert len(model.layer_kinds) == 4
    assert [cache.kind for layer in model.layer_kinds for cache in layer.caches] == [
        CacheKind.STATE,
        CacheKind.SLIDING,
    ]


def test_layers_without_attention_keep_nothing() -> None:
    model = profile("nemotron_nas")
    assert [len(model.layer_kinds[kind].caches) for kind in model.layer_order] == [1, 1, 0, 0]


def test_nemotron_omni_is_nemotron_h_behind_radio() -> None:
    text = MODELS["nemotron3super"]["config"]
    vision = {"args": {"model": "vit_huge_patch16_224", "register_multiple": 8}, "patch_size": 16}
    config = {"architectures": ["NemotronH_Nano_VL_V2"], "text_config": text, "vision_config": vision}
    config |= {"projector_hidden_size": 20480, "downsample_ratio": 0.5, "torch_dtype": "bfloat16"}
    model = describe("m", {**config, "sound_config": {"hidden_size": 1024}})
    weights = rank_weights(model, Split())
    alone = rank_weights(profile("nemotron3super"), Split())
    assert weights.parameters - weights.towers == alone.parameters
    assert 1.5e9 < weights.towers < 2.2e9
    assert any("sound" in note for note in model.assumptions)
    assert not model.supports_pipeline
    vision["args"] = {"model": "vit_enormous"}
    with pytest.raises(ModelError, match="not a RADIO backbone"):
        describe("m", config)


def test_minimax_text_keeps_one_matrix_per_head_and_a_float32_head() -> None:
    config = {
        "architectures": ["MiniMaxText01ForCausalLM"],
        "model_type": "minimax_text_01",
        "hidden_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "intermediate_size": 2048,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "attn_type_list": [0, 0, 0, 1],
        "vocab_size": 6400,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
    }
    model = describe("m", config)
    linear, full = model.layer_kinds[0], model.layer_kinds[model.layer_order[3]]
    assert linear.caches[0].states[0].on_rank(2) == (4, 128, 128)
    assert (full.caches[0].kind, full.caches[0].heads) == (CacheKind.FULL, 2)
    weights = rank_weights(model, Split())
    assert weights.embedding == 6400 * 1024 * (2 + 4)
    assert not model.supports_pipeline


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("nemotron3super", "hybrid_override_pattern", "MXM", "is not made of"),
        ("nemotron3super", "hybrid_override_pattern", "M" * 5000, "is not made of"),
        ("nemotron3super", "mamba_ssm_cache_dtype", "float8", "not one of auto"),
        ("nemotron3super", "n_routed_experts", -1, "must lie between"),
        ("nemotron_nas", "block_configs", [{}], "each of the 4 layers"),
        ("q35text", "layer_types", ["linear_attention"], "for each of the 8 layers"),
        ("q35text", "num_key_value_heads", "two", "not a whole number"),
        ("granite4tiny", "layer_types", [{}] * 8, None),
        ("granite4tiny", "layer_types", ["mamba"], "1 entries for 8 layers"),
        ("zamba2", "num_attention_heads", 10**6, "more than twice hidden_size"),
        ("lfm2", "block_ffn_dim_multiplier", float("nan"), "must lie between"),
        ("jamba", "num_hidden_layers", 10**9, "must lie between"),
    ],
)
def test_damaged_configs_are_named(name: str, key: str, value: Any, message: str | None) -> None:
    if message is None:
        assert describe("m", changed(name, **{key: value})).layer_count > 0
        return
    with pytest.raises(ModelError, match=message) as caught:
        describe("m", changed(name, **{key: value}))
    assert key in caught.value.message


@pytest.mark.parametrize("name", MODELS)
def test_no_missing_or_absurd_value_is_more_than_an_error(name: str) -> None:
    config = MODELS[name]["config"]
    for key in config:
        for value in ABSURD:
            try:
                rank_weights(describe("m", {**config, key: value}), Split(tensor=2, expert_tensor=2))
            except GpuplanError:
                continue
