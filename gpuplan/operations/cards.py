"""What the catalogue knows of a GPU that a fleet names."""

from gpuplan.domain.hardware import Accelerator
from gpuplan.sources.catalogue import accelerators


def card_of(name: str, total_bytes: int | None) -> Accelerator | None:
    """The card of that device name and size, of whatever size where only one bears the name; None where it stays open."""
    return accelerators.by_device_name(name, total_bytes) or accelerators.by_device_name(name)
