"""Everything known of one host or one of its GPUs, fitted to a width: what is wrong first, then who has what, then facts.

Every part says when it was read.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from gpuplan.domain.fleet import Gpu, Host, HostStatus
from gpuplan.domain.host_facts import Disk, Docker, HostFacts, Interface
from gpuplan.planning.allocatable import Ours, account, ours_by_gpu, ours_on
from gpuplan.present.age import ago, clock_time
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible, wrapped
from gpuplan.present.findings import word
from gpuplan.present.fleet_rows import (
    HostLook,
    free_words,
    health_of,
    label_words,
    legend,
    memory_bar,
    status_of,
)
from gpuplan.present.fleet_text import LABELS, LONGEST_NAME, ROLES, counted_names, free_of_total, short_name
from gpuplan.present.holdings import owner, size
from gpuplan.present.numbers import gib, gigabits, gpu_range, listed
from gpuplan.present.unreached import way_back
from gpuplan.units import plural

_LABEL = 14
_BAR = 32
MOST_SHOWN = 64
"""Entries of a list: images, interfaces, processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """When a host was seen."""

    now: datetime
    read_at: datetime | None = None
    live_at: datetime | None = None
    """Of the figures of its GPUs, where they are watched."""
    kind: str = "live"
    """Of the source, as it is called on the screen."""


def host_detail(host: Host, width: int, seen: Seen, look: HostLook) -> Lines:
    """A host with all its GPUs."""
    return tuple(_host(host, width, seen, look))


def gpu_detail(host: Host, index: int, width: int, seen: Seen, look: HostLook) -> Lines:
    """One GPU of a host; the host itself where it has no such GPU."""
    gpu = next((one for one in host.gpus if one.index == index), None)
    return (
        host_detail(host, width, seen, look)
        if gpu is None
        else tuple(_gpu_page(host, gpu, width, seen, look))
    )


def _host(host: Host, width: int, seen: Seen, look: HostLook) -> Iterator[Line]:
    status = status_of(host, look)
    yield line(Span(visible(host.name), Role.TITLE), "  ", status)
    yield from _pair("address", host.address or "the name", width)
    if host.labels:
        yield from _pair("labels", label_words(host), width)
    yield from _age(seen, width)
    if host.failure is not None:
        yield from _failure(host, width)
    yield from _conditions(host, None, width)
    if host.gpus:
        memory, _ = free_of_total(host)
        yield from _title(f"GPUs: {counted_names(host.gpus)}, free {memory}")
        yield line("  ", *legend())
        ours = ours_by_gpu(host)
        for gpu in host.gpus:
            yield from _gpu(host, gpu, ours, width)
        yield from _links(host.facts, host.gpus, host.link, width)
    if host.status is HostStatus.OK:
        yield from _kept_back(host, width)
        yield from _ram(host, width)
        yield from _system(host.facts, width)
        yield from _docker(host.facts.docker, width)
        yield from _disks(host.facts.disks, width)
        yield from _network(host.facts, width)


def _gpu_page(host: Host, gpu: Gpu, width: int, seen: Seen, look: HostLook) -> Iterator[Line]:
    ours = ours_by_gpu(host)
    title = f"{visible(host.name)}  GPU {gpu.index}  {visible(short_name(gpu))}"
    yield line(Span(title, Role.TITLE), "  ", health_of(host, gpu, ours))
    if host.status is not HostStatus.OK or look.waiting:
        yield from _pair("host", status_of(host, look).text, width)
    yield from _age(seen, width)
    yield from _conditions(host, gpu, width)
    yield from _title("Memory")
    yield line("  ", *legend())
    yield from _gpu(host, gpu, ours, width)
    yield from _title("Device")
    yield from _pair(
        "name", gpu.name + (f", MIG {gpu.profile} of GPU {gpu.parent}" if gpu.profile else ""), width
    )
    yield from _pair("UUID", gpu.uuid or "unknown", width)
    yield from _pair(
        "backend", f"{gpu.backend}, compute capability {gpu.compute_capability or 'unknown'}", width
    )
    yield from _pair("PCI", f"{gpu.pci_bus_id or 'unknown'}, NUMA node {_or_unknown(gpu.numa_node)}", width)
    if gpu.reported_bytes is not None and gpu.reported_bytes != gpu.total_bytes:
        yield from _pair("driver says", f"{gib(gpu.reported_bytes)} in total, its own part included", width)
    if gpu.unified:
        yield from _pair("memory", "shared with the host", width)
    if gpu.bandwidth_bytes_per_second:
        yield from _pair("bandwidth", f"{gpu.bandwidth_bytes_per_second / 1e9:,.0f} GB/s", width)
    yield from _links_of(host.facts, gpu, host.link, width)


