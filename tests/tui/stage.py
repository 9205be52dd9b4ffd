"""The app on the demo in time that stands still until a test lets it pass: the same keys give the same screen, always."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from textual.pilot import Pilot

from gpuplan.tui.app import GpuplanApp
from gpuplan.tui.demo import SILENT_SECONDS, DemoServices
from gpuplan.tui.planning import Planning
from gpuplan.tui.services import Question
from gpuplan.tui.settings import Preferences
from gpuplan.tui.widgets.rows import Rows
from tests.tui.demo_clock import BEGAN
from tests.tui.screen import shown

STILL_SECONDS = 0.06
STILL_LOOKS = 6
"""A screen that is the same at so many looks in a row has come to rest: longer than the app's repaints are apart."""
PATIENCE_SECONDS = 30.0
NEARLY = 1e-6


@dataclass(eq=False, slots=True)
class _Waiter:
    until: float
    thread: threading.Thread
    go: threading.Event


class SteppedClock:
    """Who waits is let go in the order of time, one after the other, each only when the one before rests again."""

    def __init__(self) -> None:
        self._now = BEGAN
        self._meant = BEGAN
        self._waiters: list[_Waiter] = []
        self._lock = threading.Lock()

    def now(self) -> float:
        return self._now

    def shown(self) -> datetime:
        """For the app: while time passes it is already as late as it is going to be."""
        return datetime.fromtimestamp(self._meant, UTC)

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def wait(self, length: float, stop: threading.Event) -> bool:
        waiter = _Waiter(self._now + length, threading.current_thread(), threading.Event())
        with self._lock:
            self._waiters.append(waiter)
        while not (waiter.go.wait(0.02) or stop.is_set()):
            pass
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return stop.is_set()

    async def step_to(self, at: float) -> None:
        """Let time pass until then."""
        self._meant = at
        while True:
            with self._lock:
                due = [waiter for waiter in self._waiters if waiter.until <= at + NEARLY]
                first = min(due, key=lambda waiter: waiter.until, default=None)
                if first is None:
                    break
                self._waiters.remove(first)
            self._now = max(self._now, first.until)
            first.go.set()
            while first.thread.is_alive() and all(one.thread is not first.thread for one in self._waiters):
                await asyncio.sleep(0.001)
        self._now = at


class Stage:
    """The app, a pilot for its keys, and its time."""

    def __init__(self, app: GpuplanApp, pilot: Pilot[None], clock: SteppedClock) -> None:
        self.app, self.pilot, self.clock = app, pilot, clock

    async def press(self, *keys: str) -> None:
        """Keys, one after the other, and what they ask for."""
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        await self.press(*("space" if char == " " else char for char in text))

    async def resize(self, width: int, height: int) -> None:
        await self.pilot.resize_terminal(width, height)
        await self.pilot.pause()

    async def until(self, *words: str) -> None:
        """Until all of these words are on the screen, and no plan is awaited."""
        await self.until_so(
            lambda: not self.planning and all(word in shown(self.app) for word in words), " and ".join(words)
        )

    async def go_to(self, words: str) -> None:
        """Down until these words are under the cursor of the list that has the keys."""
        rows = self.app.focused
        assert isinstance(rows, Rows)
        for _ in range(len(rows.source)):
            row = rows.source.line(rows.cursor, rows.size.width)
            if words in "".join(span.text for span in row):
                return
            await self.press("down")
        raise AssertionError(f"no row has {words}")

    async def until_so(self, true: Callable[[], bool], what: str = "it") -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            if true():
                return
            await self.pilot.pause(0.02)
        raise AssertionError(f"never came to pass: {what}\n{shown(self.app)}")

    async def rest(self) -> None:
        """Until nothing on the screen changes any more, and no plan is awaited."""
        before, same = "", 0
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            if same >= STILL_LOOKS:
                return
            await self.pilot.pause(STILL_SECONDS)
            now = shown(self.app)
            before, same = now, 0 if now != before or self.planning else same + 1
        raise AssertionError(f"it never came to rest\n{before}")

    @property
    def planning(self) -> bool:
        """Whether a plan is awaited."""
        screens = (screen for stack in self.app._screen_stacks.values() for screen in stack)
        return any(one.waiting for screen in screens for one in screen.query(Planning))

    async def pass_time(self, seconds: float) -> None:
        """So much later, everything told on the way there shown."""
        await self.clock.step_to(self.clock.now() + seconds)
        await self.pilot.pause()


@asynccontextmanager
async def staged(
    size: tuple[int, int] = (80, 24),
    *,
    theme: str | None = None,
    question: Question | None = None,
    read_only: bool = False,
) -> AsyncIterator[Stage]:
    """The demo, every host read."""
    clock = SteppedClock()
    environ = {} if theme is None else {"TEXTUAL_THEME": theme}
    app = GpuplanApp(
        DemoServices(clock=clock),
        question=question,
        read_only=read_only,
        preferences=Preferences(),
        environ=environ,
        now=clock.shown,
    )
    async with app.run_test(size=size) as pilot:
        stage = Stage(app, pilot, clock)
        await stage.until_so(lambda: clock.waiting > 0, "the hosts are asked")
        await stage.pass_time(SILENT_SECONDS)
        await stage.until_so(lambda: not app.state.reading and clock.waiting > 0, "the fleet is watched")
        await stage.rest()
        yield stage


@asynccontextmanager
async def planned(
    size: tuple[int, int] = (80, 24),
    *,
    theme: str | None = None,
    model: str = "Qwen/Qwen3-32B",
    context: str = "",
    concurrency: str = "",
) -> AsyncIterator[Stage]:
    """The demo with a plan for a model, asked for by keys."""
    async with staged(size, theme=theme) as stage:
        await stage.press("2", "o")
        await stage.type(model)
        await stage.press("enter")
        await stage.until("Recommended")
        if context or concurrency:
            await stage.press("e")
            await stage.type(context)
            await stage.press("down")
            await stage.type(concurrency)
            await stage.press("enter", "escape")
            await stage.until("Recommended")
        yield stage


@asynccontextmanager
async def deployed(size: tuple[int, int] = (80, 24)) -> AsyncIterator[Stage]:
    """The demo some seconds after a deploy of its recommended candidate has ended."""
    async with planned(size) as stage:
        await stage.press("d")
        await stage.until("Cancel")
        await stage.press("right", "enter")
        await stage.until("lock")
        await stage.pass_time(90.0)
        await stage.until("serves")
        yield stage
