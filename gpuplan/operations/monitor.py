"""GPUs watched over connections that stay open: what memory, load and temperature are now, told until somebody stops it.

Every host has its own turns: one that hangs or is lost delays no other. A lost one is tried again, ever more rarely.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from heapq import heappop, heappush

from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.inventory import Inventory
from gpuplan.operations.across import AT_ONCE
from gpuplan.operations.probe import ProbeOptions
from gpuplan.operations.reached import ReachedFleet
from gpuplan.remote.connection import ConnectionFailed
from gpuplan.sources.device_facts import completed, on_windows

EVERY_SECONDS = 2.0
GATHER_SECONDS = 0.25
"""What was heard within it is told at once."""
MOST_WAIT_SECONDS = 60.0
"""Between two attempts at a host that was lost."""

OnGpus = Callable[[Mapping[str, tuple[Gpu, ...]]], None]
"""Told by host, from one thread."""


def watch_gpus(
    inventory: Inventory,
    options: ProbeOptions,
    names: Collection[str],
    every_seconds: float,
    stop: threading.Event,
    on_gpus: OnGpus,
) -> None:
    """Tell the GPUs of these hosts every so many seconds until `stop` is set; then every connection is ended."""
    from gpuplan.operations.probe import connector_for

    entries = [entry for entry in inventory.hosts if entry.name in names]
    if not entries:
        return
    fleet = ReachedFleet(entries, connector_for(inventory, options), options)
    turns = _Turns(fleet, every_seconds)
    workers = min(AT_ONCE, len(entries))
    try:
        for _ in range(workers):
            threading.Thread(target=turns.work, daemon=True).start()
        while not stop.wait(min(GATHER_SECONDS, every_seconds)):
            heard = turns.taken()
            if heard:
                on_gpus(heard)
    finally:
        turns.end()
        options.ssh.cancellation.cancel()
        fleet.close()


class _Turns:
    """Which host is asked next, and what the last ones answered."""

    def __init__(self, fleet: ReachedFleet, every_seconds: float) -> None:
        self._fleet = fleet
        self._every = every_seconds
        self._changed = threading.Condition()
        self._due = [(0.0, name) for name in sorted(fleet.entries)]
        self._failed: Counter[str] = Counter()
        self._heard: dict[str, tuple[Gpu, ...]] = {}
        self._ended = False

    def work(self) -> None:
        """Take turns until the end; run by several threads."""
        while (name := self._next()) is not None:
            gpus = self._ask(name)
            with self._changed:
                if gpus:
                    self._heard[name] = gpus
                wait = self._every
                if gpus is None:
                    self._failed[name] += 1
                    wait = min(MOST_WAIT_SECONDS, wait * 2 ** min(10, self._failed[name]))
                else:
                    self._failed[name] = 0
                heappush(self._due, (time.monotonic() + wait, name))
                self._changed.notify()

    def taken(self) -> Mapping[str, tuple[Gpu, ...]]:
        """What was heard since it was asked last."""
        with self._changed:
            heard, self._heard = self._heard, {}
        return heard

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _next(self) -> str | None:
        """The host whose turn it is, waited for; None: there are no more turns."""
        with self._changed:
            while not self._ended:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    return heappop(self._due)[1]
                self._changed.wait(wait)
        return None

    def _ask(self, name: str) -> tuple[Gpu, ...] | None:
        """The GPUs of a host now; None: it does not answer."""
        try:
            if self._failed[name] or name not in self._fleet.connections:
                self._fleet.reach(name)
                gpus = self._fleet.seen(name).gpus
            else:
                gpus = self._fleet.gpus_now(name)
        except ConnectionFailed:
            return None
        except KeyError:
            if self._ended:
                return None
            raise
        return tuple(completed(gpu) for gpu in gpus)


def merged(fleet: Fleet, readings: Mapping[str, tuple[Gpu, ...]]) -> Fleet:
    """The fleet with the figures that were told; hosts whose figures are as before stay the same objects."""
    hosts = tuple(
        _with_figures(host, readings[host.name]) if host.name in readings else host for host in fleet.hosts
    )
    return replace(fleet, hosts=hosts)


def _with_figures(host: Host, told: tuple[Gpu, ...]) -> Host:
    if on_windows(host):
        told = tuple(completed(gpu, windows=True) for gpu in told)
    by_uuid = {gpu.uuid: gpu for gpu in told if gpu.uuid is not None}
    known = {gpu.uuid for gpu in host.gpus if gpu.uuid is not None}
    by_index = {gpu.index: gpu for gpu in told if gpu.uuid not in known}
    fresh: list[Gpu] = []
    for gpu in host.gpus:
        now = by_uuid.get(gpu.uuid) if gpu.uuid is not None else None
        if now is None:
            same_place = by_index.get(gpu.index)
            # another card has come to the place of a known one
            now = same_place if same_place is not None and None in (gpu.uuid, same_place.uuid) else None
        fresh.append(gpu if now is None or _figures(now) == _figures(gpu) else _updated(gpu, now))
    if all(new is old for new, old in zip(fresh, host.gpus, strict=True)):
        return host
    return replace(host, gpus=tuple(fresh))


def _figures(gpu: Gpu) -> tuple[object, ...]:
    return (
        gpu.total_bytes,
        gpu.free_bytes,
        gpu.processes,
        gpu.utilization_percent,
        gpu.temperature_celsius,
    )


def _updated(gpu: Gpu, now: Gpu) -> Gpu:
    return replace(
        gpu,
        total_bytes=now.total_bytes,
        free_bytes=now.free_bytes,
        processes=now.processes,
        utilization_percent=now.utilization_percent,
        temperature_celsius=now.temperature_celsius,
    )
