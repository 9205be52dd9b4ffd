"""`nvidia-smi topo -m`: how the GPUs of a host reach each other, and the NUMA node next to each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuplan.domain.host_facts import GpuLink

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU(\d{1,3})$")
_DEVICE = re.compile(r"(?:GPU|NIC)\d+$|mlx\w+$")
_KIND = re.compile(r"NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Links between GPUs, lower index first, and the NUMA node of each GPU that has just one."""

    links: tuple[GpuLink, ...] = ()
    numa: Mapping[int, int] = field(default_factory=dict)


def parse(text: str) -> Topology:
    """Read the matrix; network cards and the legend are passed over."""
    columns: list[str] = []
    numbered = False
    links: list[GpuLink] = []
    numa: dict[int, int] = {}
    for line in _ANSI.sub("", text).splitlines():
        words = line.split()
        if not words:
            continue
        if not columns:
            if _GPU.match(words[0]) and "X" not in words:
                columns = _leading_devices(words)
                numbered = "NUMA" in words
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
        if numbered and len(rest) >= 2 and rest[1].isdecimal():
            numa[a] = int(rest[1])
    return Topology(links=tuple(sorted(links, key=lambda link: (link.a, link.b))), numa=numa)


def _leading_devices(words: list[str]) -> list[str]:
    """Columns of the matrix: what stands before `CPU Affinity`."""
    devices: list[str] = []
    for word in words:
        if not _DEVICE.match(word):
            break
        devices.append(word)
    return devices
