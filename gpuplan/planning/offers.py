"""What each GPU can give: allocatable memory, and the hosts grouped so that equal ones are judged once."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gpuplan.domain.fleet import Fleet, Gpu, Host, HostStatus, Kind
from gpuplan.domain.plan import FunnelStep, Holding
from gpuplan.planning.allocatable import NOTHING_OF_OURS, Ours, account, ours_by_gpu, ours_on
from gpuplan.planning.launchable import blocking
from gpuplan.planning.usable import Hindrance, LeftOut, hindrances


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A kind of GPU as the estimator sees it: all that its memory figures depend on."""

    name: str
    total_bytes: int
    compute_capability: str | None = None
    vendor: str = "nvidia"
    backend: str = "cuda"
    unified: bool = False
    slice: bool = False
    """A MIG slice: a process sees one of them only, so it works alone."""
    kinds: tuple[Kind, ...] = ()
    """Where only the size is known: what it may be, the likeliest first."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Hashed once: devices are the keys of every memo of a plan."""
        object.__setattr__(
            self,
            "_hash",
            hash((self.name, self.total_bytes, self.compute_capability, self.backend, self.unified)),
        )

    def __hash__(self) -> int:
        return self._hash

    @property
    def readings(self) -> "tuple[Device, ...]":
        """The device as each kind it may be; itself alone where its kind is known."""
        return tuple(
            replace(
                self,
                name=kind.name,
                compute_capability=kind.compute_capability,
                unified=kind.unified,
                kinds=(),
            )
            for kind in self.kinds
        ) or (self,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One usable GPU."""

    host: str
    index: int
    device: Device
    allocatable_bytes: int
    """`planning.allocatable`, never below 0."""
    uuid: str | None = None
    held: tuple[Holding, ...] = ()
    """Who has the rest of its memory."""
    launchable: bool = True
    """A container can be started on it as its host is now (`planning.launchable`)."""

    @property
    def total_bytes(self) -> int:
        return self.device.total_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOffer:
    """The usable GPUs of one backend on one host (S0.11: backends are never mixed)."""

    host: str
    offers: tuple[Offer, ...]
    """Most allocatable first, then by index."""
    ram_available_bytes: int | None
    link: str | None = None
    sliced: bool = False
    """Some of the GPUs are MIG slices."""

    @property
    def backend(self) -> str:
        return self.offers[0].device.backend

    @property
    def launchable(self) -> bool:
        return self.offers[0].launchable


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """Everything placement can draw on, ordered by host name, and what was left out on the way."""

    hosts: tuple[HostOffer, ...]
    funnel: tuple[FunnelStep, ...]
    unknown_memory: tuple[tuple[str, int], ...]
    """(host, GPU index) of devices whose memory is unknown: not used (S0 correction 5)."""
    left_out: tuple[LeftOut, ...] = ()
    """GPUs that no placement may use now."""

    @property
    def offers(self) -> tuple[Offer, ...]:
        return tuple(offer for host in self.hosts for offer in host.offers)


def launchable(supply: Supply) -> Supply | None:
    """The part of a supply on which containers can be started as the hosts are now; None when that is all or nothing."""
    kept = tuple(host for host in supply.hosts if host.launchable)
    return replace(supply, hosts=kept) if 0 < len(kept) < len(supply.hosts) else None


def whole_cards(host: HostOffer) -> tuple[HostOffer, tuple[Offer, ...]]:
    """The host with its whole cards only, and its MIG slices: ranks that work together never take slices."""
    slices = tuple(offer for offer in host.offers if offer.device.slice) if host.sliced else ()
    if not slices:
        return host, ()
    return replace(host, offers=tuple(offer for offer in host.offers if not offer.device.slice)), slices


Gpus = list[tuple[Host, list[Gpu]]]


def supply_of(fleet: Fleet) -> Supply:
    """Usable GPUs of the fleet, with the funnel that says what each filter took away (hosts and GPUs).

    The filters for what a probe alone can know (`Hindrance`) are steps only where they took something away.
    """
    hosts = sorted(fleet.hosts, key=lambda host: host.name)
    steps = [_step("in the fleet", hosts)]
    reachable = [host for host in hosts if host.status is HostStatus.OK]
    steps.append(_step("reachable", reachable, [h.name for h in hosts if h.status is not HostStatus.OK]))
    with_gpus = [host for host in reachable if host.gpus]
    steps.append(_step("with GPUs", with_gpus, [h.name for h in reachable if not h.gpus]))
    included = [(host, _included(host)) for host in with_gpus]
    steps.append(_counted("not excluded", included, _taken(with_gpus, included)))
    ours = {host.name: ours_by_gpu(host) for host in with_gpus if host.facts.docker is not None}
    left_out = tuple(
        left
        for host, gpus in included
        for left in hindrances(host, gpus, ours.get(host.name, NOTHING_OF_OURS))
    )
    usable = included
    for hindrance in Hindrance if left_out else ():
        taken = [left for left in left_out if left.hindrance is hindrance]
        if taken:
            usable = _without(usable, {(left.host, left.index) for left in taken})
            steps.append(_counted(hindrance.value, usable, [_named(left) for left in taken]))
    known = [(host, [gpu for gpu in gpus if gpu.total_bytes]) for host, gpus in usable]
    unknown = tuple((host.name, gpu.index) for host, gpus in usable for gpu in gpus if not gpu.total_bytes)
    steps.append(_counted("memory known", known, [f"{name}:{index}" for name, index in unknown]))
    devices: _Devices = {}
    return Supply(
        hosts=tuple(
            offer
            for host, gpus in known
            for offer in _host_offers(host, gpus, devices, ours.get(host.name, NOTHING_OF_OURS))
        ),
        funnel=tuple(steps),
        unknown_memory=unknown,
        left_out=left_out,
    )


def _included(host: Host) -> list[Gpu]:
    """GPUs the inventory does not exclude; a card is excluded with its slices."""
    kept = [gpu for gpu in host.gpus if not gpu.excluded]
    if len(kept) == len(host.gpus):
        return kept
    excluded = {gpu.index for gpu in host.gpus if gpu.excluded}
    return [gpu for gpu in kept if gpu.parent not in excluded]


def _without(hosts: Gpus, taken: set[tuple[str, int]]) -> Gpus:
    return [(host, [gpu for gpu in gpus if (host.name, gpu.index) not in taken]) for host, gpus in hosts]


def _named(left: LeftOut) -> str:
    """`h1:0`, and the deployments on it where they are the reason."""
    place = f"{left.host}:{left.index}"
    return f"{place} with {' and '.join(left.deployments)}" if left.deployments else place


_Devices = dict[tuple[object, ...], Device]


def _host_offers(host: Host, gpus: list[Gpu], devices: _Devices, ours: Ours) -> Iterable[HostOffer]:
    for backend in sorted({gpu.backend for gpu in gpus}):
        ready = not blocking(host, backend)
        offers = [_offer(host, gpu, devices, ours, ready) for gpu in gpus if gpu.backend == backend]
        offers.sort(key=lambda offer: (-offer.allocatable_bytes, offer.index))
        available = host.ram_available_bytes if host.ram_available_bytes is not None else host.ram_total_bytes
        yield HostOffer(
            host=host.name,
            offers=tuple(offers),
            ram_available_bytes=None if available is None else max(0, available - host.ram_reserved_bytes),
            link=host.link,
            sliced=any(gpu.parent is not None for gpu in gpus),
        )


def _offer(host: Host, gpu: Gpu, devices: _Devices, ours: Ours, ready: bool) -> Offer:
    counted = account(gpu, ours_on(gpu, ours), host)
    return Offer(
        host=host.name,
        index=gpu.index,
        device=_device(gpu, devices),
        allocatable_bytes=counted.allocatable_bytes,
        uuid=gpu.uuid,
        held=counted.held,
        launchable=ready,
    )


def _device(gpu: Gpu, devices: _Devices) -> Device:
    """The kind of a GPU, one object for all that are alike."""
    key = (
        gpu.name,
        gpu.total_bytes,
        gpu.compute_capability,
        gpu.vendor,
        gpu.backend,
        gpu.unified,
        gpu.parent is None,
        gpu.kinds,
    )
    known = devices.get(key)
    if known is None:
        known = devices[key] = Device(
            name=gpu.name,
            total_bytes=gpu.total_bytes or 0,
            compute_capability=gpu.compute_capability,
            vendor=gpu.vendor,
            backend=gpu.backend,
            unified=gpu.unified,
            slice=gpu.parent is not None,
            kinds=gpu.kinds,
        )
    return known


SHOWN = 5


def _step(name: str, hosts: list[Host], taken: list[str] | None = None) -> FunnelStep:
    return FunnelStep(
        name=name,
        hosts=len(hosts),
        gpus=sum(len(host.gpus) for host in hosts),
        taken=tuple((taken or [])[:SHOWN]),
    )


def _counted(name: str, hosts: Gpus, taken: list[str]) -> FunnelStep:
    return FunnelStep(
        name=name,
        hosts=sum(1 for _, gpus in hosts if gpus),
        gpus=sum(len(gpus) for _, gpus in hosts),
        taken=tuple(taken[:SHOWN]),
    )


def _taken(hosts: list[Host], included: Gpus) -> list[str]:
    return [
        f"{host.name}:{gpu.index}"
        for host, (_, kept) in zip(hosts, included, strict=True)
        if len(kept) < len(host.gpus)
        for gpu in host.gpus
        if gpu not in kept
    ]
