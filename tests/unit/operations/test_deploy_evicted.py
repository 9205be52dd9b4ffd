"""S4.6: what is stopped to make room is what somebody agreed to, as it was shown, or nothing is."""

import json
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from gpuplan.deploying.observed import Container, container_of
from gpuplan.domain import labels
from gpuplan.domain.deployment import Load
from gpuplan.domain.plan import Eviction
from gpuplan.errors import ExitCode
from gpuplan.operations import deploy_evicted
from gpuplan.operations.deploy_evicted import as_agreed, gone, to_evict, told
from gpuplan.operations.probe import OpenFleet
from gpuplan.operations.stopped import FleetChanged
from gpuplan.present.findings import word

IDLE = Eviction(deployment="old", gpus=(("h1", 0, 2**30),), running_requests=0, keep_alive_seconds=600)
MEMBERS = [{"host": "h1", "container": "gpuplan-old-n0", "role": "single", "rank": 0, "server": 0}]


def container(identity: str = "c1", *, status: str = "running", keep_alive: str | None = "600") -> Container:
    given = {
        labels.DEPLOYMENT: "old",
        labels.ROLE: "single",
        labels.MEMBERS: json.dumps(MEMBERS),
        labels.ENDPOINT: "http://10.0.0.1:40000",
    }
    if keep_alive is not None:
        given[labels.KEEP_ALIVE] = keep_alive
    return container_of(
        "h1",
        {"Id": identity, "Name": "/gpuplan-old-n0", "State": {"Status": status}, "Config": {"Labels": given}},
    )


@dataclass
class World:
    """Hosts with containers, and servers that tell of their requests."""

    containers: list[Container] = field(default_factory=lambda: [container()])
    loads: list[Load] = field(default_factory=lambda: [Load(running=0, waiting=0)])
    connections: dict[str, object] = field(default_factory=lambda: {"h1": object()})

    @property
    def opened(self) -> OpenFleet:
        return cast("OpenFleet", self)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()

    def listed(_opened: Any, host: str, name: str) -> tuple[Container, ...]:
        return tuple(one for one in made.containers if (one.host, one.deployment) == (host, name))

    monkeypatch.setattr(deploy_evicted, "list_containers", listed)
    monkeypatch.setattr(deploy_evicted, "loads_of", lambda _opened, _group: made.loads)
    return made


def refused(error: FleetChanged) -> tuple[object, str]:
    (fact,) = error.facts
    assert fact.code == "GP886"
    assert error.exit_code is ExitCode.FLEET_CHANGED
    return fact.figures["reason"], word(fact).headline


def test_it_is_shown_as_it_is_now(world: World) -> None:
    (one,) = to_evict(world.opened, [replace(IDLE, running_requests=None, keep_alive_seconds=None)])
    assert one.eviction == IDLE
    fact = told(one, "new")
    assert word(fact).headline == "old is stopped to make room for new: idle, keep-alive 10 min"
    assert "h1:0" in word(fact).because[0]
    world.loads = [Load(running=2, waiting=3)]
    busy = replace(IDLE, running_requests=1)
    (one,) = to_evict(world.opened, [busy])
    assert one.eviction.running_requests == 5, "it was known to be at work: how much it is, is shown"
    assert as_agreed(world.opened, [one]) == (one,)
    world.loads = []
    (one,) = to_evict(world.opened, [IDLE])
    assert "its requests in flight are not known" in word(told(one, "new")).headline


def test_what_began_to_work_is_left_alone(world: World) -> None:
    (agreed,) = to_evict(world.opened, [IDLE])
    world.loads = [Load(running=0, waiting=1)]
    with pytest.raises(FleetChanged) as changed:
        as_agreed(world.opened, [agreed])
    assert refused(changed.value) == ("busy", "old was idle and is at work now (1 request in flight)")
    with pytest.raises(FleetChanged):
        to_evict(world.opened, [IDLE])


def test_what_was_pinned_or_made_anew_is_left_alone(world: World) -> None:
    (agreed,) = to_evict(world.opened, [IDLE])
    world.containers = [container("c2")]
    with pytest.raises(FleetChanged) as changed:
        as_agreed(world.opened, [agreed])
    assert refused(changed.value)[0] == "others"
    world.containers = [container(keep_alive="-1")]
    with pytest.raises(FleetChanged) as changed:
        as_agreed(world.opened, [agreed])
    assert refused(changed.value) == ("pinned", "old is pinned: its keep-alive is negative")


def test_one_that_cannot_be_stopped_whole_is_left_alone(world: World) -> None:
    two = [
        *MEMBERS,
        {"host": "h2", "container": "gpuplan-old-n1", "role": "follower", "rank": 1, "server": 0},
    ]
    leader = container()
    given = {**leader.labels, labels.MEMBERS: json.dumps(two)}
    world.containers = [replace(leader, labels=given)]
    with pytest.raises(FleetChanged) as changed:
        to_evict(world.opened, [IDLE])
    assert refused(changed.value) == ("silent", "old cannot be stopped whole: h2 does not answer")


@pytest.mark.parametrize("left", [[], [container(status="exited")]], ids=["removed", "ended"])
def test_what_is_gone_need_not_be_stopped(world: World, left: list[Container]) -> None:
    (agreed,) = to_evict(world.opened, [IDLE])
    world.containers = left
    assert as_agreed(world.opened, [agreed]) == to_evict(world.opened, [IDLE]) == ()
    (fact,) = gone([IDLE], [])
    assert (fact.code, word(fact).headline) == ("GP887", "old runs no more, so nothing has to be stopped")
    assert gone([IDLE], [agreed]) == ()
