"""The fleet as it will be once one of our deployments is stopped: what a redeployment is planned on (S4.7, S4.9).

Nothing but that deployment changes. What it is known to hold comes back, never more: where the device names none of
its processes, the use that nobody else explains, up to its claim. So a GPU never offers less than before.
"""

from collections.abc import Iterable
from dataclasses import replace

from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.host_facts import HostFacts, OurContainer
from gpuplan.planning.allocatable import (
    Ours,
    Use,
    free_bytes,
    ours_by_gpu,
    ours_on,
    shares_host_memory,
    use_of,
)


def released(fleet: Fleet, deployment: str) -> Fleet:
    """The fleet without the containers of a deployment: their memory free, their ports open.

    RAM stays as measured, for nobody recorded what of it a deployment holds; memory that a GPU shares with its host
    comes back there too.
    """
    hosts = tuple(_without(host, deployment) for host in fleet.hosts)
    return fleet if hosts == fleet.hosts else replace(fleet, hosts=hosts)


def _without(host: Host, deployment: str) -> Host:
    docker = host.facts.docker
    if docker is None or all(one.deployment != deployment for one in docker.containers):
        return host
    ours = ours_by_gpu(host)
    gpus, back = [], 0
    for gpu in host.gpus:
        freed, given = _freed(host, gpu, ours, deployment)
        gpus.append(freed)
        if shares_host_memory(gpu):
            back = max(back, given)
    return replace(
        host,
        gpus=tuple(gpus),
        ram_available_bytes=_more(host, back),
        facts=_facts(host.facts, deployment),
    )


def _freed(host: Host, gpu: Gpu, ours: Ours, deployment: str) -> tuple[Gpu, int]:
    """The GPU without the deployment, and the bytes that come back."""
    shares = ours_on(gpu, ours)
    leaving = [share.container.deployment == deployment for share in shares]
    total, free = gpu.total_bytes, gpu.free_bytes
    if total is None or not any(leaving):
        return gpu, 0
    use = use_of(gpu.processes, shares, total=total, free=free_bytes(gpu, host))
    given, unexplained = 0, use.unexplained_bytes
    for number, share in enumerate(shares):
        if leaving[number]:
            given += use.bytes[number]
            if gpu.uuid is not None and _unseen(use, number):
                more = min(max(0, share.claim_bytes - use.bytes[number]), unexplained)
                given, unexplained = given + more, unexplained - more
    gone = {id(one) for number, own in enumerate(use.processes) if leaving[number] for one in own}
    processes = tuple(process for process in gpu.processes if id(process) not in gone)
    return replace(
        gpu, processes=processes, free_bytes=None if free is None else min(total, free + given)
    ), given


def _unseen(use: Use, number: int) -> bool:
    """Whether the device names no process of a container, or not its size."""
    own = use.processes[number]
    return not own or any(process.used_bytes is None for process in own)


def _more(host: Host, back: int) -> int | None:
    """Available RAM with `back` bytes of shared memory returned."""
    available = host.ram_available_bytes
    if available is None or not back:
        return available
    return available + back if host.ram_total_bytes is None else min(host.ram_total_bytes, available + back)


def _facts(facts: HostFacts, deployment: str) -> HostFacts:
    docker = facts.docker
    if docker is None:
        return facts
    left = tuple(one for one in docker.containers if one.deployment != deployment)
    closed = _ports(one for one in docker.containers if one.deployment == deployment) - _ports(left)
    return replace(
        facts,
        docker=replace(docker, containers=left),
        listening_ports=tuple(port for port in facts.listening_ports if port not in closed),
    )


def _ports(containers: Iterable[OurContainer]) -> set[int]:
    return {port for one in containers for port in one.ports}
