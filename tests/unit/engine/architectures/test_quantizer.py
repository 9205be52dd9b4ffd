"""Which scheme a module gets, by each kind of quantization config."""

import time
from typing import Any

import pytest

from gpuplan.domain.model import (
    UNQUANTIZED,
    Float4,
    Float8,
    GroupedInteger,
    Integer8,
    MicroscaledFloat8,
    Scheme,
)
from gpuplan.engine.architectures.quantizer import Quantizer, quantizer_for
from gpuplan.engine.architectures.quantizers.module_names import bare
from gpuplan.errors import ModelError

QKV = ("q_proj", "k_proj", "v_proj")
GATE_UP = ("gate_proj", "up_proj")
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
LINEAR4 = {
    "targets": ["Linear"],
    "weights": {"num_bits": 4, "type": "int", "group_size": 32, "strategy": "group"},
}


def quantizer(quantization: dict[str, Any], **config: Any) -> Quantizer:
    return quantizer_for({"quantization_config": quantization, **config}, None, None)


def compressed(**more: Any) -> Quantizer:
    config = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"g": LINEAR4},
    }
    return quantizer({**config, **more})


@pytest.mark.parametrize(
    ("checkpoint", "engine"),
    [
        ("model.language_model.layers.3.mlp.experts", "language_model.model.layers.3.mlp.experts"),
        ("model.layers.3.self_attn", "language_model.model.layers.3.self_attn"),
        ("backbone.layers.4.mixer.in_proj", "model.layers.4.mixer.in_proj"),
        ("lm_head", "language_model.lm_head"),
        ("model.visual.blocks.0.attn.qkv", "visual.blocks.0.attn.qkv"),
    ],
)
def test_one_module_is_known_by_both_spellings(checkpoint: str, engine: str) -> None:
    assert bare(checkpoint) == bare(engine)


def test_an_unquantized_checkpoint_stays_so() -> None:
    found = quantizer_for({}, None, None)
    assert found.name is None
    assert found.linear("model.layers.0.mlp.down_proj") == UNQUANTIZED


def test_fp8_skips_a_stacked_layer_when_all_it_stacks_is_named() -> None:
    names = [f"model.layers.1.self_attn.{name}" for name in QKV] + ["model.layers.2.self_attn.qkv_proj"]
    found = quantizer({**FP8, "modules_to_not_convert": names})
    assert found.linear("model.layers.1.self_attn.qkv_proj", QKV) == UNQUANTIZED
    assert found.linear("model.layers.2.self_attn.qkv_proj", QKV) == UNQUANTIZED
    assert found.linear("model.layers.10.self_attn.qkv_proj", QKV) == Float8(granularity="block")
    assert found.embedding("lm_head") == UNQUANTIZED


def test_fp8_leaves_experts_alone_when_one_of_theirs_is_named() -> None:
    found = quantizer({**FP8, "ignored_layers": ["model.layers.0.mlp.experts.0.gate_proj"]})
    assert found.experts("model.layers.0.mlp.experts") == UNQUANTIZED
    assert found.experts("model.layers.1.mlp.experts") == Float8(granularity="block")


@pytest.mark.parametrize("key", ["quantization_config", "compression_config"])
def test_the_text_model_may_carry_the_config(key: str) -> None:
    found = quantizer_for({"text_config": {key: FP8}}, None, None)
    assert found.linear("language_model.model.layers.0.mlp.down_proj") == Float8(granularity="block")


def test_deepseek_v4_experts_follow_their_own_type() -> None:
    mixed = quantizer(FP8, model_type="deepseek_v4")
    assert mixed.name == "deepseek_v4_fp8"
    assert mixed.linear("model.layers.0.attn.wq_a") == Float8(granularity="block", scale_bytes=1)
    experts = mixed.experts("model.layers.0.ffn.experts")
    assert isinstance(experts, Float4)
    assert (experts.variety, experts.kernels) == ("mxfp4", "deepseek_v4")
    plain = quantizer(FP8, model_type="deepseek_v4", expert_dtype="fp8")
    assert plain.experts("model.layers.0.ffn.experts") == Float8(granularity="block")


MODELOPT = {"quant_method": "modelopt", "quant_algo": "NVFP4"}


def test_modelopt_excludes_by_fragment_and_by_pattern() -> None:
    ignore = ["lm_head", "model.language_model.layers.1.self_attn*", "*.mlp.shared_expert.*", "model.visual*"]
    found = quantizer({**MODELOPT, "ignore": ignore})
    nvfp4 = Float4(variety="nvfp4", group_size=16)
    assert found.name == "modelopt_fp4"
    assert found.linear("language_model.model.layers.1.self_attn.qkv_proj", QKV) == UNQUANTIZED
    assert found.linear("language_model.model.layers.11.self_attn.qkv_proj", QKV) == nvfp4
    assert found.linear("language_model.model.layers.0.mlp.shared_expert.down_proj") == UNQUANTIZED
    assert found.linear("visual.blocks.0.attn.qkv") == UNQUANTIZED
    assert found.embedding("language_model.lm_head") == UNQUANTIZED
    assert found.embedding("language_model.model.embed_tokens") == UNQUANTIZED


