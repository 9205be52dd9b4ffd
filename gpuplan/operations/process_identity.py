"""Which process a number means: numbers are given again, start times within one boot are not."""

import signal
import subprocess
from pathlib import Path

PROC = Path("/proc")


def identity_of(pid: int) -> str | None:
    """What tells the living process of that number from earlier and later ones; None: there is none, or it has ended."""
    try:
        text = (PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None if PROC.is_dir() else _asked(pid)
    fields = text.rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in {"Z", "X"}:
        return None
    return f"{_boot()} {fields[19]}"


def ignores_interrupts(pid: int) -> bool:
    """Whether it was begun by something that ignores Ctrl-C, as a shell's background jobs are: it does so too."""
    try:
        text = (PROC / str(pid) / "status").read_text("utf-8", "replace")
    except OSError:
        return False
    for line in text.splitlines():
        name, _, mask = line.partition(":")
        if name == "SigIgn":
            return bool(int(mask, 16) & (1 << (signal.SIGINT - 1)))
    return False


def _boot() -> str:
    try:
        return (PROC / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    except OSError:
        return ""


def _asked(pid: int) -> str | None:
    """Where there is no /proc."""
    asked = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=5, check=False
    )
    state, _, started = asked.stdout.strip().partition(" ")
    return started.strip() if asked.returncode == 0 and started and not state.startswith("Z") else None
