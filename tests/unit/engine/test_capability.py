"""What old cards cannot run."""

from dataclasses import replace

import pytest

from gpuplan.engine.capability import capability, unsupported
from gpuplan.engine.divisibility import Rule
from gpuplan.operations.models import nothing_known

LLAMA = replace(nothing_known("m"), model_type="llama", dtype="bfloat16")


@pytest.mark.parametrize(
    ("text", "value"), [("8.9", 89), ("12.1", 121), (None, None), ("gfx942", None), ("", None)]
)
def test_capability_is_read_as_the_engine_counts_it(text: str | None, value: int | None) -> None:
    assert capability(text) == value


def test_bfloat16_falls_back_to_float16_on_old_cards_alone() -> None:
    assert unsupported(LLAMA, ["7.5"], "auto", ["T4"]) is None
    mixed = unsupported(LLAMA, ["8.0", "7.5"], "auto", ["A100", "T4"])
    asked = unsupported(LLAMA, ["7.5"], "bfloat16", ["T4"])
    assert mixed is not None
    assert asked is not None
    assert mixed.rule is asked.rule is Rule.DTYPE
    assert "Your T4 GPU has compute capability 7.5" in asked.line


def test_models_unstable_in_float16_are_refused_there() -> None:
    gemma = replace(LLAMA, model_type="gemma3")
    for profile in (gemma, replace(gemma, dtype="float16")):
        found = unsupported(profile, ["7.5"], "auto", ["T4"])
        assert found is not None
        assert "does not support float16" in found.line


def test_quantization_needs_its_kernels() -> None:
    found = unsupported(replace(LLAMA, quantization="mxfp4", dtype="float16"), ["7.5"], "auto", ["T4"])
    assert found is not None
    assert found.rule is Rule.QUANTIZATION
    assert unsupported(replace(LLAMA, quantization="mxfp4"), ["8.0"], "auto", ["A100"]) is None


def test_nothing_is_said_of_cards_that_do_not_tell() -> None:
    assert unsupported(LLAMA, [None], "auto", ["MI300X"]) is None


def test_cards_before_volta_are_too_old() -> None:
    found = unsupported(LLAMA, ["6.1"], "auto", ["P40"])
    assert found is not None
    assert found.rule is Rule.TOO_OLD
