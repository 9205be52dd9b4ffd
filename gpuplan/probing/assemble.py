"""All that a host answered, put together as one `Host`: pure, so a recorded host is read as a live one."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Gpu, GpuProcess, Host
from gpuplan.domain.host_facts import GpuLink, HostFacts
from gpuplan.domain.inventory import HostEntry
from gpuplan.probing import amd_smi, docker, host, network, npu_smi, nvidia_smi
from gpuplan.probing.command import Command
from gpuplan.probing.data_interface import data_interface
from gpuplan.probing.devices import DeviceReport
from gpuplan.probing.output import NOT_RUN, Output

CLOCK = next(command for command in host.COMMANDS if command.name == "host_clock")
CLOCK_AGAIN = replace(CLOCK, name="host_clock_again")
DOCKER_ROOT = "docker_root"
DISKS = {
    DOCKER_ROOT: "/var/lib/docker",
    "huggingface_cache": "~/.cache/huggingface",
    "shm": "/dev/shm",
}
"""File systems every host is asked for; Docker's root is asked again where the engine names another."""
_NVLINK = "NV"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a host answered, and when (our clock, seconds since 1970)."""

    outputs: Mapping[str, Output]
    sent: float
    received: float
    address: str | None = None
    """The IP address the connection reached."""
    nvidia: DeviceReport
    """From NVML or nvidia-smi."""
    engine: docker.DockerReport


def commands(entry: HostEntry) -> tuple[Command, ...]:
    """What a host is asked, in this order: what may hang the host's driver comes last."""
    disks = DISKS if entry.model_dir is None else {"model_dir": entry.model_dir, **DISKS}
    others = (command for command in host.COMMANDS if command is not CLOCK)
    return (
        CLOCK,
        *others,
        *network.COMMANDS,
        *docker.COMMANDS,
        *host.disk_commands(disks),
        CLOCK_AGAIN,
        *amd_smi.COMMANDS,
        *npu_smi.COMMANDS,
        *nvidia_smi.COMMANDS,
    )


def assemble(entry: HostEntry, answers: Answers) -> Host:
    """The host as it is, before the catalogue and the inventory have their say. Never raises."""
    outputs = answers.outputs
    received = answers.received - _between(outputs)
    machine = host.report(outputs, sent=answers.sent, received=max(answers.sent, received))
    net = network.report(outputs)
    devices = tuple(_numbered((answers.nvidia, amd_smi.report(outputs), npu_smi.report(outputs))))
    containers = dict(answers.engine.containers)
    gpus = tuple(gpu for report in devices for gpu in report.gpus)
    links = tuple(link for report in devices for link in report.links)
    chosen, _ = data_interface(
        net.interfaces, net.rdma, entry.interface, entry.data_address, answers.address, net.default_route
    )
    facts = HostFacts(
        hostname=machine.hostname,
        machine_id=machine.machine_id,
        architecture=machine.architecture,
        kernel=machine.kernel,
        os=machine.os,
        cpu=machine.cpu,
        cpu_count=machine.cpu_count,
        user=machine.user,
        clock_offset_seconds=machine.clock_offset_seconds,
        driver_version=next((report.driver_version for report in devices if report.driver_version), None),
        runtime_version=next((report.runtime_version for report in devices if report.runtime_version), None),
        ephemeral_ports=net.ephemeral_ports,
        listening_ports=net.listening_ports,
        disks=machine.disks,
        interfaces=net.interfaces,
        data_interface=chosen,
        rdma=net.rdma,
        links=links,
        docker=answers.engine.docker,
        conditions=(
            *(fact for report in devices for fact in report.conditions),
            *answers.engine.conditions,
            *machine.conditions,
            *net.conditions,
            *_interface_gone(entry, chosen, net),
        ),
    )
    return Host(
        name=entry.name,
        address=entry.address,
        gpus=tuple(_complete(gpu, machine, containers) for gpu in gpus),
        ram_total_bytes=machine.ram_total_bytes,
        ram_available_bytes=machine.ram_available_bytes,
        link=_link(links),
        facts=replace(facts, conditions=_of_host(entry, (*facts.conditions, *_shared(gpus, machine)))),
    )


