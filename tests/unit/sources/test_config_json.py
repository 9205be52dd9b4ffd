import contextlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.errors import ModelError, UsageError
from gpuplan.sources.config_json import apply_overrides, parse_config, parse_overrides, read_config


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"a": 1,\n "b": }', "c.json:2:7: not JSON"),
        (b"", "c.json:1:1: not JSON"),
        (b"[1, 2]", "c.json:1:1: expected a JSON object, found a list"),
        (b'"text"', "found a string"),
        (b"null", "found null"),
        (b'{"a": 1,\n  "b": NaN}', "c.json:2:8: NaN"),
        (b'{"NaN": "NaN", "a": [NaN]}', "c.json:1:22: NaN"),
        (b'{"a": {"x": 1},\n "b": 2,\n "b": 3}', "c.json:3:2: 'b' is given twice"),
        (b'{"a": ' + b"[" * 70 + b"]" * 70 + b"}", "nested deeper than 64"),
        (b"[" * 1_000_000, "nested deeper than 64"),
        (b'{"a": ' + b"7" * 5000 + b"}", "not a usable JSON"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"<!DOCTYPE html><html></html>", "c.json:1:1: not JSON"),
        (b"{" + b" " * 17 * 1024**2 + b"}", "at most 16 MiB"),
    ],
)
def test_a_faulty_file_is_refused_with_its_place(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(content)
    with pytest.raises(ModelError) as failure:
        read_config(path)
    assert says in failure.value.message
    assert str(tmp_path) in failure.value.message
    assert failure.value.hint


def test_what_published_configs_hold_is_accepted() -> None:
    config = parse_config(b'\xef\xbb\xbf{"time_step_limit": [0.0, Infinity], "a": 1, "a": 1}', where="c")
    assert config == {"time_step_limit": [0.0, float("inf")], "a": 1}


def test_a_pipe_and_a_missing_file_do_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for name in ("pipe.json", "none.json", "."):
        with pytest.raises(ModelError):
            read_config(tmp_path / name)


@given(st.binary(max_size=80))
def test_any_bytes_give_an_object_or_a_model_error(content: bytes) -> None:
    with contextlib.suppress(ModelError):
        assert isinstance(parse_config(content, where="c"), dict)


def test_overrides_merge_nested_configs_and_replace_other_values() -> None:
    config = {
        "vocab_size": 5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1.0},
        "text_config": {"num_hidden_layers": 4, "rope_parameters": {"a": 1}},
    }
    before = json.dumps(config)
    result = apply_overrides(
        config,
        {
            "vocab_size": 6,
            "rope_parameters": {"rope_type": "yarn"},
            "text_config": {"num_hidden_layers": 2, "rope_parameters": {"b": 2}},
        },
    )
    assert result["vocab_size"] == 6
    assert result["rope_parameters"] == {"rope_type": "yarn"}
    assert result["text_config"] == {"num_hidden_layers": 2, "rope_parameters": {"a": 1, "b": 2}}
    assert json.dumps(config) == before


def test_overrides_that_are_not_an_object_are_a_usage_error() -> None:
    for text in ("[1]", "{", "x", "\udcff"):
        with pytest.raises(UsageError) as failure:
            parse_overrides(text)
        assert "--hf-overrides" in failure.value.message
