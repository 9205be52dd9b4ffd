"""Looks over connections that are kept: opened once, lost hosts dialled again beside them, all ended by `close`."""

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from gpuplan.domain.deployment import State
from gpuplan.domain.fleet import HostFailure
from gpuplan.errors import GpuplanError
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.reached import ReachedFleet
from gpuplan.operations.status_watch import AGAIN_SECONDS, StatusWatch
from tests.unit.operations.test_restart import World


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Site:
    """The two machines of the restart tests behind a watch."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.opened = 0
        self.ended = threading.Event()
        self.clock = Clock()
        options = FleetOptions(environ=os.environ, cwd=Path())
        self.watch = StatusWatch(options, clock=self.clock, connect=self._connect)

    @contextmanager
    def _connect(self, _options: FleetOptions) -> Iterator[ReachedFleet]:
        self.opened += 1
        yield self.world.fleet
        self.ended.set()

    def dialled(self) -> None:
        """Wait for the hosts that are called beside the looks."""
        thread = self.watch._dialler
        assert thread is not None
        thread.join(20)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(World(tmp_path, stack))


def test_connections_are_opened_once_and_ended(site: Site) -> None:
    for _ in range(3):
        assert [one.deployment.name for one in site.watch.look().deployments] == ["m"]
    assert site.opened == 1
    site.watch.close()
    assert site.ended.wait(20)
    with pytest.raises(GpuplanError):
        site.watch.look()


def test_a_host_that_was_lost_is_called_again_rarely_and_comes_back(site: Site) -> None:
    world = site.world
    site.watch.look()
    world.hosts.gone.add("b")
    world.hosts.silent["b"] = HostFailure(stage="connect", detail="cut")
    report = site.watch.look()
    assert [host.name for host in report.silent] == ["b"]
    assert report.deployments[0].deployment.state is State.UNHEALTHY
    assert world.hosts.reached == 0, "it was tried a moment ago"
    site.clock.now += AGAIN_SECONDS + 1
    site.watch.look()
    site.dialled()
    assert world.hosts.reached == 1
    failure = world.hosts.silent["b"]
    assert (failure.stage, failure.detail) == ("connect", "no route"), "as it fails now"
    world.hosts.gone.clear()
    assert site.watch.look(dial=True).silent == ()
    assert world.hosts.reached == 2
