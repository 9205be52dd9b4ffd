"""What happened, told upwards: workers post these, handlers change the state."""

from dataclasses import dataclass

from textual.message import Message

from gpuplan.domain.fleet import Fleet, Host


@dataclass
class HostRead(Message):
    """One host of a reading under way was read."""

    host: Host


@dataclass
class FleetRead(Message):
    """A reading is complete."""

    fleet: Fleet


@dataclass
class ReadingFailed(Message):
    """The fleet cannot be read at all."""

    error: Exception
