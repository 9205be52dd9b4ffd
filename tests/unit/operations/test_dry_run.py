"""The containers a candidate would be: those of `deploy --dry-run`, without a host and without a secret's value."""

import os

import pytest

from gpuplan.domain.deployment import DeploymentSpec
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Plan
from gpuplan.operations.deploy_prepare import look
from gpuplan.operations.deploy_request import DeployRequest
from gpuplan.operations.dry_run import dry_run, serving_of
from gpuplan.operations.fleet import FleetOptions, see_fleet
from gpuplan.operations.plan import ServingOptions
from gpuplan.operations.stopped import FleetChanged
from tests.made_plans import EXAMPLE, FLEETS, ROOT, choices, made

OPTIONS = FleetOptions(environ={**os.environ}, cwd=ROOT, inventory=EXAMPLE, no_probe=True)


def _fleet() -> Fleet:
    return see_fleet(OPTIONS)


def _spec(plan: Plan, choice: tuple[int, int], **more: tuple[str, ...]) -> DeploymentSpec:
    return dry_run(OPTIONS, plan, choice, _fleet(), **more)  # type: ignore[arg-type]


def test_it_is_what_deploy_would_do() -> None:
    plan = made("Qwen/Qwen3-32B", context="8k", gpus=("h100-b:3",))
    asked = ServingOptions(context="8k", gpus=("h100-b:3",))
    looked = look(DeployRequest(reference="Qwen/Qwen3-32B", fleet=OPTIONS, serving=asked))
    spec = _spec(plan, (0, 0))
    assert spec.containers == looked.spec.containers
    assert spec.hosts == ("h100-b",)


def test_every_candidate_has_its_own_gpus() -> None:
    plan = made("Qwen/Qwen3-32B", context="8k")
    for choice in choices(plan)[::5]:
        placed = plan.strategies[choice[0]].candidates[choice[1]].placement
        spec = _spec(plan, choice)
        assert {(one.host, index) for one in spec.containers for index in one.gpu_indexes} == {
            (host.host, gpu.index) for host in placed for gpu in host.gpus
        }


def test_a_secret_is_named_and_never_told() -> None:
    words = ("--api-key", "hunter2-hunter2", "--max-num-seqs", "8")
    plan = made("Qwen/Qwen3-4B", context="8k", engine_args=words)
    spec = _spec(plan, (1, 0), engine_args=words)
    assert all("VLLM_API_KEY" in container.secrets for container in spec.containers)
    assert "hunter2" not in repr(spec)


def test_an_overcommitted_candidate_has_containers_too() -> None:
    busy = FLEETS / "busy.json"
    plan = made("Qwen/Qwen3-32B", busy, gpus=("h1:0",))
    options = FleetOptions(environ={**os.environ}, cwd=ROOT, snapshot=busy)
    spec = dry_run(options, plan, (0, 0), see_fleet(options))
    assert [container.host for container in spec.containers] == ["h1"]


def test_a_fleet_without_its_gpus_is_told() -> None:
    plan = made("Qwen/Qwen3-4B", context="8k")
    with pytest.raises(FleetChanged):
        dry_run(OPTIONS, plan, (1, 0), Fleet(hosts=()))


def test_the_request_as_options_gives_the_same_plan() -> None:
    plan = made("Qwen/Qwen3-32B", context="32k", concurrency=4, kv_cache_dtype="fp8")
    serving = serving_of(plan.request)
    again = made(
        "Qwen/Qwen3-32B", **{name: getattr(serving, name) for name in ServingOptions.__dataclass_fields__}
    )
    assert again.strategies == plan.strategies
    assert again.request == plan.request
