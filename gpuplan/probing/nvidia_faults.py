"""What a failing nvidia-smi, the kernel's log and the PCI bus say about NVIDIA devices, as conditions.

The words are those of nvidia-smi and NVML's error strings; they are searched without regard to case.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuplan.domain.fact import Fact, Severity
from gpuplan.probing.nvidia_values import bus_id
from gpuplan.probing.output import Output
from gpuplan.probing.tool_failure import is_missing, one_line

TOOL = "nvidia-smi"
_NO_ANSWER = (
    "couldn't communicate with the nvidia driver",
    "could not communicate with the nvidia driver",
    "driver not loaded",
    "driver is not loaded",
)
_MISMATCH = "driver/library version mismatch"
_DENIED = ("insufficient permissions", "sufficient permissions", "suffient permissions", "permission denied")
"""The third is how nvidia-smi writes it."""
_NONE_FOUND = ("no devices were found", "no devices found")
_ADDRESS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
_INDEX = r"(?P<index>\d{1,3})\b(?!:[0-9A-Fa-f]{2}:)"
_LOST = re.compile(
    rf"Unable to determine the device handle for gpu\s*(?:(?P<bus>{_ADDRESS})|{_INDEX}(?::\s*(?P<at>{_ADDRESS}))?)?"
    r":?[ \t]*(?P<why>[^\n]*)",
    re.IGNORECASE,
)
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})[^)\n]{0,40}\):"
    r"\s*(?P<xid>\d{1,4}),?\s*(?P<text>.*)"
)
"""Behind the bus a card cut by MIG names the instance: `(PCI:0000:01:00 GPU-I:05)`."""
_FALLEN = re.compile(
    rf"NVRM: The NVIDIA GPU (?P<bus>{_ADDRESS})[^\n]*\n(?:[^\n]*PCI ID[^\n]*\n)?[^\n]*fallen off the bus",
    re.IGNORECASE,
)
"""Drivers since 570 tell Xid 79 in these words alone at start-up."""
_DISPLAY_CLASSES = ("0x0300", "0x0302")
"""VGA and 3D controllers."""
_HANDED_ON = "vfio-pci"
"""A device kept for a virtual machine: not this host's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PciDevice:
    """A GPU of NVIDIA as the kernel sees it, driver or not."""

    bus: str
    driver: str | None = None
    numa_node: int | None = None


def pci_devices(text: str) -> tuple[PciDevice, ...]:
    """Lines `ADDRESS CLASS DRIVER NUMA-NODE` of NVIDIA's devices, by address; those of virtual machines left out."""
    found: list[PciDevice] = []
    for line in text.splitlines():
        words = line.split()
        if len(words) < 2 or not words[1].startswith(_DISPLAY_CLASSES):
            continue
        bus = bus_id(words[0])
        driver = words[2] if len(words) > 2 and words[2] != "-" else None
        node = words[3] if len(words) > 3 and words[3].isdecimal() else None
        if bus is not None and driver != _HANDED_ON:
            found.append(PciDevice(bus=bus, driver=driver, numa_node=int(node) if node is not None else None))
    return tuple(sorted(found, key=lambda device: device.bus))


def lost_cards(texts: Iterable[str], devices: Sequence[PciDevice]) -> tuple[Fact, ...]:
    """GP608 for every card nvidia-smi could not get hold of, told once.

    nvidia-smi counts cards by bus id, a lost one included: where the bus is known, so is the index.
    """
    places = {device.bus: number for number, device in enumerate(devices)}
    found: dict[tuple[str, object], Fact] = {}
    for text in texts:
        for match in _LOST.finditer(text):
            bus = bus_id(match["bus"] or match["at"])
            index = int(match["index"]) if match["index"] is not None else places.get(bus or "")
            key: tuple[str, object] = ("gpu", index) if index is not None else ("pci", bus)
            why = one_line(match["why"]) or "Unknown Error"
            if key not in found and key[1] is not None:
                found[key] = Fact(
                    code="GP608", severity=Severity.ERROR, subject={key[0]: key[1]}, figures={"detail": why}
                )
    return tuple(found.values())


def failure(output: Output, devices: int, seconds: float) -> Fact | None:
    """Why nvidia-smi named no card; None where there is none to name, or it was not asked.

    `devices` is the number of NVIDIA's devices on the PCI bus, `seconds` the time the command was given.
    """
    if output.timed_out:
        return _error("GP604", tool=TOOL, seconds=seconds)
    if output.exit_code is None:
        return None
    low = output.text.lower()
    line = _telling(output.text)
    if is_missing(output):
        if not devices:
            return None
        return Fact(code="GP601", severity=Severity.WARNING, subject={}, figures={"devices": devices})
    if _LOST.search(output.text) is not None:
        return None
    if any(word in low for word in _NO_ANSWER):
        return _error("GP602", detail=line)
    if _MISMATCH in low:
        return _error("GP603", detail=line)
    if any(word in low for word in _DENIED):
        return _error("GP605", tool=TOOL, detail=line)
    if any(word in low for word in _NONE_FOUND) and not devices:
        return None
    return _error("GP606", tool=TOOL, exit_code=output.exit_code, detail=line)


def xid_errors(text: str, indexes: Mapping[str, int]) -> tuple[Fact, ...]:
    """GP613 for every card and number, with the last message; `indexes` gives a card's index by its bus id.

    A log nobody may read is no state worth telling: it has no such line.
    """
    counts: dict[tuple[str, int], int] = {}
    last: dict[tuple[str, int], str] = {}
    for match in _XID.finditer(text):
        bus = bus_id(f"{match['bus']}.0")
        key = (bus or match["bus"], int(match["xid"]))
        counts[key] = counts.get(key, 0) + 1
        last[key] = one_line(match["text"])
    for match in _FALLEN.finditer(text):
        key = (bus_id(match["bus"]) or match["bus"], 79)
        if key not in last:
            counts[key], last[key] = 1, "GPU has fallen off the bus"
    facts: list[Fact] = []
    for (bus, xid), count in sorted(counts.items()):
        subject = {"gpu": indexes[bus]} if bus in indexes else {"pci": bus}
        figures = {"xid": xid, "count": count, "detail": last[bus, xid]}
        facts.append(Fact(code="GP613", severity=Severity.WARNING, subject=subject, figures=figures))
    return tuple(facts)


def _telling(text: str) -> str:
    """The line that says what is wrong: the first with one of the known words, else the first at all."""
    lines = [line for line in text.splitlines() if line.strip()]
    words = (*_NO_ANSWER, _MISMATCH, *_DENIED, *_NONE_FOUND, "failed", "error")
    telling = (line for word in words for line in lines if word in line.lower())
    return one_line(next(telling, lines[0] if lines else "no output"))


def _error(code: str, **figures: object) -> Fact:
    return Fact(code=code, severity=Severity.ERROR, subject={}, figures=figures)
