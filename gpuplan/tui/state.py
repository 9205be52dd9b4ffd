"""What the app knows, as frozen values that flow down to the screens."""

from dataclasses import dataclass, field

from gpuplan.domain.fleet import Fleet

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
    error: str | None = None
    """Why there is no fleet."""

    @property
    def reading(self) -> bool:
        return bool(self.waiting)


NOTHING_READ = FleetState()

GpuKey = tuple[str, int]
"""Host and GPU index."""
