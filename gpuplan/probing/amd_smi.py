"""AMD GPUs through `amd-smi`, and `rocm-smi` where it is missing or fails.

`amd-smi --json` prints a list up to ROCm 6 and `{"gpu_data": [...]}` from ROCm 7; text may come before it.
Its `MB` are MiB (196592 MB of an MI300X are 206141652992 bytes). A flag a version does not know fails the whole
command, which is then asked without flags.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Gpu, GpuProcess
from gpuplan.domain.host_facts import GpuLink
from gpuplan.probing import json_text, rocm_smi, tool_failure
from gpuplan.probing.command import Command
from gpuplan.probing.devices import DeviceReport
from gpuplan.probing.output import NOT_RUN, Output
from gpuplan.units import GIB, KIB, MIB

_VENDOR = "amd"
_SECONDS = 15
_INTEGRATED_BYTES = 4 * GIB
"""A device with less memory of its own is taken for graphics inside a CPU: no tool is missed for it."""

_FB_TOTAL = ("vram_total", "fb_total")
_FB_USED = ("vram_used", "fb_used")
"""Frame buffer in the releases before ROCm 6, in two spellings."""
_PEER = re.compile(r"gpu_(\d{1,4})")
_FIND = (
    'for t in "$(command -v {tool})" /opt/rocm/bin/{tool} /opt/rocm-*/bin/{tool}; do [ -x "$t" ] && break; t=; done\n'
    '[ -n "$t" ] || {{ echo "{tool}: not found"; exit 127; }}\n'
)
_ASK = (
    'o=$("$t" {flags} 2>&1); r=$?\n'
    "case $o in *'{proof}'*) ;; *) o=$(\"$t\" {plain} 2>&1); r=$? ;; esac\n"
    "printf '%s\\n' \"$o\"; exit $r\n"
)
_PCI = """\
for d in /sys/bus/pci/devices/*; do
  v=; read -r v <"$d/vendor" || continue
  [ "$v" = 0x1002 ] || continue
  c=; read -r c <"$d/class"
  case $c in 0x03*|0x12*) ;; *) continue ;; esac
  i=-; read -r i <"$d/device"
  m=-; [ -r "$d/mem_info_vram_total" ] && read -r m <"$d/mem_info_vram_total"
  printf '%s %s %s %s\\n' "${d##*/}" "$c" "$i" "$m"
