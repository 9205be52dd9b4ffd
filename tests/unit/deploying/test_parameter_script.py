"""The program that counts parameters inside an image is Python, its requests are one line, its answers are read whole."""

import ast
import json
import subprocess
import sys
from typing import Any

import pytest

from gpuplan.deploying.parameter_script import MODEL, PROGRAM, parameter_request, read_parameters

RANK = {
    "stage": 1,
    "tensor_rank": 0,
    "parallel": [2, 2],
    "quantization": "fp8",
    "dtype": "bfloat16",
    "architecture": ["Qwen3MoeForCausalLM"],
    "model": {"class": "Qwen3MoeForCausalLM", "parameters": 8111200448, "buffers": 10498432},
    "pretended": ["cutlass"],
}


def said(*answers: dict[str, Any]) -> str:
    return "".join(f"gpuplan-parameters {json.dumps(answer)}\n" for answer in answers)


def test_the_program_needs_nothing_but_the_standard_library_before_it_looks_for_vllm() -> None:
    tree = ast.parse(PROGRAM)
    imported = {
        (name.name if isinstance(node, ast.Import) else node.module or "").partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in node.names
    }
    assert imported <= sys.stdlib_module_names


def test_without_vllm_the_program_answers_with_an_error() -> None:
    hidden = "import sys; sys.modules['torch'] = None\n"
    done = subprocess.run(
        [sys.executable, "-I", "-c", hidden + PROGRAM, "{}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    answer = read_parameters(done.stdout)
    assert answer.version is None
    assert answer.ranks == ()
    assert "torch" in (answer.error or "")


def test_a_request_is_one_line_that_holds_the_model_and_the_card() -> None:
    line = parameter_request(
        [MODEL, "--tensor-parallel-size", "2"],
        gpu="NVIDIA L40S",
        gpu_bytes=48 << 30,
        capability=(8, 9),
        count=2,
        models={MODEL: {"config.json": {"model_type": "qwen3", "text": "a\nb"}}},
    )
    assert "\n" not in line
    told = json.loads(line)
    assert told["words"][0] == MODEL
    assert told["models"][MODEL]["config.json"]["text"] == "a\nb"
    assert told["gpu"] == {
        "name": "NVIDIA L40S",
        "total_bytes": 48 << 30,
        "capability": [8, 9],
        "count": 2,
        "integrated": False,
    }


def test_an_answer_among_other_output() -> None:
    told = read_parameters("INFO gpuplan\n" + said({"vllm": "0.32.0"}, {"ranks": [RANK]}) + "leaked\n")
    assert (told.version, told.error, told.pretended) == ("0.32.0", None, ("cutlass",))
    (rank,) = told.ranks
    assert (rank.stage, rank.parameters, rank.buffers) == (1, 8111200448, 10498432)
    assert (rank.built, rank.quantization, rank.draft_parameters) == ("Qwen3MoeForCausalLM", "fp8", None)


def test_a_draft_is_counted_apart() -> None:
    draft = {"class": "Eagle3LlamaForCausalLM", "parameters": 5, "buffers": 1}
    (rank,) = read_parameters(said({"vllm": "0.32.0"}, {"ranks": [{**RANK, "draft": draft}]})).ranks
    assert (rank.draft_parameters, rank.draft_buffers) == (5, 1)


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ("", "no answer"),
        (said({"vllm": "0.32.0"}), "no answer"),
        (
            said({"vllm": "0.32.0"}, {"error": "ValueError: no", "at": ["a.py:1 f"]}),
            "ValueError: no (a.py:1 f)",
        ),
        (said({"vllm": "0.32.0"}, {"ranks": [{"stage": 0}]}), "not as expected"),
        (said({"vllm": "0.32.0"}, {"ranks": 3}), "not as expected"),
        ("gpuplan-parameters {broken}\n", "no JSON"),
    ],
)
def test_what_is_no_whole_answer_is_an_error(output: str, error: str) -> None:
    told = read_parameters(output)
    assert told.ranks == ()
    assert error in (told.error or "")
