"""The fleet with nothing running on it: whether waiting for room can ever help (S4.5, S4.10).

Meant to err on the side of hope: all memory is taken to come back, whoever holds it, the driver's own share included.
"""

from dataclasses import replace

from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.planning.released import released


def emptied(fleet: Fleet) -> Fleet:
    """Without our deployments and everybody's processes, the RAM of every host free."""
    names = {
        one.deployment
        for host in fleet.hosts
        if host.facts.docker is not None
        for one in host.facts.docker.containers
    }
    for name in sorted(names):
        fleet = released(fleet, name)
    return replace(fleet, hosts=tuple(map(_alone, fleet.hosts)))


def _alone(host: Host) -> Host:
    ram = host.ram_available_bytes if host.ram_total_bytes is None else host.ram_total_bytes
    return replace(host, gpus=tuple(map(_idle, host.gpus)), ram_available_bytes=ram)


def _idle(gpu: Gpu) -> Gpu:
    return replace(gpu, processes=(), free_bytes=None if gpu.free_bytes is None else gpu.total_bytes)
