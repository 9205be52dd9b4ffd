"""Where a host is reached: by users, by the other members, and what its server binds to."""

import ipaddress
from dataclasses import dataclass

from gpuplan.deploying.request import CompileRequest
from gpuplan.domain.fleet import Gpu, Host
from gpuplan.domain.inventory import LOCAL, HostEntry
from gpuplan.errors import UsageError

WILDCARDS = frozenset(("0.0.0.0", "::", ""))
EVERYWHERE = "0.0.0.0"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One host of a deployment, as far as its network matters."""

    host: Host
    entry: HostEntry | None
    data_address: str | None
    """For the other members: the inventory's, else that of the chosen interface."""
    interface: str | None
    """That holds it."""
    bind: str
    """What the HTTP server listens on."""
    reach: str
    """What a user writes in the place of a host."""
    peer: str
    """Where members ask the server for its health."""

    @property
    def name(self) -> str:
        return self.host.name

    def gpu(self, index: int) -> Gpu | None:
        """The card by its index."""
        return next((gpu for gpu in self.host.gpus if gpu.index == index), None)


def place_of(request: CompileRequest, name: str) -> Place:
    """Addresses of a host: the data address is the inventory's, else the chosen interface's, else what reached it."""
    host = next((host for host in request.fleet.hosts if host.name == name), None)
    if host is None:
        raise UsageError(f"host {name} of the plan is not in the fleet", hint="plan again: gpuplan plan")
    entry = next((entry for entry in request.inventory.hosts if entry.name == name), None)
    reached = (entry.address if entry is not None else None) or host.address or LOCAL
    data = _data_address(host, entry, reached)
    bind = _bind(host, reached, data)
    written = request.workload.engine.host
    if written is not None:
        bind = written
    outside = LOOPBACK if reached == LOCAL else reached
    reach = (data or outside if reached == LOCAL else outside) if bind in WILDCARDS else bind
    return Place(
        host=host,
        entry=entry,
        data_address=data,
        interface=_interface(host, entry, data),
        bind=bind or EVERYWHERE,
        reach=reach,
        peer=(data or reach) if bind in WILDCARDS else bind,
    )


def member_address(place: Place) -> str:
    """The address other members find this host at. Raises UsageError where none is known."""
    if place.data_address is None:
        raise UsageError(
            f"{place.name}: no IP address is known on which the other hosts reach it",
            hint=f"set data_address (or interface) of {place.name} in the inventory, or probe it again",
        )
    return place.data_address


def address_with_port(address: str, port: int) -> str:
    """`10.0.0.1:40000`, `[fd00::1]:40000`."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def is_loopback(address: str) -> bool:
    """Whether only programs on the host itself reach it."""
    parsed = _ip(address)
    return parsed.is_loopback if parsed is not None else address == "localhost"


def _data_address(host: Host, entry: HostEntry | None, reached: str) -> str | None:
    if entry is not None and entry.data_address:
        return entry.data_address
    name = host.facts.data_interface or (entry.interface if entry is not None else None)
    held = next((each.addresses for each in host.facts.interfaces if each.name == name), ())
    found = [ip for ip in map(_ip, held) if ip is not None and not ip.is_loopback]
    found.sort(key=lambda ip: (ip.version, ip.is_link_local))
    if found:
        return str(found[0])
    return reached if _ip(reached) is not None else None


def _bind(host: Host, reached: str, data: str | None) -> str:
    """The address users reach where the host has it itself, else that for the members, else every address."""
    wanted = _ip(reached)
    if wanted is not None and any(_ip(held) == wanted for held in _held(host)):
        return str(wanted)
    return data or EVERYWHERE


def _held(host: Host) -> list[str]:
    return [held for interface in host.facts.interfaces for held in interface.addresses]


def _interface(host: Host, entry: HostEntry | None, data: str | None) -> str | None:
    wanted = _ip(data or "")
    for interface in host.facts.interfaces:
        if wanted is not None and any(_ip(held) == wanted for held in interface.addresses):
            return interface.name
    return host.facts.data_interface or (entry.interface if entry is not None else None)


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_interface(text).ip
    except ValueError:
        return None
