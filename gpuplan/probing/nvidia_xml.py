"""`nvidia-smi -q -x`: one element for each card, read one by one.

Elements are found by their tags and parsed each on its own, so that text before, between and after them, a cut-off
end, or one element that is no XML costs nothing else. No document type is ever handed to the parser: no entity is
resolved. Tags are looked up by name; their places and their number differ from driver to driver (schema 4 to 13).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element, ParseError, fromstring

from gpuplan.domain.fact import Fact
from gpuplan.probing import nvidia_states
from gpuplan.probing.nvidia_cards import Card, CardProcess, Memory, Slice, merged, process
from gpuplan.probing.nvidia_values import absent, bus_id, fault, integer, known, lost, mebibytes
from gpuplan.probing.tool_failure import one_line

_LIMIT = 16 * 1024**2
"""Characters looked at; sixteen cards with all their supported clocks print two million."""
_START = re.compile(r"<gpu(?:\s+id=\"([^\"]*)\")?\s*>")
_NAME = re.compile(r"(<process_name>)(.*?)(</process_name>)", re.DOTALL)
_LOOSE = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});)")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_RECOVERY_FINE = frozenset({"none", "n/a", "not supported", ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What could be read of the XML."""

    cards: tuple[Card, ...] = ()
    """Numbered in the order printed: by PCI bus id, as nvidia-smi counts."""
    driver_version: str | None = None
    cuda_version: str | None = None
    whole: bool = False
    """The text is complete and every card in it could be read."""


def parse(text: str) -> Log:
    """Read all there is; an empty Log when the text holds no XML of nvidia-smi."""
    text = text[:_LIMIT]
    begin = text.find("<nvidia_smi_log")
    if begin < 0:
        return Log()
    body = text[begin:]
    first = _START.search(body)
    head = body[: first.start()] if first is not None else body
    cards: list[Card] = []
    number = 0
    for bus, element in _elements(body):
        if element is not None:
            cards.append(_card(element, number, bus))
        number += 1
    return Log(
        cards=tuple(cards),
        driver_version=_version(head, "driver_version", "kmd_version"),
        cuda_version=_version(head, "cuda_version", "cuda_umd_version"),
        whole="</nvidia_smi_log>" in body and len(cards) == number,
    )


def _elements(body: str) -> Iterator[tuple[str | None, Element | None]]:
    """Every card with the bus id of its tag; None in place of an element that is cut off or no XML."""
    start = _START.search(body)
    while start is not None:
        following = _START.search(body, start.end())
        end = body.find("</gpu>", start.end(), following.start() if following is not None else len(body))
        yield start.group(1), _element(body[start.start() : end + len("</gpu>")]) if end >= 0 else None
        start = following


def _element(text: str) -> Element | None:
    text = _UNPRINTABLE.sub(" ", text)
    text = _NAME.sub(
        lambda match: (
            match.group(1) + match.group(2).replace("<", "&lt;").replace(">", "&gt;") + match.group(3)
        ),
        text,
    )
    try:
        return fromstring(_LOOSE.sub("&amp;", text))
    except ParseError:
        return None


def _version(head: str, *tags: str) -> str | None:
    """The first that is told; drivers since 610 write behind the older ones that they will go."""
    for tag in tags:
        word = known(_tagged(head, tag))
        if word is not None:
            return word.split()[0]
    return None


def _tagged(head: str, tag: str) -> str | None:
    match = re.search(rf"<{tag}>([^<]*)</{tag}>", head)
    return match.group(1) if match is not None else None


def _card(gpu: Element, index: int, bus: str | None) -> Card:
    memory = _memory(gpu.find("fb_memory_usage"))
    parts = tuple(_slice(part) for part in gpu.findall("mig_devices/mig_device"))
    return Card(
        index=index,
        name=known(gpu.findtext("product_name")) or "NVIDIA GPU",
        uuid=known(gpu.findtext("uuid")),
        bus=bus_id(gpu.findtext("pci/pci_bus_id")) or bus_id(bus),
        memory=memory,
        addressing=known(gpu.findtext("addressing_mode")) or "",
        mig=(gpu.findtext("mig_mode/current_mig") or "").strip() == "Enabled",
        slices=parts,
        processes=merged(_processes(gpu)),
        states=tuple(_states(gpu, memory)),
        utilization_percent=integer(gpu.findtext("utilization/gpu_util")),
        temperature_celsius=integer(gpu.findtext("temperature/gpu_temp")),
    )


