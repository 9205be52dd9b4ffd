"""From a question to its plan, beside the event loop: the newest question is answered, older answers are dropped."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.message import Message
from textual.widget import Widget

from gpuplan.domain.fleet import Fleet, Host
from gpuplan.domain.plan import Plan
from gpuplan.errors import GpuplanError
from gpuplan.tui.background import BrokenOff, in_thread
from gpuplan.tui.services import Question

if TYPE_CHECKING:
    from textual.timer import Timer

DEBOUNCE_SECONDS = 0.15
SLOW_SECONDS = 0.2
"""What takes longer is told."""
LIVE_SECONDS = 5.0
"""Live figures are planned on no more often."""
Ask = Callable[[Question, Fleet], Plan]


class Planning(Widget):
    """Asks for plans; without a face. It posts what became of the newest question alone.

    One plan is computed at a time, as each takes a processor; a call that waits for something else is not waited for.
    """

    DEFAULT_CSS = "Planning { display: none; }"
    PATIENCE_SECONDS: ClassVar[float] = 1.0
    """How long a call for an older question holds back the newest one."""

    @dataclass
    class Planned(Message):
        """The newest question has its plan."""

        serial: int
        question: Question
        fleet: Fleet
        plan: Plan
        seconds: float

    @dataclass
    class Refused(Message):
        """The newest question has no plan: something the person can correct."""

        serial: int
        question: Question
        error: GpuplanError

    @dataclass
    class Slow(Message):
        """The newest question takes longer than an instant."""

        serial: int
        question: Question

    def __init__(self, ask: Ask, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._ask = ask
        self.serial = 0
        """Of the newest question."""
        self._calls: set[asyncio.Task[Plan]] = set()
        self.waiting = False
        """Whether the newest question is without an answer."""
        self._due: Timer | None = None

    def ask(self, question: Question, fleet: Fleet, *, at_once: bool = False) -> int:
        """Plan this question, and no older one; its serial number. `at_once`: nobody is typing."""
        self.serial += 1
        self.waiting = True
        self._plan(self.serial, question, fleet, 0.0 if at_once else DEBOUNCE_SECONDS)
        return self.serial

    def drop(self) -> None:
        """There is no question any more."""
        self.serial += 1
        self.waiting = False
        self.workers.cancel_group(self, "plan")

    def later(self, call: Callable[[], object], seconds: float) -> None:
        """Call once after that time; of several calls the first counts."""
        if self._due is None:
            self._due = self.set_timer(seconds, partial(self._now, call))

    def _now(self, call: Callable[[], object]) -> None:
        self._due = None
        call()

    @work(exclusive=True, group="plan")
    async def _plan(self, serial: int, question: Question, fleet: Fleet, delay: float) -> None:
        await asyncio.sleep(delay)
        loop = asyncio.get_running_loop()
        began = loop.time()
        slow = loop.call_later(SLOW_SECONDS, self._tell, self.Slow(serial, question))
        try:
            if self._calls:
                await asyncio.wait(self._calls, timeout=self.PATIENCE_SECONDS)
            call = asyncio.create_task(in_thread(partial(self._ask, question, fleet)))
            self._calls.add(call)
            call.add_done_callback(self._ended)
            plan = await asyncio.shield(call)
        except GpuplanError as error:
            self._tell(self.Refused(serial, question, error))
        except BrokenOff:
            pass
        else:
            self._tell(self.Planned(serial, question, fleet, plan, loop.time() - began))
        finally:
            slow.cancel()

    def _ended(self, call: asyncio.Task[Plan]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # of a question that is no longer asked

    def _tell(self, message: "Planning.Planned | Planning.Refused | Planning.Slow") -> None:
        if message.serial != self.serial:
            return
        if not isinstance(message, self.Slow):
            self.waiting = False
        self.post_message(message)


def matters(before: Fleet, after: Fleet) -> bool:
    """Whether a plan on one could differ from a plan on the other: load and temperature of GPUs change none."""
    if len(before.hosts) != len(after.hosts) or replace(before, hosts=()) != replace(after, hosts=()):
        return True
    pairs = zip(before.hosts, after.hosts, strict=True)
    return any(one is not other and _without_load(one) != _without_load(other) for one, other in pairs)


def _without_load(host: Host) -> Host:
    gpus = (replace(gpu, utilization_percent=None, temperature_celsius=None) for gpu in host.gpus)
    return replace(host, gpus=tuple(gpus))


def pause_after(seconds: float) -> float:
    """How long live figures wait after a plan that took so long: a tenth of a processor at most."""
    return max(LIVE_SECONDS, 10 * seconds)
