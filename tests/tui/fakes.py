"""Services of our own: a fleet in memory, the real planner, scripted answers of hosts."""

import os
from collections.abc import Sequence
from pathlib import Path

from gpuplan.domain.fleet import Fleet
from gpuplan.operations.fleet import FleetOptions, see_fleet
from gpuplan.operations.probe import ProbeOptions
from gpuplan.operations.status import StatusReport
from gpuplan.tui.live import LiveServices
from gpuplan.tui.services import OnHost, Run, Source, SourceKind

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "inventory.example.yaml"
SNAPSHOTS = ROOT / "tests" / "data" / "snapshots"


def declared_fleet(inventory: Path = EXAMPLE) -> Fleet:
    """The hardware of an inventory, all of it free."""
    return see_fleet(FleetOptions(environ=os.environ, cwd=ROOT, inventory=inventory, no_probe=True))


def snapshot_fleet(path: Path) -> Fleet:
    return see_fleet(FleetOptions(environ=os.environ, cwd=ROOT, snapshot=path))


class FakeServices(LiveServices):
    """A fleet that answers at once."""

    def __init__(self, fleet: Fleet | None = None) -> None:
        super().__init__(
            FleetOptions(environ=os.environ, cwd=ROOT, inventory=EXAMPLE, no_probe=True), _nobody
        )
        self.answer = fleet if fleet is not None else declared_fleet()
        self.report = StatusReport(deployments=())

    @property
    def source(self) -> Source:
        return Source(kind=SourceKind.LIVE, name="inventory.yaml", acts=True)

    def expected(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.answer.hosts)

    def read_fleet(self, on_host: OnHost, only: Sequence[str] = ()) -> Fleet:
        for host in self.answer.hosts:
            if not only or host.name in only:
                on_host(host)
        return self.answer

    def deployments(self, name: str | None = None) -> StatusReport:
        return self.report

    def runs(self) -> tuple[Run, ...]:
        return ()


def _nobody() -> ProbeOptions:
    raise AssertionError("no host is reached")
