"""States of a card worth telling, from figures any reading can bring: XML, CSV or NVML."""

from collections.abc import Iterable

from gpuplan.domain.fact import Fact, Severity
from gpuplan.probing.nvidia_cards import state
from gpuplan.probing.nvidia_values import absent, known
from gpuplan.probing.tool_failure import one_line

THROTTLE = {
    "hw_thermal_slowdown": "hardware thermal slowdown",
    "hw_power_brake_slowdown": "power brake slowdown",
    "sw_thermal_slowdown": "software thermal slowdown",
    "hw_slowdown": "hardware slowdown",
}
"""What slows a healthy card down only when something is wrong. A power cap at work is the ordinary case."""
_FABRIC_FINE = frozenset({"completed", "n/a", "not supported", ""})
_STATUS_FINE = frozenset({"success", "n/a", "not supported", ""})


def throttled(active: Iterable[str]) -> Iterable[Fact]:
    """GP614 for the reasons that are active, named as in THROTTLE."""
    named = set(active)
    if named & {"hw_thermal_slowdown", "hw_power_brake_slowdown"}:
        named.discard("hw_slowdown")  # the driver sets it along with the reason that says more
    found = [words for reason, words in THROTTLE.items() if reason in named]
    if found:
        yield state("GP614", Severity.WARNING, reasons=", ".join(found))


def uncorrectable(count: int | None) -> Iterable[Fact]:
    """GP611: uncorrectable ECC errors since the driver was loaded."""
    if count:
        yield state("GP611", Severity.WARNING, count=count)


def repairs(
    *, retirement: bool = False, remap: bool = False, remap_failed: bool = False, more: Iterable[str] = ()
) -> Iterable[Fact]:
    """GP612: bad memory that waits for a reset to be taken out of use, or cannot be."""
    found = [
        *(["page retirement pending"] if retirement else ()),
        *(["row remapping pending"] if remap else ()),
        *(["row remapping failed"] if remap_failed else ()),
        *more,
    ]
    if found:
        yield state("GP612", Severity.WARNING, detail=", ".join(found))


def fabric(fabric_state: str, status: str) -> Iterable[Fact]:
    """GP616 unless the NVSwitch fabric is registered or there is none."""
    if fabric_state.lower() not in _FABRIC_FINE:
        yield state("GP616", Severity.ERROR, state=one_line(fabric_state))
    elif fabric_state.lower() == "completed" and status.lower() not in _STATUS_FINE:
        yield state("GP616", Severity.ERROR, state=one_line(f"{fabric_state}, {status}"))


def compute_mode(mode: str | None) -> Iterable[Fact]:
    """GP617 for every mode but the default one."""
    word = known(mode)
    if word is not None and word.lower() != "default":
        yield state("GP617", Severity.WARNING, mode=word.replace("_", " ").lower())


def display(attached: bool) -> Iterable[Fact]:
    """GP618: a screen takes a part of the memory and may take more."""
    if attached:
        yield state("GP618", Severity.INFO)


def virtual(mode: str | None, product: str | None = None, licence: str | None = None) -> Iterable[Fact]:
    """GP620: the card of a virtual machine is a share of a real one."""
    if (mode or "").strip().upper() != "VGPU":
        return
    words = [word for word in (product, licence) if not absent(word)]
    yield state(
        "GP620", Severity.INFO, detail=one_line(", ".join(map(str, words)) or "virtualization mode VGPU")
    )


def needs_reset(detail: str) -> Fact:
    """GP608: the card is gone, or of no use before a reset."""
    return state("GP608", Severity.ERROR, detail=one_line(detail))
