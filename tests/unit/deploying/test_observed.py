"""Deployments out of labels and states: members that are missed, generations, hosts that are silent, and the state."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gpuplan.deploying.observed import Container, Group, claims, container_of, grouped, prediction
from gpuplan.deploying.state_rules import Health, deployment_of, judged
from gpuplan.domain import labels
from gpuplan.domain.deployment import ContainerRole, Load, Prediction, State

MEMBERS = [
    {"host": "a", "container": "gpuplan-x-n0", "role": "leader", "rank": 0, "server": 0},
    {"host": "b", "container": "gpuplan-x-n1", "role": "follower", "rank": 1, "server": 0},
]
URL = "http://10.0.0.1:40000"


def container(host: str, role: str = "leader", rank: int = 0, **more: Any) -> Container:
    given = {
        labels.MANAGED: "true",
        labels.DEPLOYMENT: more.get("name", "x"),
        labels.ROLE: role,
        labels.RANK: str(rank),
        labels.GENERATION: more.get("generation", "g1"),
        labels.MEMBERS: json.dumps(more.get("members", MEMBERS)),
        labels.SERVED_NAME: "x",
        labels.GPUS: '["GPU-1"]',
        **({labels.ENDPOINT: URL} if role != "follower" else {}),
        **more.get("given", {}),
    }
    state: dict[str, Any] = {
        "Status": more.get("status", "running"),
        "ExitCode": more.get("exit_code", 0),
        "OOMKilled": more.get("oom", False),
        "Error": more.get("error", ""),
        "StartedAt": "2026-11-22T01:00:00.5Z",
        "FinishedAt": "0001-01-01T00:00:00Z",
    }
    if "health" in more:
        state["Health"] = {"Status": more["health"]}
    return container_of(
        host,
        {
            "Id": f"{host}{role}{rank}{more.get('generation', '')}",
            "Name": f"/gpuplan-x-n{rank}",
            "Created": more.get("created", "2026-11-22T00:59:00Z"),
            "State": state,
            "Config": {"Labels": given, "StopTimeout": 45},
        },
    )


def pair(leader: Mapping[str, Any] = {}, follower: Mapping[str, Any] = {}) -> Group:
    found = [container("a", **leader), container("b", "follower", 1, **follower)]
    return grouped(found, {"a", "b"})[0]


def test_a_container_is_read_from_its_inspection() -> None:
    one = container("a", health="healthy")
    assert one.member.container == "gpuplan-x-n0"
    assert one.member.role is ContainerRole.LEADER
    assert one.member.gpus == ("GPU-1",)
    assert one.member.health == "healthy"
    assert one.member.started_at == "2026-11-22T01:00:00.5Z"
    assert one.member.finished_at is None
    assert one.member.exit_code is None, "it runs"
    assert one.stop_seconds == 45


@pytest.mark.parametrize(
    "document", [{}, {"State": None, "Config": None}, {"State": 3, "Config": {"Labels": 4}}]
)
def test_nonsense_is_a_container_without_facts(document: Mapping[str, Any]) -> None:
    one = container_of("a", document)
    assert (one.member.host, one.deployment, one.member.rank) == ("a", "", 0)
    assert grouped([one], {"a"})[0].members == (one.member,)


def test_labels_that_make_no_sense_are_as_if_they_were_not_there() -> None:
    one = container("a", members=3, given={labels.GPUS: "{", labels.CLAIMS: "[1]", labels.PREDICTED: '"x"'})
    assert one.member.gpus == ()
    assert claims(one) == {}
    assert prediction("[[[") == Prediction()
    assert prediction('{"weights_bytes": 5, "kv_cache_bytes": "x", "odd": 1}') == Prediction(weights_bytes=5)
    assert grouped([one], {"a"})[0].members == (one.member,)


@pytest.mark.parametrize(
    ("url", "address", "port"),
    [
        (URL, "10.0.0.1", 40000),
        ("http://[fd00::1]:8000", "fd00::1", 8000),
        ("http://h1.lan:1/", "h1.lan", 1),
    ],
)
def test_an_endpoint_is_read(url: str, address: str, port: int) -> None:
    group = grouped([container("a", given={labels.ENDPOINT: url})], {"a"})[0]
    assert [(one.host, one.address, one.port) for one in group.endpoints] == [("a", address, port)]


@pytest.mark.parametrize(
    "url", ["", "10.0.0.1:40000", "https://x:1", "http://x", "http://x:y", "http://a b:1"]
)
def test_what_is_no_endpoint_is_none(url: str) -> None:
    assert grouped([container("a", given={labels.ENDPOINT: url})], {"a"})[0].endpoints == ()


def test_a_member_that_is_not_found_is_missing_or_unknown() -> None:
    found = [container("a")]
    missed = grouped(found, {"a", "b"})[0].members[1]
    assert (missed.host, missed.role, missed.rank, missed.state) == (
        "b",
        ContainerRole.FOLLOWER,
        1,
        "missing",
    )
    assert grouped(found, {"a"})[0].members[1].state == "unknown"


def test_the_newest_generation_that_runs_counts() -> None:
    old = container("a", generation="g1", created="2026-11-22T00:00:00Z")
    new = container("a", generation="g2", created="2026-11-22T01:00:00Z", status="created")
    group = grouped([old, new], {"a", "b"})[0]
    assert (group.current, group.leftover) == ((old,), (new,))
    new = container("a", generation="g2", created="2026-11-22T01:00:00Z")
    group = grouped([old, new], {"a", "b"})[0]
    assert (group.current, group.leftover) == ((new,), (old,))


def test_helpers_are_never_members() -> None:
    helper = container("a", "helper", members=[])
    group = grouped([container("a"), helper], {"a", "b"})[0]
    assert group.leftover == (helper,)
    alone = grouped([helper], {"a"})[0]
    assert (alone.members, alone.leftover) == ((), (helper,))


def test_deployments_are_apart_and_in_order() -> None:
    groups = grouped([container("a", name="y"), container("a", name="b")], {"a"})
    assert [group.name for group in groups] == ["b", "y"]


OK = {0: Health(status=200, models=("x",))}


@pytest.mark.parametrize(
    ("leader", "follower", "health", "state"),
    [
        ({"status": "created"}, {"status": "created"}, {}, State.PREPARING),
        ({"status": "running"}, {"status": "created"}, {}, State.STARTING),
        ({}, {}, {}, State.STARTING),
        ({"health": "starting"}, {}, {0: Health(why="refused")}, State.STARTING),
        ({"health": "starting"}, {}, OK, State.RUNNING),
        ({"health": "healthy"}, {}, {}, State.RUNNING),
        ({}, {}, OK, State.RUNNING),
        ({}, {}, {0: Health(status=200)}, State.RUNNING),
        ({"health": "unhealthy"}, {}, OK, State.RUNNING),
        ({"health": "unhealthy"}, {}, {0: Health(why="refused")}, State.UNHEALTHY),
        ({"health": "healthy"}, {}, {0: Health(status=503)}, State.UNHEALTHY),
        ({"health": "healthy"}, {}, {0: Health(why="timed out")}, State.UNHEALTHY),
        ({}, {}, {0: Health(status=200, models=("other",))}, State.UNHEALTHY),
        ({}, {"health": "unhealthy"}, OK, State.UNHEALTHY),
        ({"status": "paused"}, {}, {}, State.UNHEALTHY),
        ({"status": "exited"}, {"status": "exited", "exit_code": 143}, {}, State.STOPPED),
        ({"status": "removing"}, {"status": "exited"}, {}, State.STOPPED),
        ({"status": "removing"}, {}, {}, State.ERROR),
        ({"status": "exited", "exit_code": 1}, {}, {}, State.ERROR),
        ({"status": "exited", "exit_code": 137, "oom": True}, {}, {}, State.ERROR),
        ({"status": "exited"}, {}, {}, State.ERROR),
        ({"status": "created", "exit_code": 128, "error": "no such GPU"}, {"status": "created"}, {}, State.ERROR),
        ({"status": "dead"}, {}, {}, State.ERROR),
        ({"status": "restarting"}, {}, {}, State.STARTING),
    ],
)  # fmt: skip
def test_the_state(
    leader: dict[str, Any], follower: dict[str, Any], health: dict[int, Health], state: State
) -> None:
    told, why = judged(pair(leader, follower), health)
    assert told is state
    assert (why is not None) == (state in {State.ERROR, State.UNHEALTHY})


def test_why_it_is_not_running_names_member_and_reason() -> None:
    assert (
        judged(pair({}, {"status": "exited", "exit_code": 2}))[1] == "follower 1 on b ended with exit code 2"
    )
    assert "out of memory" in str(judged(pair({"status": "exited", "oom": True, "exit_code": 137}))[1])
    group = grouped([container("a")], {"a"})[0]
    assert judged(group, OK, {"b": "no route to the host"}) == (
        State.UNHEALTHY,
        "b does not answer (no route to the host): what runs there is not known",
    )
    assert "b was not asked" in str(judged(group, OK)[1])
    assert judged(grouped([container("a")], {"a", "b"})[0]) == (
        State.ERROR,
        "follower 1 on b is missing, the others run",
    )


def test_a_deploy_cut_off_while_it_creates_is_still_preparing() -> None:
    group = grouped([container("a", status="created")], {"a", "b"})[0]
    assert judged(group)[0] is State.PREPARING


def test_a_deployment_is_told() -> None:
    group = pair({"given": {labels.KEEP_ALIVE: "600", labels.PREDICTED: '{"weights_bytes": 7}'}})
    loads = [
        Load(running=1, waiting=0, kv_cache_share=0.25, requests=4),
        Load(running=2, waiting=None, kv_cache_share=0.5, requests=None),
    ]
    told = deployment_of(group, health=OK, loads=loads, uptime_seconds=9)
    assert (told.name, told.state, told.endpoint, told.endpoints) == ("x", State.RUNNING, URL, (URL,))
    assert told.keep_alive_seconds == 600
    assert told.predicted.weights_bytes == 7
    assert told.load == Load(running=3, waiting=0, kv_cache_share=0.5, requests=4)
    assert told.uptime_seconds == 9
