"""The network probe: recorded outputs and the chosen interface compared in full, and any text at all."""

import shutil
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.domain.fact import Severity
from gpuplan.domain.host_facts import Interface, RdmaDevice
from gpuplan.probing import network
from gpuplan.probing.data_interface import Reason, data_interface
from gpuplan.probing.output import Output
from tests.unit.probing import recorded_cases
from tests.unit.probing.texts import outputs_of

PROBE = "network"
SHELLS = [
    shell for shell in (["sh"], ["dash"], ["bash", "--posix"], ["busybox", "sh"]) if shutil.which(shell[0])
]


@pytest.mark.parametrize("case", recorded_cases.names(PROBE))
def test_recorded_output_is_read_in_full(case: str) -> None:
    outputs = recorded_cases.outputs(PROBE, case)
    assert outputs.keys() <= {command.name for command in network.COMMANDS}
    report = network.report(outputs)
    expected = recorded_cases.expected(PROBE, case)
    assert recorded_cases.plain(report) == expected["report"]
    entry = recorded_cases.given(PROBE, case)
    name, reason = data_interface(report.interfaces, report.rdma, default_route=report.default_route, **entry)
    assert [name, reason.value] == expected["choice"]
    assert recorded_cases.source(PROBE, case).strip()


@given(outputs_of(network.COMMANDS), st.none() | st.text(), st.none() | st.text())
def test_any_text_gives_a_report_and_a_choice(
    outputs: dict[str, Output], data_address: str | None, ssh_address: str | None
) -> None:
    report = network.report(outputs)
    assert all(0 < port < 65536 for port in report.listening_ports)
    name, reason = data_interface(
        report.interfaces, report.rdma, None, data_address, ssh_address, report.default_route
    )
    assert (name is None) == (reason in {Reason.NOT_THERE, Reason.NONE_USABLE})
    assert name is None or name in {interface.name for interface in report.interfaces}


@pytest.mark.parametrize(
    "junk",
    [
        "[" * 4_000_000,
        "1: a: <UP> \n" * 330_000,
        "LISTEN 0 0 :1 x\n" * 250_000,
        " inet " * 660_000,
        "x;1;;;;\n" * 500_000,
    ],
    ids=["brackets", "links", "sockets", "inet", "rdma"],
)
def test_four_megabytes_of_junk_take_bounded_time(junk: str) -> None:
    begin = time.process_time()
    network.report(dict.fromkeys((command.name for command in network.COMMANDS), Output(text=junk)))
    assert time.process_time() - begin < 20


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_this_machine_tells_its_interfaces_in_every_shell(shell: list[str]) -> None:
    outputs = {}
    for command in network.COMMANDS:
        done = subprocess.run(
            [*shell, "-c", command.shell], capture_output=True, text=True, timeout=30, check=False
        )
        outputs[command.name] = Output(text=done.stdout, exit_code=done.returncode)
    report = network.report(outputs)
    (loopback,) = (interface for interface in report.interfaces if interface.name == "lo")
    assert loopback.virtual
    assert report.ephemeral_ports is not None


def card(
    name: str, address: str | None, *, gigabits: int | None = None, up: bool = True, rdma: str | None = None
) -> Interface:
    return Interface(
        name=name,
        addresses=() if address is None else (address,),
        up=up,
        speed_bits_per_second=None if gigabits is None else gigabits * 10**9,
        rdma_device=rdma,
        virtual=network.is_virtual(name),
    )


ETH0 = card("eth0", "192.168.1.5/24", gigabits=1)
FAST = card("enp65s0", "10.10.0.5/24", gigabits=100)
DOCKER = card("docker0", "172.17.0.1/16", gigabits=10)
WIREGUARD = card("wg0", "10.99.0.5/24", gigabits=400)
ROCE = card("enp1s0f0np0", "10.20.0.5/24", gigabits=25, rdma="mlx5_0")
ACTIVE = RdmaDevice(name="mlx5_0", state="ACTIVE")
DOWN = RdmaDevice(name="mlx5_0", state="DOWN")


def test_the_inventory_comes_first_even_for_a_tunnel() -> None:
    assert data_interface((ETH0, FAST, WIREGUARD), (), "wg0", "10.10.0.5") == ("wg0", Reason.INVENTORY)


