"""The real vLLM, on the CPU: `gpuplan verify` counts its parameters, starts it with made-up weights and removes it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.hosts.fleet import Fleet
from tests.hosts.models import tiny_config
from tests.real_engine.vllm_cpu_image import TAG, VERSION

_ENGINE = ("--dtype", "float32", "--enforce-eager", "--max-model-len", "512")


def test_the_real_engine_says_what_it_takes_and_is_gone(fleet: Fleet, tmp_path: Path) -> None:
    """The model lies on this machine alone, its configuration and nothing else."""
    model = tmp_path / "tiny"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(tiny_config()))
    inventory = fleet.inventory(tmp_path / "inventory.yaml")
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def verify(*words: str) -> dict[str, Any]:
        given = ["--yes", "-o", "json", "--image", TAG, "--vllm-version", VERSION, "-i", str(inventory)]
        done = subprocess.run(
            [sys.executable, "-m", "gpuplan", "verify", str(model), *given, *words, "--", *_ENGINE],
            env={**fleet.environment(), **state},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-6000:]}"
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    counted = verify("--parameters-only")
    assert [finding["code"] for finding in counted["findings"]] == ["GP875"]
    [rank] = counted["parameters"]
    assert rank["actual_bytes"] == rank["predicted_bytes"] > 0

    told = verify()
    assert told["started"] is True
    figures = {figure["term"]: figure["actual"] for figure in told["figures"]}
    assert (figures["tokens"], figures["concurrency"]) == (262_144, 512.0)
    assert told["parameters"] == counted["parameters"]
    assert told["learned"] is False, "a start without a GPU teaches nothing of GPUs"
    assert fleet["gpu-a"].text("docker", "ps", "-aq") == ""
