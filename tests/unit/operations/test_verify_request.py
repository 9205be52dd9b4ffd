"""Which files travel into a trial's containers, and what it is called."""

import json
import os
from pathlib import Path

from gpuplan.operations.deploy_request import DeployRequest
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.plan import ServingOptions
from gpuplan.operations.verify_request import read_trial, small_files
from tests.hosts.models import tiny_config


def test_small_files_of_a_directory_and_of_a_lone_configuration(tmp_path: Path) -> None:
    model = tmp_path / "tiny"
    model.mkdir()
    for name in (
        "config.json",
        "tokenizer.json",
        "model.safetensors",
        "model.safetensors.index.json",
        "code.py",
        ".x.json",
    ):
        (model / name).write_text(name)
    (model / "sub").mkdir()
    assert set(small_files(str(model))) == {"config.json", "tokenizer.json", "code.py"}
    alone = tmp_path / "mine.json"
    alone.write_text("{}")
    assert small_files(str(alone)) == {"config.json": b"{}"}
    assert small_files("org/name") == {}


def test_a_trial_of_what_would_be_deployed(tmp_path: Path) -> None:
    model = tmp_path / "tiny"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(tiny_config()))
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("hosts:\n  - name: h1\n    address: local\n")
    fleet = FleetOptions(environ=os.environ, cwd=tmp_path, inventory=inventory)
    serving = ServingOptions(engine_args=("--max-num-seqs", "8"))
    wanted = read_trial(DeployRequest(reference=str(model), fleet=fleet, serving=serving))
    assert wanted.trial
    assert wanted.name == "verify-tiny"
    assert wanted.workload.engine.load_format == "dummy"
    assert wanted.workload.engine.user_args[:2] == ("--max-num-seqs", "8")
    assert "--skip-tokenizer-init" in wanted.workload.engine.user_args, "it has no tokenizer"
    assert set(wanted.carried) == {"config.json"}
