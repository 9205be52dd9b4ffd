"""Deploying for real: containers on real engines over real SSH, with an engine that speaks as vLLM does."""

import json
from pathlib import Path

import pytest

from tests.hosts.deploying import Site, lay_site
from tests.hosts.fleet import Fleet

THREE = ("--gpus", "gpu-a:0", "--gpus", "gpu-b:0", "--gpus", "gpu-c:0")
OVER_THREE = ("--tensor-parallel-size", "1", "--pipeline-parallel-size", "3")


@pytest.fixture
def site(deploy_fleet: Fleet, tmp_path: Path) -> Site:
    return lay_site(deploy_fleet, tmp_path)


def test_one_host_serves_and_a_second_deploy_changes_nothing(site: Site) -> None:
    first = site.deploy()
    assert first.last["state"] == "running"
    member = first.last["members"][0]
    assert (member["role"], member["state"]) == ("single", "running")
    host = site.fleet[member["host"]]
    asked = json.dumps({"model": "tiny", "prompt": "Hello", "max_tokens": 1})
    url = f"{first.last['endpoint']}/v1/completions"
    answered = host.text("curl", "-sS", "-H", "Content-Type: application/json", "-d", asked, url)
    assert json.loads(answered)["choices"], "the address that was printed answers"
    assert first.last["predicted"]["weights_bytes"] > 0
    assert first.last["actual"]["kv_cache_tokens"] > 0
    assert "GP880" in first.codes, "what it printed was learned"

    again = site.deploy()
    assert "GP811" in again.codes
    assert "phase_started" in again.events
    assert not [line for line in again.of("phase_started") if line["phase"] in {"create", "start"}]
    assert [one["id"] for one in again.last["members"]] == [member["id"]]


def test_a_changed_spec_replaces_and_a_failed_one_goes_back(site: Site) -> None:
    before = site.deploy().last["members"][0]
    changed = site.deploy(engine=("--max-num-seqs", "17")).last["members"][0]
    assert changed["id"] != before["id"]
    assert (changed["host"], changed["gpu_indexes"]) == (before["host"], before["gpu_indexes"])
    assert site.all_ours() == [changed["container"]], "what was replaced is gone"

    site.faults(before["host"], {"all": {"exit_after": "weights", "say": ["ValueError: no such layer"]}})
    failed = site.deploy(engine=("--max-num-seqs", "18"), status=5)
    assert failed.last["state"] == "error"
    assert any(line["what"] == "restored" for line in failed.of("undone"))
    assert Path(failed.of("failed")[0]["logs"][0]).read_text().count("ValueError: no such layer") == 1
    site.faults(before["host"], {})
    assert site.all_ours() == [changed["container"]], "what ran before is there again"
    assert site.status()[0]["members"][0]["id"] == changed["id"]


def test_three_hosts_by_vllms_own_multi_node(site: Site) -> None:
    done = site.deploy(*THREE, engine=OVER_THREE)
    assert done.last["state"] == "running"
    assert {(one["host"], one["role"], one["rank"]) for one in done.last["members"]} == {
        ("gpu-a", "leader", 0),
        ("gpu-b", "follower", 1),
        ("gpu-c", "follower", 2),
    }
    told = site.status("tiny")[0]
    assert (told["state"], len(told["members"])) == ("running", 3)
    site.run("stop", "tiny", "--yes")
    assert site.all_ours() == []


def test_three_hosts_by_ray(site: Site) -> None:
    done = site.deploy(*THREE, "--executor", "ray", engine=OVER_THREE)
    assert done.last["state"] == "running"
    roles = sorted(one["role"] for one in done.last["members"])
    assert roles == ["follower", "follower", "leader", "ray-head"]
    phases = [line["phase"] for line in done.of("phase_started")]
    assert phases.index("register") < phases.index("load")


def test_replicas_are_servers_of_their_own(site: Site) -> None:
    done = site.deploy("--replicas", "3")
    assert len(set(done.last["endpoints"])) == 3
    assert len({one["host"] for one in done.last["members"]}) == 3
