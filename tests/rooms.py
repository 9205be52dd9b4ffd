"""Fleets on which something of ours runs, by hand: who holds which GPU, and how busy it is."""

from collections.abc import Mapping
from dataclasses import replace

from gpuplan.domain.fleet import GpuProcess, Host
from gpuplan.domain.host_facts import Docker, HostFacts, OurContainer
from gpuplan.units import GIB
from tests.fleets import CARDS
from tests.fleets import host as plain_host


def uuid(host: str, index: int) -> str:
    return f"GPU-{host}-{index}"


def runs(
    name: str,
    *gpus: tuple[str, int],
    claim: float = 72,
    keep_alive: int | None = None,
    requests: int | None = None,
    waiting: int | None = 0,
    loading: bool = False,
    state: str = "running",
    role: str = "single",
) -> OurContainer:
    """A container of deployment `name` on GPUs of one host, with `claim` GiB booked on each."""
    held = tuple(uuid(host, index) for host, index in gpus)
    return OurContainer(
        id=name.ljust(64, "0"),
        name=f"gpuplan-{name}-n0",
        deployment=name,
        state=state,
        role=role,
        gpus=held,
        claims=tuple((one, int(claim * GIB)) for one in held),
        keep_alive_seconds=keep_alive,
        running_requests=requests,
        waiting_requests=None if requests is None else waiting,
        loading=loading,
    )


def shared(
    name: str,
    *containers: OurContainer,
    card: str = "H100",
    gpus: int = 1,
    used: Mapping[int, float] | None = None,
    others: Mapping[int, GpuProcess] | None = None,
    ram: float | None = None,
) -> Host:
    """A host with `used` GiB of each GPU taken (by index; else what the containers claim), and processes of others."""
    one = plain_host(name, card, gpus, ram=ram)
    made = []
    for gpu in one.gpus:
        own = uuid(name, gpu.index)
        claimed = sum(dict(container.claims).get(own, 0) for container in containers) / GIB
        other = (others or {}).get(gpu.index)
        taken = (used or {}).get(gpu.index, claimed + (other.used_bytes or 0) / GIB if other else claimed)
        made.append(
            replace(
                gpu,
                uuid=own,
                free_bytes=int(max(0.0, CARDS[card][1] - taken) * GIB),
                processes=() if other is None else (other,),
            )
        )
    return replace(one, gpus=tuple(made), facts=HostFacts(docker=Docker(containers=containers)))
