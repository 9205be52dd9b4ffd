"""What a device's name says about it: from the accelerator catalogue, else guessed from the name alone."""

from dataclasses import dataclass

from gpuplan.domain.hardware import Accelerator
from gpuplan.sources.catalogue import accelerators

BACKENDS = {"nvidia": "cuda", "amd": "rocm", "ascend": "cann"}
"""Software a vendor's devices are driven by."""
_MARKS = (
    ("amd", ("amd", "instinct", "radeon")),
    ("ascend", ("ascend", "huawei", "910", "310p")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """Facts of one device type; None is unknown."""

    name: str
    """As the driver prints it, where the catalogue knows the device."""
    vendor: str
    backend: str
    compute_capability: str | None = None
    total_bytes: int | None = None
    """What a process can have of it at most."""
    bandwidth_bytes_per_second: int | None = None
    unified: bool = False
    link: str | None = None
    """GPU to GPU inside a host."""


def of_catalogue(name: str) -> DeviceFacts:
    """Facts of an accelerator a user names; UsageError, with near misses, when the catalogue lacks it."""
    return _facts(accelerators.find(name))


def of_device(name: str, total_bytes: int | None) -> DeviceFacts:
    """Facts of a device by name and size; no more than vendor and backend where the catalogue lacks it.

    A device of another size than the card it is named after, a MIG slice for one, has the card's compute
    capability and not its bandwidth. `total_bytes` of the answer is what was given.
    """
    found = accelerators.by_device_name(name, total_bytes)
    if found is not None:
        return _facts(found, total_bytes)
    card = accelerators.by_device_name(name)
    if card is None:
        return _guess(name, total_bytes)
    return DeviceFacts(
        name=name,
        vendor=card.vendor,
        backend=card.backend,
        compute_capability=card.compute_capability,
        total_bytes=total_bytes,
        unified=card.unified,
    )


def _facts(accelerator: Accelerator, total_bytes: int | None = None) -> DeviceFacts:
    return DeviceFacts(
        name=accelerator.device_name,
        vendor=accelerator.vendor,
        backend=accelerator.backend,
        compute_capability=accelerator.compute_capability,
        total_bytes=accelerator.memory_bytes if total_bytes is None else total_bytes,
        bandwidth_bytes_per_second=accelerator.bandwidth_bytes_per_second,
        unified=accelerator.unified,
        link=accelerator.link,
    )


def _guess(name: str, total_bytes: int | None) -> DeviceFacts:
    """Vendor and backend from the words of a name; NVIDIA and CUDA when it shows none."""
    words = name.casefold()
    vendor = next((vendor for vendor, marks in _MARKS if any(mark in words for mark in marks)), "nvidia")
    return DeviceFacts(name=name, vendor=vendor, backend=BACKENDS[vendor], total_bytes=total_bytes)
