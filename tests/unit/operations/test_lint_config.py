"""`gpuplan lint -- vllm serve … --config FILE`: the file's arguments are judged as the engine reads them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuplan.domain.fact import Severity
from gpuplan.errors import GpuplanError
from gpuplan.operations.lint import Linted, LintOptions, lint

OPTIONS = LintOptions(gpus=8)
Judged = Callable[..., Linted]


@pytest.fixture
def linted(tmp_path: Path) -> Judged:
    def judged(text: str, *words: str, name: str = "serve.yaml", before: tuple[str, ...] = ("m",)) -> Linted:
        path = tmp_path / name
        path.write_text(text)
        return lint(["vllm", "serve", *before, "--config", str(path), *words], OPTIONS)

    return judged


def test_the_file_decides_and_the_command_line_wins(linted: Judged) -> None:
    text = "tensor_parallel_size: 4\npipeline-parallel-size: 2\nenforce-eager: true\ntrust-remote-code: no\n"
    made = linted(text)
    assert made.ok
    assert made.parallel_config is not None
    assert (made.parallel_config["tensor_parallel_size"], made.parallel_config["world_size"]) == (4, 8)
    made = linted(text, "-tp", "2")
    assert made.parallel_config is not None
    assert (made.parallel_config["tensor_parallel_size"], made.parallel_config["world_size"]) == (2, 4)


def test_what_the_file_asks_for_is_refused_like_flags(linted: Judged) -> None:
    made = linted("tensor-parallel-size: 4\npipeline-parallel-size: 4\n")
    assert not made.ok
    assert {fact.subject.get("rule") for fact in made.facts} >= {"too_few_gpus"}
    made = linted("tensor-paralel-size: 4\n")
    (fact,) = made.facts
    assert fact.code == "GP115"
    assert "--tensor-paralel-size" in fact.figures["message"]


def test_the_model_may_stand_in_the_file(linted: Judged) -> None:
    assert linted("model: Qwen/Qwen3-32B\n", before=()).model is not None
    assert linted("model: unknown/one\n", before=("Qwen/Qwen3-32B",)).model == "Qwen/Qwen3-32B"


def test_mappings_and_lists_become_values(linted: Judged) -> None:
    made = linted(
        "speculative-config:\n  method: mtp\n  num_speculative_tokens: 2\nserved-model-name: [one, two]\n"
        "compilation-config:\n  pass_config:\n    fuse_norm_quant: true\n"
    )
    assert made.ok


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("a: 1\n", "serve.json", "end in .yaml or .yml"),
        ("- a\n", "serve.yaml", "must be a mapping"),
        ("1: 2\n", "serve.yaml", "must be a mapping"),
        ("", "serve.yaml", "must be a mapping"),
        ("tensor-parallel-size: null\n", "serve.yaml", "--tensor-parallel-size"),
    ],
)
def test_files_the_engine_would_refuse(linted: Judged, text: str, name: str, said: str) -> None:
    made = linted(text, name=name)
    assert not made.ok
    (fact,) = made.facts
    assert fact.code == "GP115"
    assert said in fact.figures["message"]


def test_a_file_that_is_no_yaml_names_its_line(linted: Judged) -> None:
    with pytest.raises(GpuplanError, match=r"serve\.yaml"):
        linted("a: [1\nb: }\n")


def test_two_files_are_refused(linted: Judged) -> None:
    made = linted("a: 1\n", "--config", "other.yaml")
    assert not made.ok
    assert "twice" in made.facts[0].figures["message"]


def test_a_file_on_another_machine_is_not_judged() -> None:
    made = lint(["vllm", "serve", "m", "--config", "/nowhere/serve.yaml"], OPTIONS)
    assert made.ok
    assert [(fact.code, fact.severity) for fact in made.facts] == [("GP503", Severity.WARNING)]


def test_a_file_named_with_an_equals_sign_is_not_read_by_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text("tensor-parallel-size: 99\n")
    made = lint(["vllm", "serve", "m", f"--config={path}"], OPTIONS)
    assert made.ok
    (fact,) = made.facts
    assert "without =" in fact.figures["message"]