done 2>/dev/null
"""


def _asked(tool: str, flags: str, plain: str, proof: str) -> str:
    return _FIND.format(tool=tool) + _ASK.format(flags=flags, plain=plain, proof=proof)


def _command(name: str, shell: str) -> Command:
    return Command(name=name, shell=shell, timeout=_SECONDS, group=_VENDOR)


COMMANDS: tuple[Command, ...] = (
    Command(name="amd_pci", shell=_PCI, timeout=5),
    _command(
        "amd_static",
        _asked("amd-smi", "static --asic --bus --vram --driver --numa --json", "static --json", '"gpu"'),
    ),
    _command(
        "amd_metric",
        _asked("amd-smi", "metric --mem-usage --usage --temperature --ecc --json", "metric --json", '"gpu"'),
    ),
    _command("amd_process", _FIND.format(tool="amd-smi") + '"$t" process --json'),
    _command("amd_topology", _FIND.format(tool="amd-smi") + '"$t" topology --json'),
    _command(
        "amd_rocm_smi",
        _asked(
            "rocm-smi",
            "--showproductname --showuniqueid --showbus --showmeminfo vram --showuse --showtemp"
            " --showdriverversion --showtopotype --json",
            "--showproductname --showuniqueid --showmeminfo vram --json",
            '"card',
        ),
    ),
    Command(
        name="amd_rocm_version",
        shell='for f in /opt/rocm/.info/version /opt/rocm-*/.info/version; do [ -r "$f" ] && cat "$f" && break; done',
        timeout=5,
    ),
)


def report(outputs: Mapping[str, Output]) -> DeviceReport:
    """What the tools told, whichever of them answered; a failure is a condition. Never raises."""
    static = _entries(outputs, "amd_static")
    old = outputs.get("amd_rocm_smi", NOT_RUN)
    fallback = rocm_smi.gpus(old.text)
    found = _described(outputs, static, fallback) if static else fallback
    if not found:
        missing = _failure(outputs)
        return DeviceReport(vendor=_VENDOR, conditions=() if missing is None else (missing,))
    return DeviceReport(
        vendor=_VENDOR,
        gpus=found,
        driver_version=_driver(static) or rocm_smi.driver_version(old.text),
        runtime_version=_runtime(outputs),
        links=_links(_records(outputs, "amd_topology", "topology", "gpu_data")) or rocm_smi.links(old.text),
        conditions=(*_unanswered(outputs), *_conditions(found, outputs)),
    )


def _described(
    outputs: Mapping[str, Output], static: Mapping[int, Any], old: tuple[Gpu, ...]
) -> tuple[Gpu, ...]:
    metric = _entries(outputs, "amd_metric")
    processes = _processes(outputs)
    by_bus = {gpu.pci_bus_id: gpu for gpu in old if gpu.pci_bus_id is not None}
    slices = _partitioned(static)
    found = []
    for index, entry in sorted(static.items()):
        gpu = _gpu(index, entry, metric.get(index, {}))
        other = by_bus.get(gpu.pci_bus_id or "")
        if other is not None and gpu.free_bytes is None and gpu.total_bytes is not None:
            gpu = replace(gpu, total_bytes=other.total_bytes or gpu.total_bytes, free_bytes=other.free_bytes)
        if index in slices:
            gpu = replace(gpu, total_bytes=None, free_bytes=None)
        found.append(replace(gpu, processes=processes.get(index, ())))
    return rocm_smi.unique_uuids(tuple(found))


def _gpu(index: int, static: Mapping[str, Any], metric: Mapping[str, Any]) -> Gpu:
    at = json_text.at
    sizes = [at(static, "vram", key) for key in ("size", "vram_size", "size_mb", "vram_size_mb")]
    told = (at(metric, "mem_usage", "total_vram"), *(at(metric, "fb_usage", key) for key in _FB_TOTAL))
    total = next((size for size in map(_bytes, (*told, *sizes)) if size), None)
    free = _bytes(at(metric, "mem_usage", "free_vram"))
    taken = (at(metric, "mem_usage", "used_vram"), *(at(metric, "fb_usage", key) for key in _FB_USED))
    used = next((size for size in map(_bytes, taken) if size is not None), None)
    if free is None and total is not None and used is not None:
        free = max(0, total - used)
    temperatures = (at(metric, "temperature", sensor) for sensor in ("hotspot", "edge"))
    node = json_text.whole(at(static, "numa", "node"))
    return Gpu(
        index=index,
        name=rocm_smi.marketed_name(
            json_text.words_of(at(static, "asic", "market_name")),
            json_text.words_of(at(static, "asic", "device_id")),
        ),
        uuid=rocm_smi.uuid_of(at(static, "asic", "asic_serial")),
        vendor=_VENDOR,
        backend="rocm",
        total_bytes=total,
        free_bytes=min(free, total) if free is not None and total is not None else None,
        pci_bus_id=rocm_smi.bus_id(at(static, "bus", "bdf")),
        numa_node=node if node is not None and node >= 0 else None,
        utilization_percent=json_text.whole(at(metric, "usage", "gfx_activity")),
        temperature_celsius=next((t for t in map(json_text.whole, temperatures) if t is not None), None),
    )


def _partitioned(static: Mapping[int, Any]) -> set[int]:
    """Indexes that are parts of one card (DPX, QPX, CPX): they share its memory, and no tool tells how much is whose."""
    serials = {
        index: rocm_smi.uuid_of(json_text.at(entry, "asic", "asic_serial")) for index, entry in static.items()
    }
    count = Counter(serials.values())
    return {index for index, serial in serials.items() if serial is not None and count[serial] > 1}


def _processes(outputs: Mapping[str, Output]) -> dict[int, tuple[GpuProcess, ...]]:
    """Who holds memory, by GPU.

    Releases up to ROCm 7.2 list every compute process under every GPU with its sum over all of them; that sum says
    nothing about one GPU, so a process found with the same figure on several has an unknown share of each.
    """
    found: dict[int, dict[int, GpuProcess]] = {}
    for entry in _records(outputs, "amd_process", "gpu_data"):
        index = json_text.whole(entry.get("gpu"))
        if index is None:
            continue
        for told in _process_entries(entry):
            pid = json_text.whole(json_text.at(told, "pid"))
            held = json_text.at(told, "memory_usage", "vram_mem")
            used = _bytes(held if held is not None else json_text.at(told, "mem_usage"), unit="B")
            if pid is None or pid < 1 or used == 0:
                continue
            name = json_text.words_of(json_text.at(told, "name")).rsplit("/", 1)[-1]
            found.setdefault(index, {})[pid] = GpuProcess(pid=pid, name=name, used_bytes=used)
    seen = Counter((process.pid, process.used_bytes) for held in found.values() for process in held.values())
    return {
        index: tuple(
            replace(process, used_bytes=None) if seen[process.pid, process.used_bytes] > 1 else process
            for process in held.values()
        )
        for index, held in found.items()
    }


def _process_entries(entry: Mapping[str, Any]) -> Iterator[object]:
    """The processes of a GPU: a list, before ROCm 6.1 named `values`; there a single one stands beside the GPU's number."""
    for name in ("process_list", "values"):
        listed = entry.get(name)
        for item in listed if isinstance(listed, list) else ():
            yield from _process_entries(item) if isinstance(item, Mapping) else ()
    yield from (value for key, value in entry.items() if key.startswith("process_info"))


