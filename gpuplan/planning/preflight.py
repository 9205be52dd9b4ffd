"""The preflight: what was probed and measured, judged rung by rung. No rung is judged on what a lower one lacks."""

from collections.abc import Sequence

from gpuplan.domain.fleet import Host, HostStatus
from gpuplan.planning import preflight_host as lower
from gpuplan.planning import preflight_resources as upper
from gpuplan.planning.preflight_across import across
from gpuplan.planning.preflight_images import image_cuda, image_on
from gpuplan.planning.preflight_measures import HostMeasures, Measured, Wanted
from gpuplan.planning.preflight_report import HostLadder, Preflight, Rung, RungName

_AFTER_SSH = (
    RungName.PROBE,
    RungName.DOCKER,
    RungName.GPU,
    RungName.GPU_HEALTH,
    RungName.TOOLKIT,
    RungName.DRIVER,
    RungName.ARCHITECTURE,
    RungName.IMAGE_DISK,
    RungName.WEIGHTS,
    RungName.PORTS,
    RungName.SHARED_MEMORY,
    RungName.INTERFACE,
)


def preflight(hosts: Sequence[Host], wanted: Wanted, measured: Measured) -> Preflight:
    """Judge every host, then the hosts together; results keep the order of `hosts`."""
    return Preflight(
        hosts=tuple(
            HostLadder(host=host.name, rungs=_rungs(host, hosts, wanted, _measures(measured, host)))
            for host in hosts
        ),
        across=across(hosts, wanted, measured),
        image=wanted.image,
        model=wanted.model.name if wanted.model is not None else None,
    )


def _measures(measured: Measured, host: Host) -> HostMeasures:
    return measured.hosts.get(host.name) or HostMeasures()


def _rungs(host: Host, hosts: Sequence[Host], wanted: Wanted, measures: HostMeasures) -> tuple[Rung, ...]:
    first = lower.ssh(host)
    if host.status is not HostStatus.OK:
        return (first, *(lower.unjudged(name, "unreached") for name in _AFTER_SSH))
    here = image_on(host, wanted.image)
    everywhere = lower.images_of(hosts, wanted.image)
    cuda = image_cuda(wanted.image, (here, *everywhere) if here is not None else everywhere)
    room = upper.image_room(host, wanted, everywhere)
    return (
        first,
        lower.probe(host),
        lower.docker(host),
        lower.gpu(host),
        lower.gpu_health(host),
        lower.toolkit(host, measures.gpu_test, wanted.image),
        lower.driver(host, cuda, wanted.image),
        lower.architecture(host, wanted),
        room,
        upper.weights(host, wanted, measures, room),
        upper.ports(host, wanted, measures),
        upper.shared_memory(host, wanted),
        lower.interface(host, wanted),
    )