def _age(seen: Seen, width: int) -> Iterator[Line]:
    if seen.kind == "declared":
        yield from _pair("read", "never: the inventory declares it", width, Role.WARNING)
        return
    if seen.read_at is None:
        yield from _pair(
            "read", "not yet" if seen.kind != "snapshot" else "nobody knows when", width, Role.WARNING
        )
        return
    yield from _pair("read at", f"{clock_time(seen.read_at)}, {ago(seen.read_at, seen.now)}", width)
    if seen.live_at is not None:
        words = f"memory, processes, load and temperature {ago(seen.live_at, seen.now)}"
        yield from _pair("live", words, width)


def _failure(host: Host, width: int) -> Iterator[Line]:
    failure = host.failure
    if failure is None:
        return
    headline, fix = way_back(failure.stage, host.address or host.name)
    yield EMPTY
    yield from wrapped(f"{headline} – {failure.stage}: {failure.detail}", width, role=Role.BAD)
    yield from wrapped(fix, width, first="  hint: ", role=Role.HINT)


def _conditions(host: Host, gpu: Gpu | None, width: int) -> Iterator[Line]:
    """What is wrong: of the host with all its GPUs, or of one GPU."""
    facts = [
        fact
        for fact in host.facts.conditions
        if gpu is None
        or fact.subject.get("gpu") in (gpu.index, *(() if gpu.parent is None else (gpu.parent,)))
    ]
    if not facts:
        return
    yield from _title("Conditions")
    for fact in facts:
        finding = word(fact)
        first = f"  {LABELS[fact.severity]}: "
        text = f"{finding.headline} [{finding.code}]"
        yield from wrapped(text, width, first=first, rest="    ", role=ROLES[fact.severity])
        for because in finding.because:
            yield from wrapped(because, width, first="    because: ", rest="      ", role=Role.DIM)
        if finding.hint is not None:
            yield from wrapped(finding.hint, width, first="    hint: ", rest="      ", role=Role.HINT)


def _gpu(host: Host, gpu: Gpu, ours: Ours, width: int) -> Iterator[Line]:
    """Its bar, then a line for each owner and each process of a deployment of ours."""
    state = health_of(host, gpu, ours)
    load = [] if gpu.utilization_percent is None else [f"{gpu.utilization_percent} %"]
    load += [] if gpu.temperature_celsius is None else [f"{gpu.temperature_celsius} °C"]
    head = f"  {gpu.index:>3}  "
    if gpu.total_bytes is None:
        why = "its memory is unknown: it is not used"
        yield line(head, padded(visible(short_name(gpu)), 26), " ", Span(why, Role.WARNING), "  ", state)
        return
    books = account(gpu, ours_on(gpu, ours), host)
    bar = memory_bar(books, max(8, min(_BAR, width - 56)))
    yield line(head, *bar, "  ", free_words(gpu), *(f"  {text}" for text in load), "  ", state)
    if gpu.parent is not None:
        yield from wrapped(
            f"MIG slice {gpu.profile or ''} of GPU {gpu.parent}", width, first="       ", role=Role.DIM
        )
    free = gpu.total_bytes if gpu.free_bytes is None else gpu.free_bytes
    if books.allocatable_bytes != free:
        yield from wrapped(f"{gib(books.allocatable_bytes)} may be claimed", width, first="       ")
    for holding in sorted(books.held, key=lambda one: -(one.bytes or 0))[:MOST_SHOWN]:
        name = owner(holding)
        name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
        yield from wrapped(f"{size(holding)} by {name}", width, first="       ", rest=" " * 9, role=Role.HELD)
    for share in ours_on(gpu, ours):
        container = share.container
        for process in gpu.processes:
            if process.container and process.container in (container.name, container.id, container.id[:12]):
                words = f"of {container.deployment}: pid {process.pid} {process.name[:LONGEST_NAME]}, {gib(process.used_bytes)}"
                yield from wrapped(words, width, first=" " * 9, rest=" " * 11, role=Role.DIM)


