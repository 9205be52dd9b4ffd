"""The GPUs this container was given, asked of the nvidia-smi that the toolkit's hook put into it."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_UUID = re.compile(r"\(UUID: ([^)]+)\)")
_FIELDS = "uuid,memory.total,memory.free"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """Bytes; of a card without memory of its own, the host's."""

    uuid: str
    total: int
    free: int


def gpus() -> tuple[Gpu, ...]:
    """In CUDA's order; none without a device request. A slice of a GPU has the figures of the whole."""
    tool = shutil.which("nvidia-smi")
    asked = os.environ.get("NVIDIA_VISIBLE_DEVICES", "")
    if tool is None or asked in ("", "void", "none"):
        return ()
    listed = _UUID.findall(_ask(tool, "-L"))
    rows = [
        row.split(", ")
        for row in _ask(tool, f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits").splitlines()
    ]
    figures = {uuid: (_bytes(total, "MemTotal"), _bytes(free, "MemAvailable")) for uuid, total, free in rows}
    slices = [uuid for uuid in listed if uuid.startswith("MIG-") and uuid in asked]
    parents = [uuid for uuid in listed if uuid in figures]
    found = [(uuid, figures[parents[0]]) for uuid in slices] or [(uuid, figures[uuid]) for uuid in parents]
    return tuple(Gpu(uuid=uuid, total=total, free=free) for uuid, (total, free) in found)


def _ask(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def _bytes(mebibytes: str, otherwise: str) -> int:
    try:
        return int(mebibytes) * 1024**2
    except ValueError:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{otherwise}:"))
