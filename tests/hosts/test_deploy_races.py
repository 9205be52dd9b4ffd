"""Deploys that are killed, interrupted, run at once, or find the fleet changed: all of them end well, for real."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.deploying import LONGEST, OURS, Running, Site, containers, lay_site
from tests.hosts.fleet import Fleet
from tests.hosts.waiting import wait_for

ON_A = ("--gpus", "gpu-a:0")
THREE = ("--gpus", "gpu-a:0", "--gpus", "gpu-b:0", "--gpus", "gpu-c:0")
OVER_THREE = ("--tensor-parallel-size", "1", "--pipeline-parallel-size", "3")
SLOW = {"all": {"slow_seconds": 1}}
"""Half a minute to load: time enough to be killed in."""


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


def serves(site: Site, host: str, port: int = 40000) -> bool:
    address = site.fleet[host].address
    done = site.fleet[host].run("curl", "-sf", f"http://{address}:{port}/health", check=False)
    return done.returncode == 0


def killed(site: Site, phase: str, *words: str, engine: tuple[str, ...] = (), seconds: float = 0.0) -> None:
    """A deploy that is killed as soon as a phase begins, or so long after."""
    running = site.begin(*words, engine=engine)
    running.until(event="phase_started", phase=phase)
    time.sleep(seconds)
    running.kill()


@pytest.mark.parametrize("phase", ["lock", "compare", "image", "create", "start", "load", "answer"])
def test_explore_kill_first(site: Site, phase: str) -> None:
    t = time.time()
    killed(site, phase, *ON_A)
    print("PH", phase, "killed", time.time() - t, site.ours())
    told = assert_told(site)
    print(json.dumps([(d["state"], d.get("message")) for d in told]))
    t = time.time()
    done = site.deploy(*ON_A)
    print("second", time.time() - t, done.codes, [e for e in done.of("undone")])
    print(site.ours())
    assert len(site.all_ours()) == 1
    assert_free(site)
