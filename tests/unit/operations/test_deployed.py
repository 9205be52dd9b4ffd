"""Containers of ours put together again from their labels: which deploy made them, and which one is good."""

import json
from collections.abc import Sequence

import pytest

from gpuplan.deploying.observed import Container, container_of
from gpuplan.domain import labels
from gpuplan.domain.plan import Parallelism, Role
from gpuplan.operations.deployed import Existing, Generation, placement_of

HOSTS = ("a", "b")


def container(
    host: str, rank: int, *, state: str = "running", health: str | None = "healthy", **more: str
) -> Container:
    members = [{"host": name, "rank": number, "role": _role(number)} for number, name in enumerate(HOSTS)]
    name = more.pop("name", f"gpuplan-m-s0n{rank}")
    given = {
        labels.DEPLOYMENT: "m",
        labels.ROLE: _role(rank),
        labels.RANK: str(rank),
        labels.MEMBERS: json.dumps(members),
        **more,
    }
    document = {
        "Id": f"{host}{rank}",
        "Name": f"/{name}",
        "State": {"Status": state, "Health": {"Status": health} if health else None},
        "Config": {"Labels": given},
    }
    return container_of(host, document)


def _role(rank: int) -> str:
    return "follower" if rank else "leader"


def generation(*containers: Container) -> Generation:
    return Generation(id="g", spec_hash="h", containers=containers)


@pytest.mark.parametrize(
    ("containers", "complete", "running", "serving"),
    [
        ((container("a", 0), container("b", 1)), True, True, True),
        ((container("a", 0), container("b", 1, health="starting")), True, True, False),
        ((container("a", 0), container("b", 1, health=None)), True, True, True),
        ((container("a", 0), container("b", 1, state="exited")), True, False, False),
        ((container("a", 0),), False, False, False),
    ],
)
def test_a_generation_is_judged_as_a_whole(
    containers: Sequence[Container], complete: bool, running: bool, serving: bool
) -> None:
    made = generation(*containers)
    assert (made.complete, made.running, made.serving) == (complete, running, serving)


def test_one_that_was_set_aside_is_known_by_its_names() -> None:
    renamed = [
        container(host, rank, state="exited", name=f"gpuplan-m-s0n{rank}-old-1234")
        for rank, host in enumerate(HOSTS)
    ]
    assert generation(*renamed).aside
    assert not generation(renamed[0], container("b", 1)).aside


def test_the_labels_that_count_are_those_of_the_server() -> None:
    server = container("a", 0, **{labels.ENDPOINT: "http://a:1"})
    found = Existing(generations=(generation(container("b", 1), server),))
    assert found.label[labels.ENDPOINT] == "http://a:1"
    assert Existing().label == {}


def test_a_placement_is_read_back_from_the_request_label() -> None:
    asked = {
        "parallelism": {"tensor": 1, "pipeline": 3, "layer_partition": [2, 1, 1]},
        "placed": [
            {"host": "a", "role": "leader", "gpus": [[0, "GPU-1"], [1, None]]},
            {"host": "b", "role": "follower", "gpus": [[4, "GPU-2"]]},
        ],
    }
    found = Existing(generations=(generation(container("a", 0, **{labels.REQUEST: json.dumps(asked)})),))
    placed = placement_of(found)
    assert placed is not None
    placement, parallelism = placed
    assert parallelism == Parallelism(tensor=1, pipeline=3, layer_partition=(2, 1, 1))
    assert [(host.host, host.role) for host in placement] == [("a", Role.LEADER), ("b", Role.FOLLOWER)]
    assert [(gpu.index, gpu.uuid) for gpu in placement[0].gpus] == [(0, "GPU-1"), (1, None)]


@pytest.mark.parametrize(
    "label", ["", "[]", "{", '{"parallelism": 3}', '{"parallelism": {}, "placed": [{}]}']
)
def test_a_label_that_makes_no_sense_is_no_placement(label: str) -> None:
    found = Existing(generations=(generation(container("a", 0, **{labels.REQUEST: label})),))
    assert placement_of(found) is None


def test_a_container_is_read_from_what_docker_shows() -> None:
    document = {
        "Id": "abc",
        "Name": "/gpuplan-m-s0n0",
        "Image": "sha256:1",
        "State": {"Status": "exited", "ExitCode": 3, "Health": {"Status": "unhealthy"}},
        "Config": {"Labels": {labels.PORTS: '{"http": 40000, "ray": [41000, 41099]}'}},
    }
    found = container_of("a", document)
    assert (found.name, found.state, found.member.exit_code, found.health) == (
        "gpuplan-m-s0n0",
        "exited",
        3,
        "unhealthy",
    )
    assert found.labels == {labels.PORTS: '{"http": 40000, "ray": [41000, 41099]}'}
    assert container_of("a", {}).labels == {}


@pytest.mark.parametrize(
    ("containers", "began", "meant_to_run"),
    [
        ((container("a", 0), container("b", 1)), True, True),
        ((container("a", 0, state="created"), container("b", 1)), False, True),
        ((container("a", 0, state="exited"), container("b", 1, state="exited")), True, False),
        (
            (
                container("a", 0, state="exited", name="gpuplan-m-s0n0-old-1"),
                container("b", 1, state="exited"),
            ),
            True,
            True,
        ),
    ],
)
def test_what_is_worth_going_back_to(
    containers: Sequence[Container], began: bool, meant_to_run: bool
) -> None:
    made = generation(*containers)
    assert (made.began, made.meant_to_run) == (began, meant_to_run)
