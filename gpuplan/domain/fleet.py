"""The fleet as it was seen: hosts, GPUs, who holds memory. Unknown memory is `None`, never 0."""

from dataclasses import dataclass, field
from enum import StrEnum

from gpuplan.domain import host_facts
from gpuplan.domain.host_facts import HostFacts
from gpuplan.domain.tariff import NO_TARIFF, Tariff


class HostStatus(StrEnum):
    OK = "ok"
    UNREACHABLE = "unreachable"
    FAILED = "failed"


class Basis(StrEnum):
    """What a number rests on."""

    EXACT = "exact"
    COMPUTED = "computed"
    MEASURED = "measured"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds memory on a GPU."""

    pid: int
    name: str = ""
    used_bytes: int | None = None
    container: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What the engine's behaviour depends on besides memory: facts of a kind of card."""

    name: str
    """As the driver prints it."""
    compute_capability: str | None = None
    unified: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device a process can be given: a card or a MIG slice."""

    index: int
    name: str
    uuid: str | None = None
    vendor: str = "nvidia"
    backend: str = "cuda"
    """cuda, rocm, cann, …: one placement never mixes backends."""
    compute_capability: str | None = None
    """As NVIDIA writes it, `9.0`. None when unknown or not NVIDIA."""
    total_bytes: int | None = None
    """Memory the driver reports. None means unknown: the GPU is then not used."""
    free_bytes: int | None = None
    """Free now. A snapshot without it means all of total."""
    bandwidth_bytes_per_second: int | None = None
    processes: tuple[GpuProcess, ...] = ()
    unified: bool = False
    """The GPU shares its memory with the host (GB10, Grace)."""
    reserved_bytes: int = 0
    """Kept back by the inventory (`reserve.vram`)."""
    excluded: bool = False
    """Listed under `exclude_gpus` in the inventory."""
    reported_bytes: int | None = None
    """Total as the vendor's tool prints it, what the driver keeps for itself included."""
    parent: int | None = None
    """A MIG slice: the index of its card. Slices are numbered after the last card."""
    profile: str | None = None
    """A MIG slice: `1g.10gb`."""
    pci_bus_id: str | None = None
    """`0000:17:00.0`, lower case, domain of four digits."""
    kinds: tuple[Kind, ...] = ()
    """Hardware known by its size alone: the kinds of card it may be, the likeliest first; `name` stays what was given."""
    numa_node: int | None = None
    utilization_percent: int | None = None
    temperature_celsius: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFailure:
    """Why a host could not be used."""

    stage: str
    """resolve, connect, authenticate, command, …"""
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine as it was seen."""

    name: str
    address: str | None = None
    status: HostStatus = HostStatus.OK
    failure: HostFailure | None = None
    labels: tuple[tuple[str, str], ...] = ()
    """Sorted by key."""
    gpus: tuple[Gpu, ...] = ()
    """Sorted by index."""
    ram_total_bytes: int | None = None
    ram_available_bytes: int | None = None
    ram_reserved_bytes: int = 0
    link: str | None = None
    """GPU to GPU inside the host: `nvlink`, `pcie`, … None when unknown."""
    facts: HostFacts = host_facts.EMPTY
    """Empty for declared hardware."""
    tariff: Tariff = NO_TARIFF
    """Prices and power of the inventory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All hosts, and what the picture of them rests on."""

    hosts: tuple[Host, ...]
    """In inventory order; no plan depends on that order."""
    taken_at: str | None = None
    """ISO 8601 UTC time of the probe; None for declared hardware."""
    basis: Basis = Basis.ASSUMED
    """MEASURED from a probe or snapshot, ASSUMED from declared hardware."""
    notes: tuple[str, ...] = field(default=())
    image: str | None = None
    """`vllm.image` of the inventory behind a probe: it decides the vLLM version when nothing else does."""
