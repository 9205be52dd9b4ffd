"""Reading `rocm-smi --json`, and the names AMD's tools give a device.

Keys changed their case between releases (`Card series`, `Card Series`) and are compared without it.
Memory is in bytes there.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuplan.domain.fleet import Gpu
from gpuplan.domain.host_facts import GpuLink
from gpuplan.probing import json_text

INSTINCT = {
    "0x738c": "AMD Instinct MI100",
    "0x7408": "AMD Instinct MI250X",
    "0x740c": "AMD Instinct MI250X / MI250",
    "0x740f": "AMD Instinct MI210",
    "0x74a0": "AMD Instinct MI300A",
    "0x74a1": "AMD Instinct MI300X",
    "0x74a2": "AMD Instinct MI308X",
    "0x74a5": "AMD Instinct MI325X",
    "0x74a8": "AMD Instinct MI308X HF",
    "0x74a9": "AMD Instinct MI300X HF",
    "0x74b5": "AMD Instinct MI300X VF",
    "0x74b6": "AMD Instinct MI308X",
    "0x74b9": "AMD Instinct MI325X VF",
    "0x74bd": "AMD Instinct MI300X HF",
    "0x75a0": "AMD Instinct MI350X",
    "0x75a3": "AMD Instinct MI355X",
    "0x75b0": "AMD Instinct MI350X VF",
    "0x75b3": "AMD Instinct MI355X VF",
}
"""Product by PCI device id, from libdrm's `data/amdgpu.ids`: older tools print a board's part name instead."""

_CARD = re.compile(r"card(\d{1,4})", re.IGNORECASE)
_MODEL = re.compile(r"\bMI\d{2,3}[A-Z]?\b|Radeon|Graphics", re.IGNORECASE)
_BOARD = re.compile(r"\bMI200\b", re.IGNORECASE)
_BRACKET = re.compile(r"\[([^\[\]]{1,80})\]?\s*$")
_LINK = re.compile(r"\(topology\) link type between drm devices (\d{1,4}) and (\d{1,4})", re.IGNORECASE)
_BUS = re.compile(r"(?:0000)?([0-9a-f]{4}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])", re.IGNORECASE)
_SERIAL = re.compile(r"0x([0-9a-f]{1,16})|([0-9a-f]{14,16})", re.IGNORECASE)
_SOLD = re.compile(r"AMD Instinct MI\d{2,3}[A-Z]?\b")


def gpus(text: str) -> tuple[Gpu, ...]:
    """The cards of a `rocm-smi --json` answer by index; empty when the text holds none.

    Parts of one card (`partitioned`) are each printed with the memory of the whole: theirs is unknown.
    """
    cards = _cards(text)
    parts = _sharing(cards)
    return unique_uuids(
        tuple(
            replace(card, total_bytes=None, free_bytes=None) if index in parts else card
            for index, card in sorted(cards.items())
        )
    )


def partitioned(text: str) -> set[int]:
    """Indexes that are parts of one card (DPX, QPX, CPX): they print the same unique id."""
    return _sharing(_cards(text))


def _sharing(cards: Mapping[int, Gpu]) -> set[int]:
    count = Counter(card.uuid for card in cards.values())
    return {index for index, card in cards.items() if card.uuid is not None and count[card.uuid] > 1}


def _cards(text: str) -> dict[int, Gpu]:
    cards: dict[int, Gpu] = {}
    for keys in _documents(text):
        for key, card in keys.items():
            match = _CARD.fullmatch(key)
            if match is not None and isinstance(card, Mapping):
                index = int(match.group(1))
                cards[index] = _gpu(index, _folded(card))
    return cards


def driver_version(text: str) -> str | None:
    """Of the `system` part, or of a card in old releases."""
    for keys in _documents(text):
        for part in keys.values():
            version = (
                json_text.words_of(_folded(part).get("driver version")) if isinstance(part, Mapping) else ""
            )
            if version:
                return version
    return None


def links(text: str) -> tuple[GpuLink, ...]:
    """`XGMI` or `PCIE` for every pair, from `--showtopotype`."""
    found: dict[tuple[int, int], str] = {}
    for keys in _documents(text):
        for key, kind in (_folded(keys["system"]) if isinstance(keys.get("system"), Mapping) else {}).items():
            pair = _LINK.fullmatch(key)
            if pair is not None and json_text.words_of(kind):
                a, b = sorted((int(pair.group(1)), int(pair.group(2))))
                found[a, b] = json_text.words_of(kind).upper()
    return tuple(GpuLink(a=a, b=b, kind=kind) for (a, b), kind in sorted(found.items()) if a != b)


def marketed_name(name: str, device_id: str) -> str:
    """The product as sold: what stands in brackets behind a code name, or by the device id where it names none.

    `Navi 23 [Radeon RX 6600/6600 XT` (cut off by the tool) is `Radeon RX 6600/6600 XT`; `AMD INSTINCT MI200
    (MCM) OAM LC MBA HPE C2` with device id 0x7408 is `AMD Instinct MI250X`. Where two products share an id the name
    tells which: `AMD INSTINCT MI250 (MCM) OAM AC MBA` with 0x740c is `AMD Instinct MI250`.
    """
    known = INSTINCT.get(device_id.casefold())
    model = _MODEL.search(name[:200])
    if known is not None and _SOLD.match(name) is None:
        exact = model is not None and _BOARD.search(name[:200]) is None and "/" in known
        return f"AMD Instinct {model.group().upper()}" if exact and model is not None else known
    bracket = _BRACKET.search(name[:200])
    if bracket is not None and _MODEL.search(bracket.group(1)):
        return bracket.group(1).strip()
    return name or (f"AMD GPU {device_id}" if device_id else "AMD GPU")


def bus_id(value: object) -> str | None:
    """`0000:1e:00.0`, lower case with a domain of four digits; None when it is no bus id."""
    match = _BUS.fullmatch(value.strip()) if isinstance(value, str) else None
    return f"{match[1]}:{match[2]}:{match[3]}.{match[4]}".lower() if match is not None else None


def uuid_of(serial: object) -> str | None:
    """`GPU-64ac21a676f77a5b`, as HIP names the device whose unique id is `0x64AC21A676F77A5B`."""
    match = _SERIAL.fullmatch(serial.strip()) if isinstance(serial, str) else None
    number = int(match.group(1) or match.group(2), 16) if match is not None else 0
    return f"GPU-{number:016x}" if number else None


def unique_uuids(found: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """The same GPUs, a UUID that several of them share (partitions of a card) taken away."""
    seen = [gpu.uuid for gpu in found]
    shared = {uuid for uuid in seen if uuid is not None and seen.count(uuid) > 1}
    return tuple(replace(gpu, uuid=None) if gpu.uuid in shared else gpu for gpu in found)


def _documents(text: str) -> list[Mapping[str, Any]]:
    return [document for document in json_text.documents(text) if isinstance(document, Mapping)]


def _folded(card: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key).casefold(): value for key, value in card.items()}


def _gpu(index: int, card: Mapping[str, Any]) -> Gpu:
    total = json_text.whole(card.get("vram total memory (b)"))
    used = json_text.whole(card.get("vram total used memory (b)"))
    names = (json_text.words_of(card.get(key)) for key in ("card series", "device name", "market name"))
    name = next((found for found in names if found), "")
    ids = (json_text.words_of(card.get(key)) for key in ("device id", "gpu id", "card model"))
    temperatures = (card.get(f"temperature (sensor {sensor}) (c)") for sensor in ("junction", "edge"))
    return Gpu(
        index=index,
        name=marketed_name(name, next((value for value in ids if value.startswith("0x")), "")),
        uuid=uuid_of(card.get("unique id")),
        vendor="amd",
        backend="rocm",
        total_bytes=total or None,
        free_bytes=max(0, total - used) if total and used is not None else None,
        pci_bus_id=bus_id(card.get("pci bus")),
        utilization_percent=json_text.whole(card.get("gpu use (%)")),
        temperature_celsius=next((t for t in map(json_text.whole, temperatures) if t is not None), None),
    )