def test_an_interface_the_host_lacks_is_not_replaced() -> None:
    assert data_interface((ETH0, FAST), (), "eth9") == (None, Reason.NOT_THERE)
    fact = network.missing_interface((ETH0, FAST, DOCKER), "eth9")
    assert fact is not None
    assert (fact.code, fact.severity) == ("GP634", Severity.ERROR)
    assert fact.figures == {"interface": "eth9", "found": ["eth0", "enp65s0"]}
    assert network.missing_interface((ETH0, FAST), "eth0") is None
    assert network.missing_interface((ETH0, FAST), None) is None


def test_the_data_address_decides_before_speed() -> None:
    assert data_interface((ETH0, FAST), (), None, "192.168.1.5") == ("eth0", Reason.DATA_ADDRESS)
    assert data_interface((ETH0, FAST), (), None, "10.0.0.1") == (None, Reason.NOT_THERE)


def test_active_rdma_beats_speed_and_a_port_that_is_down_does_not() -> None:
    assert data_interface((ETH0, FAST, ROCE), (ACTIVE,), ssh_address="192.168.1.5") == (
        "enp1s0f0np0",
        Reason.RDMA,
    )
    assert data_interface((ETH0, FAST, ROCE), (DOWN,), ssh_address="192.168.1.5") == ("enp65s0", Reason.SPEED)


def test_between_equals_the_address_we_reached_then_the_default_route_then_the_name() -> None:
    twins = (card("eth10", "10.0.0.10/24"), card("eth2", "10.0.1.10/24"))
    assert data_interface(twins, (), ssh_address="10.0.0.10", default_route="eth2") == (
        "eth10",
        Reason.REACHED,
    )
    assert data_interface(twins, (), ssh_address="203.0.113.9", default_route="eth10") == (
        "eth10",
        Reason.DEFAULT_ROUTE,
    )
    assert data_interface(twins, ()) == ("eth2", Reason.FIRST)


@pytest.mark.parametrize(
    "name",
    [
        "lo",
        "docker0",
        "br-1f2e3d4c5b6a",
        "veth12ab@if3",
        "virbr0",
        "cni0",
        "flannel.1",
        "cali1234",
        "tailscale0",
        "wg0",
    ],
)
def test_virtual_interfaces_are_never_chosen(name: str) -> None:
    assert data_interface((card(name, "10.0.0.1/24", gigabits=400),), ()) == (None, Reason.NONE_USABLE)
    assert data_interface((card(name, "10.0.0.1/24", gigabits=400), ETH0), ()) == ("eth0", Reason.ONLY)


@pytest.mark.parametrize(
    "name", ["eth0", "eno1", "enp1s0f0np0", "ib0", "ibp26s0", "bond0", "br0", "vmbr0", "wlP9s9", "enP7s7"]
)
def test_cards_bonds_and_the_bridge_of_a_hypervisor_may_be_chosen(name: str) -> None:
    assert data_interface((card(name, "10.0.0.1/24"),), ()) == (name, Reason.ONLY)


def test_a_tunnel_of_any_name_is_known_by_its_type() -> None:
    devices = "corp0 unknown 1400 - 65534 -\neth0 up 1500 1000 1 physical\n"
    addresses = "2: corp0: <POINTOPOINT,UP,LOWER_UP> mtu 1400\n    inet 10.8.0.2/24\n3: eth0: <BROADCAST,UP> mtu 1500\n"
    report = network.report({"net_devices": Output(text=devices), "net_addresses": Output(text=addresses)})
    assert [(interface.name, interface.virtual) for interface in report.interfaces] == [
        ("corp0", True),
        ("eth0", False),
    ]


def test_the_kernel_knows_of_a_missing_carrier_that_a_small_ip_does_not_print() -> None:
    addresses = Output(
        text="2: eth0: <BROADCAST,MULTICAST,UP> mtu 1500\n    inet 10.0.0.2/24 scope global eth0\n"
    )
    (told,) = network.report({"net_addresses": addresses}).interfaces
    assert told.up
    devices = Output(text="eth0 lowerlayerdown 1500 - 1 physical\n")
    (known,) = network.report({"net_addresses": addresses, "net_devices": devices}).interfaces
    assert not known.up


def test_down_or_without_an_address_is_not_usable() -> None:
    down = card("eth1", "10.0.0.1/24", gigabits=400, up=False)
    bare = card("ib0", None, gigabits=400)
    local = card("eth2", "169.254.3.4/16", gigabits=400)
    assert data_interface((down, bare, local, ETH0), ()) == ("eth0", Reason.ONLY)
    assert data_interface((), ()) == (None, Reason.NONE_USABLE)