def _memory(usage: Element | None) -> Memory:
    if usage is None:
        return Memory(detail="no memory in the output of nvidia-smi")
    total = usage.findtext("total")
    return Memory(
        total=mebibytes(total),
        reserved=mebibytes(usage.findtext("reserved")),
        free=mebibytes(usage.findtext("free")),
        shared=absent(total),
        detail=one_line((fault(total) or total or "").strip()),
    )


def _slice(part: Element) -> Slice:
    return Slice(
        number=integer(part.findtext("index")) or 0,
        instance=_instance(part),
        memory=_memory(_first(part, "fb_memory_usage", "shared_fb_memory_usage")),
    )


def _first(element: Element, *tags: str) -> Element | None:
    return next((found for tag in tags if (found := element.find(tag)) is not None), None)


def _instance(element: Element) -> tuple[int, int] | None:
    gpu_instance = integer(element.findtext("gpu_instance_id"))
    compute_instance = integer(element.findtext("compute_instance_id"))
    return (
        (gpu_instance, compute_instance)
        if gpu_instance is not None and compute_instance is not None
        else None
    )


def _processes(gpu: Element) -> Iterable[CardProcess]:
    for entry in gpu.findall("processes/process_info"):
        pid = integer(entry.findtext("pid"))
        if pid is None:
            continue
        yield CardProcess(
            process=process(
                pid, known(entry.findtext("process_name")), mebibytes(entry.findtext("used_memory"))
            ),
            instance=_instance(entry),
        )


def _states(gpu: Element, memory: Memory) -> Iterable[Fact]:
    yield from _sickness(gpu, memory)
    yield from nvidia_states.uncorrectable(_uncorrectable(gpu))
    yield from nvidia_states.repairs(
        retirement=_yes(gpu, "retired_pages/pending_retirement")
        or _yes(gpu, "retired_pages/pending_blacklist"),
        remap=_yes(gpu, "remapped_rows/remapped_row_pending"),
        remap_failed=_yes(gpu, "remapped_rows/remapped_row_failure"),
        more=[
            *(["channel repair pending"] if _yes(gpu, "ecc_errors/channel_repair_pending") else ()),
            *(["TPC repair pending"] if _yes(gpu, "ecc_errors/tpc_repair_pending") else ()),
            *(["memory that cannot be repaired"] if _yes(gpu, "ecc_errors/unrepairable_memory") else ()),
        ],
    )
    yield from nvidia_states.throttled(_throttled(gpu))
    yield from nvidia_states.fabric(
        (gpu.findtext("fabric/state") or "").strip(), (gpu.findtext("fabric/status") or "").strip()
    )
    yield from nvidia_states.compute_mode(gpu.findtext("compute_mode"))
    yield from nvidia_states.display((gpu.findtext("display_active") or "").strip() == "Enabled")
    licence = gpu.find("vgpu_software_licensed_product")
    licence = licence if licence is not None else gpu.find("grid_licensed_product")
    yield from nvidia_states.virtual(
        gpu.findtext("gpu_virtualization_mode/virtualization_mode"),
        licence.findtext("licensed_product_name") if licence is not None else None,
        licence.findtext("license_status") if licence is not None else None,
    )


def _sickness(gpu: Element, memory: Memory) -> Iterable[Fact]:
    action = (gpu.findtext("gpu_recovery_action") or "").strip()
    if memory.total is None and lost(memory.detail):
        yield nvidia_states.needs_reset(memory.detail)
    elif action.lower() not in _RECOVERY_FINE and known(action) is not None:
        yield nvidia_states.needs_reset(f"recovery action: {action}")
    elif _yes(gpu, "gpu_reset_status/reset_required"):
        yield nvidia_states.needs_reset("reset required")


def _uncorrectable(gpu: Element) -> int:
    """Since the driver was loaded: drivers before 450 and cards before Ampere count double-bit errors."""
    volatile = gpu.find("ecc_errors/volatile")
    if volatile is None:
        return 0
    double = integer(volatile.findtext("double_bit/total"))
    if double is not None:
        return double
    return sum(integer(count.text) or 0 for count in volatile if "_uncorrectable" in count.tag)


def _throttled(gpu: Element) -> Iterable[str]:
    for kind in ("clocks_event_reason", "clocks_throttle_reason"):
        for reason in gpu.iterfind(f"{kind}s/*"):
            if (reason.text or "").strip() == "Active":
                yield reason.tag.removeprefix(f"{kind}_")


def _yes(gpu: Element, path: str) -> bool:
    return (gpu.findtext(path) or "").strip() == "Yes"
