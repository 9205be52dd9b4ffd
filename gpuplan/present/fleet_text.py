"""A fleet as it was seen, in rows: hosts, GPUs, who holds memory, what is wrong and what mends it."""

from collections import Counter
from collections.abc import Iterator

from gpuplan.domain.fact import Severity
from gpuplan.domain.fleet import Fleet, Gpu, Host, HostStatus
from gpuplan.domain.host_facts import HostFacts
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible, wrapped
from gpuplan.present.findings import word
from gpuplan.present.numbers import gib, gigabits, gpu_range, listed
from gpuplan.present.unreached import way_back
from gpuplan.units import GIB, plural

ROLES = {Severity.ERROR: Role.BAD, Severity.WARNING: Role.WARNING, Severity.INFO: Role.DIM}
LABELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
WORTH_TELLING = 256 * 1024**2
"""Bytes in use on a GPU below which nobody needs to ask who holds them: an idle driver."""
LONGEST_NAME = 160
"""Characters of a process name that are shown: some are whole command lines."""
_INDENT = "  "


def fleet_text(fleet: Fleet, width: int) -> Lines:
    """The fleet in at most `width` columns: a table of hosts, then for each what holds memory and what is wrong."""
    return tuple(_lines(fleet, width))


def _lines(fleet: Fleet, width: int) -> Iterator[Line]:
    name = min(max(len("host"), *(len(host.name) for host in fleet.hosts), 4), 24)
    gpus = width - name - 2 - 24 - 10
    yield line(
        Span(f"{padded('host', name)}  {padded('GPUs', gpus)}{'free of total':<24}{'driver':<10}", Role.DIM)
    )
    for host in fleet.hosts:
        yield from _row(host, name, gpus, width)
    for host in fleet.hosts:
        details = tuple(_details(host, width))
        if details:
            yield EMPTY
            yield line(Span(visible(host.name), Role.TITLE))
            yield from details
    yield EMPTY
    yield from _summary(fleet, width)


def _row(host: Host, name: int, gpus: int, width: int) -> Iterator[Line]:
    title = Span(padded(visible(host.name), name) + _INDENT, Role.TITLE)
    if host.status is not HostStatus.OK:
        failure = host.failure
        why = f"{failure.stage}: {failure.detail}" if failure is not None else "no reason is known"
        rows = wrapped(f"{host.status.value} – {why}", width - name - 2)
        for number, row in enumerate(rows):
            yield line(title if number == 0 else " " * (name + 2), Span(row[0].text, Role.BAD))
        if failure is not None:
            _, fix = way_back(failure.stage, host.address or host.name)
            yield from wrapped(fix, width, first=f"{' ' * (name + 2)}hint: ", role=Role.HINT)
        return
    memory, known = free_of_total(host)
    cards = counted_names(host.gpus) or "no GPU"
    yield line(
        title,
        padded(visible(cards), gpus - 1) + " ",
        Span(f"{memory:<24}", Role.PLAIN if known else Role.WARNING),
        padded(visible(host.facts.driver_version or "–"), 10).rstrip(),
    )


def free_of_total(host: Host) -> tuple[str, bool]:
    """`412.0 of 640.0 GiB` of all GPUs whose memory is known, and whether there are any."""
    known = [gpu for gpu in host.gpus if gpu.total_bytes is not None]
    free = sum((gpu.total_bytes if gpu.free_bytes is None else gpu.free_bytes) or 0 for gpu in known)
    total = sum(gpu.total_bytes or 0 for gpu in known)
    if known:
        return f"{free / GIB:,.1f} of {total / GIB:,.1f} GiB", True
    return "unknown" if host.gpus else "–", False


def counted_names(gpus: tuple[Gpu, ...]) -> str:
    """`8 × H100 80GB HBM3`, `2 × L40S + 1 × GeForce RTX 4090`; the maker's name left out."""
    names = Counter(short_name(gpu) for gpu in gpus)
    return " + ".join(f"{number} × {name}" for name, number in names.items())


