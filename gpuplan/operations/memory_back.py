"""After containers ended their GPUs are watched until what they held is free again (S4.7)."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gpuplan.deploying.observed import Container, claims
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Gpu
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.reached import ReachedFleet

SHORT = "GP854"
ENOUGH = 0.8
"""Share of what was held that must be free again (S4.7)."""
MOST_SECONDS = 30.0
POLL_SECONDS = 1.0
_READ_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """A GPU that has memory to give back."""

    host: str
    uuid: str
    index: int
    free_before: int
    held: int
    """Bytes our containers held: as their processes were told, else what they were predicted to."""

    def short(self, gpus: Sequence[Gpu]) -> int | None:
        """Bytes that are free where too few are; None where enough came back, or nothing can be told."""
        for gpu in gpus:
            if gpu.uuid == self.uuid and gpu.free_bytes is not None:
                back = gpu.free_bytes - self.free_before
                return gpu.free_bytes if back < self.held * ENOUGH else None
        return None


def owed(containers: Sequence[Container], gpus: Mapping[str, Sequence[Gpu]]) -> tuple[Owed, ...]:
    """What running containers will give back, from the GPUs of their hosts as they are before the stop."""
    found: dict[tuple[str, str], Owed] = {}
    for container in containers:
        member = container.member
        if member.state not in {"running", "paused", "restarting"}:
            continue
        for uuid, claim in claims(container).items():
            gpu = next((one for one in gpus.get(member.host, ()) if one.uuid == uuid), None)
            if gpu is None or gpu.unified or gpu.free_bytes is None or gpu.total_bytes is None:
                continue
            mine = sum(process.used_bytes or 0 for process in gpu.processes if process.container == member.id)
            held = mine or min(claim, gpu.total_bytes - gpu.free_bytes)
            known = found.get((member.host, uuid))
            found[member.host, uuid] = Owed(
                host=member.host,
                uuid=uuid,
                index=gpu.index,
                free_before=gpu.free_bytes,
                held=held + (known.held if known is not None and mine else 0),
            )
    return tuple(found.values())


def read_gpus(fleet: ReachedFleet, hosts: Sequence[str]) -> dict[str, tuple[Gpu, ...]]:
    """GPUs as they are now; a host that does not answer is left out."""
    outcomes = on_each({host: partial(fleet.gpus_now, host) for host in hosts}, _READ_SECONDS)
    return {host: gpus for host, gpus in outcomes.items() if not isinstance(gpus, Outcome)}


def await_memory(
    read: Callable[[Sequence[str]], Mapping[str, Sequence[Gpu]]],
    wanted: Sequence[Owed],
    *,
    seconds: float = MOST_SECONDS,
    pause: Callable[[float], object] = time.sleep,
) -> tuple[Fact, ...]:
    """Wait until it came back, at most so long; GP854 for each GPU on which it did not.

    `read` tells the GPUs of hosts as they are now, without those that do not answer.
    """
    deadline = time.monotonic() + seconds
    while wanted:
        gpus = read(sorted({one.host for one in wanted}))
        short = {one: free for one in wanted if (free := one.short(gpus.get(one.host, ()))) is not None}
        wanted = tuple(short)
        if not wanted:
            break
        if time.monotonic() >= deadline:
            return tuple(_short(one, free, seconds) for one, free in short.items())
        pause(POLL_SECONDS)
    return ()


def _short(one: Owed, free: int, seconds: float) -> Fact:
    return Fact(
        code=SHORT,
        severity=Severity.WARNING,
        subject={"host": one.host, "gpu": one.index},
        figures={"free_bytes": free, "claimed_bytes": one.held, "seconds": round(seconds)},
    )
