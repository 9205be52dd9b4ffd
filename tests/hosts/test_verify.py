"""Verifying for real: an engine is started with made-up weights, listened to, compared and removed, whatever happens."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.deploying import LONGEST, Site, containers, lay_site
from tests.hosts.fleet import Fleet
from tests.hosts.images import ImageSpec
from tests.hosts.waiting import wait_for
from tests.safetensors_files import safetensors_file

A, B = "gpu-a", "gpu-b"
ONE = ("--gpus", "gpu-a:0")
GIB = 1024**3
ODD = "odd.Oddity: nobody has seen this before"
KV_SHORT = (
    "ValueError: To serve at least one request with the model's max seq len (2048), 8.00 GiB KV cache is needed, which is "
    "larger than the available KV cache memory (7.76 GiB). Based on the available memory, the estimated maximum model "
    "length is 1984. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
)
"""vLLM 0.33, v1/core/kv_cache_utils.py."""


ANSWERING = """\
#!/bin/sh
[ -r "$1" ] && grep -q '"hidden_size"' && [ ! -e /dev/nvidia0 ] || exit 9
echo 'gpuplan-parameters {"vllm": "0.33.0"}'
echo 'gpuplan-parameters ANSWER'
"""
"""A Python of an image that knows the answer, once it has program and question, and no GPU."""


@pytest.fixture
def site(deploy_fleet: Fleet, tmp_path: Path) -> Site:
    return lay_site(deploy_fleet, tmp_path)


def verify(
    site: Site, *words: str, engine: tuple[str, ...] = (), status: int = 0, gpus: tuple[str, ...] = ONE
) -> dict[str, Any]:
    """`gpuplan verify MODEL --yes -o json`, and that nothing of it is left."""
    done = site.run(
        "verify", str(site.model), "--yes", "-o", "json", *gpus, *words, engine=engine, status=status
    )
    assert site.all_ours() == []
    told: dict[str, Any] = json.loads(done.stdout)
    return told | {"stderr": done.stderr}


def codes(told: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in told["findings"]]


def predicted(site: Site) -> dict[str, Any]:
    """The plan's recommended candidate."""
    plan = json.loads(site.run("plan", str(site.model), "-o", "json", *ONE).stdout)
    strategy = next(one for one in plan["strategies"] if one["strategy"] == plan["recommended"]["strategy"])
    found: dict[str, Any] = strategy["candidates"][plan["recommended"]["candidate"]]
    return found


def spoken(candidate: dict[str, Any], more_bytes: int = 0) -> list[str]:
    """The log of an engine that finds what was predicted, or so much more room for its cache."""
    rank = candidate["memory"]["per_gpu"][0]
    weights = (rank["weights_bytes"] + rank["weights_extra_bytes"]) / GIB
    cache = (rank["kv_cache_bytes"] + more_bytes) / GIB
    tokens, length = candidate["kv_cache_tokens"], candidate["max_model_len"]
    said = {
        "gpu_model_runner.py:5150": f"Model loading took {weights:.2f} GiB memory and 0.71 seconds",
        "gpu_worker.py:760": f"Available KV cache memory: {cache:.2f} GiB",
        "kv_cache_utils.py:2328": f"GPU KV cache size: {tokens:,} tokens, Maximum concurrency for {length:,} tokens per "
        f"request: {candidate['max_concurrency']:.2f}x",
        "core.py:396": "init engine (profile, create kv cache, warmup model) took 2.50 s",
    }
    return [f"(EngineCore pid=12) INFO 11-22 08:00:00 [{place}] {text}" for place, text in said.items()]


