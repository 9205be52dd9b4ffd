"""What the fleet on the screen rests on: how far a reading has come, where the picture comes from and how old it is."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from gpuplan.domain.fleet import Host, HostStatus
from gpuplan.present.age import ago
from gpuplan.present.numbers import count
from gpuplan.units import plural

LIVE, SNAPSHOT, DECLARED, DEMO = "live", "snapshot", "declared", "demo"
"""Kinds of source."""


def progress_words(total: int, waiting: int, failed: int) -> str:
    """`12 of 40 read, 2 failed, 26 waiting`."""
    words = f"{count(total - waiting - failed)} of {count(total)} read"
    if failed:
        words += f", {count(failed)} failed"
    return f"{words}, {count(waiting)} waiting"


def fleet_words(hosts: Sequence[Host]) -> str:
    """`40 hosts, 312 GPUs, 2 failed`."""
    seen = [host for host in hosts if host.status is HostStatus.OK]
    words = f"{plural(len(hosts), 'host')}, {plural(sum(len(host.gpus) for host in seen), 'GPU')}"
    failed = len(hosts) - len(seen)
    return f"{words}, {count(failed)} failed" if failed else words


def source_words(
    kind: str,
    name: str,
    now: datetime,
    *,
    read_at: Mapping[str, datetime],
    live_at: Mapping[str, datetime],
    paused: bool = False,
) -> str:
    """`live, 2 s ago`, `snapshot FILE, taken 3 h ago`, `declared in FILE`, `DEMO, 2 s ago`."""
    if kind == DECLARED:
        return f"declared in {name}, not read"
    newest = max((*read_at.values(), *live_at.values()), default=None)
    if kind == SNAPSHOT:
        return (
            f"snapshot {name}, taken {ago(newest, now)}"
            if newest is not None
            else f"snapshot {name}, of unknown age"
        )
    word = "DEMO" if kind == DEMO else kind
    rest = ", paused" if paused else ""
    return f"{word}{rest}, {ago(newest, now)}" if newest is not None else f"{word}{rest}, not read yet"
