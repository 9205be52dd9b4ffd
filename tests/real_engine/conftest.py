"""The tests of this directory take gigabytes and minutes: they are collected only when they are asked for.

GPUPLAN_REAL_ENGINE=1 pytest tests/real_engine      (or .ci/real_engine)
"""

import os
from collections.abc import Iterator

import pytest

from tests.hosts.fleet import Fleet, unmet
from tests.hosts.machine import HostSpec
from tests.real_engine.vllm_cpu_image import vllm_cpu

collect_ignore_glob = [] if os.environ.get("GPUPLAN_REAL_ENGINE") else ["test_*"]


@pytest.fixture(scope="module")
def real_fleet() -> Iterator[Fleet]:
    """One host of eight H100, as it says, with the real vLLM for the CPU in its engine."""
    reason = unmet()
    if reason is not None:
        pytest.fail(reason)
    image = vllm_cpu()
    with Fleet([HostSpec(name="gpu-a", recording="h100-idle", own_uuids=True)]) as running:
        running["gpu-a"].load_large(image)
        yield running


@pytest.fixture
def fleet(real_fleet: Fleet) -> Iterator[Fleet]:
    """The same; containers are gone after each test."""
    yield real_fleet
    for host in real_fleet:
        host.remove_containers()
    real_fleet.restore()
