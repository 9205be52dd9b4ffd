"""A compiled trial beside the deployment it is a trial of."""

from dataclasses import replace

import pytest

from gpuplan.deploying.compile import CompileRequest, compile_deployment
from gpuplan.deploying.image_probe import ImageFacts
from gpuplan.domain.deployment import ContainerSpec, DirectoryModel
from tests.unit.deploying.shapes import PAIRS

KNOWN = ImageFacts(vllm_version="0.33.0", vllm_command=True, ray=True, ray_version="2.60.0")


def both(name: str) -> tuple[tuple[ContainerSpec, ...], tuple[ContainerSpec, ...]]:
    request: CompileRequest = replace(PAIRS[name].request(), image_facts=KNOWN)
    deployed = compile_deployment(request).containers
    return deployed, compile_deployment(replace(request, trial=True)).containers


@pytest.mark.parametrize("name", ["single", "mp-2-hosts"])
def test_devices_and_sizes_are_those_of_the_deployment(name: str) -> None:
    for deployed, trial in zip(*both(name), strict=True):
        for field in ("host", "gpus", "mounts", "shm_bytes", "user", "devices", "ulimits", "secrets", "name"):
            assert getattr(trial, field) == getattr(deployed, field), field
        assert trial.entrypoint != deployed.entrypoint


def test_one_host_listens_to_itself_and_several_to_each_other() -> None:
    [deployed], [trial] = both("single")
    assert trial.command[trial.command.index("--host") + 1] == "127.0.0.1"
    assert "127.0.0.1" not in deployed.command
    _, together = both("mp-2-hosts")
    assert "127.0.0.1" not in together[0].command


def test_what_travels_into_the_container_is_not_mounted() -> None:
    request = PAIRS["single"].request()
    carried = replace(request, trial=True, model=DirectoryModel(paths={}, inside="/models/x", carried=True))
    [container] = compile_deployment(carried).containers
    assert "/models/x" in container.command
    assert not [mount for mount in container.mounts if mount.target == "/models/x"]
