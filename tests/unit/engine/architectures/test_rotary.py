"""Rotary tables: as many rows as vLLM's `get_rope` makes, whatever decoder they serve."""

from typing import Any

import pytest

from gpuplan.engine.architectures import describe
from gpuplan.engine.weights import Split, rank_weights

POSITIONS, HEAD_SIZE, ITEMSIZE = 4096, 64, 2
DENSE = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": HEAD_SIZE,
    "num_hidden_layers": 2,
    "intermediate_size": 1024,
    "vocab_size": 1024,
    "max_position_embeddings": POSITIONS,
    "torch_dtype": "bfloat16",
}
MOE = {
    **DENSE,
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
}
HYBRID = {
    **MOE,
    "architectures": ["Qwen3NextForCausalLM"],
    "partial_rotary_factor": 1.0,
    "shared_expert_intermediate_size": 128,
    "linear_num_value_heads": 8,
    "linear_num_key_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
}


def table_bytes(config: dict[str, Any]) -> int:
    return rank_weights(describe("m", config), Split()).buffers


@pytest.mark.parametrize("config", [DENSE, MOE, HYBRID], ids=["dense", "experts", "hybrid"])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_a_stretched_context_has_a_longer_table(config: dict[str, Any], key: str) -> None:
    plain = POSITIONS * HEAD_SIZE * ITEMSIZE
    assert table_bytes(config) == plain
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": POSITIONS}
    assert table_bytes({**config, key: yarn}) == 4 * plain
    assert table_bytes({**config, key: {"partial_rotary_factor": 0.5}}) == plain // 2
