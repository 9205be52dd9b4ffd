"""The fleet of real hosts that the tests of this directory share, and the worker they all run on.

    pytest tests/hosts

Without root, dockerd or sshd these tests skip and say why; with GPUPLAN_TEST_HOSTS=required, as in CI, they fail
instead. Under `pytest -n` all of them go to one worker (`--dist loadgroup`), so there is one fleet at a time.
"""

import os
from collections.abc import Iterator

import pytest

from tests.hosts.fleet import Fleet, unmet

_FIXTURE = "fleet"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and _FIXTURE in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("hosts"))


@pytest.fixture(scope="session")
def _running_fleet() -> Iterator[Fleet]:
    reason = unmet()
    if reason is not None:
        if os.environ.get("GPUPLAN_TEST_HOSTS") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    with Fleet() as running:
        yield running


@pytest.fixture
def fleet(_running_fleet: Fleet) -> Iterator[Fleet]:
    """The five hosts, whole: whatever a test did to them is undone after it."""
    yield _running_fleet
    _running_fleet.restore()
