from typing import Any

import pytest

from gpuplan.sources.class_defaults import needs_class_defaults, with_class_defaults


def test_a_missing_field_is_looked_for_in_the_text_model_too() -> None:
    required = ("num_hidden_layers", "head_dim")
    assert needs_class_defaults({"num_hidden_layers": 2}, required)
    assert needs_class_defaults({"num_hidden_layers": 2, "head_dim": None}, required)
    assert not needs_class_defaults({"num_hidden_layers": 2, "head_dim": 64}, required)
    assert not needs_class_defaults({"text_config": {"num_hidden_layers": 2}, "head_dim": 64}, required)
    nested = {"thinker_config": {"text_config": {"num_hidden_layers": 2, "head_dim": 64}}}
    assert not needs_class_defaults(nested, required)
    assert needs_class_defaults({"text_config": "nonsense"}, required)


def test_fields_left_to_the_class_are_filled_in_and_named() -> None:
    filled = with_class_defaults({"model_type": "gemma2", "num_hidden_layers": 4, "hidden_size": 64})
    assert filled.note is None
    assert filled.config["sliding_window"] == 4096
    assert filled.config["num_hidden_layers"] == 4
    assert "sliding_window" in filled.names
    assert "hidden_size" not in filled.names


def test_nested_configs_are_filled_in() -> None:
    config = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "num_hidden_layers": 6}}
    filled = with_class_defaults(config)
    assert filled.config["text_config"]["num_hidden_layers"] == 6
    assert len(filled.config["text_config"]["layer_types"]) == 6
    assert "text_config.head_dim" in filled.names
    assert config == {
        "model_type": "gemma3",
        "text_config": {"model_type": "gemma3_text", "num_hidden_layers": 6},
    }


def test_a_class_with_names_of_its_own_gets_the_usual_ones_too() -> None:
    filled = with_class_defaults({"model_type": "gpt2", "n_layer": 3})
    assert filled.config["num_hidden_layers"] == 3


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": None},
        {"model_type": ["llama"]},
        {"model_type": "no_such_model"},
        {"model_type": "gemma2", "num_hidden_layers": 10**9},
        {"model_type": "gemma3", "text_config": {"num_hidden_layers": 10**9}},
        {"model_type": "llama", "num_labels": 10**8},
        {"model_type": "llama", "vocab_size": 10**30},
        {"model_type": "llama", "num_attention_heads": 0},
        {"model_type": "llama", "num_hidden_layers": "many"},
        {"model_type": "gemma3", "text_config": 7},
    ],
)
def test_weird_values_leave_the_config_unchanged_with_a_note(config: dict[str, Any]) -> None:
    filled = with_class_defaults(config)
    assert filled.config == config
    assert filled.names == ()
    assert filled.note


def test_remote_code_is_never_run() -> None:
    config = {"model_type": "own_model", "auto_map": {"AutoConfig": "evil/repo--configuration.Config"}}
    assert with_class_defaults(config).config == config
