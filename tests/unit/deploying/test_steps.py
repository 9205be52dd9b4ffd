"""The order of operations, and that no shape leaves it."""

import pytest

from gpuplan.deploying.steps import (
    AskOnce,
    AwaitRegistered,
    AwaitServing,
    Create,
    Lock,
    PutSecrets,
    RemoveOld,
    Start,
    Step,
    StopOld,
    Unlock,
    steps,
)
from gpuplan.domain.deployment import ContainerRole, DeploymentSpec, Member
from tests.unit.deploying.specs import ALL, native, ray

OLD = Member(host="z-old", container="gpuplan-qwen3-n0", role=ContainerRole.SINGLE, state="running")


def places(made: tuple[Step, ...], kind: type) -> list[int]:
    return [number for number, step in enumerate(made) if isinstance(step, kind)]


@pytest.mark.parametrize("spec", ALL.values(), ids=list(ALL))
def test_order(spec: DeploymentSpec) -> None:
    made = steps(spec, (OLD,))
    assert isinstance(made[0], Lock)
    assert isinstance(made[-1], Unlock)
    assert max(places(made, Lock)) < min(places(made, StopOld)) < min(places(made, Create))
    assert max(places(made, Create)) < min(places(made, Start))
    assert max(places(made, Start)) < min(places(made, AwaitServing)) < min(places(made, AskOnce))
    assert max(places(made, AskOnce)) < min(places(made, RemoveOld)) < min(places(made, Unlock))
    started = [(step.host, step.container) for step in made if isinstance(step, Start)]
    created = [(step.host, step.container.name) for step in made if isinstance(step, Create)]
    assert sorted(started) == sorted(created) == sorted((one.host, one.name) for one in spec.containers)


def test_hosts_are_locked_in_one_order_and_those_that_are_left_too() -> None:
    made = steps(native(), (OLD,))
    assert [step.host for step in made if isinstance(step, Lock)] == ["h100-a", "h100-b", "z-old"]
    assert [step.host for step in made if isinstance(step, Unlock)] == ["h100-a", "h100-b", "z-old"]


def test_a_cluster_is_whole_before_its_server_starts() -> None:
    made = [step for step in steps(ray()) if isinstance(step, Start | AwaitRegistered)]
    assert [getattr(step, "role", None) for step in made] == [
        ContainerRole.RAY_HEAD,
        ContainerRole.FOLLOWER,
        None,
        ContainerRole.LEADER,
    ]
    (waits,) = [step for step in made if isinstance(step, AwaitRegistered)]
    assert (waits.hosts, waits.gpus) == (("h100-a", "h100-b"), 3)


def test_ranks_without_ray_start_leader_first() -> None:
    made = [step.role for step in steps(native()) if isinstance(step, Start)]
    assert made == [ContainerRole.LEADER, ContainerRole.FOLLOWER]


def test_secrets_are_inside_before_anything_starts() -> None:
    made = steps(ray())
    assert max(places(made, PutSecrets)) < min(places(made, Start))
    assert len(places(made, PutSecrets)) == 3