def _links(facts: HostFacts, gpus: tuple[Gpu, ...], link: str | None, width: int) -> Iterator[Line]:
    """Pairs by how they reach each other; the NUMA nodes of the GPUs."""
    yield from _title("Links and NUMA")
    by_kind: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for one in facts.links:
        by_kind[one.kind].append((one.a, one.b))
    if not by_kind:
        yield from _pair(
            "GPU to GPU", f"{link or 'unknown'}, no pair was told" if len(gpus) > 1 else "one GPU", width
        )
    for kind, pairs in sorted(by_kind.items()):
        members = sorted({index for pair in pairs for index in pair})
        complete = len(set(pairs)) == len(members) * (len(members) - 1) // 2
        words = (
            f"every pair of GPU {gpu_range(members)}"
            if complete and len(members) > 2
            else ", ".join(f"{a}–{b}" for a, b in sorted(pairs))
        )
        yield from _pair(kind, words, width)
    nodes: dict[int, list[int]] = defaultdict(list)
    for gpu in gpus:
        if gpu.numa_node is not None:
            nodes[gpu.numa_node].append(gpu.index)
    for node, members in sorted(nodes.items()):
        yield from _pair(f"NUMA node {node}", f"GPU {gpu_range(members)}", width)


def _links_of(facts: HostFacts, gpu: Gpu, link: str | None, width: int) -> Iterator[Line]:
    own = gpu.index if gpu.parent is None else gpu.parent
    by_kind: dict[str, list[int]] = defaultdict(list)
    for one in facts.links:
        if own in (one.a, one.b):
            by_kind[one.kind].append(one.b if one.a == own else one.a)
    for kind, others in sorted(by_kind.items()):
        yield from _pair(kind, f"to GPU {gpu_range(others)}", width)
    if not by_kind and link is not None:
        yield from _pair("to the others", link, width)


def _kept_back(host: Host, width: int) -> Iterator[Line]:
    words = []
    for reserved, number in sorted(Counter(gpu.reserved_bytes for gpu in host.gpus).items()):
        if reserved:
            words.append(f"{gib(reserved)} on each of {plural(number, 'GPU')}")
    if host.ram_reserved_bytes:
        words.append(f"{gib(host.ram_reserved_bytes)} of host memory")
    excluded = [gpu.index for gpu in host.gpus if gpu.excluded]
    if excluded:
        words.append(f"GPU {gpu_range(excluded)} whole (exclude_gpus)")
    if words:
        yield from _title("Kept back by the inventory")
        for text in words:
            yield from wrapped(text, width, first="  ")


def _ram(host: Host, width: int) -> Iterator[Line]:
    if host.ram_total_bytes is None and host.ram_available_bytes is None:
        return
    yield from _title("Host memory")
    yield from _pair(
        "RAM", f"{gib(host.ram_available_bytes)} available of {gib(host.ram_total_bytes)}", width
    )


def _system(facts: HostFacts, width: int) -> Iterator[Line]:
    threads = f", {plural(facts.cpu_count, 'thread')}" if facts.cpu_count else ""
    cpus = f"{facts.cpu or 'unknown'}{threads}"
    driver = f"{facts.driver_version}, runtime up to {facts.runtime_version or 'unknown'}"
    clock = facts.clock_offset_seconds
    rows = (
        ("system", " · ".join(part for part in (facts.os, facts.kernel, facts.architecture) if part)),
        ("CPU", cpus if facts.cpu or facts.cpu_count else ""),
        ("driver", driver if facts.driver_version else ""),
        ("login", facts.user or ""),
        ("clock", "" if clock is None else f"{clock:+z.1f} s against this machine"),
    )
    if any(text for _, text in rows):
        yield from _title("System")
        for label, text in rows:
            if text:
                yield from _pair(label, text, width)


