"""The fleets of real hosts that the tests of this directory share, and the workers they run on.

    pytest tests/hosts

Without root, dockerd or sshd these tests skip and say why; with GPUPLAN_TEST_HOSTS=required, as in CI, they fail
instead. Under `pytest -n` all tests of a fleet go to one worker (`--dist loadgroup`), so there is one of each at a time.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.hosts.fleet import DEPLOY_FLEET, FIVE, FOUR, TWENTY, Fleet, unmet
from tests.hosts.machine import HostSpec

_GROUPS = {
    "fleet": "hosts",
    "deploy_fleet": "deploy-hosts",
    "four_hosts": "deploy-hosts",
    "twenty_hosts": "deploy-hosts",
}
"""Fixture and the worker's name."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        used = item.fixturenames if isinstance(item, pytest.Function) else ()
        group = next((group for fixture, group in _GROUPS.items() if fixture in used), None)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))


@contextmanager
def _running(specs: Sequence[HostSpec]) -> Iterator[Fleet]:
    reason = unmet()
    if reason is not None:
        if os.environ.get("GPUPLAN_TEST_HOSTS") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    with Fleet(specs) as running:
        yield running


@pytest.fixture(scope="session")
def _running_fleet() -> Iterator[Fleet]:
    with _running(FIVE) as running:
        yield running


@pytest.fixture
def fleet(_running_fleet: Fleet) -> Iterator[Fleet]:
    """The five hosts, whole: whatever a test did to them is undone after it."""
    yield _running_fleet
    _running_fleet.restore()


@pytest.fixture(scope="session")
def _running_deploy_fleet() -> Iterator[Fleet]:
    with _running(DEPLOY_FLEET) as running:
        yield running


@pytest.fixture
def deploy_fleet(_running_deploy_fleet: Fleet) -> Iterator[Fleet]:
    """Three idle hosts with an engine to deploy, whole and empty: no containers, no models, no locks."""
    yield _running_deploy_fleet
    _running_deploy_fleet.clean()


@pytest.fixture(scope="module")
def four_hosts() -> Iterator[Fleet]:
    """The three of the deploy tests and an unlike one, up while the tests of one module run."""
    with _running(FOUR) as running:
        yield running


@pytest.fixture(scope="module")
def twenty_hosts() -> Iterator[Fleet]:
    """Twenty of them, up while the tests of one module run."""
    with _running(TWENTY) as running:
        yield running
