"""Read a fleet: every host of an inventory probed over one connection each, failures kept as facts of their host."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Basis, Fleet, Host, HostFailure, HostStatus
from gpuplan.domain.inventory import LOCAL, HostEntry, Inventory
from gpuplan.operations.entries import compared, with_entry
from gpuplan.operations.host_probe import Connect, Reading, read_again, read_host
from gpuplan.remote.connection import Connection, ConnectionFailed, Stage
from gpuplan.sources import device_facts
from gpuplan.sources.deadline import as_finished

if TYPE_CHECKING:
    from gpuplan.remote.docker_engine import Engine
    from gpuplan.remote.ssh_settings import SshSettings

JOBS = 64
"""Hosts probed at once."""
MOST_JOBS = 1024
DUPLICATE = "duplicate"
"""The stage of a host that was read under another name already: nothing failed on the way to it."""
CANCELLED = HostFailure(
    stage=Stage.CANCELLED.value, detail="the probe was broken off before this host answered"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a probe has come, told each time a host is done."""

    total: int
    done: int
    failed: int
    last: Host
    """The host that has just been read, under what the inventory says of it."""

    @property
    def waiting(self) -> int:
        return self.total - self.done


OnProgress = Callable[[Progress], None]


class Interrupted(KeyboardInterrupt):
    """The probe was broken off; what was read until then is kept."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self.fleet = fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """How hosts are reached."""

    ssh: "SshSettings"
    jobs: int = JOBS
    connect: Connect | None = None
    """Instead of SSH: recorded hosts."""


class OpenFleet:
    """A fleet that was read, with the connections it was read over; closed with its context."""

    def __init__(
        self,
        fleet: Fleet,
        entries: Sequence[HostEntry],
        readings: Mapping[str, Reading],
        options: ProbeOptions,
        connect: Connect,
    ) -> None:
        self.fleet = fleet
        self.entries = {entry.name: entry for entry in entries}
        self.cancellation = options.ssh.cancellation
        self._readings = dict(readings)
        self._engines: dict[str, Engine] = {}
        self._lock = threading.RLock()
        self._opening: dict[str, threading.Lock] = {}
        self._closed = False
        self._jobs = options.jobs
        self._connect = connect

    @property
    def connections(self) -> Mapping[str, Connection]:
        """Of the hosts that answered."""
        with self._lock:
            readings = list(self._readings.items())
        return {name: reading.connection for name, reading in readings if reading.connection is not None}

    def engine_of(self, host: str) -> "Engine":
        """The Docker engine of a host that answered, over its connection. Raises EngineFailed."""
        with self._lock:
            opening = self._opening.setdefault(host, threading.Lock())
        with opening:
            engine = self._engines.get(host)
            if engine is None:
                engine = self._readings[host].open_engine()
                self._keep(host, engine=engine)
            return engine

    def reopen(self, host: str) -> None:
        """A fresh connection to a host whose connection was lost, the facts of the host as they were.

        Raises ConnectionFailed.
        """
        with self._lock:
            opening = self._opening.setdefault(host, threading.Lock())
        with opening:
            reading = self._readings[host]
            engine = self._engines.pop(host, None)
            if engine is not None:
                engine.close()
            if reading.connection is not None:
                reading.connection.close()
            self._keep(host, connection=self._connect(self.entries[host]))

    def read_again(self, hosts: Collection[str]) -> Fleet:
        """The fleet with these hosts probed again over the connections they have; the rest as before.

        A host that no longer answers is in it with its failure.
        """
        names = [name for name in self.entries if name in hosts and name in self.connections]
        calls = [partial(read_again, self.entries[name], self.connections[name]) for name in names]
        with closing(as_finished(calls, workers=self._jobs)) as finished:
            again = {names[call.number]: call.result() for call in finished}
        with self._lock:
            self._readings.update(
                {name: reading for name, reading in again.items() if reading.connection is not None}
            )
        fresh = tuple(
            _finished(self.entries[host.name], again[host.name].host) if host.name in again else host
            for host in self.fleet.hosts
        )
        self.fleet = replace(self.fleet, hosts=_told_apart(fresh), taken_at=_now())
        return self.fleet

    def close(self) -> None:
        """End every engine and connection; what other threads are still opening ends as soon as it is open."""
        with self._lock:
            self._closed = True
            engines, connections = list(self._engines.values()), list(self.connections.values())
        for engine in engines:
            engine.close()
        for connection in connections:
            connection.close()

    def _keep(
        self, host: str, *, engine: "Engine | None" = None, connection: Connection | None = None
    ) -> None:
        """Take what was opened into our care. Raises ConnectionFailed (stage CANCELLED) when all is closed by now."""
        with self._lock:
            if not self._closed:
                if engine is not None:
                    self._engines[host] = engine
                if connection is not None:
                    self._readings[host] = replace(self._readings[host], connection=connection)
                return
        for late in (engine, connection):
            if late is not None:
                late.close()
        raise ConnectionFailed(Stage.CANCELLED, "all connections are closed")


def probe_fleet(
    inventory: Inventory,
    options: ProbeOptions,
    on_progress: OnProgress | None = None,
    *,
    only: Collection[str] | None = None,
) -> Fleet:
    """The hosts of an inventory as they are now, in its order; all, or those named in `only`.

    A host that cannot be read is in it with its failure. Raises Interrupted, with what was read, on Ctrl-C.
    """
    connect = connector_for(inventory, options)

    def read_and_leave(entry: HostEntry) -> Reading:
        reading = read_host(entry, connect)
        if reading.connection is not None:
            reading.connection.close()
        return reading

    entries = _meant(inventory, only)
    readings: dict[str, Reading] = {}
    _read_all(entries, read_and_leave, readings, options, on_progress, inventory.vllm.image)
    return _fleet(entries, readings, inventory.vllm.image)


@contextmanager
def open_fleet(
    inventory: Inventory,
    options: ProbeOptions,
    on_progress: OnProgress | None = None,
    *,
    only: Collection[str] | None = None,
) -> Iterator[OpenFleet]:
    """As `probe_fleet`, with the connections kept for more questions until the context ends."""
    connect = connector_for(inventory, options)
    entries = _meant(inventory, only)
    readings: dict[str, Reading] = {}
    try:
        _read_all(
            entries,
            lambda entry: read_host(entry, connect),
            readings,
            options,
            on_progress,
            inventory.vllm.image,
        )
    except BaseException:
        options.ssh.cancellation.cancel()
        raise
    opened = OpenFleet(_fleet(entries, readings, inventory.vllm.image), entries, readings, options, connect)
    with closing(opened):
        yield opened


def _meant(inventory: Inventory, only: Collection[str] | None) -> tuple[HostEntry, ...]:
    return tuple(entry for entry in inventory.hosts if only is None or entry.name in only)


def connector_for(inventory: Inventory, options: ProbeOptions) -> Connect:
    """How one entry is reached; this machine without SSH."""
    if options.connect is not None:
        return options.connect
    from gpuplan.remote.local import LocalConnection

    hosts = {entry.name: entry for entry in inventory.hosts}
    if all(entry.address == LOCAL for entry in inventory.hosts):
        return lambda _entry: LocalConnection()

    # Imported here, by one thread: not by 64 at once.
    from gpuplan.remote import ssh

    def connect(entry: HostEntry) -> Connection:
        return LocalConnection() if entry.address == LOCAL else ssh.connect(entry, options.ssh, hosts)

    return connect


def _read_all(
    entries: Sequence[HostEntry],
    read: Callable[[HostEntry], Reading],
    readings: dict[str, Reading],
    options: ProbeOptions,
    on_progress: OnProgress | None,
    image: str | None,
) -> None:
    """Fill `readings` by host name, at most `options.jobs` hosts at once; on Ctrl-C nothing is waited for."""
    failed = 0
    try:
        with closing(
            as_finished([partial(read, entry) for entry in entries], workers=options.jobs)
        ) as finished:
            for call in finished:
                reading = call.result()
                host = reading.host
                readings[host.name] = reading
                failed += host.status is not HostStatus.OK
                if on_progress is not None:
                    last = _finished(entries[call.number], host)
                    on_progress(Progress(total=len(entries), done=len(readings), failed=failed, last=last))
    except KeyboardInterrupt:
        options.ssh.cancellation.cancel()
        raise Interrupted(_fleet(entries, readings, image)) from None


def _fleet(entries: Sequence[HostEntry], readings: Mapping[str, Reading], image: str | None) -> Fleet:
    """All hosts in the order of their entries; those that were not read until now as cancelled."""
    hosts = [
        _finished(entry, readings[entry.name].host)
        if entry.name in readings
        else Host(
            name=entry.name,
            address=entry.address,
            status=HostStatus.FAILED,
            failure=CANCELLED,
            labels=entry.labels,
        )
        for entry in entries
    ]
    return Fleet(
        hosts=_told_apart(hosts),
        taken_at=_now(),
        basis=Basis.MEASURED,
        image=image,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _finished(entry: HostEntry, host: Host) -> Host:
    """A host with what the catalogue knows of its devices, under what the inventory keeps back."""
    windows = device_facts.on_windows(host)
    gpus = tuple(device_facts.completed(gpu, windows=windows) for gpu in host.gpus)
    facts = replace(host.facts, conditions=(*host.facts.conditions, *compared(host, entry)))
    host = replace(host, gpus=gpus, link=host.link or device_facts.link_of(gpus), facts=facts)
    return with_entry(host, entry)


def _told_apart(hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Two names of one machine are told (GP632): its GPUs would be planned on twice. The first name keeps it."""
    seen: dict[tuple[str | None, str], str] = {}
    others: dict[str, list[str]] = {}
    told: list[Host] = []
    for host in hosts:
        keys = [(host.facts.machine_id, gpu.uuid) for gpu in host.gpus if gpu.uuid is not None]
        first = next((seen[key] for key in keys if key in seen), None)
        if first is None:
            seen |= dict.fromkeys(keys, host.name)
            told.append(host)
            continue
        others.setdefault(first, []).append(host.name)
        detail = f"is the machine that {first} is (same machine-id and GPUs): it is planned on as {first}"
        failure = HostFailure(stage=DUPLICATE, detail=detail)
        told.append(replace(host, status=HostStatus.FAILED, failure=failure, gpus=()))
    return tuple(_with_namesakes(host, others[host.name]) if host.name in others else host for host in told)


def _with_namesakes(host: Host, others: Sequence[str]) -> Host:
    fact = Fact(
        code="GP632",
        severity=Severity.ERROR,
        subject={"host": host.name},
        figures={"other": ", ".join(others)},
    )
    return replace(host, facts=replace(host.facts, conditions=(*host.facts.conditions, fact)))
