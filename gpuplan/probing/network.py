"""Interfaces, RDMA ports, listening and ephemeral ports, and the interface for traffic between hosts.

Everything is read from /sys and /proc, but for addresses (`ip`) and, where it is there, `ss`. A busybox `ip` knows
no `-j`, one before 4.11 neither; without any `ip` addresses come from `hostname -I` and carry no interface.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.host_facts import Interface, RdmaDevice
from gpuplan.probing import json_text, tool_failure
from gpuplan.probing.command import Command
from gpuplan.probing.output import NOT_RUN, Output

_MOST_LINES = 50_000

_ADDRESSES = """\
ip -j addr 2>/dev/null && exit
ip addr 2>/dev/null && exit
printf 'hostname -I: '; hostname -I
"""
_DEVICES = """\
for d in /sys/class/net/*; do
  [ -d "$d" ] || continue
  o=-; m=-; s=-; t=-; p=-
  read -r o <"$d/operstate"; read -r m <"$d/mtu"; read -r s <"$d/speed"; read -r t <"$d/type"
  [ -e "$d/device" ] && p=physical
  printf '%s %s %s %s %s %s\\n' "${d##*/}" "${o:--}" "${m:--}" "${s:--}" "${t:--}" "$p"
done 2>/dev/null
"""
_RDMA = """\
for d in /sys/class/infiniband/*; do
  [ -d "$d" ] || continue
  for p in "$d"/ports/*; do
    s=; r=; l=; n=
    read -r s <"$p/state"; read -r r <"$p/rate"; read -r l <"$p/link_layer"
    read -r n <"$p/gid_attrs/ndevs/0" || n=$(ls "$d/device/net")
    printf '%s;%s;%s;%s;%s;' "${d##*/}" "${p##*/}" "$s" "$r" "$l"
    printf '%s ' $n; echo
  done
done 2>/dev/null
"""

COMMANDS: tuple[Command, ...] = (
    Command(name="net_addresses", shell=_ADDRESSES, timeout=10),
    Command(name="net_devices", shell=_DEVICES, timeout=10),
    Command(name="net_rdma", shell=_RDMA, timeout=10),
    Command(
        name="net_listening",
        shell="ss -H -ltn 2>/dev/null || cat /proc/net/tcp /proc/net/tcp6 2>/dev/null",
        timeout=10,
    ),
    Command(name="net_ports", shell="cat /proc/sys/net/ipv4/ip_local_port_range", timeout=5),
    Command(name="net_route", shell="cat /proc/net/route /proc/net/ipv6_route 2>/dev/null", timeout=5),
)

_VIRTUAL = re.compile(
    r"lo|(?:docker|br-|veth|virbr|vnet|cni|flannel|cali|cilium|lxc|lxdbr|podman|kube|nodelocaldns|weave|ovs-|"
    r"tailscale|wg|tun|ppp|ipsec|vti|xfrm|tap|zt|dummy|ifb|sit|gre|erspan|ip6tnl|tunl|vxlan|nebula|utun|teql|ipvs).*"
)
_TUNNEL_TYPES = frozenset({"768", "769", "772", "776", "778", "783", "65534"})
"""ARPHRD of tunnels, loopback and devices without a hardware address (tun, WireGuard), linux/if_arp.h."""

_LINK_LINE = re.compile(
    r"\d{1,7}: ([^\s:@]{1,32})(?:@[^\s:]{1,32})?: <([A-Z0-9_,-]{0,300})>(?: mtu (\d{1,7}))?"
)
_STATE = re.compile(r" state ([A-Z]{2,20})")
_INET = re.compile(
    r"\s+inet6? ([0-9A-Fa-f.:]{2,45})(?:/(\d{1,3}))?(?: peer \S+)?(?: brd \S+)?(?: scope (\w+))?"
)
_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?) Gb/sec")
_PROC_TCP = re.compile(r"\s*\d+: ([0-9A-F]{8}|[0-9A-F]{32}):([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} 0A ")
_NO_CARRIER_STATES = frozenset({"down", "lowerlayerdown", "notpresent", "dormant"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkReport:
    """The network of a host; what it did not tell is None or empty."""

    interfaces: tuple[Interface, ...] = ()
    """In the kernel's order."""
    rdma: tuple[RdmaDevice, ...] = ()
    listening_ports: tuple[int, ...] = ()
    """TCP, any address, ascending."""
    ephemeral_ports: tuple[int, int] | None = None
    default_route: str | None = None
    """The interface of the default route with the lowest metric."""
    conditions: tuple[Fact, ...] = ()


def report(outputs: Mapping[str, Output]) -> NetworkReport:
    """Read what `COMMANDS` printed. Never raises."""
    devices = _devices(outputs.get("net_devices", NOT_RUN).text)
    rdma, behind = _rdma(outputs.get("net_rdma", NOT_RUN).text)
    interfaces = _interfaces(outputs.get("net_addresses", NOT_RUN).text, devices, behind)
    return NetworkReport(
        interfaces=interfaces,
        rdma=rdma,
        listening_ports=_listening(outputs.get("net_listening", NOT_RUN).text),
        ephemeral_ports=_port_range(outputs.get("net_ports", NOT_RUN).text),
        default_route=_default_route(outputs.get("net_route", NOT_RUN).text),
        conditions=tuple(_unanswered(outputs, interfaces)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Device:
    """A directory of /sys/class/net."""

    state: str
    mtu: int | None
    speed: int | None
    virtual: bool
    physical: bool


def _devices(text: str) -> dict[str, _Device]:
    found = {}
    for line in _lines(text):
        words = line.split()
        if len(words) == 6 and len(words[0]) <= 32:
            megabits = json_text.whole(words[3])
            found[words[0]] = _Device(
                state=words[1],
                mtu=json_text.whole(words[2]),
                speed=megabits * 10**6 if megabits is not None and megabits > 0 else None,
                virtual=is_virtual(words[0]) or words[4] in _TUNNEL_TYPES,
                physical=words[5] == "physical",
            )
    return found


def _interfaces(
    text: str, devices: Mapping[str, _Device], behind: Mapping[str, str]
) -> tuple[Interface, ...]:
    seen: dict[str, Interface] = {}
    for interface in _from_json(text) or list(_from_text(text)):
        seen.setdefault(interface.name, interface)
    if not seen:
        seen = {
            name: Interface(name=name, up=device.state not in _NO_CARRIER_STATES)
            for name, device in devices.items()
        }
        cards = [name for name, device in devices.items() if device.physical and seen[name].up]
        if len(cards) == 1:
            told = text.partition("hostname -I:")[2][:10_000].split()
            seen[cards[0]] = replace(seen[cards[0]], addresses=tuple(filter(_is_global, told)))
    return tuple(
        _completed(interface, devices.get(name), behind.get(name)) for name, interface in seen.items()
    )


def _completed(interface: Interface, device: _Device | None, rdma_device: str | None) -> Interface:
    virtual = is_virtual(interface.name) or (device is not None and device.virtual)
    if device is None:
        return replace(interface, virtual=virtual, rdma_device=rdma_device)
    return replace(
        interface,
        mtu=interface.mtu if interface.mtu is not None else device.mtu,
        up=interface.up and device.state not in _NO_CARRIER_STATES,
        speed_bits_per_second=device.speed,
        virtual=virtual,
        rdma_device=rdma_device,
    )


def _from_json(text: str) -> list[Interface]:
    """`ip -j addr`."""
    for document in json_text.documents(text):
        found = []
        for entry in document if isinstance(document, list) else ():
            name = json_text.at(entry, "ifname")
            if not isinstance(name, str) or not 0 < len(name) <= 32:
                continue
            flags = json_text.at(entry, "flags")
            given = json_text.at(entry, "addr_info")
            pairs = (
                (json_text.at(one, "local"), json_text.whole(json_text.at(one, "prefixlen")))
                for one in (given if isinstance(given, list) else ())
            )
            addresses = (f"{local}/{length}" for local, length in pairs if isinstance(local, str))
            found.append(
                Interface(
                    name=name,
                    addresses=tuple(filter(_is_global, addresses)),
                    up=_is_up(
                        flags if isinstance(flags, list) else (), str(json_text.at(entry, "operstate"))
                    ),
                    mtu=json_text.whole(json_text.at(entry, "mtu")),
                )
            )
        if found:
            return found
    return []


def _from_text(text: str) -> Iterator[Interface]:
    """`ip addr` without JSON, busybox's included."""
    current: Interface | None = None
    for line in _lines(text):
        link = _LINK_LINE.match(line)
        if link is not None:
            if current is not None:
                yield current
            state = _STATE.search(line)
            up = _is_up(link.group(2).split(","), state.group(1) if state is not None else "UNKNOWN")
            current = Interface(name=link.group(1), up=up, mtu=json_text.whole(link.group(3)))
            continue
        inet = _INET.match(line)
        if inet is not None and current is not None:
            single = 128 if ":" in inet.group(1) else 32
            address = f"{inet.group(1)}/{inet.group(2) or single}"
            if _is_global(address):
                current = replace(current, addresses=(*current.addresses, address))
    if current is not None:
        yield current


def _is_up(flags: object, state: str) -> bool:
    """Up with a carrier. Loopback and tunnels have no carrier to speak of: their state is UNKNOWN."""
    return (
        isinstance(flags, list | tuple)
        and "UP" in flags
        and "NO-CARRIER" not in flags
        and state.casefold() not in _NO_CARRIER_STATES
    )


def _is_global(address: str) -> bool:
    """Whether it is an IPv4 address or an IPv6 address that is no link-local one."""
    try:
        parsed = ipaddress.ip_interface(address)
    except ValueError:
        return False
    return parsed.version == 4 or not (parsed.ip.is_link_local or parsed.ip.is_unspecified)


def is_virtual(name: str) -> bool:
    """Whether the name is that of a loopback, bridge of a container engine, veth pair or tunnel."""
    return _VIRTUAL.fullmatch(name) is not None


def _rdma(text: str) -> tuple[tuple[RdmaDevice, ...], dict[str, str]]:
    """The ports, and which device stands behind an interface."""
    ports = []
    behind: dict[str, str] = {}
    for line in _lines(text):
        fields = line.split(";")
        port = json_text.whole(fields[1]) if len(fields) == 6 else None
        if port is None or not fields[0]:
            continue
        rate = _RATE.search(fields[3])
        state = fields[2].rpartition(":")[2].strip()
        ports.append(
            RdmaDevice(
                name=fields[0],
                port=port,
                state=tool_failure.one_line(state),
                rate_bits_per_second=round(float(rate.group(1)) * 10**9) if rate is not None else None,
                link_layer=tool_failure.one_line(fields[4]),
            )
        )
        for name in fields[5].split():
            behind.setdefault(name, fields[0])
    return tuple(sorted(ports, key=lambda port: (natural(port.name), port.port))), behind


def _listening(text: str) -> tuple[int, ...]:
    found = set()
    for line in _lines(text):
        kernel = _PROC_TCP.match(line)
        words = line.split()
        if kernel is not None:
            found.add(int(kernel.group(2), 16))
        elif len(words) >= 5 and words[0] == "LISTEN":
            port = words[3].rpartition(":")[2]
            if port.isdecimal() and len(port) < 6:
                found.add(int(port))
    return tuple(sorted(port for port in found if 0 < port < 65536))


def _port_range(text: str) -> tuple[int, int] | None:
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() and len(word) < 6 for word in words):
        return None
    return int(words[0]), int(words[1])


def _default_route(text: str) -> str | None:
    """Of IPv4 from /proc/net/route, else of IPv6 from /proc/net/ipv6_route; the lowest metric wins."""
    found = []
    for line in _lines(text):
        words = line.split()
        if len(words) >= 8 and words[1] == "00000000" and words[7] == "00000000" and words[6].isdecimal():
            found.append((4, int(words[6][:10]), words[0]))
        elif len(words) == 10 and words[0] == "0" * 32 and words[1] == "00" and words[9] != "lo":
            metric = re.fullmatch(r"[0-9a-f]{8}", words[5])
            if metric is not None:
                found.append((6, int(words[5], 16), words[9]))
    return min(found)[2] if found else None


def _unanswered(outputs: Mapping[str, Output], interfaces: tuple[Interface, ...]) -> Iterator[Fact]:
    names = {
        "net_addresses": "network addresses",
        "net_listening": "listening ports",
        "net_rdma": "RDMA devices",
    }
    for name, what in names.items():
        output = outputs.get(name, NOT_RUN)
        if output.timed_out:
            yield tool_failure.no_answer(what, output)
    told = outputs.get("net_addresses", NOT_RUN)
    if told != NOT_RUN and not told.timed_out and not any(i.addresses for i in interfaces):
        yield tool_failure.no_answer(
            "network addresses", told, "neither `ip` nor `hostname -I` told an address"
        )


def missing_interface(interfaces: tuple[Interface, ...], wanted: str | None) -> Fact | None:
    """GP634 when the inventory names an interface the host does not have."""
    if wanted is None or any(interface.name == wanted for interface in interfaces):
        return None
    found = [interface.name for interface in interfaces if not interface.virtual]
    figures = {"interface": wanted, "found": found}
    return Fact(code="GP634", severity=Severity.ERROR, subject={}, figures=figures)


def natural(name: str) -> tuple[tuple[int, str, int], ...]:
    """A key by which `mlx5_2` comes before `mlx5_10`."""
    parts = re.findall(r"\d{1,9}|\D{1,64}", name[:128])
    return tuple((0, "", int(part)) if part.isdecimal() else (1, part, 0) for part in parts)


def _lines(text: str) -> list[str]:
    return [line[:1000] for line in text.splitlines()[:_MOST_LINES]]
