"""Deploys that are killed, interrupted or run at once: all of them end well, for real."""

import json
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.deploying import LONGEST, Site, containers, lay_site
from tests.hosts.fleet import STAND_IN, Fleet
from tests.hosts.models import lay_model
from tests.hosts.waiting import wait_for
from tests.thorough import THOROUGH, thorough

ON_A = ("--gpus", "gpu-a:0")
SLOW = {"all": {"slow_seconds": 2}}
"""Twenty seconds to load: time enough for others to come."""


@pytest.fixture
def site(deploy_fleet: Fleet, tmp_path: Path) -> Site:
    return lay_site(deploy_fleet, tmp_path)


def sequences(number: int) -> tuple[str, ...]:
    """Engine words that make a spec of their own."""
    return ("--max-num-seqs", str(number))


def assert_told(site: Site) -> list[dict[str, Any]]:
    """Status names every container of ours that exists, and says of none what it is not."""
    document = json.loads(site.run("status", "-o", "json").stdout)
    there = {(host, name) for host, names in site.ours().items() for name in names}
    told: set[tuple[str, str]] = set()
    for one in document["deployments"]:
        for member in one["members"]:
            if member["state"] != "missing":
                told.add((member["host"], member["container"]))
                state = site.fleet[member["host"]].text(
                    "docker", "inspect", "--format", "{{.State.Status}}", member["container"]
                )
                assert state == member["state"], member
    said = json.dumps(document)
    assert all(f"{name} on {host}" in said for host, name in there - told), (there - told, document)
    listed: list[dict[str, Any]] = document["deployments"]
    return listed


def assert_free(site: Site) -> None:
    """Nobody holds a lock a moment after the end of who did."""

    def free() -> bool:
        locks = json.loads(site.run("unlock", "--yes", "-o", "json").stdout)["locks"]
        assert not [lock for lock in locks if lock["broken"]], "a lock had to be broken"
        return all(lock["holder"] is None for lock in locks)

    wait_for("free locks", free)


def id_of(site: Site, host: str, name: str) -> str:
    return site.fleet[host].text("docker", "inspect", "--format", "{{.Id}}", name)


def killed(site: Site, phase: str, *words: str, engine: tuple[str, ...] = (), seconds: float = 0.0) -> None:
    """A deploy that is killed as soon as a phase begins, or so long after."""
    running = site.begin(*words, engine=engine)
    running.until(event="phase_started", phase=phase)
    time.sleep(seconds)
    running.kill()


def emptied(site: Site) -> None:
    for host in site.fleet:
        host.remove_containers()


def test_what_a_killed_deploy_left_of_a_look_into_an_image_is_told_and_removed(site: Site) -> None:
    host, name = site.fleet["gpu-a"], "gpuplan-helper-image-0badc0de"
    labels = ("io.gpuplan.managed=true", "io.gpuplan.deployment=", "io.gpuplan.role=helper")
    given = [word for label in labels for word in ("--label", label)]
    host.run("docker", "create", "--name", name, *given, STAND_IN.tag, "true")
    assert name in site.run("status").stdout
    done = site.deploy(*ON_A)
    assert site.all_ours() == [done.last["members"][0]["container"]]


def test_one_that_still_runs_under_the_name_it_was_set_aside_with_is_taken_up_again(site: Site) -> None:
    member = site.deploy(*ON_A).last["members"][0]
    host, name = site.fleet["gpu-a"], member["container"]
    host.run("docker", "rename", name, f"{name}-old-12345678")
    assert assert_told(site)[0]["state"] == "running"
    again = site.deploy(*ON_A)
    assert "GP811" in again.codes
    assert site.all_ours() == [name]
    assert id_of(site, "gpu-a", name) == member["id"]


def test_killed_at_each_step_and_deployed_again(site: Site) -> None:
    for phase in ("create", "start") if THOROUGH else ("start",):
        killed(site, phase, *ON_A)
        assert_told(site)
        done = site.deploy(*ON_A)
        assert done.last["state"] == "running", phase
        assert site.ours()["gpu-a"] == [done.last["members"][0]["container"]], phase
        emptied(site)
    assert_free(site)


def test_killed_while_it_replaces_and_deployed_again(site: Site) -> None:
    site.deploy(*ON_A)
    phases = ("replace", "load", "clean") if THOROUGH else ("load",)
    for number, phase in enumerate(phases, start=17):
        killed(site, phase, *ON_A, engine=sequences(number), seconds=0.2 if phase == "replace" else 0)
        assert site.all_ours(), "nothing that served is lost"
        assert_told(site)
        done = site.deploy(*ON_A, engine=sequences(number))
        assert done.last["state"] == "running", phase
        assert site.all_ours() == [done.last["members"][0]["container"]], phase
        assert site.status()[0]["members"][0]["id"] == done.last["members"][0]["id"]
    assert_free(site)


def test_one_that_was_killed_while_it_loads_is_watched_on_logged_and_stopped(site: Site) -> None:
    site.faults("gpu-a", SLOW)
    killed(site, "load", *ON_A, seconds=1)
    [told] = assert_told(site)
    assert told["state"] == "starting"
    before = id_of(site, "gpu-a", "gpuplan-tiny-s0n0")
    done = site.deploy(*ON_A)
    assert "GP812" in done.codes
    assert [one["id"] for one in done.last["members"]] == [before]
    assert "Application startup complete" in site.run("logs", "tiny").stdout
    site.run("stop", "tiny", "--yes")
    assert site.all_ours() == []


