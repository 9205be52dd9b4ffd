"""`gpuplan plan -f FILE` as it is called: exit statuses, 80 columns, JSON under its schema, and what it refuses."""

import io
import json
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpuplan.cli.app import run
from gpuplan.cli.schema import schema_of

ROOT = Path(__file__).parents[2]
FLEET = "-i inventory.example.yaml --no-probe"
EXAMPLE = f"plan -f docs/models.example.yaml {FLEET}"
RUNNING = "--snapshot tests/golden/cases/fleets/packing.json"
CROWD = """
defaults: {context: 32K, vllm_version: 0.33.0}
models:
  - {model: Qwen3-32B, name: dear, priority: 9}
  - {model: Qwen3-32B, name: cheap, hosts: [lab]}
  - {model: DeepSeek-R1, name: "vast", hosts: [lab]}
"""


def called(command: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(shlex.split(command))
    return status, out.getvalue(), err.getvalue()


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def written(tmp_path: Path, text: str = CROWD) -> Path:
    path = tmp_path / "models.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def document_of(command: str) -> tuple[int, Any]:
    status, out, err = called(f"{command} -o json")
    assert status in (0, 3), err
    document = json.loads(out)
    jsonschema.validate(document, schema_of("packing"))
    return status, document


def test_the_example_of_the_documents_is_placed() -> None:
    status, out, err = called(EXAMPLE)
    assert (status, err) == (0, "")
    assert all(len(line) <= 80 for line in out.splitlines())
    assert out.startswith("3 models placed\n")
    _, document = document_of(EXAMPLE)
    assert document["complete"]
    assert document["optimal"]
    shared = [copy["gpus"] for model in document["models"][1:] for copy in model["copies"]]
    assert shared[0] == shared[1], "the two that share are on one GPU"
    hosts = [copy["gpus"][0].partition(":")[0] for copy in document["models"][0]["copies"]]
    assert sorted(hosts) == ["h100-a", "h100-b"]


def test_every_start_is_a_command_that_plans_the_same() -> None:
    """Each of them taken alone, by `gpuplan plan` in place of `deploy`."""
    _, document = document_of(EXAMPLE)
    copies = {copy["deployment"]: copy for model in document["models"] for copy in model["copies"]}
    starts = [move for move in document["moves"] if move["action"] == "start"]
    assert {move["deployment"] for move in starts} == set(copies)
    for move in starts:
        words = shlex.split(move["command"])
        assert words[:2] == ["gpuplan", "deploy"]
        name = words.index("--name")
        assert words[name + 1] == move["deployment"]
        alone = shlex.join(["plan", words[2], "--no-probe", *words[3:name], *words[name + 2 :]])
        status, out, err = called(alone.replace(" -- ", " -o json -- "))
        assert status == 0, err
        (manual,) = [one for one in json.loads(out)["strategies"] if one["strategy"] == "manual"]
        candidate = copies[move["deployment"]]["candidate"]
        assert manual["candidates"][0]["parallelism"] == candidate["parallelism"]
        assert manual["candidates"][0]["vllm_args"] == candidate["vllm_args"]


def test_who_blocks_whom_and_exit_3(tmp_path: Path) -> None:
    path = written(tmp_path)
    status, out, _ = called(f"plan -f {path} {FLEET}")
    assert status == 3
    assert all(len(line) <= 80 for line in out.splitlines())
    assert out.startswith("2 of 3 models placed\n")
    _, document = document_of(f"plan -f {path} {FLEET}")
    vast = document["models"][2]
    assert (vast["placed"], vast["blocked"]["why"]) == (False, "pinned")
    assert document["findings"][0]["code"] == "GP263"


def test_what_runs_stays_and_what_is_not_in_the_file_is_only_named(tmp_path: Path) -> None:
    path = written(tmp_path, "models:\n  - {model: Qwen3-8B, name: chat, context: 8K}\n")
    status, document = document_of(f"plan -f {path} {RUNNING}")
    assert status == 0
    assert [(move["action"], move["deployment"]) for move in document["moves"]] == [("keep", "chat")]
    path = written(
        tmp_path,
        "models:\n  - {model: Qwen3-8B, name: chat, context: 8K}\n  - {model: Qwen3-8B, name: new, priority: 5}\n",
    )
    status, document = document_of(f"plan -f {path} {RUNNING}")
    assert status == 3
    moves = [(move["action"], move["reason"], move["deployment"]) for move in document["moves"]]
    assert moves == [("stop", "dropped", "chat"), ("start", "new", "new")]
    assert document["moves"][0]["command"] == "gpuplan stop chat"
    blocked = document["models"][0]["blocked"]
    assert blocked["stopping"] == ["embed", "vip"]
    assert [one["model"] for one in blocked["blockers"]] == ["new"]
    _, out, _ = called(f"plan -f {path} {RUNNING}")
    assert "1. stop chat on h1:0" in out
    assert "is stopped for good" in out


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (f"plan Qwen3-8B -f docs/models.example.yaml {FLEET}", "a model and a file of models"),
        (f"plan -f docs/models.example.yaml {FLEET} --context 8K", "--context is asked of one model"),
        (f"plan -f docs/models.example.yaml {FLEET} --replicas 2", "--replicas is asked of one model"),
        (f"plan -f docs/models.example.yaml {FLEET} -- --max-num-seqs 4", "arguments of vLLM after --"),
        (f"plan -f none.yaml {FLEET}", "none.yaml: no such file"),
        (f"plan {FLEET}", "MODEL is missing"),
    ],
)
def test_what_is_refused_with_exit_2(command: str, fault: str) -> None:
    status, out, err = called(command)
    assert (status, out) == (2, "")
    assert fault in err
    assert "hint: " in err


def test_a_fault_of_the_file_names_line_and_key(tmp_path: Path) -> None:
    path = written(tmp_path, "models:\n  - modl: x\n")
    status, _, err = called(f"plan -f {path} {FLEET}")
    assert status == 2
    assert "models.yaml:2: models[0].modl: unknown key; did you mean 'model'?" in err


def test_a_fleet_without_a_usable_gpu_is_exit_4(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("hosts: [{name: h1}]\n", encoding="utf-8")
    status, _, err = called(f"plan -f docs/models.example.yaml -i {inventory} --no-probe")
    assert status == 4
    assert "h1" in err


def test_narrowed_to_a_label(tmp_path: Path) -> None:
    path = written(tmp_path, "models: [{model: Qwen3-8B, context: 8K}]\n")
    _, document = document_of(f"plan -f {path} {FLEET} --label tier=lab")
    assert document["fleet"]["hosts"] == 1
    assert document["models"][0]["copies"][0]["gpus"][0].startswith("lab:")
    assert document["models"][0]["name"] == "qwen3-8b"
