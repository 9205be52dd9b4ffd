"""What the app knows, as frozen values that flow down to the screens."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpuplan.domain.fleet import Fleet
from gpuplan.tui.services import Source

NO_FLEET = Fleet(hosts=())


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetState:
    """The fleet, as far as it has been read."""

    fleet: Fleet = NO_FLEET
    """In the order of `expected`; hosts that are waited for as they were read before, or without facts."""
    waiting: frozenset[str] = field(default_factory=frozenset)
    """Names of hosts of a reading under way that have not answered."""
    total: int = 0
    """Hosts of the reading under way; 0: there is none."""
    failed: int = 0
    """Hosts of the reading under way that were told as failed."""
    error: str | None = None
    """Why the fleet could not be read."""
    hint: str | None = None
    """What mends that."""
    source: Source | None = None
    """None: it is not known yet."""
    read_at: Mapping[str, datetime] = field(default_factory=dict)
    """When each host was read, by name."""
    live_at: Mapping[str, datetime] = field(default_factory=dict)
    """When the figures of its GPUs were told by the watch, by name."""
    paused: bool = False
    """The watch rests."""

    @property
    def reading(self) -> bool:
        return bool(self.waiting)


NOTHING_READ = FleetState()

GpuKey = tuple[str, int]
"""Host and GPU index."""
