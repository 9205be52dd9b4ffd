"""What is different between two pictures of a fleet: hosts, GPUs, who holds their memory, drivers, disks, conditions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gpuplan.domain.fleet import Fleet, Gpu, GpuProcess, Host, HostStatus
from gpuplan.domain.tariff import Power, Price
from gpuplan.present.document import Line, Lines, Role, Span, line, wrapped
from gpuplan.present.findings import word
from gpuplan.present.numbers import gib, gpu_range
from gpuplan.present.terms import signed_short
from gpuplan.units import MIB, plural

NEWS = 256 * MIB
"""Less memory than that comes and goes by itself."""
DISK_NEWS = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetChange:
    """One thing that is different."""

    host: str
    kind: str
    """host, gpu, memory, process, ram, software, container, disk, condition, tariff"""
    words: str
    gpu: int | None = None
    change_bytes: int | None = None
    """Of what is free: negative means less."""
    role: Role = Role.PLAIN


def fleet_changes(before: Fleet, after: Fleet) -> tuple[FleetChange, ...]:
    """Host by host in the order of the later picture, hosts that are gone last."""
    then = {host.name: host for host in before.hosts}
    now = {host.name: host for host in after.hosts}
    changes: list[FleetChange] = []
    for name, host in now.items():
        if name not in then:
            words = f"new: {plural(len(host.gpus), 'GPU')}"
            changes.append(FleetChange(host=name, kind="host", words=words, role=Role.GOOD))
        else:
            changes += _host(then[name], host)
    changes += [
        FleetChange(host=name, kind="host", words="not in the fleet any more", role=Role.BAD)
        for name in then
        if name not in now
    ]
    return tuple(changes)


def changes_text(before: Fleet, after: Fleet, width: int) -> Lines:
    """By host; and what it comes to in free memory."""
    return tuple(_lines(before, after, width))


def changes_document(before: Fleet, after: Fleet) -> dict[str, Any]:
    """For scripts."""
    return {
        "schema_version": 1,
        "before": before.taken_at,
        "after": after.taken_at,
        "changes": [
            {
                "host": change.host,
                "kind": change.kind,
                "gpu": change.gpu,
                "change_bytes": change.change_bytes,
                "words": change.words,
            }
            for change in fleet_changes(before, after)
        ],
    }


def _lines(before: Fleet, after: Fleet, width: int) -> Iterator[Line]:
    yield line(Span(f"{before.taken_at or 'declared'} → {after.taken_at or 'declared'}", Role.TITLE))
    changes = fleet_changes(before, after)
    if not changes:
        yield line(Span("Nothing is different."))
        return
    host = None
    for change in changes:
        if change.host != host:
            host = change.host
            yield line(Span(host, Role.TITLE))
        yield from wrapped(change.words, width, first="  ", rest="    ", role=change.role)
    total = sum(change.change_bytes or 0 for change in changes if change.kind == "memory")
    yield line()
    free = sum(gpu.free_bytes or 0 for seen in after.hosts for gpu in seen.gpus)
    yield line(Span(f"Free on GPUs in all: {gib(free)} ({signed_short(total)} on GPUs both saw)"))


def _host(before: Host, after: Host) -> Iterator[FleetChange]:
    name = after.name
    if before.status is not after.status:
        good = after.status is HostStatus.OK
        why = f": {after.failure.detail}" if after.failure is not None else ""
        yield FleetChange(
            host=name,
            kind="host",
            words=f"{before.status.value} → {after.status.value}{why}",
            role=Role.GOOD if good else Role.BAD,
        )
    if before.status is not HostStatus.OK or after.status is not HostStatus.OK:
        return
    yield from _gpus(before, after)
    yield from _ram(before, after)
    yield from _software(before, after)
    yield from _containers(before, after)
    yield from _disks(before, after)
    yield from _conditions(before, after)
    yield from _tariff(before, after)


def _key(gpu: Gpu) -> str:
    return gpu.uuid or f"index {gpu.index}"


def _gpus(before: Host, after: Host) -> Iterator[FleetChange]:
    then = {_key(gpu): gpu for gpu in before.gpus}
    now = {_key(gpu): gpu for gpu in after.gpus}
    for title, role, here, there in (
        ("new", Role.GOOD, now, then),
        ("gone", Role.BAD, then, now),
    ):
        indexes = [gpu.index for key, gpu in here.items() if key not in there]
        if indexes:
            names = ", ".join(dict.fromkeys(gpu.name for key, gpu in here.items() if key not in there))
            yield FleetChange(
                host=after.name, kind="gpu", words=f"GPU {gpu_range(indexes)} {title}: {names}", role=role
            )
    for key, gpu in now.items():
        if key in then:
            yield from _memory(after.name, then[key], gpu)


def _memory(host: str, before: Gpu, after: Gpu) -> Iterator[FleetChange]:
    label = f"GPU {after.index}"
    if before.index != after.index:
        words = f"GPU {before.index} is now GPU {after.index} ({after.uuid})"
        yield FleetChange(host=host, kind="gpu", gpu=after.index, words=words, role=Role.WARNING)
    if before.total_bytes != after.total_bytes:
        words = f"{label}: {gib(before.total_bytes)} → {gib(after.total_bytes)} in all"
        yield FleetChange(host=host, kind="gpu", gpu=after.index, words=words, role=Role.WARNING)
    if before.free_bytes is None or after.free_bytes is None:
        return
    change = after.free_bytes - before.free_bytes
    if abs(change) < NEWS:
        return
    who = _who(before.processes, after.processes)
    words = f"{label}: {gib(before.free_bytes)} → {gib(after.free_bytes)} free ({signed_short(change)})"
    yield FleetChange(
        host=host,
        kind="memory",
        gpu=after.index,
        words=f"{words}: {who}" if who else words,
        change_bytes=change,
        role=Role.GOOD if change > 0 else Role.WARNING,
    )


def _who(before: tuple[GpuProcess, ...], after: tuple[GpuProcess, ...]) -> str:
    """Processes that came, went or changed what they hold."""
    then = {process.pid: process for process in before}
    now = {process.pid: process for process in after}
    told = [f"{_named(process)} came" for pid, process in now.items() if pid not in then]
    told += [f"{_named(process)} ended" for pid, process in then.items() if pid not in now]
    for pid, process in now.items():
        earlier = then.get(pid)
        if earlier is None or earlier.used_bytes is None or process.used_bytes is None:
            continue
        change = process.used_bytes - earlier.used_bytes
        if abs(change) >= NEWS:
            told.append(f"{_named(process)} ({signed_short(change)})")
    return "; ".join(told)


def _named(process: GpuProcess) -> str:
    words = f"{process.name or 'a process'} (pid {process.pid}"
    if process.user:
        words += f" of {process.user}"
    if process.used_bytes is not None:
        words += f", {gib(process.used_bytes)}"
    return words + ")"


def _ram(before: Host, after: Host) -> Iterator[FleetChange]:
    then, now = before.ram_available_bytes, after.ram_available_bytes
    if then is not None and now is not None and abs(now - then) >= max(DISK_NEWS, then // 20):
        words = f"RAM: {gib(then)} → {gib(now)} available ({signed_short(now - then)})"
        yield FleetChange(host=after.name, kind="ram", words=words)


SOFTWARE: tuple[tuple[str, Callable[[Host], str | None]], ...] = (
    ("driver", lambda host: host.facts.driver_version),
    ("newest runtime it serves", lambda host: host.facts.runtime_version),
    ("kernel", lambda host: host.facts.kernel),
    ("Docker", lambda host: host.facts.docker.version if host.facts.docker is not None else None),
    ("data interface", lambda host: host.facts.data_interface),
    ("address", lambda host: host.address),
)


def _software(before: Host, after: Host) -> Iterator[FleetChange]:
    for name, value in SOFTWARE:
        then, now = value(before), value(after)
        if then != now:
            words = f"{name}: {then or 'unknown'} → {now or 'unknown'}"
            yield FleetChange(host=after.name, kind="software", words=words)


def _containers(before: Host, after: Host) -> Iterator[FleetChange]:
    """Ours: those of others are known by their processes alone."""
    then = {one.name: one.state for one in before.facts.docker.containers} if before.facts.docker else {}
    now = {one.name: one.state for one in after.facts.docker.containers} if after.facts.docker else {}
    for name in dict.fromkeys((*now, *then)):
        earlier, later = then.get(name), now.get(name)
        if earlier != later:
            words = f"container {name}: {earlier or 'not there'} → {later or 'gone'}"
            yield FleetChange(host=after.name, kind="container", words=words)


def _disks(before: Host, after: Host) -> Iterator[FleetChange]:
    then = {disk.path: disk.free_bytes for disk in before.facts.disks}
    for disk in after.facts.disks:
        earlier = then.get(disk.path)
        if earlier is not None and abs(disk.free_bytes - earlier) >= max(DISK_NEWS, disk.total_bytes // 50):
            words = (
                f"disk {disk.path}: {gib(earlier)} → {gib(disk.free_bytes)} free "
                f"({signed_short(disk.free_bytes - earlier)})"
            )
            yield FleetChange(host=after.name, kind="disk", words=words)


def _conditions(before: Host, after: Host) -> Iterator[FleetChange]:
    then = {word(fact).headline: fact for fact in before.facts.conditions}
    now = {word(fact).headline: fact for fact in after.facts.conditions}
    for headline, fact in now.items():
        if headline not in then:
            words = f"new: {headline} [{fact.code}]"
            yield FleetChange(host=after.name, kind="condition", words=words, role=Role.WARNING)
    for headline, fact in then.items():
        if headline not in now:
            words = f"over: {headline} [{fact.code}]"
            yield FleetChange(host=after.name, kind="condition", words=words, role=Role.GOOD)


TARIFF: tuple[tuple[str, Callable[[Price, Power], float | str | None]], ...] = (
    ("price of a GPU-hour", lambda price, _: price.gpu_hour),
    ("price of an hour of the host", lambda price, _: price.host_hour),
    ("currency", lambda price, _: price.currency),
    ("watts of a GPU", lambda _, power: power.gpu_watts),
    ("watts of the host", lambda _, power: power.host_watts),
    ("price of a kilowatt-hour", lambda _, power: power.kwh_price),
    ("PUE", lambda _, power: power.pue),
)


def _tariff(before: Host, after: Host) -> Iterator[FleetChange]:
    """What the inventory says the host costs and draws."""
    if before.tariff == after.tariff:
        return
    then, now = ((host.tariff.price or Price(), host.tariff.power or Power()) for host in (before, after))
    for name, value in TARIFF:
        earlier, later = value(*then), value(*now)
        if earlier != later:
            words = f"{name}: {_given(earlier)} → {_given(later)}"
            yield FleetChange(host=after.name, kind="tariff", words=words)


def _given(value: float | str | None) -> str:
    return "not given" if value is None else value if isinstance(value, str) else f"{value:g}"
