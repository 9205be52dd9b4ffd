"""What one vendor's tools said about the accelerators of a host."""

from dataclasses import dataclass

from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import Gpu
from gpuplan.domain.host_facts import GpuLink


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """Devices of one vendor, and the states its tools told or were found in."""

    vendor: str
    gpus: tuple[Gpu, ...] = ()
    """By index; MIG slices take the place of their card and are numbered after the last card."""
    driver_version: str | None = None
    runtime_version: str | None = None
    """Newest CUDA, ROCm or CANN the driver serves."""
    links: tuple[GpuLink, ...] = ()
    conditions: tuple[Fact, ...] = ()
    """Subjects name the `gpu` by index; the host is added when the report is assembled."""
