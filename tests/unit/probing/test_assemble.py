"""A host put together from recorded answers: vendors side by side, clocks, shared memory, containers by name."""

from collections.abc import Mapping

import pytest

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Gpu, GpuProcess, Host
from gpuplan.domain.host_facts import GpuLink
from gpuplan.domain.inventory import HostEntry
from gpuplan.probing.assemble import Answers, assemble, commands
from gpuplan.probing.devices import DeviceReport
from gpuplan.probing.docker import DockerReport
from gpuplan.probing.output import Output
from gpuplan.units import GIB

ENTRY = HostEntry(name="h1", address="10.0.0.1", model_dir="/data/my models")
CONTAINER = "0123456789abcdef" * 4


def assembled(
    outputs: Mapping[str, str],
    *gpus: Gpu,
    entry: HostEntry = ENTRY,
    links: tuple[GpuLink, ...] = (),
    containers: tuple[tuple[str, str], ...] = (),
    states: tuple[Fact, ...] = (),
    received: float = 1_000_000_010.0,
) -> Host:
    answers = Answers(
        outputs={name: Output(text=text) for name, text in outputs.items()},
        sent=1_000_000_000.0,
        received=received,
        address="10.0.0.1",
        nvidia=DeviceReport(vendor="nvidia", gpus=gpus, links=links, conditions=states),
        engine=DockerReport(containers=containers),
    )
    return assemble(entry, answers)


def card(index: int, *, parent: int | None = None, processes: tuple[GpuProcess, ...] = ()) -> Gpu:
    return Gpu(
        index=index, name="NVIDIA L4", total_bytes=GIB, free_bytes=GIB, parent=parent, processes=processes
    )


def test_every_command_has_a_name_of_its_own_and_the_driver_is_asked_last() -> None:
    names = [command.name for command in commands(ENTRY)]
    assert len(names) == len(set(names))
    assert names.index("host_clock_again") < min(
        at for at, name in enumerate(names) if name.startswith("nvidia")
    )
    assert "host_disk_model_dir" in names


def test_a_host_that_answered_nothing_is_empty() -> None:
    host = assembled({})
    assert (host.name, host.address, host.gpus, host.ram_total_bytes) == ("h1", "10.0.0.1", (), None)


@pytest.mark.parametrize("ahead", [-120.0, 0.0, 120.0])
def test_the_clock_is_measured_between_its_two_readings(ahead: float) -> None:
    """The script took ten seconds, nine of them between the readings: the offset is known to half a second."""
    first, second = 1_000_000_000.5 + ahead, 1_000_000_009.5 + ahead
    host = assembled({"host_clock": f"{first:.9f}\n", "host_clock_again": f"{second:.9f}\n"})
    assert host.facts.clock_offset_seconds == pytest.approx(ahead, abs=0.5)
    told = [fact.figures["seconds"] for fact in host.facts.conditions if fact.code == "GP633"]
    assert told == ([host.facts.clock_offset_seconds] if ahead else [])


def test_memory_shared_with_the_host_is_the_hosts() -> None:
    meminfo = "MemTotal: 1024 kB\nMemAvailable: 512 kB\n"
    gb10 = Gpu(index=0, name="NVIDIA GB10", unified=True)
    host = assembled({"host_memory": meminfo}, gb10)
    assert (host.gpus[0].total_bytes, host.gpus[0].free_bytes) == (1024 * 1024, 512 * 1024)
    (told,) = (fact for fact in host.facts.conditions if fact.code == "GP619")
    assert told.subject == {"host": "h1", "gpu": 0}
    assert assembled({}, gb10).gpus[0].total_bytes is None, "unknown stays unknown"


def test_under_windows_the_memory_is_what_windows_gives() -> None:
    outputs = {
        "host_os": 'PRETTY_NAME="Ubuntu 24.04.1 LTS"',
        "host_identity": "kernel=5.15.153.1-microsoft-standard-WSL2",
    }
    told = assembled(outputs, card(0)).facts
    assert told.os == "Ubuntu 24.04.1 LTS (WSL)"
    assert [(fact.code, fact.subject) for fact in told.conditions] == [("GP637", {"host": "h1", "gpu": 0})]


def test_devices_of_several_vendors_are_numbered_on() -> None:
    listing = (
        '[{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X", "asic_serial": "0x1"},'
        ' "bus": {"bdf": "0000:05:00.0"}, "vram": {"size": {"value": 196592, "unit": "MB"}}}]'
    )
    host = assembled({"amd_static": listing}, card(0), card(3, parent=0))
    assert [gpu.index for gpu in host.gpus] == [0, 3, 4]
    assert [gpu.vendor for gpu in host.gpus] == ["nvidia", "nvidia", "amd"]
    assert host.gpus[1].parent == 0


def test_states_of_a_second_vendors_devices_move_with_them() -> None:
    """A card divided into no slices is no GPU, yet its number is taken: its state must not become another device's."""
    listing = (
        '[{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X", "asic_serial": "0x1"},'
        ' "bus": {"bdf": "0000:05:00.0"}, "vram": {"size": "N/A"}}]'
    )
    empty = Fact(code="GP615", severity=Severity.WARNING, subject={"gpu": 0}, figures={})
    host = assembled({"amd_static": listing}, states=(empty,))
    assert [(gpu.index, gpu.vendor) for gpu in host.gpus] == [(1, "amd")]
    assert [
        (fact.code, fact.subject.get("gpu")) for fact in host.facts.conditions if "gpu" in fact.subject
    ] == [
        ("GP615", 0),
        ("GP609", 1),
    ]


def test_containers_go_by_the_names_their_engine_gives_them() -> None:
    ours = GpuProcess(pid=1, container=CONTAINER)
    stray = GpuProcess(pid=2, container="f" * 64)
    host = assembled({}, card(0, processes=(ours, stray)), containers=((CONTAINER, "lab"),))
    assert [process.container for process in host.gpus[0].processes] == ["lab", "f" * 12]


@pytest.mark.parametrize(
    ("kinds", "link"),
    [
        (("NV18",) * 3, "nvlink"),
        (("NV12", "SYS", "SYS"), "pcie"),
        (("PIX",), "pcie"),
        (("XGMI",), "xgmi"),
        ((), None),
    ],
)
def test_a_host_is_joined_by_its_worst_pair(kinds: tuple[str, ...], link: str | None) -> None:
    links = tuple(GpuLink(a=0, b=number, kind=kind) for number, kind in enumerate(kinds, 1))
    assert assembled({}, card(0), card(1), links=links).link == link


ADDRESSES = """\
1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN
    inet 127.0.0.1/8 scope host lo
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP
    inet 10.0.0.1/24 brd 10.0.0.255 scope global eth0
"""


@pytest.mark.parametrize(
    ("entry", "chosen", "gone"),
    [
        (HostEntry(name="h1", address="a"), "eth0", None),
        (HostEntry(name="h1", address="a", interface="eth0"), "eth0", None),
        (HostEntry(name="h1", address="a", interface="ib0"), None, "ib0"),
        (HostEntry(name="h1", address="a", data_address="10.0.0.1"), "eth0", None),
        (HostEntry(name="h1", address="a", data_address="10.9.9.9"), None, "10.9.9.9"),
    ],
)
def test_the_interface_of_the_inventory_is_there_or_told_gone(
    entry: HostEntry, chosen: str | None, gone: str | None
) -> None:
    host = assembled({"net_addresses": ADDRESSES}, entry=entry)
    assert host.facts.data_interface == chosen
    told = [fact.figures["interface"] for fact in host.facts.conditions if fact.code == "GP634"]
    assert told == ([gone] if gone else [])
