"""The fleet through the operations: an inventory, recorded hosts, live figures over connections that stay open."""

import os
import threading
from pathlib import Path

from gpuplan.domain.inventory import HostEntry
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.probe import ProbeOptions
from gpuplan.remote.connection import Completed, Connection, ConnectionFailed, Stage
from gpuplan.remote.recorded import RecordedConnection, Recording
from gpuplan.remote.ssh_settings import SshSettings
from gpuplan.tui.live import LiveServices
from tests.tui.fleet_apps import FleetApp, ready, until
from tests.tui.screen import shown

CSV = (
    "index, uuid, name, pci.bus_id, memory.total [MiB], memory.reserved [MiB], memory.used [MiB],"
    " memory.free [MiB], compute_cap, driver_version\n"
    "0, GPU-{name}, NVIDIA L4, 00000000:01:00.0, 23034 MiB, 535 MiB, 0 MiB, {free} MiB, 8.9, 580.95.05\n"
)
INVENTORY = """
defaults: {reserve: {vram: 1GiB}}
hosts:
  - {name: one, labels: {zone: a}}
  - {name: two, labels: {zone: b}}
  - {name: off}
"""


class Site:
    """Recorded machines behind an inventory; `free` is what their GPUs have free, in MiB."""

    def __init__(self, directory: Path) -> None:
        self.free = {"one": 22000, "two": 22000}
        self.reached: list[str] = []
        self.hang: threading.Event | None = None
        self.path = directory / "inventory.yaml"
        self.path.write_text(INVENTORY, encoding="utf-8")
        self.directory = directory

    def services(self, **more: object) -> LiveServices:
        options = FleetOptions(
            environ=os.environ,
            cwd=self.directory,
            inventory=self.path,
            reach=self.options,
            **more,  # type: ignore[arg-type]
        )
        return LiveServices(options, self.options)

    def options(self) -> ProbeOptions:
        nowhere = Path("/nonexistent")
        return ProbeOptions(ssh=SshSettings(known_hosts=nowhere, home=nowhere), connect=self.connect)

    def connect(self, entry: HostEntry) -> Connection:
        self.reached.append(entry.name)
        if entry.name not in self.free:
            raise ConnectionFailed(Stage.CONNECT, "no route to host")
        if self.hang is not None:
            self.hang.wait()
        text = CSV.format(name=entry.name, free=self.free[entry.name])
        sections = {
            "host_identity": Completed(exit_code=0, stdout=f"machine_id={entry.name}\n".encode()),
            "nvidia_csv": Completed(exit_code=0, stdout=text.encode()),
        }
        return RecordedConnection(Recording(sections=sections))


async def test_hosts_are_read_and_watched(tmp_path: Path) -> None:
    site = Site(tmp_path)
    app = FleetApp(site.services())
    async with app.run_test(size=(120, 30)) as pilot:
        await ready(pilot)
        text = shown(app)
        assert "3 hosts, 2 GPUs, 1 failed" in text
        assert "connect: no route to host" in text
        assert "free 21.5 of 22.0 GiB" in text
        site.free["one"] = 1024
        await pilot.press("p", "p")
        await until(pilot, lambda: "free 1.0 of 22.0 GiB" in shown(app))
        assert [host.gpus[0].reserved_bytes for host in app.state.fleet.hosts if host.gpus] == [1024**3] * 2
        assert site.reached.count("off") == 1, "a host that did not answer is not watched"


async def test_one_host_is_read_again_and_the_others_stay(tmp_path: Path) -> None:
    site = Site(tmp_path)
    app = FleetApp(site.services())
    async with app.run_test(size=(120, 30)) as pilot:
        await ready(pilot)
        await pilot.press("p")
        one, _, off = app.state.fleet.hosts
        site.reached.clear()
        site.free["two"] = 2048
        await pilot.press("down", "down", "r")
        await ready(pilot)
        assert site.reached == ["two"]
        assert "free 2.0 of 22.0 GiB" in shown(app)
        assert app.state.fleet.hosts[0] is one
        assert app.state.fleet.hosts[2] is off


async def test_a_label_narrows_what_is_read(tmp_path: Path) -> None:
    site = Site(tmp_path)
    app = FleetApp(site.services(labels=("zone=b",)))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        assert [host.name for host in app.state.fleet.hosts] == ["two"]
        assert set(site.reached) == {"two"}


async def test_an_inventory_that_is_wrong_is_shown_with_its_line(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.path.write_text("hosts:\n  - nmae: [one]\n", encoding="utf-8")
    app = FleetApp(site.services())
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        text = "".join(shown(app).split())
        assert "inventory.yaml:2" in text
        assert "Rtriesagain" in text
        site.path.write_text(INVENTORY, encoding="utf-8")
        await pilot.press("R")
        await ready(pilot)
        assert "3 hosts, 2 GPUs, 1 failed" in shown(app)


async def test_hanging_hosts_hold_up_neither_a_new_reading_nor_the_end(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.hang = threading.Event()
    app = FleetApp(site.services())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "off" in app.state.read_at)
        assert "0 of 3 read, 1 failed, 2 waiting" in shown(app)
        hang, site.hang = site.hang, None
        await pilot.press("R")
        await ready(pilot)
        assert "3 hosts, 2 GPUs, 1 failed" in shown(app)
        site.hang = threading.Event()
        await pilot.press("R")
        await until(pilot, lambda: app.state.reading)
        await pilot.press("q")
    assert app._exit
    hang.set()
    site.hang.set()


async def test_declared_hardware_is_shown_and_not_watched(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.path.write_text("hosts: [{name: a, gpus: {name: H100-80GB, count: 2}}]\n", encoding="utf-8")
    app = FleetApp(site.services(no_probe=True))
    async with app.run_test(size=(120, 24)) as pilot:
        await ready(pilot)
        assert "declared in" in shown(app)
        assert "2 × H100 80GB HBM3" in shown(app)
        assert not site.reached
