"""An estimate judges the card: host memory that no host was asked for is assumed, and said to be."""

import pytest

from gpuplan.domain.plan import Verdict
from gpuplan.operations.estimate import Estimate, make_estimate
from gpuplan.operations.plan import ServingOptions
from gpuplan.present.document import text_of
from gpuplan.present.estimate_text import estimate_text

OFFLOAD = ServingOptions(engine_args=("--cpu-offload-gb", "4"), no_calibration=True)


def words(made: Estimate, width: int = 80) -> str:
    return text_of(estimate_text(made.model, made.hardware, made.result, made.facts, width))


def test_host_memory_of_a_host_that_need_not_exist_is_assumed() -> None:
    made = make_estimate("Qwen/Qwen3-8B", "c=24GiB", None, OFFLOAD)
    assert made.result.verdict is Verdict.FITS
    assumed = [str(fact.figures.get("assumption")) for fact in made.facts if fact.code == "GP502"]
    assert any("4.00 GiB of RAM" in one for one in assumed)


def test_what_is_offloaded_is_not_on_the_card() -> None:
    text = words(make_estimate("Qwen/Qwen3-8B", "c=24GiB", None, OFFLOAD))
    assert " W 11.3 " in text
    assert " A -" not in text


def test_memory_that_the_host_shares_with_the_gpu_is_not_assumed() -> None:
    made = make_estimate("Qwen/Qwen3-8B", "GB10", None, OFFLOAD)
    (refusal,) = [fact for fact in made.result.facts if fact.code == "GP302"]
    assert refusal.figures["have_bytes"] is None
    assert "is not known" in words(made)


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    made = make_estimate("meta-llama/Llama-3.1-8B-Instruct", "H100-80GB", None, ServingOptions())
    assert max(map(len, words(made, width).splitlines())) <= width