def short_name(gpu: Gpu) -> str:
    """`H100 80GB HBM3`, `A100-SXM4-80GB 1g.10gb`."""
    name = gpu.name.removeprefix("NVIDIA ")
    return f"{name} {gpu.profile}" if gpu.profile and gpu.profile not in name else name


def _details(host: Host, width: int) -> Iterator[Line]:
    known = "; ".join(_known(host.facts))
    if known:
        yield from wrapped(known, width, first=_INDENT, role=Role.DIM)
    for gpu in host.gpus:
        yield from _held(gpu, width)
    excluded = [gpu.index for gpu in host.gpus if gpu.excluded]
    if excluded:
        yield line(Span(f"{_INDENT}left out by exclude_gpus: GPU {gpu_range(excluded)}", Role.DIM))
    for fact in host.facts.conditions:
        finding = word(fact)
        yield from wrapped(
            f"{finding.headline} [{finding.code}]",
            width,
            first=f"{_INDENT}{LABELS[fact.severity]}: ",
            rest=_INDENT * 2,
            role=ROLES[fact.severity],
        )
        if finding.hint is not None and fact.severity is not Severity.INFO:
            yield from wrapped(
                finding.hint, width, first=f"{_INDENT * 2}hint: ", rest=_INDENT * 3, role=Role.HINT
            )


def _known(facts: HostFacts) -> Iterator[str]:
    """Where containers will run, over what they will speak, where models will lie."""
    if facts.docker is not None and facts.docker.version:
        versions = sorted({image.vllm_version for image in facts.docker.images if image.vllm_version})
        images = f" with vLLM {listed(versions)}" if versions else ""
        yield f"Docker {facts.docker.version}{images}"
    chosen = next((item for item in facts.interfaces if item.name == facts.data_interface), None)
    if chosen is not None:
        speed = chosen.speed_bits_per_second
        words = [item for item in (chosen.addresses[:1] + ((gigabits(speed),) if speed else ())) if item]
        yield (
            f"data interface {chosen.name} ({', '.join(words)})" if words else f"data interface {chosen.name}"
        )
    for disk in facts.disks:
        if disk.purpose == "model_dir":
            yield f"{gib(disk.free_bytes)} free in {disk.path}"


def _held(gpu: Gpu, width: int) -> Iterator[Line]:
    """Who holds memory of a GPU that is not idle."""
    if gpu.total_bytes is None or gpu.free_bytes is None or gpu.unified:
        return
    used = gpu.total_bytes - gpu.free_bytes
    if used < WORTH_TELLING:
        return
    owners = [
        f"{_cut(process.name) or 'a process'} (pid {process.pid}"
        + (f", {process.user}" if process.user else "")
        + (f", container {process.container}" if process.container else "")
        + (f") {gib(process.used_bytes)}" if process.used_bytes is not None else ") an unknown share")
        for process in sorted(gpu.processes, key=lambda process: -(process.used_bytes or 0))
    ]
    who = listed(owners) if owners else "the host does not say by whom"
    yield from wrapped(
        f"GPU {gpu.index}: {gib(used)} of {gib(gpu.total_bytes)} in use: {who}",
        width,
        first=_INDENT,
        rest=_INDENT * 2,
        role=Role.HELD,
    )


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _summary(fleet: Fleet, width: int) -> Iterator[Line]:
    seen = [host for host in fleet.hosts if host.status is HostStatus.OK]
    failed = len(fleet.hosts) - len(seen)
    gpus = sum(len(host.gpus) for host in seen)
    text = f"{plural(len(seen), 'host')} answered with {plural(gpus, 'GPU')}"
    if failed:
        text += f", {plural(failed, 'host')} did not"
    if fleet.taken_at is not None:
        text += f"; read {fleet.taken_at}"
    yield from wrapped(text, width, role=Role.BAD if failed else Role.GOOD)
