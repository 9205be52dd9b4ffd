"""`gpuplan sweep` on real hosts: what idled is stopped, and nothing that works, is meant to stay or cannot be asked."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpuplan.cli.schema import schema_of
from gpuplan.domain.idle import Outcome, Why
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.stop import StopChoice
from gpuplan.operations.sweep import Due, SweepChoice, sweep
from tests.hosts.deploying import Site, containers, fleet_options, lay_site
from tests.hosts.fleet import Fleet, TestHost
from tests.hosts.images import VLLM
from tests.hosts.test_lifecycle import holding
from tests.hosts.waiting import wait_for
from tests.terminal import Terminal

Answers = dict[str, tuple[str, str]]
"""Outcome and reason by deployment."""

ASKING = """
import json, sys, urllib.request
body = json.dumps({"model": sys.argv[2], "prompt": "Hi", "max_tokens": int(sys.argv[3])}).encode()
asked = urllib.request.Request(sys.argv[1] + "/v1/completions", body, {"Content-Type": "application/json"})
urllib.request.urlopen(asked, timeout=100).read()
open(sys.argv[4], "w").write("answered")
"""
_NUMBERS = count(1)


@pytest.fixture
def site(deploy_fleet: Fleet, tmp_path: Path) -> Site:
    return lay_site(deploy_fleet, tmp_path)


@pytest.fixture
def options(site: Site, tmp_path: Path) -> FleetOptions:
    return fleet_options(site, tmp_path)


def deployed(site: Site, gpu: str, name: str, keep_alive: int | None = None) -> dict[str, Any]:
    keep = () if keep_alive is None else ("--keep-alive", str(keep_alive))
    return site.deploy("--gpus", gpu, "--name", name, *keep).last


def document(site: Site, *words: str, status: int = 0, state: str | None = None) -> dict[str, Any]:
    more = {"XDG_STATE_HOME": state} if state is not None else {}
    done = site.run("sweep", "--yes", "-o", "json", *words, engine=(), status=status, **more)
    found: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(found, schema_of("sweep"))
    return found


def swept(site: Site, *words: str, state: str | None = None) -> Answers:
    listed = document(site, *words, state=state)["deployments"]
    return {one["name"]: (one["outcome"], one["why"]) for one in listed}


def ask(host: TestHost, endpoint: str, words: int = 1) -> Callable[[], bool]:
    """A request of so many words, begun on the host itself; whether it has been answered."""
    answer = f"/srv/logs/answered-{next(_NUMBERS)}"
    host.later(lambda: host.run("rm", "-f", answer))
    host.start(sys.executable, "-c", ASKING, endpoint, "tiny", str(words), answer)
    return lambda: host.run("test", "-e", answer, check=False).returncode == 0


def answered(host: TestHost, endpoint: str) -> None:
    wait_for("the answer", ask(host, endpoint))


def test_what_idled_past_its_keep_alive_is_stopped_and_nothing_else(site: Site) -> None:
    a, b = site.fleet["gpu-a"], site.fleet["gpu-b"]
    foreign = a.text("docker", "run", "-d", "--entrypoint", "sleep", VLLM.tag, "1000")
    deployed(site, "gpu-a:0", "idle", 4)
    deployed(site, "gpu-a:1", "pinned", -1)
    deployed(site, "gpu-b:0", "plain")
    first = swept(site)
    assert first == {
        "idle": ("kept", "first_seen"),
        "pinned": ("kept", "never"),
        "plain": ("kept", "no_keep_alive"),
    }
    quiet = site.run("sweep", "--yes", "--quiet", "--idle-for", "1d")
    assert (quiet.stdout, quiet.stderr) == ("", "")
    wait_for("its end", lambda: swept(site, "--dry-run")["idle"] == ("would_be_stopped", "idle"))
    assert len(site.all_ours()) == 3, "a dry run stops nothing"
    elsewhere = str(site.directory / "elsewhere")
    assert swept(site, state=elsewhere)["idle"] == ("kept", "first_seen"), "seen by another machine"
    assert "add --yes" in site.run("sweep", status=2).stderr
    text = site.run("sweep", "--dry-run").stdout
    assert "would be stopped" in text
    assert "1 would be stopped" in text.splitlines()[-1]
    done = site.run("sweep", "--yes", "--quiet")
    assert done.stderr == ""
    assert done.stdout.splitlines()[0].split() == ["idle", "stopped"]
    assert "pinned" not in done.stdout
    assert {name for name in site.all_ours() if "idle" in name} == set()
    assert len(containers(a)) == len(containers(b)) == 1
    assert a.text("docker", "inspect", "-f", "{{.State.Running}}", foreign) == "true"
    remembered = json.loads((site.directory / "state" / "gpuplan" / "sweep.json").read_text())
    assert remembered["deployments"] == [], "it is forgotten with its end"
    assert swept(site, "--idle-for", "0") == {name: first[name] for name in ("pinned", "plain")}


def test_requests_hold_it_and_start_its_clock_anew(site: Site) -> None:
    host = site.fleet["gpu-a"]
    site.faults("gpu-a", {"all": {"token_seconds": 1}})
    endpoint = str(deployed(site, "gpu-a:0", "busy", 3600)["endpoint"])
    assert swept(site)["busy"] == ("kept", "first_seen")
    over = ask(host, endpoint, 12)
    wait_for("the request", lambda: site.status("busy")[0]["load"]["running"] == 1)
    assert swept(site, "--idle-for", "0")["busy"] == ("kept", "in_flight")
    wait_for("its answer", over)
    assert swept(site, "--idle-for", "5")["busy"] == ("kept", "first_seen")
    assert swept(site, "--idle-for", "1h")["busy"] == ("kept", "not_yet")
    answered(host, endpoint)
    (one,) = document(site, "--idle-for", "5")["deployments"]
    assert (one["why"], one["idle_seconds"]) == ("first_seen", 0), "a request came and went unseen"
    wait_for("its end", lambda: swept(site, "--dry-run", "--idle-for", "3")["busy"][1] == "idle")
    host.run("docker", "restart", *containers(host))
    wait_for("the server", lambda: site.status("busy")[0]["state"] == "running")
    assert swept(site, "--idle-for", "3")["busy"] == ("kept", "first_seen"), "it was started again"
    assert len(site.all_ours()) == 1


def test_what_cannot_be_asked_is_left_alone(site: Site) -> None:
    over_three = ("--tensor-parallel-size", "1", "--pipeline-parallel-size", "3")
    gpus = [word for host in site.fleet for word in ("--gpus", f"{host.name}:0")]
    site.deploy(*gpus, "--name", "wide", "--keep-alive", "0", engine=over_three)
    ours = site.ours()
    assert swept(site, "--host", "gpu-a")["wide"] == ("unknown", "silent"), "its other hosts were not asked"
    last = site.fleet["gpu-c"]
    last.kill_sshd()
    found = document(site)
    assert [(one["outcome"], one["why"]) for one in found["deployments"]] == [("unknown", "silent")]
    assert [one["name"] for one in found["silent_hosts"]] == ["gpu-c"]
    assert site.run("sweep", "--yes", "--quiet").stdout == ""
    refused = site.run("sweep", "--yes", "--host", "gpu-c", status=4)
    assert "no host answers" in refused.stderr
    last.restore()
    leader = site.fleet["gpu-a"]
    leader.run("docker", "pause", *containers(leader))
    assert swept(site)["wide"][0] == "unknown"
    leader.run("docker", "unpause", *containers(leader))
    with holding(site.inventory, "gpu-b"):
        found = document(site)["deployments"][0]
        assert (found["outcome"], found["why"]) == ("kept", "locked")
        assert "gpu-b is locked" in found["reason"]
    assert site.ours() == ours
    assert swept(site, "--wait", "60")["wide"] == ("stopped", "idle")
    assert site.all_ours() == []


def test_it_is_looked_at_again_under_the_lock(site: Site, options: FleetOptions) -> None:
    host = site.fleet["gpu-a"]
    endpoint = str(deployed(site, "gpu-a:0", "one", 2)["endpoint"])
    choice = SweepChoice(stop=StopChoice(drain_seconds=5))
    dry = replace(choice, dry_run=True)

    def due() -> bool:
        (one,) = sweep(options, dry, no, silent).deployments
        return one.judgement.outcome is Outcome.WOULD_BE_STOPPED

    wait_for("its end", due)
    refused = sweep(options, choice, no, silent)
    assert not refused.asked
    assert refused.deployments[0].judgement.why is Why.NOT_CONFIRMED

    def a_request_comes(found: Sequence[Due]) -> bool:
        assert [one.judgement.name for one in found] == ["one"]
        answered(host, endpoint)
        return True

    (one,) = sweep(options, choice, a_request_comes, silent).deployments
    assert (one.judgement.outcome, one.judgement.why) == (Outcome.KEPT, Why.FIRST_SEEN)
    assert len(containers(host)) == 1
    wait_for("its end", due)

    def somebody_else_stops_it(_found: Sequence[Due]) -> bool:
        host.run("docker", "rm", "-f", *containers(host))
        return True

    report = sweep(options, choice, somebody_else_stops_it, silent)
    assert report.deployments[0].judgement.why is Why.CHANGED
    assert report.complete


def test_a_person_is_asked_and_no_is_the_default(site: Site) -> None:
    deployed(site, "gpu-a:0", "idle", 0)
    deployed(site, "gpu-b:0", "plain")
    with Terminal(site.command("sweep"), environment=site.environment()) as terminal:
        asked = terminal.until("Stop 1 deployment and remove these containers? [y/N]", seconds=60)
        assert "gpu-a: gpuplan-idle" in asked
        assert "idle for at least 0 s, its keep-alive is 0 s" in asked
        assert "gpuplan-plain" not in asked
        terminal.press("Enter")
        assert "the answer was no" in terminal.until("the program has ended")
        assert terminal.exit_status() == 130
    assert len(site.all_ours()) == 2
    with Terminal(site.command("sweep"), environment=site.environment()) as terminal:
        terminal.until("[y/N]", seconds=60)
        terminal.press("y", "Enter")
        terminal.until("1 kept, 1 stopped")
        assert terminal.exit_status() == 0
    assert [len(names) for names in site.ours().values()] == [0, 1, 0]


def test_one_that_is_not_stopped_does_not_keep_the_next(site: Site, options: FleetOptions) -> None:
    deployed(site, "gpu-a:0", "first", 0)
    deployed(site, "gpu-b:0", "second", 0)

    def the_first_host_falls_silent(found: Sequence[Due]) -> bool:
        assert [one.judgement.name for one in found] == ["first", "second"]
        site.fleet["gpu-a"].kill_sshd()
        return True

    choice = SweepChoice(stop=StopChoice(drain_seconds=0))
    report = sweep(options, choice, the_first_host_falls_silent, silent)
    assert [one.judgement.outcome for one in report.deployments] == [Outcome.LEFT, Outcome.STOPPED]
    assert not report.complete
    site.fleet["gpu-a"].restore()
    assert [len(names) for names in site.ours().values()] == [1, 0, 0]


def no(_due: Sequence[Due]) -> bool:
    return False


def silent(_event: object) -> None:
    pass