def _links(topology: list[Mapping[str, Any]]) -> tuple[GpuLink, ...]:
    buses = {rocm_smi.bus_id(entry.get("bdf")): json_text.whole(entry.get("gpu")) for entry in topology}
    found: dict[tuple[int, int], str] = {}
    for entry in topology:
        a = json_text.whole(entry.get("gpu"))
        for b, told in _peers(entry, buses):
            kind = json_text.words_of(told).upper()
            if a is not None and b is not None and a != b and kind not in {"", "SELF"}:
                found[min(a, b), max(a, b)] = kind
    return tuple(GpuLink(a=a, b=b, kind=kind) for (a, b), kind in sorted(found.items()))


def _peers(
    entry: Mapping[str, Any], buses: Mapping[str | None, int | None]
) -> Iterator[tuple[int | None, object]]:
    """The other GPUs and the links to them: a list, before ROCm 6.2 an object by `gpu_1` or by bus."""
    peers = entry.get("links")
    for peer in peers if isinstance(peers, list) else ():
        yield json_text.whole(json_text.at(peer, "gpu")), json_text.at(peer, "link_type")
    kinds = entry.get("link_type")
    for key, kind in kinds.items() if isinstance(kinds, Mapping) else ():
        number = _PEER.fullmatch(key)
        yield int(number.group(1)) if number is not None else buses.get(rocm_smi.bus_id(key) or ""), kind


def _conditions(found: tuple[Gpu, ...], outputs: Mapping[str, Output]) -> list[Fact]:
    metric = _entries(outputs, "amd_metric")
    static = _entries(outputs, "amd_static")
    slices = (
        _partitioned(static) if static else rocm_smi.partitioned(outputs.get("amd_rocm_smi", NOT_RUN).text)
    )
    facts = []
    for gpu in found:
        subject = {"gpu": gpu.index}
        if gpu.total_bytes is None or gpu.free_bytes is None:
            detail = (
                "the card is partitioned and the memory is shared by its parts"
                if gpu.index in slices
                else (
                    "the tool tells no size"
                    if gpu.total_bytes is None
                    else "the tool does not tell how much is free"
                )
            )
            facts.append(
                Fact(code="GP609", severity=Severity.WARNING, subject=subject, figures={"detail": detail})
            )
        errors = json_text.whole(json_text.at(metric.get(gpu.index), "ecc", "total_uncorrectable_count"))
        if errors is not None and errors > 0:
            facts.append(
                Fact(code="GP611", severity=Severity.WARNING, subject=subject, figures={"count": errors})
            )
    return facts