def test_what_was_set_aside_by_one_that_was_killed_comes_back_when_the_next_fails(site: Site) -> None:
    before = site.deploy(*ON_A).last["members"][0]
    killed(site, "create", *ON_A, engine=sequences(17))
    site.faults("gpu-a", {"all": {"exit_after": "weights", "say": ["ValueError: no such layer"]}})
    failed = site.deploy(*ON_A, engine=sequences(18), status=5)
    assert [line["what"] for line in failed.of("undone")][-1] == "restored"
    assert site.all_ours() == [before["container"]]
    assert site.fleet["gpu-a"].text("docker", "inspect", "-f", "{{.State.StartedAt}}", before["container"])
    assert id_of(site, "gpu-a", before["container"]) == before["id"]
    logs = [path for path in (site.directory / "state").rglob("*.log") if "no such layer" in path.read_text()]
    assert len(logs) == 1, "the first log of what failed is kept"


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=thorough)])
def test_an_interrupt_takes_everything_back(site: Site, number: signal.Signals) -> None:
    before = site.deploy(*ON_A).last["members"][0]
    steps = ("create", "load") if number is signal.SIGINT else ("replace",)
    for phase in steps:
        running = site.begin(*ON_A, engine=sequences(17))
        running.until(event="phase_started", phase=phase)
        os.killpg(running.process.pid, number)
        assert running.end() == 130, phase
        told = (site.directory / "stderr.txt").read_text()
        assert "interrupted: what was started is taken back" in told
        assert site.all_ours() == [before["container"]], phase
        assert id_of(site, "gpu-a", before["container"]) == before["id"]
        state = site.fleet["gpu-a"].text("docker", "inspect", "-f", "{{.State.Status}}", before["container"])
        assert state == "running", phase
        if phase != "lock":
            assert "tiny: everything was taken back" in told, told
            assert running.lines[-1]["state"] == "error"
    assert_free(site)


def test_a_second_interrupt_ends_at_once_and_says_what_is_left(site: Site) -> None:
    running = site.begin(*ON_A)
    running.until(event="phase_started", phase="load")
    site.fleet["gpu-a"].freeze()
    os.killpg(running.process.pid, signal.SIGINT)
    running.until(event="phase_started", phase="undo")
    began = time.monotonic()
    os.killpg(running.process.pid, signal.SIGINT)
    assert running.end() == 130
    assert time.monotonic() - began < 20, "the undoing of a host that hangs would take longer"
    told = (site.directory / "stderr.txt").read_text()
    assert "left as it is: gpuplan-tiny-s0n0 on gpu-a" in told
    assert "gpuplan stop tiny" in told
    site.fleet["gpu-a"].thaw()
    assert_told(site)
    site.run("stop", "tiny", "--yes")
    assert site.all_ours() == []


def test_a_reader_that_goes_away_is_an_interrupt(site: Site) -> None:
    running = site.begin(*ON_A)
    running.until(event="phase_started", phase="create")
    assert running.process.stdout is not None
    running.process.stdout.close()
    assert running.process.wait(LONGEST) != 0
    assert site.all_ours() == []


def test_two_at_once_of_one_name(site: Site) -> None:
    site.faults("gpu-a", SLOW)
    first = site.begin(*ON_A)
    first.until(event="phase_started", phase="create")
    waits = site.begin(*ON_A, "--wait", "120")
    refused = site.deploy(*ON_A, status=5)
    assert "gpu-a is locked" in refused.done.stderr
    assert "deploys tiny" in refused.done.stderr
    assert "--wait SECONDS" in refused.done.stderr
    assert site.status("tiny")[0]["state"] in {"preparing", "starting", "running"}
    assert (first.end(), waits.end()) == (0, 0)
    codes = {line["finding"]["code"] for line in waits.lines if line["event"] == "remark"}
    assert {"GP850", "GP811"} <= codes
    ids = [[one["id"] for one in running.lines[-1]["members"]] for running in (first, waits)]
    assert ids[0] == ids[1]


def test_two_models_at_once_get_names_gpus_and_ports_of_their_own(site: Site) -> None:
    site.faults("gpu-a", {"all": {"slow_seconds": 0.2}})
    other = replace(site, model=site.directory / "Tiny")
    shutil.copytree(site.model, other.model)
    lay_model(site.fleet["gpu-a"], "Tiny")
    both = [one.begin("--host", "gpu-a", "--wait", "120") for one in (site, other)]
    assert [running.end() for running in both] == [0, 0]
    last = [running.lines[-1] for running in both]
    assert {one["name"] for one in last} == {"tiny", "tiny-2"}
    assert last[0]["members"][0]["gpus"] != last[1]["members"][0]["gpus"]
    assert last[0]["endpoint"] != last[1]["endpoint"]
    assert {one["name"]: one["state"] for one in site.status()} == {"tiny": "running", "tiny-2": "running"}


def test_one_name_on_two_hosts_at_once_is_not_deployed_twice(site: Site) -> None:
    first = site.begin("--gpus", "gpu-a:0")
    second = site.deploy("--gpus", "gpu-b:0", status=None)
    statuses = (first.end(), second.done.returncode)
    deployments = site.status()
    assert set(statuses) <= {0, 5, 6}
    assert len(site.all_ours()) == statuses.count(0) or statuses == (0, 0)
    for one in deployments:
        assert one["state"] == "running"
        assert len(one["members"]) == 1
    assert len({containers(host)[0] for host in site.fleet if containers(host)}) <= 1
