"""What each GPU can give: allocatable memory, and the hosts grouped so that equal ones are judged once."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from gpuplan.domain.fleet import Fleet, Gpu, Host, HostStatus
from gpuplan.domain.plan import FunnelStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A kind of GPU as the estimator sees it: all that its memory figures depend on."""

    name: str
    total_bytes: int
    compute_capability: str | None = None
    vendor: str = "nvidia"
    backend: str = "cuda"
    unified: bool = False
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One usable GPU."""

    host: str
    index: int
    device: Device
    allocatable_bytes: int
    """min(free, total) - reserve, never below 0."""
    uuid: str | None = None

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

    @property
    def backend(self) -> str:
        return self.offers[0].device.backend


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """Everything placement can draw on, ordered by host name, and what was left out on the way."""

    hosts: tuple[HostOffer, ...]
    funnel: tuple[FunnelStep, ...]
    unknown_memory: tuple[tuple[str, int], ...]
    """(host, GPU index) of devices whose memory is unknown: not used (S0 correction 5)."""

    @property
    def offers(self) -> tuple[Offer, ...]:
        return tuple(offer for host in self.hosts for offer in host.offers)


def allocatable(gpu: Gpu) -> int:
    """Bytes of a GPU with known memory that may be claimed: the smaller of free and total, less the reserve."""
    total = gpu.total_bytes or 0
    free = total if gpu.free_bytes is None else min(gpu.free_bytes, total)
    return max(0, free - gpu.reserved_bytes)


def supply_of(fleet: Fleet) -> Supply:
    """Usable GPUs of the fleet, with the funnel that says what each filter took away (hosts and GPUs)."""
    hosts = sorted(fleet.hosts, key=lambda host: host.name)
    steps = [_step("in the fleet", hosts)]
    reachable = [host for host in hosts if host.status is HostStatus.OK]
    steps.append(_step("reachable", reachable, [h.name for h in hosts if h.status is not HostStatus.OK]))
    with_gpus = [host for host in reachable if host.gpus]
    steps.append(_step("with GPUs", with_gpus, [h.name for h in reachable if not h.gpus]))
    included = [(host, [gpu for gpu in host.gpus if not gpu.excluded]) for host in with_gpus]
    steps.append(_counted("not excluded", included, _taken(with_gpus, lambda gpu: gpu.excluded)))
    known = [(host, [gpu for gpu in gpus if gpu.total_bytes]) for host, gpus in included]
    unknown = tuple((host.name, gpu.index) for host, gpus in included for gpu in gpus if not gpu.total_bytes)
    steps.append(_counted("memory known", known, [f"{name}:{index}" for name, index in unknown]))
    devices: dict[Device, Device] = {}
    return Supply(
        hosts=tuple(offer for host, gpus in known for offer in _host_offers(host, gpus, devices)),
        funnel=tuple(steps),
        unknown_memory=unknown,
    )


def _host_offers(host: Host, gpus: list[Gpu], devices: dict[Device, Device]) -> Iterable[HostOffer]:
    for backend in sorted({gpu.backend for gpu in gpus}):
        offers = [_offer(host, gpu, devices) for gpu in gpus if gpu.backend == backend]
        offers.sort(key=lambda offer: (-offer.allocatable_bytes, offer.index))
        available = host.ram_available_bytes if host.ram_available_bytes is not None else host.ram_total_bytes
        yield HostOffer(
            host=host.name,
            offers=tuple(offers),
            ram_available_bytes=None if available is None else max(0, available - host.ram_reserved_bytes),
            link=host.link,
        )


def _offer(host: Host, gpu: Gpu, devices: dict[Device, Device]) -> Offer:
    device = Device(
        name=gpu.name,
        total_bytes=gpu.total_bytes or 0,
        compute_capability=gpu.compute_capability,
        vendor=gpu.vendor,
        backend=gpu.backend,
        unified=gpu.unified,
    )
    return Offer(
        host=host.name,
        index=gpu.index,
        device=devices.setdefault(device, device),
        allocatable_bytes=allocatable(gpu),
        uuid=gpu.uuid,
    )


SHOWN = 5


def _step(name: str, hosts: list[Host], taken: list[str] | None = None) -> FunnelStep:
    return FunnelStep(
        name=name,
        hosts=len(hosts),
        gpus=sum(len(host.gpus) for host in hosts),
        taken=tuple((taken or [])[:SHOWN]),
    )


def _counted(name: str, hosts: list[tuple[Host, list[Gpu]]], taken: list[str]) -> FunnelStep:
    return FunnelStep(
        name=name,
        hosts=sum(1 for _, gpus in hosts if gpus),
        gpus=sum(len(gpus) for _, gpus in hosts),
        taken=tuple(taken[:SHOWN]),
    )


def _taken(hosts: list[Host], predicate: Callable[[Gpu], bool]) -> list[str]:
    return [f"{host.name}:{gpu.index}" for host in hosts for gpu in host.gpus if predicate(gpu)]
