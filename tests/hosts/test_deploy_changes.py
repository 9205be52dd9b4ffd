"""A fleet that is not what it was when the deploy was planned, and containers of others: refused or respected, for real."""

import json
from pathlib import Path

import pytest

from tests.hosts.deploying import Site, lay_site
from tests.hosts.fleet import Fleet
from tests.thorough import thorough

ON_A = ("--gpus", "gpu-a:0")
THREE = ("--gpus", "gpu-a:0", "--gpus", "gpu-b:0", "--gpus", "gpu-c:0")
OVER_THREE = ("--tensor-parallel-size", "1", "--pipeline-parallel-size", "3")


@pytest.fixture
def site(deploy_fleet: Fleet, tmp_path: Path) -> Site:
    return lay_site(deploy_fleet, tmp_path)


def test_a_port_taken_between_plan_and_start(site: Site) -> None:
    planned = json.loads(site.run("deploy", str(site.model), "--dry-run", "-o", "json", *ON_A).stdout)
    assert "40000" in json.dumps(planned)
    first = site.begin(*ON_A)
    first.until(event="phase_started", phase="lock")
    site.fleet["gpu-a"].take_port(40000)
    assert first.end() == 0
    port = first.lines[-1]["endpoint"].rsplit(":", 1)[1]
    codes = {line["finding"]["code"] for line in first.lines if line["event"] == "remark"}
    assert (port, "GP810" in codes) in {("40001", True), ("40000", False)}, "another one, and that is told"
    before = site.ours()
    refused = site.run(
        "deploy",
        str(site.model),
        "--yes",
        "--name",
        "other",
        "--gpus",
        "gpu-a:1",
        engine=("--port", "40000"),
        status=2,
    )
    assert "--port 40000: the port is in use on gpu-a" in refused.stderr
    assert site.ours() == before


def test_a_saved_plan_serves_or_says_what_changed(site: Site) -> None:
    plan = site.directory / "plan.json"
    key = "sk-very-secret-key-0123456789"
    planned = site.run(
        "plan", str(site.model), "-o", "json", *ON_A, engine=("--api-key", key, "--max-num-seqs", "17")
    )
    assert key not in planned.stdout
    plan.write_text(planned.stdout)
    missing = site.run("deploy", str(plan), "--yes", "-o", "json", status=None)
    assert missing.returncode != 0
    assert site.all_ours() == []
    site.fleet["gpu-a"].take_gpu_memory(0, 70000)
    for what in ("busy", "gone", "down"):
        if what == "gone":
            site.fleet["gpu-a"].restore()
            site.fleet["gpu-a"].replay("gb10")
        if what == "down":
            site.fleet["gpu-a"].restore()
            site.fleet["gpu-a"].link_down()
        changed = site.run("deploy", str(plan), "--yes", status=6, VLLM_API_KEY=key)
        assert "the fleet changed since the plan" in changed.stderr
        assert "gpu-a" in changed.stderr, what
    site.fleet["gpu-a"].restore()
    assert site.all_ours() == []
    site.run("deploy", str(plan), "--yes", VLLM_API_KEY=key)
    told = site.status("tiny")[0]
    assert told["members"][0]["host"] == "gpu-a"


def test_a_gpu_taken_meanwhile_stops_it_before_anything_is_touched(site: Site) -> None:
    first = site.begin(*ON_A)
    first.until(event="phase_started", phase="lock")
    site.fleet["gpu-a"].take_gpu_memory(0, 79000)
    status = first.end()
    if status == 0:
        pytest.skip("the last look had been taken already")
    assert status == 6
    assert "gpu-a" in (site.directory / "stderr.txt").read_text()
    assert site.all_ours() == []


def test_foreign_containers_are_not_touched(site: Site) -> None:
    host = site.fleet["gpu-a"]
    image = host.text("docker", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}").splitlines()[0]
    for name in ("gpuplan-tiny-s0n0", "bystander"):
        host.run(
            "docker", "run", "-d", "--name", name, "--network=none", "--entrypoint", "sleep", image, "600"
        )
    before = host.text("docker", "ps", "-a", "--no-trunc", "--format", "{{.ID}} {{.Names}} {{.State}}")
    refused = site.deploy(*ON_A, status=5)
    assert "gpu-a has a container gpuplan-tiny-s0n0 that is not of this deployment" in refused.done.stderr
    assert "--name OTHER" in refused.done.stderr
    assert (
        host.text("docker", "ps", "-a", "--no-trunc", "--format", "{{.ID}} {{.Names}} {{.State}}") == before
    )
    named = site.deploy(*ON_A, "--name", "other", "--keep-alive", "900")
    assert named.last["name"] == "other"
    container = named.last["members"][0]["container"]
    labels = json.loads(host.text("docker", "inspect", "-f", "{{json .Config.Labels}}", container))
    assert labels["io.gpuplan.keep-alive"] == "900"
    site.run("stop", "other", "--yes")
    assert (
        host.text("docker", "ps", "-a", "--no-trunc", "--format", "{{.ID}} {{.Names}} {{.State}}") == before
    )


def test_a_clock_that_is_off_is_told(site: Site) -> None:
    site.fleet["gpu-a"].skew_clock(90)
    assert "GP824" in site.deploy(*ON_A).codes


@pytest.mark.parametrize("executor", [pytest.param("mp", marks=thorough), "ray"])
def test_over_three_hosts_a_failed_change_goes_back_to_what_served(site: Site, executor: str) -> None:
    words = (*THREE, "--executor", executor)
    before = site.deploy(*words, engine=OVER_THREE).last["members"]
    loads = "gpu-b" if executor == "mp" else "gpu-a"
    site.faults(loads, {"all": {"exit_after": "weights", "say": ["ValueError: no such layer"]}})
    failed = site.deploy(*words, engine=(*OVER_THREE, "--max-num-seqs", "17"), status=5)
    restored = [line for line in failed.of("undone") if line["what"] == "restored"]
    assert len(restored) == len(before)
    site.faults(loads, {})
    assert sorted(site.all_ours()) == sorted(one["container"] for one in before)
    ids = {
        site.fleet[one["host"]].text("docker", "inspect", "-f", "{{.Id}}", one["container"]) for one in before
    }
    assert ids == {one["id"] for one in before}
