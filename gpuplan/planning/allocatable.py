"""What a GPU can give, and who has the rest (S4.4, S0 correction 4).

    to come     = Σ over our deployments on the GPU: max(0, claim - measured use)
    booked      = Σ over our deployments on the GPU: max(claim, measured use)
    allocatable = max(0, min(reported free - to come, total - booked - others' measured use) - reserve)

The first operand takes everybody's memory as the device reports it, processes nobody can name included, and adds what
ours are still to take: a deployment that just started shows in the report by its first bytes only. The second holds
where the report lags behind the processes. So allocatable is never above what is reported free, and never above total
less our claims; it falls when a claim or another's use grows, and never falls when more is reported free.

The measured use of a deployment is that of the processes in its container. Where the device names no process of it, or
not its size (MIG, vGPU, WSL), a deployment that serves is taken to be what the unexplained use is, up to its claim: it
allocates all its memory before it serves. One that does not serve yet is taken to have nothing so far.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from gpuplan.domain.deployment import ENDED
from gpuplan.domain.fleet import Basis, Gpu, GpuProcess, Host
from gpuplan.domain.host_facts import OurContainer
from gpuplan.domain.plan import Holding, Owner

MOST_NAMED = 16
"""Processes named on one GPU; the rest are added up."""
SHORT_ID = 12
"""Digits of a container's id that Docker prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One GPU's memory: what may be claimed, and who has the rest."""

    allocatable_bytes: int
    held: tuple[Holding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OurShare:
    """One of our containers on one GPU."""

    container: OurContainer
    claim_bytes: int = 0
    """Predicted to be used on this GPU; 0 where no prediction was recorded: its measured use alone counts."""


Ours = Mapping[str, tuple[OurShare, ...]]
NOTHING_OF_OURS: Ours = {}
UNPLACED = ""
"""In place of a UUID."""


def ours_on(gpu: Gpu, ours: Ours) -> tuple[OurShare, ...]:
    """Our containers on a GPU; on one of unknown UUID those that may be there."""
    return ours.get(gpu.uuid or UNPLACED, ()) if ours else ()


def ours_by_gpu(host: Host) -> Ours:
    """Our containers that hold memory or are about to, by the UUID of each GPU given to them.

    Under UNPLACED, where the UUID of some GPU is unknown: those whose own GPU was not found, each by its largest claim.
    """
    docker = host.facts.docker
    found: dict[str, tuple[OurShare, ...]] = {}
    if docker is None:
        return found
    for container in sorted(docker.containers, key=lambda one: (one.deployment, one.name, one.id)):
        if container.state in ENDED:
            continue
        claims = dict(container.claims)
        for uuid in dict.fromkeys((*container.gpus, *claims)):
            share = OurShare(container=container, claim_bytes=claims.get(uuid, 0))
            found[uuid] = (*found.get(uuid, ()), share)
    if found and any(gpu.uuid is None for gpu in host.gpus):
        found[UNPLACED] = _unplaced(found, {gpu.uuid for gpu in host.gpus})
    return found


def _unplaced(found: Ours, known: Container[str | None]) -> tuple[OurShare, ...]:
    largest: dict[str, OurShare] = {}
    for share in (share for uuid, shares in found.items() if uuid not in known for share in shares):
        other = largest.setdefault(share.container.id, share)
        if share.claim_bytes > other.claim_bytes:
            largest[share.container.id] = share
    return tuple(largest.values())


def account(gpu: Gpu, ours: tuple[OurShare, ...] = (), host: Host | None = None) -> Account:
    """Memory of a GPU whose total is known; `ours` are our containers on it, `host` matters to unified memory alone."""
    total = gpu.total_bytes or 0
    free = free_bytes(gpu, host)
    reserve = gpu.reserved_bytes
    shared = host is not None and shares_host_memory(gpu)
    if shared and host is not None and host.ram_available_bytes is not None:
        # the host's own reserve is of the same memory
        reserve += free - max(0, min(free, host.ram_available_bytes - host.ram_reserved_bytes))
    named: tuple[Holding, ...] = ()
    given, rest = free, total - free
    if ours or gpu.processes:
        given, named = _named(gpu.processes, ours, total=total, free=free)
        rest = total - given - sum(holding.bytes or 0 for holding in named)
    held = named
    if rest > 0:
        held = (*held, Holding(owner=Owner.HOST if shared else Owner.UNKNOWN, bytes=rest))
    if reserve > 0:
        held = (*held, Holding(owner=Owner.RESERVE, bytes=reserve, basis=Basis.EXACT))
    return Account(allocatable_bytes=max(0, given - reserve), held=held)


def shares_host_memory(gpu: Gpu) -> bool:
    """Whether what is free on the GPU is what the kernel of its host calls available: CUDA on unified memory."""
    return gpu.unified and gpu.backend == "cuda"


def free_bytes(gpu: Gpu, host: Host | None = None) -> int:
    """What a GPU of known total has free; all of it where nobody reported."""
    total = gpu.total_bytes or 0
    free = total if gpu.free_bytes is None else min(gpu.free_bytes, total)
    if host is not None and host.ram_available_bytes is not None and shares_host_memory(gpu):
        return min(free, host.ram_available_bytes)
    return free


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What each of our containers holds of a GPU now, and what is left to explain."""

    processes: tuple[tuple[GpuProcess, ...], ...]
    """Of each container, in the order the containers were given."""
    bytes: tuple[int, ...]
    """Held by each: its processes', and for one that serves unseen what nobody else explains, up to its claim."""
    others: tuple[GpuProcess, ...]
    unexplained_bytes: int


