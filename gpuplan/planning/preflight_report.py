"""The ladder a preflight climbs: one rung a question, in the order in which answers depend on each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gpuplan.domain.fact import Fact


class Status(StrEnum):
    GREEN = "green"
    AMBER = "amber"
    """Works, or may work; worth reading."""
    RED = "red"
    """A deployment would fail here."""
    GREY = "grey"
    """Not judged, with the reason why."""


class RungName(StrEnum):
    SSH = "ssh"
    PROBE = "probe"
    DOCKER = "docker"
    GPU = "gpu"
    GPU_HEALTH = "gpu_health"
    TOOLKIT = "container_toolkit"
    DRIVER = "driver"
    ARCHITECTURE = "architecture"
    IMAGE_DISK = "image_disk"
    WEIGHTS = "weights"
    PORTS = "ports"
    SHARED_MEMORY = "shared_memory"
    INTERFACE = "interface"
    IDENTITY = "identity"
    REACHABILITY = "reachability"
    MTU = "mtu"
    CLOCKS = "clocks"
    SAME_DRIVER = "same_driver"
    SAME_IMAGE = "same_image"
    SAME_MODEL = "same_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One question and its answer, as data; `present` puts it into words by its reason."""

    name: RungName
    status: Status
    reason: str
    """What was found, a stable word: `driver_too_old`, `ports_free`."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """The numbers behind the answer: bytes as int, seconds as float."""
    facts: tuple[Fact, ...] = ()
    """States of the host that decided it, the worst first."""


_ORDER = {Status.GREY: 0, Status.GREEN: 1, Status.AMBER: 2, Status.RED: 3}


def worst(rungs: tuple[Rung, ...]) -> Status:
    """The status of several rungs together; grey ones count only when there is nothing else."""
    return max((rung.status for rung in rungs), key=lambda status: _ORDER[status], default=Status.GREY)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLadder:
    """The rungs of one host, bottom first."""

    host: str
    rungs: tuple[Rung, ...]

    @property
    def status(self) -> Status:
        return worst(self.rungs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """Every host's ladder in inventory order, then what concerns several hosts."""

    hosts: tuple[HostLadder, ...]
    across: tuple[Rung, ...] = ()
    image: str = ""
    """What was judged for."""
    model: str | None = None

    @property
    def ok(self) -> bool:
        """Nothing is red."""
        return self.usable == len(self.hosts) and worst(self.across) is not Status.RED

    @property
    def usable(self) -> int:
        """Hosts without a red rung."""
        return sum(ladder.status is not Status.RED for ladder in self.hosts)
