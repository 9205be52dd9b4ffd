"""Hosts as they were seen, under what their inventory entries say of them."""

from collections import Counter
from dataclasses import replace

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.inventory import DeclaredGpus, HostEntry, Inventory
from gpuplan.domain.tariff import Tariff
from gpuplan.sources.catalogue import accelerators


def with_settings(fleet: Fleet, inventory: Inventory) -> Fleet:
    """A snapshot under what an inventory keeps back: labels, reserves and excluded GPUs by host name; and its prices."""
    entries = {entry.name: entry for entry in inventory.hosts}
    return replace(fleet, hosts=tuple(with_entry(host, entries.get(host.name)) for host in fleet.hosts))


def with_entry(host: Host, entry: HostEntry | None) -> Host:
    """A host under what its inventory entry keeps back and charges; a card that is excluded takes its MIG slices along."""
    if entry is None:
        return host
    excluded: set[int | None] = {*entry.exclude_gpus}
    gpus = (
        replace(
            gpu,
            reserved_bytes=max(gpu.reserved_bytes, entry.reserve_vram_bytes),
            excluded=gpu.excluded or bool({gpu.index, gpu.parent} & excluded),
        )
        for gpu in host.gpus
    )
    return replace(
        host,
        labels=tuple(sorted({**dict(host.labels), **dict(entry.labels)}.items())),
        gpus=tuple(gpus),
        ram_reserved_bytes=max(host.ram_reserved_bytes, entry.reserve_ram_bytes),
        tariff=Tariff(
            price=entry.tariff.price or host.tariff.price, power=entry.tariff.power or host.tariff.power
        ),
    )


def compared(host: Host, entry: HostEntry) -> tuple[Fact, ...]:
    """Where the inventory and the host disagree: declared hardware (GP631), excluded GPUs that are not there (GP635)."""
    facts = []
    found, declared = _found(host.gpus), _declared(entry.gpus)
    if declared and found != declared:
        figures = {"declared": _words(declared), "found": _words(found)}
        facts.append(
            Fact(code="GP631", severity=Severity.WARNING, subject={"host": host.name}, figures=figures)
        )
    there = {gpu.index for gpu in host.gpus} | {gpu.parent for gpu in host.gpus}
    facts += [
        Fact(code="GP635", severity=Severity.WARNING, subject={"host": host.name}, figures={"index": index})
        for index in entry.exclude_gpus
        if host.gpus and index not in there
    ]
    return tuple(facts)


def _declared(gpus: tuple[DeclaredGpus, ...]) -> Counter[str]:
    """Cards by name; those outside the catalogue under the name they were given."""
    cards: Counter[str] = Counter()
    for item in gpus:
        cards[accelerators.find(item.name).name if item.memory_bytes is None else item.name] += item.count
    return cards


def _found(gpus: tuple[Gpu, ...]) -> Counter[str]:
    """Cards by name; the slices of one card are one card."""
    cards: dict[int, str] = {}
    for gpu in gpus:
        known = accelerators.by_device_name(gpu.name, None if gpu.parent is not None else gpu.reported_bytes)
        cards[gpu.index if gpu.parent is None else gpu.parent] = known.name if known is not None else gpu.name
    return Counter(cards.values())


def _words(cards: Counter[str]) -> str:
    return " + ".join(f"{number} × {name}" for name, number in sorted(cards.items())) or "no GPU"
