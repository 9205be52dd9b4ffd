"""Restarts on real hosts: the same containers, ended and started in order; and looks over connections that are kept."""

import json
from pathlib import Path

import pytest

from gpuplan.domain.deployment import State
from gpuplan.domain.events import Event, MemberSeen, PhaseStarted
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.restart import NotRestarted, RestartChoice, restart
from gpuplan.operations.status_watch import StatusWatch
from tests.hosts.deploying import OURS, Site, fleet_options, lay_site
from tests.hosts.fleet import Fleet, TestHost
from tests.terminal import Terminal
from tests.thorough import thorough

THREE = ("--gpus", "gpu-a:0", "--gpus", "gpu-b:0", "--gpus", "gpu-c:0")
OVER_THREE = ("--tensor-parallel-size", "1", "--pipeline-parallel-size", "3")
CHOICE = RestartChoice(drain=5, ready=120, register=60, poll=0.5)


@pytest.fixture
def site(deploy_fleet: Fleet, tmp_path: Path) -> Site:
    return lay_site(deploy_fleet, tmp_path)


@pytest.fixture
def options(site: Site, tmp_path: Path) -> FleetOptions:
    return fleet_options(site, tmp_path)


def started(host: TestHost) -> dict[str, str]:
    """Our containers by id, and when each was started."""
    ids = host.text("docker", "ps", "-q", "--no-trunc", "--filter", OURS).split()
    documents = json.loads(host.text("docker", "inspect", *ids)) if ids else []
    return {document["Id"]: document["State"]["StartedAt"] for document in documents}


@pytest.mark.parametrize("executor", ["ray", pytest.param("mp", marks=thorough)])
def test_the_same_containers_serve_again(site: Site, options: FleetOptions, executor: str) -> None:
    name = site.deploy(*THREE, "--executor", executor, engine=OVER_THREE).last["name"]
    before = [started(host) for host in site.fleet]
    looks = StatusWatch(options)
    try:
        assert looks.look().deployments[0].deployment.state is State.RUNNING
        events: list[Event] = []
        deployment = restart(options, name, CHOICE, events.append)
        assert deployment is not None
        assert deployment.state is State.RUNNING
        after = [started(host) for host in site.fleet]
        for old, new in zip(before, after, strict=True):
            assert old.keys() == new.keys()
            assert all(new[one] > old[one] for one in old)
        phases = list(dict.fromkeys(event.phase.value for event in events if isinstance(event, PhaseStarted)))
        assert phases == ["stop", "start", *(["register"] if executor == "ray" else []), "load"]
        members = [event.member for event in events if isinstance(event, MemberSeen)]
        ran = {one.id: one.role.value for one in members if one.state == "running"}
        wanted = (
            ["ray-head", "follower", "follower", "leader"]
            if executor == "ray"
            else ["leader", "follower", "follower"]
        )
        assert list(ran.values()) == wanted

        assert looks.look().deployments[0].deployment.state is State.RUNNING
        site.fleet["gpu-c"].kill_sshd()
        report = looks.look()
        assert [host.name for host in report.silent] == ["gpu-c"]
        with pytest.raises(NotRestarted):
            restart(options, name, CHOICE, events.append)
        assert [started(host) for host in list(site.fleet)[:2]] == after[:2], "nothing was touched"
    finally:
        looks.close()


def test_the_command_asks_restarts_and_says_why_it_did_not_come_back(site: Site) -> None:
    host = site.fleet["gpu-a"]
    deployed = site.deploy("--gpus", "gpu-a:0", "--name", "tiny").last
    before = started(host)

    refused = site.run("restart", "tiny", status=2)
    assert "add --yes" in refused.stderr
    unknown = site.run("restart", "tin", "--yes", status=2)
    assert "did you mean" in unknown.stderr
    with Terminal(site.command("restart", "tiny"), environment=site.environment()) as terminal:
        asked = terminal.until("start them again? [y/N]", seconds=60)
        assert "Restart tiny  running" in asked
        assert "gpu-a: gpuplan-tiny" in asked
        terminal.press("n", "Enter")
        assert "nothing was restarted" in terminal.until("the program has ended")
        assert terminal.exit_status() == 130
    assert started(host) == before

    done = site.run("restart", "tiny", "--yes", "--drain", "0")
    assert done.stdout == f"tiny serves again at {deployed['endpoint']}\n"
    assert "Restart tiny  running" in done.stderr
    again = started(host)
    assert again.keys() == before.keys()
    assert all(again[one] > before[one] for one in before)

    site.faults("gpu-a", {"all": {"exit_after": "weights", "say": ["ValueError: no such layer"]}})
    failed = site.run("restart", "tiny", "--yes", "-o", "json", status=5)
    document = json.loads(failed.stdout)
    assert document["state"] == "error"
    assert "no such layer" in document["message"]
    assert "error: tiny was not restarted: " in failed.stderr
    assert "tiny did not come back" in failed.stderr
    assert "gpuplan logs tiny" in failed.stderr

    site.faults("gpu-a", {})
    with Terminal(site.command("restart", "tiny"), environment=site.environment()) as terminal:
        terminal.until("start them again? [y/N]", seconds=60)
        terminal.press("y", "Enter")
        terminal.until(f"tiny serves again at {deployed['endpoint']}", seconds=90)
        assert terminal.exit_status() == 0
