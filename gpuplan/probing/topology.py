"""`nvidia-smi topo -m`: how the GPUs of a host reach each other, and the NUMA node next to each.

The columns of the matrix are all that stands before `CPU Affinity`, whatever their names (`NIC0`, `mlx5_0`, `bnxt_re0`).
After them a row has its CPUs, its NUMA node and, on newer drivers, the node of its own memory; an empty cell prints
nothing, so the node is taken only where none of these cells is missing.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuplan.domain.host_facts import GpuLink

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU(\d{1,3})$")
_JOINED = re.compile(r"(?:(?:GPU|NIC)\d{1,3}){2,}$")
"""Two names without a blank between them, as a narrow column prints them."""
_NAME = re.compile(r"(?:GPU|NIC)\d{1,3}")
_KIND = re.compile(r"NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Links between GPUs, lower index first, and the NUMA node of each GPU that has just one."""

    links: tuple[GpuLink, ...] = ()
    numa: Mapping[int, int] = field(default_factory=dict)


def parse(text: str) -> Topology:
    """Read the matrix; network cards and the legend are passed over."""
    columns: list[str] = []
    tail: Sequence[str] = ()
    links: list[GpuLink] = []
    numa: dict[int, int] = {}
    for line in _ANSI.sub("", text).splitlines():
        words = line.split()
        if not words:
            continue
        if not columns:
            if _GPU.match(words[0]) and "X" not in words:
                columns, tail = _head(words)
            continue
        row = _GPU.match(words[0])
        if row is None or len(words) <= len(columns):
            continue
        a = int(row.group(1))
        for column, kind in zip(columns, words[1:], strict=False):
            other = _GPU.match(column)
            if other is not None and a < int(other.group(1)) and _KIND.fullmatch(kind):
                links.append(GpuLink(a=a, b=int(other.group(1)), kind=kind))
        rest = words[1 + len(columns) :]
        if "NUMA" in tail and len(rest) == len(tail) and rest[1].isdecimal():
            numa[a] = int(rest[1])
    return Topology(links=tuple(sorted(links, key=lambda link: (link.a, link.b))), numa=numa)


def _head(words: Sequence[str]) -> tuple[list[str], Sequence[str]]:
    """Columns of the matrix, and the first word of each column behind it: `CPU`, `NUMA`, `GPU`."""
    end = words.index("CPU") if "CPU" in words else len(words)
    columns = [
        name for word in words[:end] for name in (_NAME.findall(word) if _JOINED.match(word) else [word])
    ]
    heads = " ".join(words[end:])
    tail = ["CPU"] if end < len(words) else []
    tail += [name for name, title in (("NUMA", "NUMA Affinity"), ("GPU", "GPU NUMA ID")) if title in heads]
    return columns, tail