def _unanswered(outputs: Mapping[str, Output]) -> list[Fact]:
    names = {
        "amd_metric": "amd-smi metric",
        "amd_process": "amd-smi process",
        "amd_topology": "amd-smi topology",
    }
    found = ((what, outputs.get(name, NOT_RUN)) for name, what in names.items())
    return [tool_failure.no_answer(what, output) for what, output in found if output.timed_out]


def _failure(outputs: Mapping[str, Output]) -> Fact | None:
    """Why there is no GPU in the report; None where no tool and no device is."""
    tools = (
        ("amd-smi", outputs.get("amd_static", NOT_RUN)),
        ("rocm-smi", outputs.get("amd_rocm_smi", NOT_RUN)),
    )
    present = [
        (tool, output) for tool, output in tools if not tool_failure.is_missing(output) and output != NOT_RUN
    ]
    for tool, output in present:
        listed = next(json_text.documents(output.text), None)
        detail = "it lists no GPU" if listed is not None and output.exit_code == 0 else ""
        if not detail or _devices(outputs):
            return tool_failure.failure(tool, output, seconds=_SECONDS, detail=detail)
    if present or not _devices(outputs):
        return None
    detail = "an AMD GPU is present, neither amd-smi nor rocm-smi is there"
    return tool_failure.failure("amd-smi", Output(text="", exit_code=127), seconds=_SECONDS, detail=detail)


def _devices(outputs: Mapping[str, Output]) -> list[str]:
    """PCI addresses of AMD's GPUs, those inside a CPU left out where their memory tells them."""
    found = []
    for line in outputs.get("amd_pci", NOT_RUN).text.splitlines():
        words = line.split()
        if len(words) == 4 and rocm_smi.bus_id(words[0]) is not None:
            memory = json_text.whole(words[3])
            if memory is None or memory >= _INTEGRATED_BYTES:
                found.append(words[0])
    return found


def _records(outputs: Mapping[str, Output], name: str, *keys: str) -> list[Mapping[str, Any]]:
    for document in json_text.documents(outputs.get(name, NOT_RUN).text):
        found = [entry for entry in json_text.records(document, *keys) if "gpu" in entry]
        if found:
            return found
    return []


def _entries(outputs: Mapping[str, Output], name: str) -> dict[int, Mapping[str, Any]]:
    found = ((json_text.whole(entry.get("gpu")), entry) for entry in _records(outputs, name, "gpu_data"))
    return {index: entry for index, entry in found if index is not None and index >= 0}


def _driver(static: Mapping[int, Any]) -> str | None:
    told = (
        json_text.words_of(json_text.at(entry, "driver", key))
        for entry in static.values()
        for key in ("version", "driver_version")
    )
    return next((version for version in told if version), None)


def _runtime(outputs: Mapping[str, Output]) -> str | None:
    output = outputs.get("amd_rocm_version", NOT_RUN)
    words = output.text.split()
    return words[0].split("-")[0] if output.exit_code == 0 and words and words[0][:1].isdigit() else None


def _bytes(value: object, *, unit: str = "MB") -> int | None:
    """A size with its unit as bytes; `unit` is that of a bare number. The tool's multiples are of 1024."""
    told = unit
    if isinstance(value, Mapping):
        told = json_text.words_of(value.get("unit")) or unit
    elif isinstance(value, str):
        told = next(iter(value.split()[1:2]), unit)
    multiple = {"B": 1, "K": KIB, "M": MIB, "G": GIB}.get(told[:1].upper())
    size = json_text.number(value)
    if size is None or size < 0 or multiple is None:
        return None
    return math.floor(size * multiple) if size * multiple < 2**60 else None
