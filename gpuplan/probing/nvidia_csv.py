"""`nvidia-smi --query-gpu=… --format=csv,nounits`: the compute capability, and all there is when the XML is not.

One field a driver does not know makes the whole query fail, so a short list is asked after the long one. The header
is kept: it says which list was answered.
"""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuplan.domain.fact import Fact
from gpuplan.probing import nvidia_states
from gpuplan.probing.nvidia_cards import Card, Memory
from gpuplan.probing.nvidia_values import absent, bus_id, fault, integer, known, lost, mebibytes
from gpuplan.probing.tool_failure import one_line

CORE_FIELDS = (
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "memory.total",
    "memory.used",
    "memory.free",
    "driver_version",
    "utilization.gpu",
    "temperature.gpu",
    "compute_mode",
    "display_active",
)
"""Known to every driver since 384."""
FIELDS = (*CORE_FIELDS, "memory.reserved", "compute_cap", "mig.mode.current")
_LINE_LIMIT = 4096
_UNIT = re.compile(r"\s*\[[^\]]*\]$")
_CAPABILITY = re.compile(r"\d{1,2}\.\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of the answer that could be read."""

    cards: tuple[Card, ...] = ()
    driver_version: str | None = None


def parse(text: str) -> Table:
    """Read the answer with most rows, of those the one with most columns; other lines are passed over.

    A lost card makes the long query end with an error after all rows of the others: the short one is there as well.
    """
    lines = [line for line in text.splitlines() if "\0" not in line and len(line) <= _LINE_LIMIT]
    heads = [number for number, line in enumerate(lines) if line.replace(" ", "").startswith("index,")]
    found: list[dict[str, str]] = []
    for begin, end in zip(heads, [*heads[1:], len(lines)], strict=False):
        rows = _rows(lines[begin:end])
        if (len(rows), len(rows[0]) if rows else 0) > (len(found), len(found[0]) if found else 0):
            found = rows
    return Table(
        cards=tuple(_card(row) for row in found),
        driver_version=next((word for row in found if (word := known(row.get("driver_version")))), None),
    )


def _rows(lines: Sequence[str]) -> list[dict[str, str]]:
    """The rows below a header, by the names of their columns without units."""
    rows = list(csv.reader(lines, skipinitialspace=True, quoting=csv.QUOTE_NONE))
    columns = [_UNIT.sub("", column.strip()) for column in rows[0]]
    found = [
        dict(zip(columns, _fitted(row, len(columns)), strict=True))
        for row in rows[1:]
        if len(row) >= len(columns)
    ]
    return [row for row in found if row["index"].strip().isdecimal()]


def _fitted(row: Sequence[str], width: int) -> Sequence[str]:
    """A name with commas in it, the third column, put together again."""
    over = len(row) - width
    return row if over <= 0 else (*row[:2], ", ".join(row[2 : 3 + over]), *row[3 + over :])


def _card(row: Mapping[str, str]) -> Card:
    total = row.get("memory.total")
    capability = known(row.get("compute_cap"))
    memory = Memory(
        total=mebibytes(total),
        reserved=mebibytes(row.get("memory.reserved")),
        free=mebibytes(row.get("memory.free")),
        shared=absent(total),
        detail=one_line(fault(total) or (total or "").strip("[] ")),
    )
    return Card(
        index=int(row["index"]),
        name=known(row.get("name")) or "NVIDIA GPU",
        uuid=known(row.get("uuid")),
        bus=bus_id(row.get("pci.bus_id")),
        memory=memory,
        compute_capability=capability
        if capability is not None and _CAPABILITY.fullmatch(capability)
        else None,
        mig=known(row.get("mig.mode.current")) == "Enabled",
        states=tuple(_states(row, memory)),
        utilization_percent=integer(row.get("utilization.gpu")),
        temperature_celsius=integer(row.get("temperature.gpu")),
    )


def _states(row: Mapping[str, str], memory: Memory) -> Iterable[Fact]:
    if memory.total is None and lost(memory.detail):
        yield nvidia_states.needs_reset(memory.detail)
    yield from nvidia_states.compute_mode(row.get("compute_mode"))
    yield from nvidia_states.display(known(row.get("display_active")) == "Enabled")
