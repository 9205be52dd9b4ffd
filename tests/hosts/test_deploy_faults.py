"""What goes wrong during a deploy, made for real: it ends, says who and why, keeps every log, and leaves nothing behind."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.hosts.deploying import Deployed, Running, Site, containers, lay_site
from tests.hosts.fleet import STAND_IN, Fleet
from tests.hosts.images import ImageSpec
from tests.hosts.models import shorten
from tests.thorough import thorough

A, B, C = "gpu-a", "gpu-b", "gpu-c"
ONE = ("--gpus", "gpu-a:0")
THREE = ("--gpus", "gpu-a:0", "--gpus", "gpu-b:0", "--gpus", "gpu-c:0")
OVER_THREE = ("--tensor-parallel-size", "1", "--pipeline-parallel-size", "3")
SHORT = ("--timeout", "6")
KV_SHORT = (
    "ValueError: To serve at least one request with the model's max seq len (2048), 8.00 GiB KV cache is needed, which is "
    "larger than the available KV cache memory (7.76 GiB). Based on the available memory, the estimated maximum model "
    "length is 1984. Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
)
"""vLLM 0.33, v1/core/kv_cache_utils.py."""
ODD = "odd.Oddity: nobody has seen this before"
Faults = Mapping[str, Mapping[str, Mapping[str, object]]]
"""By host."""


@pytest.fixture
def site(deploy_fleet: Fleet, tmp_path: Path) -> Site:
    return lay_site(deploy_fleet, tmp_path)


def told(lines: Deployed | Running) -> list[tuple[str, str | None]]:
    """Code and host of what a failed deploy says, the cause first; it says it once, and ends with the deployment."""
    failed = [line for line in lines.lines if line.get("event") == "failed"]
    assert len(failed) == 1
    assert lines.lines[-1]["state"] == "error"
    assert lines.lines[-1]["name"] == "tiny"
    return [(fact["code"], fact["subject"].get("host")) for fact in failed[0]["findings"]]


def logs(lines: Deployed | Running) -> dict[str, str]:
    """Host to the logs that were saved of its containers."""
    failed = next(line for line in lines.lines if line.get("event") == "failed")
    texts: dict[str, str] = {}
    for path in map(Path, failed["logs"]):
        host = "-".join(path.name.split("-")[:2])
        texts[host] = texts.get(host, "") + path.read_text()
    return texts


def refused(
    site: Site,
    faults: Faults,
    *words: str,
    engine: tuple[str, ...] = OVER_THREE,
    hosts: tuple[str, ...] = THREE,
) -> Deployed:
    """A deploy that fails with these faults, and leaves nothing on any host."""
    for host in site.fleet:
        site.faults(host.name, faults.get(host.name, {}))
    done = site.deploy(*hosts, *words, engine=engine, status=5)
    assert site.all_ours() == []
    assert all(line["what"] == "removed" for line in done.of("undone"))
    return done


def test_a_member_that_ends_ends_the_deploy_while_another_hangs(site: Site) -> None:
    hangs = {A: {"leader": {"hang_after": "joined"}}}
    died = refused(site, {**hangs, B: {"follower": {"exit_after": "joined", "say": [ODD]}}})
    assert told(died)[0] == ("GP799", B)
    assert ODD in died.of("failed")[0]["findings"][0]["because"][0]
    assert f"{B} (follower 1)" in died.done.stderr
    assert set(logs(died)) == {A, B, C}
    assert logs(died)[B].count(ODD) == 1

    killed = refused(site, {A: {"all": {"oom": True}}}, engine=(), hosts=ONE)
    assert told(killed)[0] == ("GP798", A)
    assert "exit code 137" in killed.done.stderr
    assert set(logs(killed)) == {A}


def test_a_shortage_of_cache_is_told_in_the_plans_terms_and_an_answer_of_500_is_no_answer(site: Site) -> None:
    short = refused(site, {A: {"all": {"exit_after": "model", "say": [KV_SHORT]}}}, engine=(), hosts=ONE)
    assert told(short)[0] == ("GP739", A)
    figures = short.of("failed")[0]["findings"][0]["figures"]
    assert figures["needed_bytes"] == 8 * 1024**3
    assert figures["predicted_bytes"] == short.last["predicted"]["kv_cache_bytes"]
    assert "KV cache short by 0.24 GiB" in short.done.stderr
    assert "--context 1984" in short.done.stderr

    broken = refused(site, {A: {"all": {"completion_status": 500}}}, engine=(), hosts=ONE)
    assert told(broken) == [("GP823", A)]
    assert "HTTP 500" in broken.done.stderr
    assert "Application startup complete" in logs(broken)[A]


def test_who_does_not_come_in_time_is_named(site: Site) -> None:
    hung = refused(site, {B: {"follower": {"hang_after": "starting"}}}, *SHORT)
    assert told(hung)[0] == ("GP814", B)
    assert "gpuplan-tiny-s0n1 on gpu-b to go on" in hung.done.stderr
    assert set(logs(hung)) == {A, B, C}

    never = refused(site, {A: {"all": {"never_ready": True}}}, *SHORT, engine=(), hosts=ONE)
    assert told(never)[0] == ("GP814", A)
    assert "--timeout SECONDS waits longer" in never.done.stderr


def test_a_ray_node_that_does_not_come_and_a_head_that_dies(site: Site) -> None:
    ray = ("--executor", "ray")
    absent = refused(site, {B: {"ray-follower": {"hang_after": "bound"}}}, *ray, *SHORT)
    assert ("GP819", None) in told(absent)
    assert f"{B} did not join the Ray cluster" in absent.done.stderr
    assert set(logs(absent)) == {A, B, C}

    dead = refused(
        site, {A: {"ray-head": {"exit_after": "joined", "say": ["RuntimeError: the head is gone"]}}}, *ray
    )
    assert told(dead)[0] == ("GP799", A)
    assert "the head is gone" in logs(dead)[A]


# ---------------------------------------------------------------------- before anything is started


def test_images_that_cannot_run_are_told_before_anything_is_created(site: Site) -> None:
    nowhere = refused(site, {}, "--image", "nobody.invalid/engine:v0.33.0", engine=(), hosts=ONE)
    assert told(nowhere)[0][1] == A
    assert told(nowhere)[0][0] in {"GP831", "GP836", "GP838"}
    assert "nobody.invalid/engine:v0.33.0" in nowhere.done.stderr

    foreign = replace(STAND_IN, tag="team/foreign:1", architecture="arm64")
    site.fleet[A].load(foreign)
    wrong = refused(site, {}, "--image", foreign.tag, engine=(), hosts=ONE)
    assert told(wrong) == [("GP833", A)]
    assert "aarch64" in wrong.done.stderr


def test_another_build_under_the_tag_of_one_host_is_told_and_all_serve_the_same(site: Site) -> None:
    other = ImageSpec(tag=STAND_IN.tag, env=(("BUILD", "elsewhere"),))
    site.fleet[B].run("docker", "image", "rm", "--force", STAND_IN.tag)
    site.fleet[B].load(other)
    done = site.deploy(*THREE, engine=OVER_THREE)
    assert done.last["state"] == "running"
    assert "GP832" in done.codes
    used = {
        site.fleet[name].text("docker", "inspect", "-f", "{{.Image}}", *containers(site.fleet[name]))
        for name in (A, B, C)
    }
    assert len(used) == 1
    tagged = site.fleet[B].text("docker", "image", "inspect", "-f", "{{.Config.Env}}", STAND_IN.tag)
    assert "elsewhere" in tagged, "the tag of the host was not moved"


def test_a_disk_that_is_full_when_the_image_comes(site: Site) -> None:
    size = int(site.fleet[A].text("docker", "image", "inspect", "-f", "{{.Size}}", STAND_IN.tag))
    site.fleet[B].run("docker", "image", "rm", "--force", STAND_IN.tag)
    site.fleet[B].fill(leave=size + 4 * 1024**2)
    full = refused(site, {})
    assert told(full)[0][1] == B
    assert told(full)[0][0] in {"GP835", "GP839"}
    assert "no space left" in full.done.stderr
    assert "docker image prune" in full.done.stderr


def test_a_model_that_is_missing_or_shorter_on_one_host(site: Site) -> None:
    weights = f"/srv/models/{site.model.name}"
    shorten(site.fleet[C], weights)
    shorter = site.run("deploy", str(site.model), "--yes", *THREE, engine=OVER_THREE, status=5)
    assert C in shorter.stderr
    assert "model.safetensors" in shorter.stderr
    site.fleet[C].run("rm", "-r", weights)
    missing = site.run("deploy", str(site.model), "--yes", *THREE, engine=OVER_THREE, status=5)
    assert C in missing.stderr
    assert weights in missing.stderr
    assert site.all_ours() == []


def test_a_host_whose_toolkit_is_gone(site: Site) -> None:
    site.fleet[A].without_toolkit()
    done = site.run("deploy", str(site.model), "--yes", *ONE, status=5)
    assert f"{A}: Docker cannot hand GPUs to containers" in done.stderr
    assert site.all_ours() == []


# ---------------------------------------------------------------------- hosts that go away


def left_and_taken_away(site: Site, host: str) -> None:
    """Of a deploy that lost a host: nothing elsewhere; what is there is seen once the host is back, and stopped."""
    assert all(not names for name, names in site.ours().items() if name != host)
    restarted(site, host)
    left = containers(site.fleet[host])
    if left:
        assert [one["container"] for one in site.status()[0]["members"] if one["state"] != "missing"] == left
        site.run("stop", "tiny", "--yes")
    assert site.all_ours() == []


def restarted(site: Site, host: str) -> None:
    site.fleet[host].link_up()
    site.fleet[host].restart_sshd()


@pytest.mark.parametrize(
    ("step", "host", "fault"),
    [
        ("image", B, "kill_sshd"),
        pytest.param("image", A, "link_down", marks=thorough),
        pytest.param("create", A, "kill_sshd", marks=thorough),
        ("start", B, "link_down"),
        ("load", A, "link_down"),
    ],
)
def test_a_host_that_is_cut_off(site: Site, step: str, host: str, fault: str) -> None:
    site.faults(A, {"leader": {"slow_seconds": 1}})
    running = site.begin(*THREE, *SHORT, engine=OVER_THREE)
    if step == "load":
        running.until(event="milestone", host=host)
    else:
        running.until(event="phase_started", phase=step)
    getattr(site.fleet[host], fault)()
    assert running.end() == 5
    assert told(running)[0][1] == host
    said = (site.directory / "stderr.txt").read_text()
    assert f"tiny was not deployed: {host}" in said
    assert "hint: " in said
    if step == "load":
        assert set(logs(running)) == {A, B, C}
    left_and_taken_away(site, host)


def test_a_cut_that_heals_is_lived_through(site: Site) -> None:
    site.faults(B, {"follower": {"slow_seconds": 1}})
    running = site.begin(*THREE, engine=OVER_THREE)
    running.until(event="milestone", host=B)
    site.fleet[B].restart_sshd()
    assert running.end() == 0
    assert running.lines[-1]["state"] == "running"
    seen = [line["text"] for line in running.lines if line.get("event") == "milestone" and line["host"] == B]
    assert len(seen) == len(set(seen)), "no line of the log is heard twice"
    assert any("Model loading took" in text for text in seen), "nor is one missed"
    site.run("stop", "tiny", "--yes")
    assert site.all_ours() == []


def test_a_host_without_power_during_the_load_and_with_it_again(site: Site) -> None:
    site.faults(A, {"leader": {"slow_seconds": 1}})
    running = site.begin(*THREE, *SHORT, engine=OVER_THREE)
    running.until(event="milestone", host=B)
    site.fleet[B].power_off()
    assert running.end() == 5
    assert told(running)[0] == ("GP813", B)
    assert B in logs(running)
    left = [line for line in running.lines if line.get("event") == "undone" and line["what"] == "left"]
    assert [line["host"] for line in left] == [B]
    assert "gpuplan stop" in left[0]["why"]
    assert containers(site.fleet[A]) == containers(site.fleet[C]) == []

    site.fleet[B].power_on()
    assert [one["host"] for one in site.status()[0]["members"] if one["state"] != "missing"] == [B]
    site.faults(A, {})
    again = site.deploy(*THREE, engine=OVER_THREE)
    assert again.last["state"] == "running"
    assert [line["host"] for line in again.of("undone")] == [B]
    site.run("stop", "tiny", "--yes")
    assert site.all_ours() == []


@pytest.mark.parametrize("step", ["start", "load"])
def test_an_engine_that_restarts(site: Site, step: str) -> None:
    site.faults(B, {"follower": {"slow_seconds": 1}})
    running = site.begin(*THREE, engine=OVER_THREE)
    if step == "load":
        running.until(event="milestone", host=B)
    else:
        running.until(event="phase_started", phase="start")
    site.fleet[B].restart_dockerd()
    assert running.end() == 5
    assert told(running)[0][1] == B
    assert site.all_ours() == []
    assert step == "start" or B in logs(running)
