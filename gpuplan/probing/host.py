"""The machine itself: who it is, processors, memory, disks and clock. Read from /proc, /etc and `df` alone.

Every command answers on Debian, RHEL, Alpine with busybox and kernels back to 3.10. A disk is a command of its own:
a network file system that hangs takes no other answer with it.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.host_facts import Disk
from gpuplan.probing import tool_failure
from gpuplan.probing.command import Command
from gpuplan.probing.output import NOT_RUN, Output
from gpuplan.units import KIB

MOST_SKEW_SECONDS = 5.0
"""Clocks further apart than this are told: TLS, tokens and logs of several hosts suffer."""
DISK_PREFIX = "host_disk_"
"""Name of a disk's command, before its purpose."""

_IDENTITY = """\
say() { printf '%s=%s\\n' "$1" "$2"; }
say machine_id "$(cat /etc/machine-id 2>/dev/null || cat /var/lib/dbus/machine-id 2>/dev/null)"
say hostname "$(cat /proc/sys/kernel/hostname 2>/dev/null || hostname 2>/dev/null)"
say architecture "$(uname -m)"
say kernel "$(uname -r)"
say user "$(id -un 2>/dev/null || id -u)"
say groups "$(id -Gn 2>/dev/null)"
say cpu_count "$(nproc 2>/dev/null || grep -c '^processor' /proc/cpuinfo)"
c=
[ -e /.dockerenv ] && c=docker
[ -e /run/.containerenv ] && c=podman
[ -r /run/systemd/container ] && c=$(cat /run/systemd/container)
say container "$c"
"""
_CPU = """\
lscpu 2>/dev/null | grep -E '^ *(BIOS )?[Mm]odel name:'
head -n 40 /proc/cpuinfo
"""
_DISK = """\
case $p in "~") p=$HOME ;; "~/"*) p=$HOME/${p#"~/"} ;; esac
a=$p
while [ ! -e "$p" ] && [ -n "$p" ]; do case $p in */*) p=${p%/*} ;; *) p= ;; esac; done
printf 'asked=%s\\n' "$a"
case $a in /*) p=${p:-/} ;; *) p=${p:-.} ;; esac
df -P -k "$p"
"""

COMMANDS: tuple[Command, ...] = (
    Command(name="host_identity", shell=_IDENTITY, timeout=5),
    Command(name="host_os", shell="cat /etc/os-release 2>/dev/null || cat /usr/lib/os-release", timeout=5),
    Command(name="host_cpu", shell=_CPU, timeout=5),
    Command(name="host_memory", shell="cat /proc/meminfo", timeout=5),
    Command(name="host_clock", shell="date +%s.%N", timeout=5),
)

# The codes are those of the kernel's arch/arm64/include/asm/cputype.h.
_ARM_PARTS = {
    ("0x41", "0xd03"): "ARM Cortex-A53",
    ("0x41", "0xd08"): "ARM Cortex-A72",
    ("0x41", "0xd0b"): "ARM Cortex-A76",
    ("0x41", "0xd0c"): "ARM Neoverse-N1",
    ("0x41", "0xd40"): "ARM Neoverse-V1",
    ("0x41", "0xd42"): "ARM Cortex-A78AE",
    ("0x41", "0xd49"): "ARM Neoverse-N2",
    ("0x41", "0xd4f"): "ARM Neoverse-V2",
    ("0x41", "0xd85"): "ARM Cortex-X925",
    ("0x41", "0xd87"): "ARM Cortex-A725",
    ("0x41", "0xd8e"): "ARM Neoverse-N3",
    ("0x48", "0xd01"): "HiSilicon Kunpeng-920",
    ("0x48", "0xd02"): "HiSilicon Kunpeng-920B",
    ("0xc0", "0xac3"): "Ampere-1",
    ("0xc0", "0xac4"): "Ampere-1A",
}

