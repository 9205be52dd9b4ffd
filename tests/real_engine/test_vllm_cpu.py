"""The real vLLM, on the CPU and with a model of four layers: started by hand, then by `gpuplan deploy`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.hosts.containers import ask, start
from tests.hosts.fleet import Fleet
from tests.hosts.models import lay_model, tiny_config, tiny_tensors
from tests.hosts.waiting import wait_for
from tests.real_engine.vllm_cpu_image import TAG, VERSION
from tests.safetensors_files import safetensors_file

_WORDS = (
    *("--load-format", "dummy", "--skip-tokenizer-init", "--dtype", "float32", "--enforce-eager"),
    *("--max-model-len", "512", "--served-model-name", "tiny"),
)
_ASKED = {
    "model": "tiny",
    "prompt": [1, 2, 3],
    "max_tokens": 3,
    "detokenize": False,
    "return_token_ids": True,
}
_MILESTONES = (
    "world_size=1 rank=0 local_rank=0",
    "Starting to load model /srv/models/tiny",
    "CPU KV cache size: 262,144 tokens, Maximum concurrency for 512 tokens per request: 512.00x",
    "init engine (profile, create kv cache, warmup model) took",
    "Starting vLLM server on http://0.0.0.0:40000",
    "Application startup complete.",
)
"""Those of the CPU build with weights it makes up: it tells neither the memory of the model nor what is left for the cache."""


def _keep(name: str, text: str) -> None:
    """Put a log where GPUPLAN_KEEP_LOGS says, without this machine's names."""
    directory = os.environ.get("GPUPLAN_KEEP_LOGS")
    if directory:
        masked = re.sub(rf"\b{re.escape(os.uname().nodename)}\b", "host", text)
        (Path(directory) / name).write_text(masked)


def test_the_image_serves(fleet: Fleet) -> None:
    host = fleet["gpu-a"]
    one = start(
        host, "one", lay_model(host), *_WORDS, "--port", "40000", image=TAG, gpus=["0"], options=("--shm-size=1g",)
    )  # fmt: skip
    at = f"http://{host.address}:40000"

    def serves() -> bool:
        assert one.state()["Running"], one.log()[-6000:]
        return ask(f"{at}/health")[0] == 200

    wait_for("the real engine", serves, seconds=420)
    assert [model["id"] for model in ask(f"{at}/v1/models")[1]["data"]] == ["tiny"]
    status, answer = ask(f"{at}/v1/completions", _ASKED)
    assert (status, answer["usage"]["completion_tokens"]) == (200, 3)
    assert len(answer["choices"][0]["token_ids"]) == 3
    metrics = ask(f"{at}/metrics")[1]
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        assert f"{name}{{" in metrics
    assert "vllm:request_success_total{" in metrics
    host.run("docker", "stop", "--time", "60", "one")
    log = one.log()
    _keep(f"vllm-cpu-{VERSION}.log", log)
    for text in _MILESTONES:
        assert text in log, text
    assert one.state()["ExitCode"] == 0


def test_gpuplan_deploys_it(fleet: Fleet, tmp_path: Path) -> None:
    host = fleet["gpu-a"]
    lay_model(host)
    model = tmp_path / "tiny"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(tiny_config()))
    (model / "model.safetensors").write_bytes(safetensors_file(tiny_tensors()))
    inventory = fleet.inventory(tmp_path / "inventory.yaml", entries={"gpu-a": {"model_dir": "/srv/models"}})
    words = ["--yes", "-o", "json", "--image", TAG, "--vllm-version", VERSION, "--name", "tiny"]
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(*command: str, engine: tuple[str, ...] = ()) -> list[dict[str, Any]]:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "gpuplan",
                *command,
                "-i",
                str(inventory),
                *(("--", *engine) if engine else ()),
            ],
            env={**fleet.environment(), **state},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    last = run("deploy", str(model), *words, engine=_WORDS)[-1]
    assert last["state"] == "running"
    status, answer = ask(f"{last['endpoint']}/v1/completions", _ASKED)
    assert (status, len(answer["choices"][0]["token_ids"])) == (200, 3)
    predicted, actual = last["predicted"], last["actual"]
    assert predicted["weights_bytes"] > 0
    assert predicted["kv_cache_tokens"] > 0
    # the CPU build prints its cache and not what the weights took
    assert (actual["kv_cache_tokens"], actual["max_concurrency"]) == (262_144, 512.0)
    _keep("deployed.json", json.dumps(last, indent=2))
    run("stop", "tiny", "--yes", "-o", "json")
    assert host.text("docker", "ps", "-aq") == ""