class Under:
    """A verification under way, its talk read line by line."""

    def __init__(self, site: Site, *words: str) -> None:
        self.said: list[str] = []
        self.process = subprocess.Popen(
            site.command("verify", str(site.model), "--yes", *words),
            env=site.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def until(self, text: str) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if text in line:
                return
        self.process.communicate(timeout=LONGEST)
        raise AssertionError(f"nobody said {text!r}: {''.join(self.said)}")

    def end(self) -> int:
        _, talk = self.process.communicate(timeout=LONGEST)
        self.said.append(talk)
        return self.process.returncode


def test_an_engine_that_starts_is_compared_and_removed(site: Site) -> None:
    told = verify(site)
    assert (told["started"], told["predicted_to_start"]) == (True, True)
    figures = {figure["term"]: figure for figure in told["figures"]}
    assert {"weights", "kv_cache", "tokens", "concurrency"} <= set(figures)
    assert figures["kv_cache"]["rank"] == 0
    assert (
        figures["kv_cache"]["difference"] == figures["kv_cache"]["actual"] - figures["kv_cache"]["predicted"]
    )
    assert Path(told["logs"][0]).read_text().count("Model loading took") == 1
    assert "GPU KV cache size" in told["stderr"], "the engine's own words as they come"
    assert f"removed gpuplan-verify-{site.model.name}-s0n0" in told["stderr"]
    assert site.status() == []


def test_a_prediction_holds_or_is_told_by_how_much_it_missed(site: Site) -> None:
    candidate = predicted(site)
    site.faults(A, {"all": {"log_lines": spoken(candidate), "hang_after": "starting"}})
    held = verify(site)
    assert held["held"] is True
    assert codes(held)[0] == "GP870"
    site.faults(A, {"all": {"log_lines": spoken(candidate, 20 * GIB), "hang_after": "starting"}})
    missed = verify(site)
    assert missed["held"] is False
    assert codes(missed)[0] == "GP871"
    [finding] = [one for one in missed["findings"] if one["code"] == "GP871"]
    assert [row["term"] for row in finding["figures"]["terms"]] == ["kv_cache"]
    table = site.run("verify", str(site.model), "--yes", *ONE).stdout
    assert "! KV cache" in table


def test_an_engine_without_room_fails_with_its_cause(site: Site) -> None:
    site.faults(A, {"all": {"exit_after": "model", "say": [KV_SHORT]}})
    told = verify(site, status=5)
    assert told["started"] is False
    assert codes(told)[:2] == ["GP872", "GP739"]
    verdict = told["findings"][0]["figures"]
    assert (verdict["foreseen"], verdict["check"]) == (False, "too_long")
    assert "weights" in {figure["term"] for figure in told["figures"]}, "what was said before counts"

    site.faults(A, {"all": {"exit_after": "weights", "say": [ODD]}})
    odd = verify(site, status=5)
    assert odd["findings"][0]["figures"]["check"] is None
    assert any(ODD in " ".join(finding["because"]) for finding in odd["findings"])


def test_a_failure_that_was_predicted_is_told_as_such(site: Site) -> None:
    site.fleet[A].take_gpu_memory(index=0, mebibytes=70 * 1024)
    told = verify(site, "--allow-overcommit", status=5)
    verdict = told["findings"][0]
    assert verdict["code"] == "GP872"
    assert told["predicted_to_start"] is False
    assert (verdict["figures"]["foreseen"], verdict["figures"]["same_check"]) == (True, True)
    assert codes(told)[1] == "GP735"


def test_a_saved_plan_is_verified_on_its_gpus(site: Site) -> None:
    saved = site.directory / "plan.json"
    saved.write_text(site.run("plan", str(site.model), "-o", "json", "--gpus", "gpu-b:3").stdout)
    told = json.loads(site.run("verify", str(saved), "--yes", "-o", "json").stdout)
    assert told["started"] is True
    assert told["placement"] == [{"host": B, "gpu_indexes": [3]}]
    assert site.all_ours() == []


def test_nothing_is_read_of_weights_and_a_host_without_the_model_is_given_its_configuration(
    site: Site,
) -> None:
    for host in site.fleet:
        host.run("rm", "-r", f"/srv/models/{site.model.name}")
    (site.model / "model.safetensors").write_bytes(safetensors_file({}))
    told = verify(site)
    assert told["started"] is True
    log = Path(told["logs"][0]).read_text()
    assert "--load-format dummy" in log
    assert "--skip-tokenizer-init" in log, "nothing of a tokenizer is there"
    assert "--host 127.0.0.1" in log, "nobody outside is served"


def test_before_anything_is_started(site: Site) -> None:
    words = ("verify", str(site.model), *ONE)
    unasked = site.run(*words, status=2)
    assert "--yes" in unasked.stderr
    missing = site.run(
        *words, "--yes", "--image", "nobody.invalid/engine:v0.33.0", "--image-source", "never", status=5
    )
    assert "was not verified" in missing.stderr
    assert "nobody.invalid/engine:v0.33.0" in missing.stderr
    site.fleet[A].take_gpu_memory(index=0, mebibytes=70 * 1024)
    full = site.run(*words, "--yes", status=3)
    assert "GP201" in full.stdout
    gguf = site.run(*words, "--yes", engine=("--load-format", "gguf"), status=2)
    assert "--load-format dummy" in gguf.stderr
    assert site.all_ours() == []


def test_who_is_interrupted_takes_everything_back(site: Site) -> None:
    site.faults(A, {"all": {"slow_seconds": 2}})
    for text in ("create, waiting", "Starting to load model"):
        under = Under(site, *ONE)
        under.until(text)
        os.killpg(under.process.pid, signal.SIGINT)
        assert under.end() == 130, "".join(under.said)
        assert site.all_ours() == []


def test_what_a_killed_one_left_is_seen_and_removed_by_the_next(site: Site) -> None:
    site.faults(A, {"all": {"slow_seconds": 2}})
    under = Under(site, *ONE)
    under.until("Starting to load model")
    with under.process:
        under.process.kill()
    [left] = site.all_ours()
    assert left == f"gpuplan-verify-{site.model.name}-s0n0"
    limit = site.fleet[A].text("docker", "inspect", "--format", "{{json .Config.Entrypoint}}", left)
    assert "timeout" in limit, "it ends by itself where nobody comes"
    assert [one["name"] for one in site.status()] == [f"verify-{site.model.name}"]
    site.faults(A, {})

    def free() -> bool:
        return site.run("verify", str(site.model), "--yes", *ONE, status=None).returncode == 0

    wait_for("the lock of the killed one to end", free, seconds=90)
    assert site.all_ours() == []


def test_a_deployment_of_the_trials_name_is_left_alone(site: Site) -> None:
    site.deploy(*ONE, "--name", f"verify-{site.model.name}")
    before = site.all_ours()
    refused = site.run("verify", str(site.model), "--yes", "--gpus", "gpu-a:1", status=2)
    assert "--name" in refused.stderr
    assert site.all_ours() == before
    site.run("stop", f"verify-{site.model.name}", "--yes")


def test_a_host_that_is_lost_is_no_word_on_the_prediction(site: Site) -> None:
    site.faults(A, {"all": {"slow_seconds": 1}})
    under = Under(site, *ONE, "--timeout", "8")
    under.until("Starting to load model")
    site.fleet[A].link_down()
    assert under.end() == 5
    said = "".join(under.said)
    assert f"{site.model.name}" in said
    assert "was not verified" in said
    assert "left behind" in said
    site.fleet[A].link_up()
    wait_for("gpu-a", lambda: site.run("probe", "--host", A, status=None).returncode == 0)
    if containers(site.fleet[A]):
        site.run("stop", f"verify-{site.model.name}", "--yes")
    assert site.all_ours() == []


def test_two_hosts_together(site: Site) -> None:
    told = verify(
        site,
        gpus=("--gpus", "gpu-a:0", "--gpus", "gpu-b:0"),
        engine=("--tensor-parallel-size", "1", "--pipeline-parallel-size", "2"),
    )
    assert told["started"] is True
    assert {place["host"] for place in told["placement"]} == {A, B}
    assert len(told["logs"]) == 2


def test_parameters_are_counted_by_the_image_and_compared_to_the_byte(site: Site) -> None:
    candidate = predicted(site)
    weights = candidate["memory"]["per_gpu"][0]["weights_bytes"]
    for number, more in enumerate((0, 4096), start=1):
        told = {
            "stage": 0,
            "tensor_rank": 0,
            "model": {"class": "Q", "parameters": weights + more, "buffers": 0},
        }
        image = ImageSpec(
            tag=f"team/counts:v0.33.{number}",
            files=(
                ("usr/local/bin/vllm", "#!/usr/local/bin/python-here\n"),
                ("usr/local/bin/python-here", ANSWERING.replace("ANSWER", json.dumps({"ranks": [told]}))),
            ),
        )
        site.fleet[A].load(image)
        words = ("--parameters-only", "--image", image.tag, "-o", "json", *ONE)
        found = json.loads(site.run("verify", str(site.model), *words).stdout)
        assert codes(found) == ["GP875"]
        assert found["findings"][0]["severity"] == ("warning" if more else "info")
        assert found["parameters"] == [
            {"rank": 0, "predicted_bytes": weights, "actual_bytes": weights + more}
        ]
        assert site.all_ours() == []


def test_parameters_alone_touch_no_gpu(site: Site) -> None:
    """The stand-in's image has no vLLM to ask: that is told, and its container is gone."""
    site.fleet[A].take_gpu_memory(index=0, mebibytes=70 * 1024)
    done = site.run("verify", str(site.model), "--parameters-only", "-o", "json", *ONE, status=5)
    told = json.loads(done.stdout)
    assert (told["started"], told["parameters"]) == (None, [])
    assert codes(told) == ["GP876"]
    absent = site.run(
        "verify", str(site.model), "--parameters-only", "--image", "a/b:v0.33.0", *ONE, status=5
    )
    assert "gpu-a does not have a/b:v0.33.0" in absent.stderr
    assert site.all_ours() == []
