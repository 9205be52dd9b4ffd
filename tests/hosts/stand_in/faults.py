"""What a test has told the stand-in to do wrong, in a file beside the model: `gpuplan-faults.json`.

    {"leader": {"exit_after": "weights", "code": 1, "say": ["ValueError: …"]}, "follower": {"hang_after": "joined"}}

The names are `leader`, `follower`, a node rank (`"1"`), `ray-head`, `ray-follower`, `all`; the more special one wins. A
host has model directories of its own, so a file on one host is for that host alone.

exit_after MILESTONE   end there with `code` (1), having written `say`
hang_after MILESTONE   do nothing more
slow_seconds N         before every milestone
oom true               take memory until the kernel ends it, else end as Docker shows it (137); at milestone `weights`
never_ready true       load, and never serve
die_after_join true    end with 1 as soon as the leader knows it
log_lines [TEXT]       written at the start, as they are
token_seconds N        for each token of an answer
completion_status N    answer completions so (500)
hang_completion true   never answer them
"""

import json
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hosts.stand_in import log

FILE = "gpuplan-faults.json"
MILESTONES = (
    "starting", "bound", "joined", "world_size", "weights", "model", "kv", "graphs", "init", "ready", "request",
)  # fmt: skip
_OCTAL = re.compile(r"\\([0-7]{3})")
_CHUNK = 1024**2
_HOG = 96 * 1024**2
"""Bytes taken at the most where no limit of memory ends it first."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Of one process."""

    orders: dict[str, Any] = field(default_factory=dict)

    def number(self, name: str) -> float:
        return float(self.orders.get(name, 0))

    def told(self, name: str) -> bool:
        return bool(self.orders.get(name))

    def begin(self) -> None:
        """What is said before anything else."""
        for line in self.orders.get("log_lines", ()):
            log.error(line)

    def reach(self, milestone: str) -> None:
        """At a milestone, after its line was written: go on, end or hang."""
        assert milestone in MILESTONES, milestone
        time.sleep(self.number("slow_seconds"))
        if milestone == "weights" and self.told("oom"):
            _take_memory()
        dying = self.told("die_after_join") and milestone == "joined"
        if dying or self.orders.get("exit_after") == milestone:
            said = self.orders.get("say", ())
            for line in [said] if isinstance(said, str) else said:
                log.error(line)
            os._exit(int(self.orders.get("code", 1)))
        if self.orders.get("hang_after") == milestone or (self.told("never_ready") and milestone == "init"):
            while True:
                signal.pause()


def find(names: Sequence[str], model: Path | None = None) -> Faults:
    """The orders for a process that answers to `names`, the most special last.

    The file lies in the model directory, in a mounted directory or in one of its directories: Ray's processes are told
    of no model.
    """
    places = [model] if model is not None else []
    for mount in _mounts():
        places += [mount, *(path for path in mount.glob("*") if path.is_dir())]
    for place in places:
        try:
            orders = json.loads((place / FILE).read_text())
        except OSError:
            continue
        merged: dict[str, Any] = {}
        for name in ("all", *names):
            merged |= orders.get(name, {})
        return Faults(orders=merged)
    return Faults()


def _mounts() -> list[Path]:
    """Directories of the host in this container."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    targets = [_OCTAL.sub(lambda found: chr(int(found[1], 8)), line.split()[4]) for line in lines]
    system = ("/proc", "/sys", "/dev", "/etc", "/run", "/tmp")
    return [Path(target) for target in targets if target != "/" and not target.startswith(system)]


def _take_memory() -> None:
    taken: list[bytes] = []
    while len(taken) * _CHUNK < _HOG:
        taken.append(os.urandom(_CHUNK))
    os._exit(137)
