"""The words NVIDIA's tools print in place of a figure, read once for XML and CSV alike."""

import re

MIB = 1024**2
_BUS = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-9A-Fa-f])")
_NOTHING = frozenset({"", "n/a", "none", "not supported", "not found", "unknown", "not available"})
"""The driver has no such figure for this device: nothing is wrong."""
_FAULTS = (
    "gpu requires reset",
    "gpu is lost",
    "unknown error",
    "err!",
    "insufficient permissions",
    "no permission",
    "gpu access blocked by the operating system",
    "requested functionality has been deprecated",
)
"""The driver could not, or would not, say."""
_LOST = ("gpu requires reset", "gpu requires restart", "gpu is lost", "fallen off the bus")


def bare(text: str | None) -> str:
    """The word without the brackets CSV puts around it: `[N/A]` is `N/A`."""
    word = (text or "").strip()
    return word[1:-1].strip() if word.startswith("[") and word.endswith("]") else word


def absent(text: str | None) -> bool:
    """Whether the driver says that the device has no such figure."""
    return bare(text).lower() in _NOTHING


def fault(text: str | None) -> str | None:
    """The driver's word for why a figure is missing; None when it is there, or does not exist for the device."""
    word = bare(text)
    low = word.lower()
    return word if any(low.startswith(start) for start in _FAULTS) else None


def lost(text: str | None) -> bool:
    """Whether the word says that the device is gone or needs a reset."""
    low = bare(text).lower()
    return any(word in low for word in _LOST)


def known(text: str | None) -> str | None:
    """The word itself, or None for every way of saying that there is none."""
    return None if absent(text) or fault(text) is not None else bare(text)


def integer(text: str | None) -> int | None:
    """The whole number a figure starts with: `41 C` is 41, `N/A` is None."""
    match = re.match(r"-?\d+", bare(text))
    return int(match.group()) if match is not None else None


def mebibytes(text: str | None) -> int | None:
    """Bytes of `81559 MiB`, or of `81559` where the column has the unit."""
    match = re.fullmatch(r"(\d+)(?:\.\d+)?\s*(?:MiB|MB)?", bare(text))
    return int(match.group(1)) * MIB if match is not None else None


def bus_id(text: str | None) -> str | None:
    """`00000000:17:00.0` as the kernel writes it: `0000:17:00.0`."""
    match = _BUS.search(text or "")
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}".lower()