def _of_host(entry: HostEntry, conditions: Iterable[Fact]) -> tuple[Fact, ...]:
    return tuple(replace(fact, subject={"host": entry.name, **fact.subject}) for fact in conditions)


def _between(outputs: Mapping[str, Output]) -> float:
    """Seconds on the host's clock from the first reading to the second: they do not blur the offset."""
    first, second = (
        host.clock_seconds(outputs.get(command.name, NOT_RUN).text) for command in (CLOCK, CLOCK_AGAIN)
    )
    return max(0.0, second - first) if first is not None and second is not None else 0.0


def _numbered(reports: Iterable[DeviceReport]) -> Iterator[DeviceReport]:
    """What every vendor's tools say; the devices after the first vendor's are numbered on, so that an index is one device.

    An index is taken by a device that is listed, by a card divided into slices, and by one that only a state speaks of.
    """
    first = 0
    for report in reports:
        yield _moved(report, first) if first else report
        taken = [index for gpu in report.gpus for index in (gpu.index, gpu.parent) if index is not None]
        taken += [index for fact in report.conditions if isinstance(index := fact.subject.get("gpu"), int)]
        first += max(taken, default=-1) + 1


def _moved(report: DeviceReport, by: int) -> DeviceReport:
    return replace(
        report,
        gpus=tuple(
            replace(gpu, index=gpu.index + by, parent=None if gpu.parent is None else gpu.parent + by)
            for gpu in report.gpus
        ),
        links=tuple(replace(link, a=link.a + by, b=link.b + by) for link in report.links),
        conditions=tuple(_moved_state(fact, by) for fact in report.conditions),
    )


def _moved_state(fact: Fact, by: int) -> Fact:
    index = fact.subject.get("gpu")
    return replace(fact, subject={**fact.subject, "gpu": index + by}) if isinstance(index, int) else fact


def _link(links: tuple[GpuLink, ...]) -> str | None:
    """How all GPUs of the host are joined, by their worst pair; None when the tools do not tell."""
    if not links:
        return None
    kinds = {link.kind.upper() for link in links}
    if all(kind.startswith(_NVLINK) for kind in kinds):
        return "nvlink"
    if kinds == {"XGMI"}:
        return "xgmi"
    return "hccs" if kinds == {"HCCS"} else "pcie"


def _complete(gpu: Gpu, machine: host.HostReport, containers: Mapping[str, str]) -> Gpu:
    """A GPU that shares the host's memory has the host's figures; containers are named as the engine names them."""
    if containers and gpu.processes:
        gpu = replace(gpu, processes=tuple(_named(process, containers) for process in gpu.processes))
    if not gpu.unified or gpu.total_bytes is not None:
        return gpu
    return replace(gpu, total_bytes=machine.ram_total_bytes, free_bytes=machine.ram_available_bytes)


def _named(process: GpuProcess, containers: Mapping[str, str]) -> GpuProcess:
    if process.container is None:
        return process
    return replace(process, container=containers.get(process.container, process.container[:12]))


def _shared(gpus: Iterable[Gpu], machine: host.HostReport) -> Iterator[Fact]:
    """GP637 for GPUs whose memory Windows gives out, GP619 for those without memory of their own."""
    if (machine.os or "").endswith("(WSL)"):
        for gpu in gpus:
            if gpu.backend == "cuda":
                yield Fact(code="GP637", severity=Severity.WARNING, subject={"gpu": gpu.index}, figures={})
    yield from _unified(gpus, machine)


def _unified(gpus: Iterable[Gpu], machine: host.HostReport) -> Iterator[Fact]:
    if machine.ram_total_bytes is None or machine.ram_available_bytes is None:
        return
    figures = {"total_bytes": machine.ram_total_bytes, "available_bytes": machine.ram_available_bytes}
    for gpu in gpus:
        if gpu.unified and gpu.total_bytes is None:
            yield Fact(code="GP619", severity=Severity.INFO, subject={"gpu": gpu.index}, figures=figures)


def _interface_gone(entry: HostEntry, chosen: str | None, net: network.NetworkReport) -> tuple[Fact, ...]:
    """GP634 where the inventory names an interface, or the address of one, that the host does not have."""
    if chosen is not None or not net.interfaces:
        return ()
    missing = network.missing_interface(net.interfaces, entry.interface or entry.data_address)
    return (missing,) if missing is not None else ()
