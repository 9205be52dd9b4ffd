"""What a preflight asks for, and what it measured beyond the probe."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpuplan.domain.inventory import HostEntry, VllmSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNeed:
    """The model a preflight is for."""

    name: str
    reference: str = ""
    """As it was written: a path may lead to it on the hosts."""
    weights_bytes: int | None = None
    """Of the checkpoint; None when nothing tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the hosts are to run."""

    image: str
    settings: VllmSettings = field(default_factory=VllmSettings)
    model: ModelNeed | None = None
    entries: Mapping[str, HostEntry] = field(default_factory=dict)
    """The inventory's hosts by name."""


class GpuTestOutcome(StrEnum):
    SEEN = "seen"
    """The container ran and listed GPUs."""
    NO_IMAGE = "no_image"
    NO_TOOL = "no_tool"
    """The container started; there is no `nvidia-smi` in it."""
    FAILED = "failed"
    TIMED_OUT = "timed_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTest:
    """A container with all GPUs that was run and removed."""

    outcome: GpuTestOutcome
    image: str = ""
    uuids: tuple[str, ...] = ()
    """Of the cards and slices the container listed."""
    detail: str = ""
    seconds: float = 0.0
    """The time it was given, when it ran out of it."""


class PortState(StrEnum):
    LISTENING = "listening"
    CONNECTED = "connected"
    """The local end of a connection."""
    CLOSING = "closing"
    """A connection that ended within the last minute; a server may take the port."""
    BOUND = "bound"
    """Taken and not listening yet, as a loading vLLM does; `ss` does not show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortTest:
    """Which ports of the configured ranges are taken."""

    busy: tuple[tuple[int, PortState], ...] = ()
    reserved: tuple[tuple[int, int], ...] = ()
    """Ranges the kernel keeps from outgoing connections: `net.ipv4.ip_local_reserved_ports`."""
    tool: str | None = None
    """What bound each port once. None: nothing could, only listening ports are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """The files of a model on a host."""

    path: str
    """The directory that holds config.json."""
    revision: str | None = None
    """Commit of the repository, where a cache or a download recorded it."""
    files: tuple[tuple[str, int], ...] = ()
    """Relative name and bytes, by name."""
    digests: tuple[tuple[str, str], ...] = ()
    """SHA-256 of the small files that decide: config.json, the weight index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMeasures:
    """What was measured on one host; None: not asked, or not possible."""

    gpu_test: GpuTest | None = None
    ports: PortTest | None = None
    model: ModelFiles | None = None
    model_looked_for: bool = True
    """False: the host was asked for the model's files and did not answer."""


class ReachOutcome(StrEnum):
    REACHED = "reached"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    UNROUTABLE = "unroutable"
    STRANGER = "stranger"
    """Something else answered at that address."""
    NO_LISTENER = "no_listener"
    NO_ANSWER = "no_answer"
    """The connecting host did not report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """One try to connect from a host to another's data address."""

    source: str
    target: str
    address: str
    port: int | None
    outcome: ReachOutcome
    milliseconds: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reachability:
    """Which hosts reach which: all pairs of a small fleet, a ring and a star of a large one."""

    tries: tuple[Reach, ...] = ()
    pairs: int = 0
    """Directions there are between the hosts."""
    unaddressed: tuple[str, ...] = ()
    """Hosts without a data address: nothing could be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Everything measured beyond the probe."""

    hosts: Mapping[str, HostMeasures] = field(default_factory=dict)
    reachability: Reachability | None = None
    """None: fewer than two hosts to connect."""
