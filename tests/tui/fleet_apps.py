"""The fleet screen alone in an app, and services whose hosts answer when a test lets them."""

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.pilot import Pilot

import gpuplan.tui
from gpuplan.domain.fleet import Fleet, Host
from gpuplan.tui import commands
from gpuplan.tui.reading import ReadingApp
from gpuplan.tui.screens.fleet import FleetScreen
from gpuplan.tui.services import OnGpus, OnHost, Services
from tests.fleets import host
from tests.tui.fakes import FakeServices
from tests.tui.screen import shown

if TYPE_CHECKING:
    from gpuplan.errors import GpuplanError

START = datetime(2026, 11, 21, 2, 0, tzinfo=UTC)
STYLES = Path(gpuplan.tui.__file__).parent / "app.tcss"
PATIENCE = 400
"""Pauses a test waits at most for something that comes from a thread."""


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time

    def go(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class FleetApp(ReadingApp):
    """One mode: the fleet."""

    CSS_PATH = str(STYLES)
    BINDINGS: ClassVar[list[BindingType]] = [*commands.bindings(commands.Place.APP)]
    DEFAULT_MODE = "fleet"

    def __init__(self, services: Services, clock: Clock | None = None) -> None:
        super().__init__(services, now=clock or Clock())
        self.add_mode("fleet", lambda: FleetScreen().data_bind(ReadingApp.state, ReadingApp.marked))

    async def action_leave(self) -> None:
        self.exit()

    @property
    def fleet(self) -> FleetScreen:
        screen = self.screen_stack[0]
        assert isinstance(screen, FleetScreen)
        return screen


class SlowServices(FakeServices):
    """Hosts answer when `let` says so; figures are told when `tell` is called."""

    def __init__(self, fleet: Fleet | None = None) -> None:
        super().__init__(fleet)
        self.let = {one.name: threading.Event() for one in self.answer.hosts}
        self.asked: list[tuple[str, ...]] = []
        self.cancelled = 0
        self.failure: GpuplanError | None = None
        self.watching = threading.Event()
        self.rests = threading.Event()
        """No watch is under way any more."""
        self.watches = 0
        self.tell: OnGpus | None = None

    def let_all(self) -> None:
        for event in self.let.values():
            event.set()

    def read_fleet(self, on_host: OnHost, only: Sequence[str] = ()) -> Fleet:
        self.asked.append(tuple(only))
        if self.failure is not None:
            raise self.failure
        for one in self.answer.hosts:
            if not only or one.name in only:
                self.let[one.name].wait()
                on_host(one)
        return self.answer

    def cancel_reading(self) -> None:
        self.cancelled += 1

    def watch(self, every_seconds: float, stop: threading.Event, on_gpus: OnGpus) -> None:
        self.tell = on_gpus
        self.watches += 1
        self.rests.clear()
        self.watching.set()
        stop.wait()
        self.watching.clear()
        self.rests.set()


def many(hosts: int, gpus: int = 8) -> Fleet:
    """A large fleet of equal hosts, `gpu-0` first."""
    return Fleet(hosts=tuple(host(f"gpu-{number}", "H100", gpus) for number in range(hosts)))


def named(*hosts: Host) -> Fleet:
    return Fleet(hosts=hosts)


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    """Wait for something that comes from a thread."""
    for _ in range(PATIENCE):
        if condition():
            return
        await pilot.pause()
    raise AssertionError(f"it never came; on the screen:\n{shown(pilot.app)}")


async def ready(pilot: Pilot[None]) -> None:
    """The first reading is complete and on the screen."""
    await pilot.app.workers.wait_for_complete()
    await pilot.pause()