def test_modelopt_quantizes_the_head_unless_told_not_to() -> None:
    assert quantizer(MODELOPT).embedding("lm_head") == Float4(variety="nvfp4", group_size=16)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}, "fp8_e4m3"),
        ({"kv_cache_scheme": "FP8"}, "fp8_e4m3"),
        ({"kv_cache_quant_algo": "FP8"}, "fp8_e4m3"),
        ({"kv_cache_quant_algo": "NVFP4"}, "nvfp4"),
        ({"kv_cache_quant_algo": None}, None),
        ({"kv_cache_scheme": {"type": "int", "num_bits": 8}}, None),
    ],
)
def test_modelopt_says_what_the_cache_is_kept_in(declared: dict[str, Any], expected: str | None) -> None:
    assert quantizer({**MODELOPT, **declared}).kv_cache_dtype == expected


def test_the_file_beside_the_config_counts_where_the_config_is_silent() -> None:
    beside = {
        "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    }
    found = quantizer_for({}, beside, None)
    assert found.name == "modelopt"
    assert found.kv_cache_dtype == "fp8_e4m3"
    assert found.linear("model.layers.0.mlp.down_proj") == Float8(granularity="tensor", static_input=True)
    assert found.embedding("lm_head") == UNQUANTIZED
    assert quantizer_for({"quantization_config": FP8}, beside, None).name == "fp8"


def test_mixed_precision_looks_each_module_up() -> None:
    layers = {
        "model.language_model.layers.0.linear_attn.out_proj": {"quant_algo": "FP8"},
        "model.language_model.layers.0.mlp.gate_proj": {"quant_algo": "MXFP8"},
        "model.language_model.layers.0.mlp.up_proj": {"quant_algo": "MXFP8"},
        "model.language_model.layers.1.mlp.experts.0.w1": {"quant_algo": "nvfp4", "group_size": 16},
    }
    found = quantizer({**MODELOPT, "quant_algo": "MIXED_PRECISION", "quantized_layers": layers})
    path = "language_model.model.layers"
    assert found.name == "modelopt_mixed"
    assert found.linear(f"{path}.0.linear_attn.out_proj") == Float8(granularity="tensor", static_input=True)
    assert found.linear(f"{path}.0.mlp.gate_up_proj", GATE_UP) == MicroscaledFloat8()
    assert found.linear(f"{path}.0.mlp.down_proj") == UNQUANTIZED
    assert isinstance(found.experts(f"{path}.1.mlp.experts"), Float4)
    assert found.experts(f"{path}.10.mlp.experts") == UNQUANTIZED


def test_compressed_tensors_ignores_names_and_patterns() -> None:
    found = compressed(ignore=["lm_head", "re:.*mlp.gate$", "re:.*self_attn.*"])
    packed = GroupedInteger(layout="compressed", bits=4, group_size=32, zero_points=False)
    assert found.linear("model.layers.0.mlp.gate") == UNQUANTIZED
    assert found.linear("model.layers.0.self_attn.qkv_proj", QKV) == UNQUANTIZED
    assert found.linear("model.layers.0.mlp.gate_up_proj", GATE_UP) == packed
    assert found.experts("model.layers.0.mlp.experts") == packed
    assert found.embedding("lm_head") == UNQUANTIZED


def test_compressed_tensors_prefers_a_name_over_a_class() -> None:
    eight = {"num_bits": 8, "type": "float", "strategy": "channel"}
    groups = {
        "g": LINEAR4,
        "h": {"targets": ["re:.*down_proj$"], "weights": eight, "input_activations": {"dynamic": True}},
    }
    found = compressed(config_groups=groups)
    assert found.linear("model.layers.0.mlp.down_proj") == Float8(granularity="channel")
    assert found.linear("model.layers.0.mlp.gate_up_proj", GATE_UP) != Float8(granularity="channel")


@pytest.mark.parametrize(
    ("weights", "inputs", "layout", "expected"),
    [
        (
            {"num_bits": 8, "type": "int", "strategy": "channel"},
            {"dynamic": True},
            "int-quantized",
            Integer8(),
        ),
        (
            {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16},
            None,
            "nvfp4-pack-quantized",
            Float4(variety="nvfp4", group_size=16, global_scales=1),
        ),
        (
            {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32},
            None,
            "mxfp4-pack-quantized",
            Float4(variety="mxfp4", group_size=32, global_scales=0),
        ),
        (
            {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": "128x64"},
            {"dynamic": True},
            "float-quantized",
            Float8(granularity="block", block=(128, 64)),
        ),
    ],
)
def test_compressed_tensors_schemes(
    weights: dict[str, Any], inputs: dict[str, Any] | None, layout: str, expected: Scheme
) -> None:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    found = compressed(config_groups={"g": group}, format=layout)
    assert found.linear("model.layers.0.mlp.down_proj") == expected


def test_a_declared_cache_scheme_of_compressed_tensors_makes_the_cache_fp8() -> None:
    assert compressed(kv_cache_scheme={"num_bits": 8, "type": "float"}).kv_cache_dtype == "fp8"
    assert compressed().kv_cache_dtype is None


def test_awq_and_gptq() -> None:
    awq = quantizer(
        {"quant_method": "awq", "bits": 4, "group_size": 64, "modules_to_not_convert": ["vision_tower"]}
    )
    assert awq.linear("vision_tower.layers.0.fc1") == UNQUANTIZED
    expected = GroupedInteger(layout="awq", bits=4, group_size=64, zero_points=True)
    assert awq.linear("model.layers.0.mlp.down_proj") == expected
    assert awq.embedding("lm_head") == UNQUANTIZED
    rules = {"-:.*mlp.gate$": {}, "+:.*layers\\.0\\..*": {"bits": 8}}
    gptq = quantizer(
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": rules, "lm_head": True}
    )
    assert gptq.linear("model.layers.1.mlp.gate") == UNQUANTIZED
    first, head = gptq.linear("model.layers.0.mlp.down_proj"), gptq.embedding("lm_head")
    assert isinstance(first, GroupedInteger)
    assert isinstance(head, GroupedInteger)
    assert (first.bits, head.bits) == (8, 4)


def test_mxfp4_quantizes_the_experts_alone() -> None:
    found = quantizer({"quant_method": "mxfp4"}, model_type="gpt_oss")
    assert found.name == "gpt_oss_mxfp4"
    assert found.linear("model.layers.0.attn.qkv_proj", QKV) == UNQUANTIZED
    experts = found.experts("model.layers.0.mlp.experts")
    assert isinstance(experts, Float4)
    assert experts.kernels == "gpt_oss"


@pytest.mark.parametrize("asked", [None, "auto", ""])
def test_nothing_is_quantized_unasked(asked: str | None) -> None:
    assert quantizer_for({}, None, asked).name is None


def test_quantization_while_loading() -> None:
    assert quantizer_for({}, None, "fp8").linear("model.layers.0.mlp.down_proj") == Float8(
        granularity="tensor"
    )
    eight = quantizer_for({}, None, "experts_int8")
    assert eight.linear("model.layers.0.mlp.down_proj") == UNQUANTIZED
    assert eight.experts("model.layers.0.mlp.experts") == Integer8()
    with pytest.raises(ModelError, match="awq"):
        quantizer_for({}, None, "awq")


@pytest.mark.parametrize("method", ["quark", "torchao", "bitsandbytes", "auto-round"])
def test_estimated_methods_say_so(method: str) -> None:
    found = quantizer({"quant_method": method})
    assert found.assumptions
    assert found.linear("model.layers.0.mlp.down_proj") != UNQUANTIZED


@pytest.mark.parametrize(
    "bad",
    [
        {"quant_method": 7},
        {"quant_method": "nonsense"},
        {"quant_method": ""},
        {"quant_method": "fp8", "weight_block_size": [0, 128]},
        {"quant_method": "fp8", "weight_block_size": [128]},
        {"quant_method": "fp8", "weight_block_size": "a x b"},
        {"quant_method": "fp8", "modules_to_not_convert": "lm_head"},
        {"quant_method": "fp8", "modules_to_not_convert": [1, 2]},
        {"quant_method": "awq", "bits": -4},
        {"quant_method": "awq", "bits": 10**30},
        {"quant_method": "gptq", "bits": 4, "dynamic": {"+:(": {}}},
        {"quant_method": "gptq", "bits": 4, "dynamic": []},
        {"quant_method": "compressed-tensors", "ignore": ["re:(a+)+$"]},
        {"quant_method": "compressed-tensors", "ignore": ["re:" + ".*a" * 50]},
        {"quant_method": "compressed-tensors", "config_groups": {"g": 3}},
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"g": {"targets": ["Linear"], "weights": {"num_bits": 0}}},
        },
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": 1}},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 0},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["*a" * 40]},
    ],
)
def test_a_bad_config_is_one_error_with_a_way_out(bad: dict[str, Any]) -> None:
    with pytest.raises(ModelError) as caught:
        quantizer(bad)
    assert caught.value.hint


def test_a_long_list_of_exceptions_costs_little_per_module() -> None:
    ignore = [f"model.layers.{index % 94}.x{index}*" for index in range(5000)]

    def seconds() -> float:
        found = quantizer({**MODELOPT, "ignore": ignore})
        start = time.process_time()
        for index in range(94):
            found.linear(f"model.layers.{index}.self_attn.qkv_proj", QKV)
            found.experts(f"model.layers.{index}.mlp.experts")
        return time.process_time() - start

    assert min(seconds() for _ in range(3)) < 0.5
