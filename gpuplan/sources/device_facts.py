"""What a device's name says about it: from the accelerator catalogue, else guessed from the name alone."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from gpuplan.domain.fleet import Gpu, Host
from gpuplan.domain.hardware import Accelerator
from gpuplan.sources.catalogue import accelerators
from gpuplan.units import GIB, MIB

BACKENDS = {"nvidia": "cuda", "amd": "rocm", "ascend": "cann"}
"""Software a vendor's devices are driven by."""
ROUNDING_BYTES = 16 * MIB
"""By how much total less reserved, both printed in MiB, misses what CUDA gives a process."""
WINDOWS_KEEPS = GIB // 2
WINDOWS_KEEPS_OF = 50
"""Under WSL Windows keeps half a GiB and a fiftieth of the card from CUDA at least, whatever nvidia-smi calls free: with
its context vLLM found 1.05 GiB of 6.0, 1.2 of 11.99, 1.33 of 15.99, 1.54 of 23.99 and 1.64 of 31.84 gone on idle desktops."""
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


@lru_cache(maxsize=4096)
def of_device(name: str, total_bytes: int | None) -> DeviceFacts:
    """Facts of a device by name and size; no more than vendor and backend where the catalogue lacks it.

    A device of another size than the card it is named after, a MIG slice for one, has the card's compute
    capability and not its bandwidth. `total_bytes` of the answer is what was given.
    """
    found = accelerators.by_device_name(name, total_bytes)
    if found is not None:
        return _facts(found, total_bytes)
    card = accelerators.by_device_name(name.partition(" MIG")[0])
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


def link_of(gpus: Iterable[Gpu]) -> str | None:
    """How the GPUs of a host are joined, as far as their kind tells; None where it does not."""
    links = {of_device(gpu.name, gpu.total_bytes).link for gpu in gpus}
    return links.pop() if len(links) == 1 else None


def on_windows(host: Host) -> bool:
    """Whether the host is Linux under Windows (WSL), whose driver gives memory to CUDA as Windows sees fit."""
    return (host.facts.os or "").endswith("(WSL)")


def completed(gpu: Gpu, *, windows: bool = False) -> Gpu:
    """A probed device with what its tools leave out taken from the catalogue by its name.

    The catalogue's total, measured by CUDA on such a card, takes the place of the driver's where that kept nothing
    apart (before 515) or comes within `ROUNDING_BYTES` of it. Where a driver does not tell what is free, the
    memory counts as unknown: nobody plans on it.

    Under Windows CUDA reports all the memory the driver prints as total, and never has all of that free.
    """
    card = accelerators.by_device_name(gpu.name, gpu.reported_bytes or gpu.total_bytes)
    total = gpu.total_bytes
    if card is not None and total is not None and gpu.reported_bytes == (card.reported_mib or 0) * MIB:
        nothing_apart = total == gpu.reported_bytes
        close = abs(total - card.memory_bytes) <= ROUNDING_BYTES
        total = card.memory_bytes if nothing_apart or close else total
    free = gpu.free_bytes
    if windows and gpu.backend == "cuda" and gpu.reported_bytes is not None and free is not None:
        total = gpu.reported_bytes
        free = min(free, total - WINDOWS_KEEPS - total // WINDOWS_KEEPS_OF)
    facts = of_device(gpu.name, total)
    if free is None:
        total = None
    return replace(
        gpu,
        compute_capability=gpu.compute_capability or facts.compute_capability,
        bandwidth_bytes_per_second=gpu.bandwidth_bytes_per_second or facts.bandwidth_bytes_per_second,
        unified=gpu.unified or facts.unified,
        total_bytes=total,
        free_bytes=min(free, total) if free is not None and total is not None else None,
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
