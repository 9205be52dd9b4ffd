"""Which interface carries the traffic between hosts: NCCL, Gloo, Ray. A pure choice from what the probe saw."""

import ipaddress
from collections.abc import Sequence
from enum import StrEnum

from gpuplan.domain.host_facts import Interface, RdmaDevice
from gpuplan.probing.network import natural


class Reason(StrEnum):
    """Why an interface was chosen, or none."""

    INVENTORY = "inventory"
    """The inventory names it."""
    DATA_ADDRESS = "data_address"
    """It holds the inventory's `data_address`."""
    RDMA = "rdma"
    """An active RDMA port stands behind it."""
    SPEED = "speed"
    """It is the fastest."""
    REACHED = "reached"
    """It holds the address this host was reached at."""
    DEFAULT_ROUTE = "default_route"
    ONLY = "only"
    """No other is up with an address."""
    FIRST = "first"
    """Nothing tells several apart: the first by name."""
    NOT_THERE = "not_there"
    """The host has no interface of the inventory's name, or none holds its `data_address`."""
    NONE_USABLE = "none_usable"
    """No interface is up with an address."""


def data_interface(
    interfaces: Sequence[Interface],
    rdma: Sequence[RdmaDevice],
    entry_interface: str | None = None,
    entry_data_address: str | None = None,
    ssh_address: str | None = None,
    default_route: str | None = None,
) -> tuple[str | None, Reason]:
    """The interface, and why it is that one.

    What the inventory says holds, and is not replaced where the host cannot follow it. Otherwise, of the interfaces
    that are up, have an address and are not virtual: one with an active RDMA port, then the fastest, then the one
    that holds `ssh_address` (the IP address we reached), then that of the default route, then the first by name.
    A link-local IPv4 address counts on an RDMA interface alone: back-to-back cables are set up that way.
    """
    if entry_interface is not None:
        there = any(interface.name == entry_interface for interface in interfaces)
        return (entry_interface, Reason.INVENTORY) if there else (None, Reason.NOT_THERE)
    if entry_data_address is not None:
        holder = next((i.name for i in interfaces if _holds(i, entry_data_address)), None)
        return (holder, Reason.DATA_ADDRESS) if holder is not None else (None, Reason.NOT_THERE)
    active = {port.name for port in rdma if port.state.upper() == "ACTIVE"}
    usable = [i for i in interfaces if i.up and not i.virtual and _addressed(i, i.rdma_device in active)]
    if not usable:
        return None, Reason.NONE_USABLE
    if len(usable) == 1:
        return usable[0].name, Reason.ONLY
    preferences = (
        (Reason.RDMA, {i.name: int(i.rdma_device in active) for i in usable}),
        (Reason.SPEED, {i.name: i.speed_bits_per_second or 0 for i in usable}),
        (Reason.REACHED, {i.name: int(_holds(i, ssh_address)) for i in usable}),
        (Reason.DEFAULT_ROUTE, {i.name: int(i.name == default_route) for i in usable}),
    )
    left = usable
    for reason, marks in preferences:
        best = max(marks[i.name] for i in left)
        kept = [i for i in left if marks[i.name] == best]
        if len(kept) == 1:
            return kept[0].name, reason
        left = kept
    return min((i.name for i in left), key=natural), Reason.FIRST


def _holds(interface: Interface, address: str | None) -> bool:
    wanted = _parsed(address)
    return wanted is not None and any(_parsed(held) == wanted for held in interface.addresses)


def _addressed(interface: Interface, rdma: bool) -> bool:
    found = [address for address in map(_parsed, interface.addresses) if address is not None]
    return any(not address.is_loopback and (rdma or not address.is_link_local) for address in found)


def _parsed(address: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_interface(address or "").ip
    except ValueError:
        return None
