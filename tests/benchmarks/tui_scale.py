"""The app on a thousand hosts of 8 GPUs, without a terminal: what each thing a person does costs, each against its bound.

    python -m tests.benchmarks.tui_scale

Prints a table; exits 1 when a bound is broken twice. CPU time is measured, as a shared machine's clock measures its
neighbours too: of the whole process, and for how long one callback holds the event loop, of the loop's own thread.
Each fleet is shown in a process of its own, so that one's peak memory is not another's.
"""

import asyncio
import gc
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

from textual.pilot import Pilot
from textual.widgets import Input

from gpuplan.cli.main import COLLECT_RARELY
from gpuplan.domain.fleet import Basis, Fleet, Gpu
from gpuplan.operations.plan import ServingOptions
from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.screens.plan import PlanScreen
from gpuplan.tui.services import OnGpus, OnHost, Question
from gpuplan.tui.widgets.rows import Rows
from gpuplan.units import GIB, KIB, MIB
from tests.benchmarks.planner_scale import GPUS_PER_HOST, fleet_of
from tests.tui.fakes import FakeServices

SMALL, LARGE = 10, 1_000
SIZE = (160, 50)
MODEL = "Qwen/Qwen3-32B"
KEYS = 40
TICKS = 10
KNOB_TURNS = 5
ROUNDS = 2
BLOCKED_SECONDS = 0.2
"""Meant is a tenth of a second, which a quiet machine keeps; twice that is a fault on a slower one, too."""
FIRST_PAINT_SECONDS = 2.0
KEY_SECONDS = 0.05
KNOB_TIMES_PLAN = 4.0
TICK_SECONDS = 0.25
MEMORY_BYTES = 400 * MIB
SIZE_FACTOR = 2.0
"""A key costs the same however long the list is, within what one screen's rows differ in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """CPU seconds, and the peak memory of the process in bytes."""

    first_paint: float
    """From the start of the app to the whole fleet on the screen."""
    key: float
    """One cursor movement, painted."""
    knob: float
    """One changed knob, planned again and painted."""
    plan: float
    """The plan alone."""
    tick: float
    """Fresh figures of every GPU, painted."""
    longest: float
    """The longest that one callback held the loop."""
    peak: int


class Watched(FakeServices):
    """A fleet whose GPUs are told anew when asked to."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        self.told: OnGpus | None = None

    def read_fleet(self, on_host: OnHost, only: Sequence[str] = ()) -> Fleet:
        for host in self.answer.hosts:
            on_host(host)
        return self.answer

    def watch(self, every_seconds: float, stop: threading.Event, on_gpus: OnGpus) -> None:
        self.told = on_gpus
        stop.wait()

    def tick(self, number: int) -> None:
        """Every GPU of every host with other figures."""
        assert self.told is not None
        self.told({host.name: tuple(_moved(gpu, number) for gpu in host.gpus) for host in self.answer.hosts})


def _moved(gpu: Gpu, number: int) -> Gpu:
    free = (gpu.free_bytes or 0) - number * GIB
    return replace(gpu, free_bytes=max(0, free), utilization_percent=number * 7 % 101)


class Longest:
    """Thread CPU time of the longest callback of the event loop."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            self.seconds = max(self.seconds, time.thread_time() - began)

        asyncio.Handle._run = timed  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            asyncio.Handle._run = run  # type: ignore[method-assign]


async def measure(hosts: int) -> Measure:
    """Open the app on a fleet, move, change a knob, hear fresh figures."""
    gc.set_threshold(*COLLECT_RARELY)  # as every command does
    services = Watched(replace(fleet_of(hosts), basis=Basis.MEASURED))
    question = Question(reference=MODEL, serving=ServingOptions())
    began = time.process_time()
    services.plan(question, services.answer)
    services.plan(question, services.answer)
    began = time.process_time()
    services.plan(replace(question, serving=ServingOptions(context="8192")), services.answer)
    plan = time.process_time() - began
    longest = Longest()
    with longest.watching():
        began = time.process_time()
        app = GpuplanApp(services, question=question)
        async with app.run_test(size=SIZE) as pilot:
            await _settled(
                pilot, lambda: not app.state.reading and len(app.screen.query_one(Rows).source) > 0
            )
            first_paint = time.process_time() - began
            key = await _cost(lambda: pilot.press("down"), KEYS)
            await _settled(pilot, lambda: services.told is not None)
            number = iter(range(1, TICKS + 1))

            async def tick() -> None:
                await asyncio.to_thread(services.tick, next(number))
                await asyncio.sleep(0.3)  # what is told within a quarter of a second is painted once
                await pilot.pause()

            ticked = await _cost(tick, TICKS)
            knob = await _knob(app, pilot)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
    return Measure(
        first_paint=first_paint,
        key=key,
        knob=knob,
        plan=plan,
        tick=ticked,
        longest=longest.seconds,
        peak=peak,
    )


async def _knob(app: GpuplanApp, pilot: Pilot[None]) -> float:
    """From a changed context to its plan on the screen."""
    await pilot.press("2")
    screen = app.screen
    assert isinstance(screen, PlanScreen)
    await _settled(pilot, lambda: screen.plan is not None and not screen.is_old)
    knob = screen.query_one("#knob-context", Input)
    lengths = iter(range(8192, 8192 + KNOB_TURNS))

    async def turn() -> None:
        before = screen.plan
        knob.value = str(next(lengths))
        await _settled(pilot, lambda: screen.plan is not before and not screen.is_old)

    return await _cost(turn, KNOB_TURNS)


async def _cost(act: Callable[[], Awaitable[object]], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        await act()
    return (time.process_time() - began) / times


async def _settled(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the app does not settle")
        await pilot.pause(0.01)
    await pilot.pause()


def measure_apart(hosts: int) -> Measure:
    """`measure` in a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.tui_scale", str(hosts)]
    return Measure(**json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))


def compare() -> tuple[tuple[str, float, float], ...]:
    """One round: name, value and bound of each figure."""
    small, large = measure_apart(SMALL), measure_apart(LARGE)
    gpus = f"{LARGE} hosts x {GPUS_PER_HOST} GPUs"
    return (
        (f"{gpus}, first paint, CPU s", large.first_paint, FIRST_PAINT_SECONDS),
        (f"{gpus}, a cursor movement, CPU s", large.key, KEY_SECONDS),
        (f"{gpus}, the same, times that of {SMALL} hosts", large.key / small.key, SIZE_FACTOR),
        (f"{gpus}, a changed knob, times the plan", large.knob / large.plan, KNOB_TIMES_PLAN),
        (f"{gpus}, fresh figures of all, CPU s", large.tick, TICK_SECONDS),
        (f"{gpus}, longest hold of the loop, CPU s", large.longest, BLOCKED_SECONDS),
        (f"{gpus}, peak MiB", large.peak / MIB, MEMORY_BYTES / MIB),
    )


def main() -> int:
    if len(sys.argv) == 2:
        print(json.dumps(asdict(asyncio.run(measure(int(sys.argv[1]))))))
        return 0
    for _ in range(ROUNDS):
        rows = compare()
        print(f"{'app':<60} {'is':>9} {'bound':>9}")
        for name, value, bound in rows:
            print(f"{name:<60} {value:9.3f} {bound:9.3f}{'' if value <= bound else '  BROKEN'}", flush=True)
        if all(value <= bound for _, value, bound in rows):
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
