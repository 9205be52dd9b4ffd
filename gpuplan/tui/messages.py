"""What happened, told upwards: workers post these, handlers change the state."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from textual.message import Message

from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.plan import Plan
from gpuplan.tui.services import Source


@dataclass
class ReadingBegan(Message):
    """Hosts are about to be read; every reading has its own serial number, later ones a higher one."""

    serial: int
    source: Source
    expected: tuple[str, ...]
    """Names of all hosts of the fleet."""
    asked: frozenset[str]
    """Those that are read now."""


@dataclass
class HostRead(Message):
    """One host of a reading under way was read."""

    host: Host
    serial: int = 0


@dataclass
class FleetRead(Message):
    """A reading is complete."""

    fleet: Fleet
    serial: int = 0


@dataclass
class ReadingFailed(Message):
    """The fleet cannot be read at all."""

    error: Exception
    serial: int = 0


@dataclass
class GpusTold(Message):
    """The watch told figures of GPUs, by host."""

    gpus: Mapping[str, tuple[Gpu, ...]]
    serial: int


@dataclass
class WatchEnded(Message):
    """The watch came to its end; `error` if it failed."""

    error: BaseException | None
    serial: int


@dataclass
class DeployAsked(Message):
    """A person wants a candidate deployed; they are asked to confirm before anything starts."""

    plan: Plan
    choice: tuple[int, int]
    """Index of the strategy, and of the candidate in it."""


@dataclass
class RunAdvanced(Message):
    """A deploy has told something, or ended."""

    run: str
    """Its id."""


@dataclass
class PersonAsked(Message):
    """Something outside the app waits for an answer of the person."""

    ask: Callable[[], Coroutine[Any, Any, None]]
    """Shows the question and takes the answer; run by the app."""
