"""What a device's name says about it: from the accelerator catalogue, else guessed from the name alone."""

from dataclasses import dataclass

from gpuplan.errors import GpuplanError

BACKENDS = {"nvidia": "cuda", "amd": "rocm", "ascend": "cann"}
"""Software a vendor's devices are driven by."""
_MARKS = (
    ("amd", ("amd", "instinct", "radeon")),
    ("ascend", ("ascend", "huawei", "910", "310p")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """Facts of one device type; None is unknown."""

    vendor: str
    backend: str
    compute_capability: str | None = None
    total_bytes: int | None = None
    """What the driver reports."""
    bandwidth_bytes_per_second: int | None = None
    unified: bool = False
    link: str | None = None
    """GPU to GPU inside a host."""


def look_up(name: str) -> DeviceFacts:
    """Facts of a catalogue or driver name; GpuplanError, with near misses, when the catalogue does not have it."""
    from gpuplan.sources.catalogue import accelerators

    found = accelerators.find(name)
    return DeviceFacts(
        vendor=found.vendor,
        backend=found.backend,
        compute_capability=found.compute_capability,
        total_bytes=found.total_bytes,
        bandwidth_bytes_per_second=found.bandwidth_bytes_per_second,
        unified=found.unified,
        link=found.link,
    )


def look_up_or_guess(name: str) -> DeviceFacts:
    """Facts of a device; for one outside the catalogue no more than the vendor its name shows."""
    try:
        return look_up(name)
    except GpuplanError:
        return guess(name)


def guess(name: str) -> DeviceFacts:
    """Vendor and backend from the words of a name; NVIDIA and CUDA when it shows none."""
    words = name.casefold()
    vendor = next((vendor for vendor, marks in _MARKS if any(mark in words for mark in marks)), "nvidia")
    return DeviceFacts(vendor=vendor, backend=BACKENDS[vendor])
