"""A placement evaluated again, as it stands: the same GPUs, the same sizes, on the fleet as it is now.

GPUs are known by their UUID, which they keep when indexes move; by index where nobody told a UUID.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpuplan.domain.fleet import Gpu, Host
from gpuplan.domain.plan import Candidate, Parallelism, PlacedGpu, PlacedHost
from gpuplan.planning.judge import Judge
from gpuplan.planning.offers import HostOffer, Offer, supply_of
from gpuplan.planning.request import PlanRequest, with_offload
from gpuplan.planning.strategies.manual import Groups, judged, together


def candidate_at(
    request: PlanRequest, placement: Sequence[PlacedHost], parallelism: Parallelism
) -> Candidate | None:
    """The candidate for exactly these GPUs and sizes, fitting or not; None where one of the GPUs cannot be used now.

    `Parallelism.data` replicas are evaluated one by one; their order is kept, and the candidate is worth what the
    worst of them is.
    """
    request = with_offload(request, max((host.cpu_offload_gib for host in placement), default=0))
    judge = Judge(request)
    offered = _offers(request)
    hosts = {host.name: host for host in request.fleet.hosts}
    shape = replace(parallelism, data=1)
    evaluated = []
    for replica in replicas(placement, shape.world_size):
        groups = _groups(replica, hosts, offered)
        if groups is None:
            return None
        devices = tuple(offer.device for _, offers in groups for offer in offers)
        evaluated.append(judged(judge, groups, judge.assess(shape, devices)))
    if len(evaluated) != parallelism.data:
        return None
    made = [one for one, _ in evaluated]
    failures = [fact for _, found in evaluated for fact in found]
    if len(made) == 1:
        return made[0]
    joined = together(judge, made, failures)
    in_order = tuple(
        replace(now, role=then.role)
        for then, now in zip(placement, (host for one in made for host in one.placement), strict=True)
    )
    return replace(joined, placement=in_order)


def replicas(placement: Sequence[PlacedHost], world: int) -> Iterator[tuple[PlacedHost, ...]]:
    """The placement cut into replicas of `world` GPUs, in order."""
    part: tuple[PlacedHost, ...] = ()
    for host in placement:
        part = (*part, host)
        if sum(len(one.gpus) for one in part) >= world:
            yield part
            part = ()
    if part:
        yield part


def gpu_now(host: Host, then: PlacedGpu) -> Gpu | None:
    """The GPU of a host that a placement means."""
    by_uuid = next((gpu for gpu in host.gpus if then.uuid is not None and gpu.uuid == then.uuid), None)
    if by_uuid is not None:
        return by_uuid
    at_index = next((gpu for gpu in host.gpus if gpu.index == then.index), None)
    if at_index is None or (then.uuid is not None and at_index.uuid is not None):
        return None
    return at_index


Offered = dict[tuple[str, int], tuple[HostOffer, Offer]]


def _offers(request: PlanRequest) -> Offered:
    return {
        (offer.host, offer.index): (host, offer)
        for host in supply_of(request.fleet).hosts
        for offer in host.offers
    }


def _groups(replica: Sequence[PlacedHost], hosts: dict[str, Host], offered: Offered) -> Groups | None:
    groups: Groups = []
    for placed in replica:
        host = hosts.get(placed.host)
        found = [] if host is None else [gpu_now(host, then) for then in placed.gpus]
        pairs = [offered.get((placed.host, gpu.index)) for gpu in found if gpu is not None]
        known = [pair for pair in pairs if pair is not None]
        if len(known) < len(placed.gpus) or len({id(host) for host, _ in known}) != 1:
            return None
        offers = sorted((offer for _, offer in known), key=lambda offer: offer.index)
        groups.append((known[0][0], tuple(offers)))
    return groups
