"""models.yaml: what is read, and every fault with its file, line and key."""

from pathlib import Path

import jsonschema
import pytest
import yaml

from gpuplan.errors import InventoryError
from gpuplan.sources.models_yaml import load_models, models_schema

EXAMPLE = Path(__file__).parents[3] / "docs" / "models.example.yaml"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "models.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def faults(tmp_path: Path, text: str) -> str:
    with pytest.raises(InventoryError) as caught:
        load_models(written(tmp_path, text))
    return caught.value.message.replace(str(tmp_path) + "/", "")


def test_what_is_given_to_all_is_taken_over(tmp_path: Path) -> None:
    file = load_models(
        written(
            tmp_path,
            """
defaults: {context: 8K, concurrency: 4, priority: 3, share: true, args: [--enforce-eager], labels: {zone: a}}
models:
  - {model: Qwen3-8B, name: one, labels: {tier: lab}, args: [--max-num-seqs, 64]}
  - {model: Qwen3-8B, name: two, context: 16384, share: false, priority: 1, replicas: 2, anti_affinity: [two, one]}
""",
        )
    )
    one, two = file.models
    assert (one.context, one.concurrency, one.priority, one.share) == ("8K", 4, 3, True)
    assert one.args == ("--enforce-eager", "--max-num-seqs", "64")
    assert one.labels == (("tier", "lab"), ("zone", "a"))
    assert (two.context, two.priority, two.share, two.replicas) == ("16384", 1, False, 2)
    assert two.anti_affinity == ("two", "one")
    assert two.place.endswith("models.yaml:5: models[1]")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("models:\n  - modle: x", "models.yaml:2: models[0].modle: unknown key; did you mean 'model'?"),
        ("models:\n  - name: x", "models.yaml:2: models[0].model: this key is required"),
        (
            "models:\n  - model: x\n    contxt: 8K",
            "models.yaml:3: models[0].contxt: unknown key; did you mean 'context'?",
        ),
        ("models: []", "models.yaml:1: models: must not be empty"),
        ("model: x", "models.yaml:1: model: unknown key; did you mean 'models'?"),
        ("- model: x", "models.yaml:1: must be a mapping with the key 'models'"),
        ("models:\n  - model: x\n    priority: 0", "models.yaml:3: models[0].priority: must be at least 1"),
        ("models:\n  - model: x\n    share: 1", "models.yaml:3: models[0].share: must be true or false"),
        (
            "models:\n  - model: x\n    gpus: [h1]",
            "models.yaml:3: models[0].gpus[0]: 'h1' is not HOST:IDX[,IDX]",
        ),
        (
            "models:\n  - model: x\n    name: Chat",
            "models.yaml:3: models[0].name: 'Chat' is no name of a deployment",
        ),
        (
            "models:\n  - {model: x, name: a}\n  - {model: y, name: a}",
            "models.yaml:3: models[1].name: 'a' is already the name of models[0]",
        ),
        ("models:\n  - model: x\n    share: true", "models.yaml:3: models[0].share: share needs context"),
        (
            "defaults: {hots: [a]}\nmodels:\n  - model: x",
            "models.yaml:1: defaults.hots: unknown key; did you mean 'hosts'?",
        ),
        ("models:\n  - model: x\n  model: y", "models.yaml:"),
    ],
)
def test_faults_name_file_line_and_key(tmp_path: Path, text: str, fault: str) -> None:
    assert fault in faults(tmp_path, text)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    message = faults(tmp_path, "models:\n  - modl: x\n    replicas: none\n    hosts: []\n")
    assert len(message.splitlines()) == 4


def test_a_missing_and_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="no such file"):
        load_models(tmp_path / "none.yaml")
    with pytest.raises(InventoryError, match="is empty"):
        load_models(written(tmp_path, "# nothing\n"))


def test_the_example_is_valid_under_the_schema() -> None:
    document = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    jsonschema.validate(document, models_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"models": [{"modle": "x"}]}, models_schema())


def test_the_example_shows_every_key() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    definitions = models_schema()["$defs"]
    for key in definitions["ModelKeys"]["properties"]:
        assert f"{key}:" in text, key