_DF = re.compile(
    r"(\S(?:.*\S)?)[ \t]+(\d{1,18})[ \t]+(-?\d{1,18})[ \t]+(-?\d{1,18})[ \t]+(?:\d+%|-)[ \t]+/.*"
)
_SECONDS = re.compile(r"(\d{9,11})(?:\.(\d{1,9}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """A machine as it describes itself; what it did not tell is None or empty."""

    hostname: str | None = None
    machine_id: str | None = None
    architecture: str | None = None
    kernel: str | None = None
    os: str | None = None
    """`PRETTY_NAME`, with the kind of container or WSL it runs in where it does."""
    cpu: str | None = None
    cpu_count: int | None = None
    user: str | None = None
    groups: tuple[str, ...] = ()
    ram_total_bytes: int | None = None
    ram_available_bytes: int | None = None
    disks: tuple[Disk, ...] = ()
    clock_offset_seconds: float | None = None
    conditions: tuple[Fact, ...] = ()


def disk_commands(paths: Mapping[str, str]) -> tuple[Command, ...]:
    """One command for the file system under each path, by its purpose; a path may begin with `~/`.

    Of a path that does not exist yet the nearest directory above it is asked.
    """
    return tuple(
        Command(name=f"{DISK_PREFIX}{purpose}", shell=f"p={shlex.quote(path)}\n{_DISK}", timeout=10)
        for purpose, path in paths.items()
    )


def report(
    outputs: Mapping[str, Output], *, sent: float | None = None, received: float | None = None
) -> HostReport:
    """Read what `COMMANDS` and `disk_commands` printed. Never raises.

    `sent` and `received` are our clock (seconds since 1970) just before and after `host_clock` was read; without
    them no offset is told.
    """
    identity = _assignments(outputs.get("host_identity", NOT_RUN).text)
    total, available = _memory(outputs.get("host_memory", NOT_RUN).text)
    disks, silent = _disks(outputs)
    offset = _offset(outputs.get("host_clock", NOT_RUN).text, sent, received)
    kernel = identity.get("kernel")
    return HostReport(
        hostname=identity.get("hostname"),
        machine_id=identity.get("machine_id"),
        architecture=identity.get("architecture"),
        kernel=kernel,
        os=_os(outputs.get("host_os", NOT_RUN).text, kernel or "", identity.get("container", "")),
        cpu=_cpu(outputs.get("host_cpu", NOT_RUN).text),
        cpu_count=_count(identity.get("cpu_count")),
        user=identity.get("user"),
        groups=tuple(identity.get("groups", "").split()),
        ram_total_bytes=total,
        ram_available_bytes=available,
        disks=disks,
        clock_offset_seconds=offset,
        conditions=(*silent, *_unanswered(outputs), *_skew(offset, sent, received)),
    )


def _assignments(text: str) -> dict[str, str]:
    """`key=value` lines; a value in quotes loses them, an empty one is left out."""
    found: dict[str, str] = {}
    for line in text[:200_000].splitlines():
        key, equals, value = line.partition("=")
        value = tool_failure.one_line(value)
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        if equals and value and key.isidentifier():
            found.setdefault(key, value)
    return found


def _os(text: str, kernel: str, container: str) -> str | None:
    told = _assignments(text)
    name = (
        told.get("PRETTY_NAME") or " ".join(filter(None, (told.get("NAME"), told.get("VERSION_ID")))) or None
    )
    inside = container or ("WSL" if "microsoft" in kernel.casefold() else "")
    if not inside or name is None:
        return name
    return f"{name} (WSL)" if inside.casefold() == "wsl" else f"{name} (inside a {inside} container)"


def _cpu(text: str) -> str | None:
    """The model as /proc/cpuinfo prints it; on ARM, which prints none, as lscpu does or by its part number."""
    told: dict[str, str] = {}
    for line in text[:200_000].splitlines():
        key, colon, value = line.partition(":")
        value = tool_failure.one_line(value)
        if colon and value not in {"", "-"}:
            told.setdefault(" ".join(key.split()).casefold(), value)
    for key in ("model name", "cpu model"):
        if key in told and not told[key].isdigit():
            return told[key]
    part = _ARM_PARTS.get((told.get("cpu implementer", ""), told.get("cpu part", "")))
    return part or told.get("bios model name") or told.get("hardware") or told.get("cpu") or told.get("model")


def _count(value: str | None) -> int | None:
    return (
        int(value) if value is not None and value.isdecimal() and 0 < len(value) < 7 and int(value) else None
    )


def _memory(text: str) -> tuple[int | None, int | None]:
    """Total and available. Kernels before 3.14 print no MemAvailable: free memory and what caches give back."""
    told: dict[str, int] = {}
    for line in text[:200_000].splitlines():
        key, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdecimal() and len(words[0]) < 15:
            told.setdefault(key.strip(), int(words[0]) * (KIB if words[1:2] == ["kB"] else 1))
    total = told.get("MemTotal")
    available = told.get("MemAvailable")
    if available is None and "MemFree" in told:
        cached = sum(told.get(key, 0) for key in ("Buffers", "Cached", "SReclaimable")) - told.get("Shmem", 0)
        available = told["MemFree"] + max(0, cached)
    if total is not None and available is not None:
        available = min(available, total)
    return total or None, available


def _disks(outputs: Mapping[str, Output]) -> tuple[tuple[Disk, ...], list[Fact]]:
    disks, silent = [], []
    for name, output in outputs.items():
        if not name.startswith(DISK_PREFIX) or output == NOT_RUN:
            continue
        purpose = name.removeprefix(DISK_PREFIX)
        disk = _disk(purpose, output.text)
        if disk is not None:
            disks.append(disk)
        else:
            silent.append(tool_failure.no_answer(f"the disk of {purpose}", output))
    return tuple(disks), silent


def _disk(purpose: str, text: str) -> Disk | None:
    asked = _assignments(text).get("asked")
    for line in reversed(text[:200_000].splitlines()):
        match = _DF.fullmatch(line.strip()) if len(line) < 4096 else None
        if match is not None and asked is not None:
            total, free = int(match.group(2)) * KIB, max(0, int(match.group(4))) * KIB
            return Disk(
                purpose=purpose, path=asked, total_bytes=total, free_bytes=free, device=match.group(1)
            )
    return None


def clock_seconds(text: str) -> float | None:
    """A clock's reading, seconds since 1970. busybox prints whole seconds, taken at their middle."""
    lines = text.strip().splitlines()
    match = _SECONDS.match(lines[0].strip()) if lines else None
    if match is None:
        return None
    return int(match.group(1)) + (float(f"0.{match.group(2)}") if match.group(2) else 0.5)


def _offset(text: str, sent: float | None, received: float | None) -> float | None:
    """The host's clock less ours, to a millisecond."""
    read = clock_seconds(text)
    if read is None or sent is None or received is None or received < sent:
        return None
    return round(read - (sent + received) / 2, 3)


def _skew(offset: float | None, sent: float | None, received: float | None) -> Iterator[Fact]:
    if offset is None or sent is None or received is None:
        return
    if abs(offset) - (received - sent) / 2 > MOST_SKEW_SECONDS:
        yield Fact(code="GP633", severity=Severity.WARNING, subject={}, figures={"seconds": offset})


def _unanswered(outputs: Mapping[str, Output]) -> Iterator[Fact]:
    names = {
        "host_identity": "identity",
        "host_cpu": "processors",
        "host_memory": "memory",
        "host_clock": "clock",
    }
    for name, what in names.items():
        output = outputs.get(name, NOT_RUN)
        if output.timed_out:
            yield tool_failure.no_answer(what, output)