def use_of(processes: Iterable[GpuProcess], ours: tuple[OurShare, ...], *, total: int, free: int) -> Use:
    """Who holds what of a GPU of `total` bytes, of which `free` are reported free."""
    of_ours: list[list[GpuProcess]] = [[] for _ in ours]
    others: list[GpuProcess] = [] if ours else list(processes)
    for process in processes if ours else ():
        found = (own for own, share in zip(of_ours, ours, strict=True) if _runs_in(process, share.container))
        next(found, others).append(process)
    unexplained = max(0, total - free - _used(others) - sum(_used(own) for own in of_ours))
    held: list[int] = []
    for own, share in zip(of_ours, ours, strict=True):
        measured = _used(own)
        if not _all_known(own) and _serves(share.container):
            taken = min(max(0, share.claim_bytes - measured), unexplained)
            measured, unexplained = measured + taken, unexplained - taken
        held.append(measured)
    return Use(
        processes=tuple(tuple(own) for own in of_ours),
        bytes=tuple(held),
        others=tuple(others),
        unexplained_bytes=unexplained,
    )


def _named(
    processes: Iterable[GpuProcess], ours: tuple[OurShare, ...], *, total: int, free: int
) -> tuple[int, tuple[Holding, ...]]:
    """(bytes left before the reserve, possibly negative; what deployments and processes hold)."""
    use = use_of(processes, ours, total=total, free=free)
    deployments = [_deployment(share, held) for share, held in zip(ours, use.bytes, strict=True)]
    booked = sum(max(share.claim_bytes, held) for share, held in zip(ours, use.bytes, strict=True))
    to_come = sum(max(0, share.claim_bytes - held) for share, held in zip(ours, use.bytes, strict=True))
    given = min(free - to_come, total - booked - _used(use.others))
    return given, (*deployments, *_strangers(use.others))


def _runs_in(process: GpuProcess, container: OurContainer) -> bool:
    """Whether a process is in the container, which the probe names by its name, its id or the start of its id."""
    named = (process.container or "").removeprefix("/")
    if not named:
        return False
    return named == container.name or (len(named) >= SHORT_ID and container.id.startswith(named))


def _used(processes: Iterable[GpuProcess]) -> int:
    return sum(process.used_bytes or 0 for process in processes)


def _all_known(processes: list[GpuProcess]) -> bool:
    return bool(processes) and all(process.used_bytes is not None for process in processes)


def _serves(container: OurContainer) -> bool:
    return container.state in {"running", "paused"} and not container.loading


def _deployment(share: OurShare, measured: int) -> Holding:
    return Holding(
        owner=Owner.OURS,
        bytes=max(share.claim_bytes, measured),
        name=share.container.deployment,
        container=share.container.name,
        basis=Basis.COMPUTED if share.claim_bytes > measured else Basis.MEASURED,
    )


def _strangers(processes: Iterable[GpuProcess]) -> Iterable[Holding]:
    """Processes that are not ours, most memory first; those of unknown size last."""
    ordered = sorted(processes, key=lambda one: (one.used_bytes is None, -(one.used_bytes or 0), one.pid))
    for process in ordered[:MOST_NAMED]:
        yield Holding(
            owner=Owner.PROCESS,
            bytes=process.used_bytes,
            name=process.name,
            container=process.container,
            user=process.user,
            pid=process.pid,
        )
    rest = ordered[MOST_NAMED:]
    if rest:
        yield Holding(owner=Owner.PROCESS, bytes=_used(rest), name=f"{len(rest)} more processes")
