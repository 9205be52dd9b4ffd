"""A card as one reading saw it, whatever the reading: XML, CSV or NVML; and how cards become GPUs.

A card cut into MIG slices is not a GPU anybody can be given: its slices take its place, numbered after the last card.
Total memory is what CUDA gives a process: the tool's figure without what the driver keeps for itself.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Gpu, GpuProcess
from gpuplan.probing.tool_failure import one_line

_UNIFIED = re.compile(r"\b(?:GB10|N1X?|Orin|Xavier|Thor|Tegra|Jetson|nvgpu|DGX Spark)\b", re.IGNORECASE)
"""Devices without memory of their own; Grace (GH200) has some and is not among them."""
_NAME_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Frame buffer as reported, in bytes; None is unknown."""

    total: int | None = None
    reserved: int | None = None
    """Kept by the driver, not part of `used`. None on drivers before 510, where `used` holds it."""
    free: int | None = None
    shared: bool = False
    """The driver says that the device has no such figure."""
    detail: str = ""
    """The driver's word for why the total is unknown."""

    @property
    def usable(self) -> int | None:
        return None if self.total is None else max(0, self.total - (self.reserved or 0))

    @property
    def free_now(self) -> int | None:
        usable = self.usable
        return None if usable is None or self.free is None else min(self.free, usable)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardProcess:
    """A process on a card, and the instances it runs in on a card cut by MIG."""

    process: GpuProcess
    instance: tuple[int, int] | None = None
    """GPU instance and compute instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A MIG device."""

    number: int
    """As `nvidia-smi -L` counts the devices of a card."""
    instance: tuple[int, int] | None = None
    memory: Memory = Memory()
    uuid: str | None = None
    profile: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card, its states included: their subject is set when the index is certain."""

    index: int
    name: str
    uuid: str | None = None
    bus: str | None = None
    memory: Memory = Memory()
    compute_capability: str | None = None
    addressing: str = ""
    mig: bool = False
    slices: tuple[Slice, ...] = ()
    processes: tuple[CardProcess, ...] = ()
    states: tuple[Fact, ...] = ()
    numa_node: int | None = None
    utilization_percent: int | None = None
    temperature_celsius: int | None = None

    @property
    def unified(self) -> bool:
        return self.memory.shared and (bool(_UNIFIED.search(self.name)) or self.addressing == "ATS")


def state(code: str, severity: Severity, **figures: object) -> Fact:
    """A state of one card, its subject still open."""
    return Fact(code=code, severity=severity, subject={}, figures=figures)


def devices(cards: Iterable[Card]) -> tuple[tuple[Gpu, ...], tuple[Fact, ...]]:
    """The GPUs of a host by index, and the states of its cards."""
    ordered = sorted(cards, key=lambda card: card.index)
    gpus: list[Gpu] = []
    states: list[Fact] = []
    following = max((card.index for card in ordered), default=-1) + 1
    slices: list[Gpu] = []
    for card in ordered:
        subject = {"gpu": card.index}
        states += (replace(fact, subject=subject) for fact in card.states)
        if not card.mig:
            gpus.append(_gpu(card))
            states += (replace(fact, subject=subject) for fact in _memory_states(card))
            continue
        if not card.slices:
            states.append(
                replace(state("GP615", Severity.WARNING), subject=subject),
            )
        for part in sorted(card.slices, key=lambda part: part.number):
            slices.append(_slice(card, part, following + len(slices)))
            if part.memory.total is None:
                detail = part.memory.detail or "the driver gave no memory for this MIG slice"
                fact = state("GP609", Severity.WARNING, detail=detail)
                states.append(replace(fact, subject={"gpu": slices[-1].index}))
    return (*gpus, *slices), tuple(states)


def named(process: GpuProcess, owners: Mapping[int, GpuProcess]) -> GpuProcess:
    """The process with its user and container, where they were found out."""
    owner = owners.get(process.pid)
    return process if owner is None else replace(process, user=owner.user, container=owner.container)


def process(pid: int, name: str | None, used_bytes: int | None) -> GpuProcess:
    """A process with its name cut to a bounded single line."""
    return GpuProcess(pid=pid, name=one_line(name or "")[:_NAME_LIMIT], used_bytes=used_bytes)


def merged(processes: Iterable[CardProcess]) -> tuple[CardProcess, ...]:
    """One entry for a process and instance, by pid: a process that computes and draws is listed twice."""
    found: dict[tuple[int, tuple[int, int] | None], CardProcess] = {}
    for one in processes:
        key = (one.process.pid, one.instance)
        other = found.get(key)
        if other is None or (one.process.used_bytes or -1) > (other.process.used_bytes or -1):
            found[key] = one
    return tuple(found[key] for key in sorted(found, key=lambda key: (key[0], key[1] or (-1, -1))))


def _gpu(card: Card) -> Gpu:
    memory = card.memory
    return Gpu(
        index=card.index,
        name=card.name,
        uuid=card.uuid,
        compute_capability=card.compute_capability,
        total_bytes=memory.usable,
        free_bytes=memory.free_now,
        reported_bytes=memory.total,
        processes=tuple(one.process for one in card.processes),
        unified=card.unified,
        pci_bus_id=card.bus,
        numa_node=card.numa_node,
        utilization_percent=card.utilization_percent,
        temperature_celsius=card.temperature_celsius,
    )


def _slice(card: Card, part: Slice, index: int) -> Gpu:
    return Gpu(
        index=index,
        name=f"{card.name} MIG {part.profile}" if part.profile else f"{card.name} MIG",
        uuid=part.uuid,
        compute_capability=card.compute_capability,
        total_bytes=part.memory.usable,
        free_bytes=part.memory.free_now,
        reported_bytes=part.memory.total,
        processes=tuple(
            one.process
            for one in card.processes
            if one.instance is not None and one.instance == part.instance
        ),
        parent=card.index,
        profile=part.profile,
        pci_bus_id=card.bus,
        numa_node=card.numa_node,
        temperature_celsius=card.temperature_celsius,
    )


def _memory_states(card: Card) -> Iterable[Fact]:
    """GP609, unless the memory is the host's, or a sick card has said so already."""
    if card.memory.total is not None or card.unified:
        return
    if any(fact.code == "GP608" for fact in card.states):
        return
    yield state(
        "GP609", Severity.WARNING, detail=one_line(card.memory.detail or "the driver gives no figure")
    )
