"""Making room for a deploy, and waiting for it, on real hosts with real containers (S4.5, S4.6, S4.7, S4.9, S4.10)."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuplan.operations.capacity_queue import MOST_WAITING
from gpuplan.operations.deploy import DeployOptions, deploy
from gpuplan.operations.deploy_request import DeployRequest
from gpuplan.operations.deploy_wait import reached_by
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.plan import ServingOptions
from gpuplan.operations.process_identity import identity_of
from gpuplan.operations.stopped import DeploymentFailed
from gpuplan.present.event_words import event_document
from gpuplan.present.findings import word
from gpuplan.remote import containers as remote
from gpuplan.remote.docker_engine import RequestRefused
from gpuplan.sources.capacity_queue import Waiter, opened, queue_file
from gpuplan.sources.inventory_yaml import load
from tests.hosts.deploying import Deployed, Running, Site, containers, fleet_options, lay_site
from tests.hosts.fleet import Fleet, TestHost
from tests.hosts.models import lay_model
from tests.hosts.test_sweep import ask
from tests.hosts.waiting import wait_for
from tests.terminal import Terminal

EVICT = ("--strategy", "evict")
SOON = ("--timeout", "60")
"""A deploy of the stand-in; memory is then waited for a quarter as long at most."""
_PLAN: list[str] = []


@pytest.fixture
def site(deploy_fleet: Fleet, tmp_path: Path) -> Site:
    """One host of which one GPU may be used: two models do not fit beside each other."""
    site = lay_site(deploy_fleet, tmp_path)
    only = {"gpu-a": {"exclude_gpus": list(range(1, 8))}}
    return replace(site, inventory=deploy_fleet.inventory(tmp_path / "one.yaml", "gpu-a", entries=only))


@pytest.fixture
def options(site: Site, tmp_path: Path) -> FleetOptions:
    """For a deploy inside this process."""
    return fleet_options(site, tmp_path)


@pytest.fixture
def host(site: Site) -> TestHost:
    return site.fleet["gpu-a"]


@pytest.fixture
def small(site: Site, host: TestHost) -> Site:
    """The same site with a second model."""
    lay_model(host, "small")
    model = site.directory / "small"
    model.mkdir()
    for path in site.model.iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    return replace(site, model=model)


def old(site: Site, *words: str) -> dict[str, Any]:
    """What runs first, and its container."""
    return dict(site.deploy("--name", "old", *words).last["members"][0])


def healthy(host: TestHost, container: str) -> None:
    """Nothing is placed beside it while Docker takes it to be starting."""

    def told() -> bool:
        time.sleep(0.2)
        return host.text("docker", "inspect", "-f", "{{.State.Health.Status}}", container) == "healthy"

    wait_for("Docker's health check", told)


def evicting(site: Site, small: Site, before: dict[str, Any]) -> Site:
    """A saved plan that stops `old`; it is made once, for all hosts of these tests have the same GPUs."""
    if not _PLAN:
        healthy(site.fleet["gpu-a"], before["container"])
        done = small.run("plan", str(small.model), *EVICT, "-o", "json")
        _PLAN.append(done.stdout.replace(str(small.model), "THE-MODEL"))
    path = small.directory / "plan.json"
    path.write_text(_PLAN[0].replace("THE-MODEL", str(small.model)))
    return replace(small, model=path)


def new(site: Site, *words: str, status: int | None = 0) -> Deployed:
    return site.deploy("--name", "new", *SOON, *words, status=status)


def serves(site: Site, name: str, identity: str) -> bool:
    (told,) = site.status(name)
    return (told["state"], told["members"][0]["id"]) == ("running", identity)


def assert_runs(host: TestHost, before: dict[str, Any]) -> None:
    """The same container as before, and no other."""
    assert containers(host) == [before["container"]]
    told = host.text("docker", "inspect", "-f", "{{.Id}} {{.State.Running}}", before["container"])
    assert told == f"{before['id']} true"


def holds_memory(host: TestHost, container: str) -> None:
    """Have the device report what the engine in a container would take: the stand-in takes none."""
    pid = int(host.text("docker", "inspect", "-f", "{{.State.Pid}}", container))
    host.take_gpu_memory(0, 70_000, pid=pid, name="VLLM::EngineCore")


def waiting(site: Site, words: str = "2m") -> Running:
    running = site.begin("--name", "new", *SOON, "--wait-for-capacity", words)
    running.until(event="phase_started", phase="capacity")
    return running


def refusal(running: Running) -> list[str]:
    """Codes of why it failed, the root cause first."""
    failed = next(line for line in running.lines if line.get("event") == "failed")
    return [fact["code"] for fact in failed["findings"]]


def restored(running: Running) -> list[str]:
    told = [line for line in running.lines if line.get("event") == "undone"]
    return [line["container"] for line in told if line["what"] == "restored"]


def queue_of(site: Site) -> Path:
    return queue_file(site.environment(), reached_by(load(site.inventory)))


def test_an_idle_deployment_makes_room_when_somebody_asks_for_it(
    site: Site, small: Site, host: TestHost
) -> None:
    before = old(site, "--keep-alive", "600")
    evicting(site, small, before)
    new(small, status=3)
    assert containers(host) == [before["container"]], "nobody is stopped who was not to be"
    words = small.command("deploy", str(small.model), "--name", "new", *EVICT)
    with Terminal(words, environment=small.environment()) as terminal:
        asked = terminal.until("Stop 1 deployment and start it? [y/N]", seconds=60)
        assert "stops old on gpu-a:0: idle, keep-alive 10 min" in asked
        terminal.press("Enter")
        terminal.until("nothing was started")
        assert terminal.exit_status() == 130
    assert containers(host) == [before["container"]]
    done = new(small, *EVICT)
    assert done.codes[0] == "GP885"
    told = next(line["finding"] for line in done.of("remark"))
    assert "old is stopped to make room for new: idle, keep-alive 10 min" in told["headline"]
    assert [line["phase"] for line in done.of("phase_started")].count("replace") >= 1
    assert done.last["state"] == "running"
    gone = [(line["container"], line["what"]) for line in done.of("undone")]
    assert gone == [(before["container"], "removed")]
    assert containers(host) == [done.last["members"][0]["container"]]
    again = new(small, *EVICT)
    assert "GP811" in again.codes
    assert "GP885" not in again.codes


def test_a_plan_to_stop_what_was_idle_does_not_stop_what_works(
    site: Site, small: Site, host: TestHost
) -> None:
    site.faults("gpu-a", {"all": {"token_seconds": 1}})
    before = old(site)
    saved = evicting(site, small, before)
    ask(host, site.status("old")[0]["endpoint"], 100)
    wait_for("the request", lambda: site.status("old")[0]["load"]["running"] == 1)
    refused = new(saved, status=6)
    assert "old was idle and is at work now (1 request in flight)" in refused.done.stderr
    assert containers(host) == [before["container"]]


def test_memory_that_does_not_come_back_brings_the_old_one_back(
    site: Site, small: Site, host: TestHost
) -> None:
    before = old(site)
    holds_memory(host, before["container"])
    running = evicting(site, small, before).begin("--name", "new", "--timeout", "20")
    running.until(event="phase_started", phase="undo")
    host.restore()
    assert running.end() == 5
    assert refusal(running)[:2] == ["GP889", "GP854"]
    assert restored(running) == [before["container"]]
    assert_runs(host, before)


def test_a_newcomer_on_the_gpu_brings_the_old_one_back(site: Site, small: Site, host: TestHost) -> None:
    before = old(site)
    running = evicting(site, small, before).begin("--name", "new", "--timeout", "20")
    while "to stop" not in running.until(event="phase_started", phase="replace")["awaits"]:
        pass
    host.take_gpu_memory(0, 60_000)
    running.until(event="phase_started", phase="undo")
    host.restore()
    assert running.end() == 5
    codes = refusal(running)
    assert codes[0] == "GP889"
    assert "GP805" in codes
    assert "/home/alice" in json.dumps(running.lines), "who took it is named"
    assert restored(running) == [before["container"]]
    assert_runs(host, before)


def test_one_that_does_not_stop_keeps_what_it_has(
    site: Site, small: Site, host: TestHost, options: FleetOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = old(site)
    stop = remote.stop

    def refuses(engine: Any, container: str, seconds: int) -> None:
        if container == before["id"]:
            raise RequestRefused(500, "tried to kill container, but did not receive an exit event")
        stop(engine, container, seconds)

    monkeypatch.setattr(remote, "stop", refuses)
    heard: list[object] = []
    request = DeployRequest(
        reference=str(evicting(site, small, before).model),
        fleet=options,
        serving=ServingOptions(),
        name="new",
    )
    how = DeployOptions(
        confirm=lambda prepared: [one.deployment for one in prepared.evicts] == ["old"],
        state_directory=site.directory / "kept",
        environ=site.environment(),
        document_of=event_document,
    )
    with pytest.raises(DeploymentFailed) as failed:
        deploy(request, how, heard.append)
    assert [fact.code for fact in failed.value.facts] == ["GP888"]
    assert "did not receive an exit event" in word(failed.value.facts[0]).headline
    assert containers(host) == [before["container"]]
    assert serves(site, "old", before["id"])


def test_a_new_one_that_fails_or_is_broken_off_brings_the_old_one_back(
    site: Site, small: Site, host: TestHost
) -> None:
    before = old(site)
    small.faults("gpu-a", {"all": {"exit_after": "weights", "say": ["ValueError: no such layer"]}})
    failed = new(evicting(site, small, before), status=5)
    assert any(
        (line["container"], line["what"]) == (before["container"], "restored") for line in failed.of("undone")
    )
    assert_runs(host, before)
    small.faults("gpu-a", {"all": {"hang_after": "weights"}})
    running = evicting(site, small, before).begin("--name", "new", *SOON)
    running.until(event="milestone")
    assert running.interrupt() == 130
    wait_for("the old one", lambda: serves(site, "old", before["id"]))
    assert containers(host) == [before["container"]]


def test_room_is_waited_for_and_taken_when_it_comes(site: Site, small: Site) -> None:
    old(site)
    running = waiting(small)
    assert running.until(event="remark")["finding"]["code"] == "GP890"
    assert [one.name for one in _waiting(small)] == ["new"]
    site.run("stop", "old", "--yes")
    assert running.end() == 0
    assert running.lines[-1]["state"] == "running"
    assert _waiting(small) == []


def test_waiting_ends_in_time_by_ctrl_c_and_in_a_full_queue(site: Site, small: Site, host: TestHost) -> None:
    before = old(site)
    over = new(small, "--wait-for-capacity", "3", status=3)
    assert "no room for new within 3.0 s" in over.done.stderr
    began = time.monotonic()
    never = new(small, "--wait-for-capacity", "1h", "--vram-claim", "200GiB", status=3)
    assert time.monotonic() - began < 60
    assert "would not fit with nothing else running" in never.done.stderr
    running = waiting(small)
    assert running.interrupt() == 130
    assert _waiting(small) == []
    with opened(queue_of(small)) as waiters:
        for number in range(MOST_WAITING):
            one = Waiter(
                id=str(number),
                pid=os.getpid(),
                process=identity_of(os.getpid()) or "",
                name=f"model-{number}",
                since=time.time(),
            )
            waiters[one.id] = one
    busy = new(small, "--wait-for-capacity", "1m", status=3)
    assert "busy: nothing fits now, and 8 deploys wait" in busy.done.stderr
    assert "model-7" in busy.done.stderr
    assert containers(host) == [before["container"]]


def _waiting(site: Site) -> list[Waiter]:
    with opened(queue_of(site)) as waiters:
        return list(waiters.values())