def _docker(docker: Docker | None, width: int) -> Iterator[Line]:
    if docker is None:
        return
    yield from _title("Docker")
    yield from _pair("engine", f"{docker.version or 'unknown'}, API {docker.api_version or 'unknown'}", width)
    gives = {True: "yes", False: "no", None: "unknown"}[docker.gpu_support]
    ways = [
        *docker.runtimes,
        *([plural(len(docker.cdi_devices), "CDI device")] if docker.cdi_devices else []),
    ]
    yield from _pair("gives GPUs", f"{gives} ({listed(ways, 8)})" if ways else gives, width)
    where = f"{docker.root_dir or 'unknown'} ({docker.storage_driver or 'unknown driver'})"
    yield from _pair("data", where + (", rootless" if docker.rootless else ""), width)
    for image in docker.images[:MOST_SHOWN]:
        name = listed(list(image.tags), 2) or image.id[:19]
        versions = f"vLLM {image.vllm_version}" if image.vllm_version else "vLLM unknown"
        cuda = f", CUDA {image.cuda_version}" if image.cuda_version else ""
        much = f", {gib(image.size_bytes)}" if image.size_bytes is not None else ""
        yield from _pair("image", f"{name}: {versions}{cuda}{much}", width)
    yield from _more(len(docker.images))
    for container in docker.containers[:MOST_SHOWN]:
        state = "loading" if container.loading else container.state
        yield from _pair("ours", f"{container.deployment}: {container.name}, {state}", width)
    yield from _more(len(docker.containers))


def _disks(disks: tuple[Disk, ...], width: int) -> Iterator[Line]:
    if not disks:
        return
    yield from _title("Disks")
    for disk in disks:
        yield from _pair(
            disk.purpose.replace("_", " "),
            f"{gib(disk.free_bytes)} free of {gib(disk.total_bytes)} in {disk.path}"
            + (f" on {disk.device}" if disk.device else ""),
            width,
        )


def _network(facts: HostFacts, width: int) -> Iterator[Line]:
    if not (facts.interfaces or facts.rdma):
        return
    yield from _title("Network")
    ordered = sorted(
        facts.interfaces, key=lambda one: (one.name != facts.data_interface, one.virtual, not one.up)
    )
    for interface in ordered[:MOST_SHOWN]:
        yield from _pair(interface.name, _interface_words(interface, facts), width)
    yield from _more(len(ordered))
    for device in facts.rdma:
        rate = f", {gigabits(device.rate_bits_per_second)}" if device.rate_bits_per_second else ""
        words = (
            f"port {device.port} {device.state or 'unknown'}, {device.link_layer or 'unknown layer'}{rate}"
        )
        yield from _pair(device.name, words, width)


def _interface_words(interface: Interface, facts: HostFacts) -> str:
    words = [] if interface.name != facts.data_interface else ["data interface"]
    words += ["up" if interface.up else "down", *interface.addresses]
    if interface.speed_bits_per_second:
        words.append(gigabits(interface.speed_bits_per_second))
    if interface.mtu is not None:
        words.append(f"MTU {interface.mtu}")
    if interface.rdma_device:
        words.append(f"RDMA {interface.rdma_device}")
    if interface.virtual:
        words.append("virtual")
    return ", ".join(words)


def _title(text: str) -> Iterator[Line]:
    yield EMPTY
    yield line(Span(visible(text), Role.TITLE))


def _pair(label: str, text: str, width: int, role: Role = Role.PLAIN) -> Iterator[Line]:
    """A label and its text, which hangs under itself."""
    lead = f"  {padded(visible(label), _LABEL)} "
    for number, row in enumerate(wrapped(text, width, first=" " * (_LABEL + 3), role=role)):
        body = row[0].text[_LABEL + 3 :]
        yield line(Span(lead if number == 0 else " " * (_LABEL + 3), Role.DIM), Span(body, role))


def _more(number: int) -> Iterator[Line]:
    if number > MOST_SHOWN:
        yield line(Span(f"  … {number - MOST_SHOWN} more (gpuplan probe --save FILE has all)", Role.DIM))


def _or_unknown(number: int | None) -> str:
    return "unknown" if number is None else str(number)
