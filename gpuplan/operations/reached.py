"""Hosts reached for what runs on them: their engines, the memory of their GPUs, their clocks; nothing else is asked.

What `status`, `logs`, `stop` and `unlock` work on: a third of a full probe, and no judgement of the host. A host that
cannot be read is silent, with the stage and the reason; it never fails the others.
"""

import secrets
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from gpuplan.domain.fleet import Gpu, Host, HostFailure, HostStatus
from gpuplan.domain.inventory import HostEntry, Inventory
from gpuplan.domain.secret_text import masked
from gpuplan.operations.host_probe import Connect
from gpuplan.operations.probe import OnProgress, ProbeOptions, Progress, connector_for
from gpuplan.probing import amd_smi, docker, host, nvidia_smi
from gpuplan.probing.command import Command
from gpuplan.probing.docker_access import DockerAccess
from gpuplan.probing.host import clock_seconds
from gpuplan.probing.output import NOT_RUN, Output
from gpuplan.probing.script import OUTPUT_LIMIT, longest, script, sections
from gpuplan.remote.connection import Connection, ConnectionFailed, Stage
from gpuplan.sources.deadline import as_finished

if TYPE_CHECKING:
    from gpuplan.remote.docker_engine import Engine

MOST_SECONDS = 60.0
SILENCE_SECONDS = 10.0
_CLOCK = next(command for command in host.COMMANDS if command.name == "host_clock")
_MEMORY: tuple[Command, ...] = (nvidia_smi.XML, nvidia_smi.CSV, nvidia_smi.OWNERS, *amd_smi.COMMANDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A host that answered."""

    connection: Connection
    access: DockerAccess = field(default_factory=DockerAccess)
    gpus: tuple[Gpu, ...] = ()
    """With the memory they had then."""
    clock_offset_seconds: float = 0.0
    """Its clock minus ours, as well as one answer tells: to half of the time that took."""


class ReachedFleet:
    """Hosts and connections; closed with its context. Safe to use from several threads."""

    def __init__(self, entries: Sequence[HostEntry], connect: Connect, options: ProbeOptions) -> None:
        self.entries = {entry.name: entry for entry in entries}
        self.cancellation = options.ssh.cancellation
        self.silent: dict[str, HostFailure] = {}
        """Hosts that did not answer, and why."""
        self._connect = connect
        self._seen: dict[str, Seen] = {}
        self._engines: dict[str, Engine] = {}
        self._lock = threading.Lock()
        self._opening = {entry.name: threading.Lock() for entry in entries}

    @property
    def connections(self) -> Mapping[str, Connection]:
        """Of the hosts that answered."""
        with self._lock:
            return {name: seen.connection for name, seen in self._seen.items()}

    @property
    def silent_hosts(self) -> tuple[Host, ...]:
        """Those that did not answer, in the inventory's order, as a probe would tell them."""
        return tuple(
            Host(
                name=name,
                address=entry.address,
                status=HostStatus.UNREACHABLE,
                failure=self.silent[name],
                labels=entry.labels,
            )
            for name, entry in self.entries.items()
            if name in self.silent
        )

    def seen(self, name: str) -> Seen:
        """A host that answered."""
        return self._seen[name]

    def engine_of(self, name: str) -> "Engine":
        """The Docker engine of a host that answered. Raises EngineFailed, ConnectionFailed."""
        with self._opening[name]:
            if name not in self._engines:
                seen = self._seen.get(name)
                if seen is None:
                    raise ConnectionFailed(Stage.CONNECT, "the connection was lost")
                self._engines[name] = docker.open_engine(seen.connection, seen.access)
            return self._engines[name]

    def reach(self, name: str, instead_of: Connection | None = None) -> None:
        """Connect to a host, afresh where it was connected before. Raises ConnectionFailed.

        `instead_of`: a connection that was lost; when another thread has replaced it, nothing is done.
        """
        with self._opening[name]:
            known = self._seen.get(name)
            if instead_of is not None and known is not None and known.connection is not instead_of:
                return
            self._drop(name)
            connection = self._connect(self.entries[name])
            try:
                seen = _read(connection)
            except BaseException:
                connection.close()
                raise
            with self._lock:
                self._seen[name] = seen

    def gpus_now(self, name: str) -> tuple[Gpu, ...]:
        """The GPUs of a host with the memory they have now. Raises ConnectionFailed."""
        return _gpus(_asked(self._seen[name].connection, _MEMORY))

    def close(self) -> None:
        """End every engine and connection."""
        for name in self.entries:
            self._drop(name)

    def _drop(self, name: str) -> None:
        engine = self._engines.pop(name, None)
        if engine is not None:
            engine.close()
        with self._lock:
            seen = self._seen.pop(name, None)
        if seen is not None:
            seen.connection.close()


@contextmanager
def reach_fleet(
    inventory: Inventory,
    options: ProbeOptions,
    on_progress: OnProgress | None = None,
    *,
    only: Collection[str] | None = None,
) -> Iterator[ReachedFleet]:
    """Connect to the hosts of an inventory, all at once; those that do not answer are `silent`."""
    entries = [entry for entry in inventory.hosts if only is None or entry.name in only]
    fleet = ReachedFleet(entries, connector_for(inventory, options), options)
    with closing(fleet):
        try:
            _reach_all(fleet, options, on_progress)
            yield fleet
        except KeyboardInterrupt:
            options.ssh.cancellation.cancel()
            raise


def _reach_all(fleet: ReachedFleet, options: ProbeOptions, on_progress: OnProgress | None) -> None:
    names = list(fleet.entries)
    calls = [partial(fleet.reach, name) for name in names]
    with closing(as_finished(calls, workers=options.jobs)) as finished:
        for done, call in enumerate(finished, start=1):
            name = names[call.number]
            status = HostStatus.OK
            try:
                call.result()
            except ConnectionFailed as failed:
                status = HostStatus.UNREACHABLE
                fleet.silent[name] = HostFailure(stage=failed.stage.value, detail=masked(failed.detail))
            if on_progress is not None:
                on_progress(
                    Progress(
                        total=len(names),
                        done=done,
                        failed=len(fleet.silent),
                        last=Host(name=name, status=status),
                    )
                )


def _read(connection: Connection) -> Seen:
    sent = time.time()
    outputs = _asked(connection, (_CLOCK, *docker.COMMANDS, *_MEMORY))
    if all(output == NOT_RUN for output in outputs.values()):
        raise ConnectionFailed(Stage.COMMAND, "logged in, but the login shell runs no command")
    clock = clock_seconds(outputs[_CLOCK.name].text)
    return Seen(
        connection=connection,
        access=docker.access(outputs),
        gpus=_gpus(outputs),
        clock_offset_seconds=clock - sent if clock is not None else 0.0,
    )


def _gpus(outputs: Mapping[str, Output]) -> tuple[Gpu, ...]:
    return (*nvidia_smi.report(outputs).gpus, *amd_smi.report(outputs).gpus)


def _asked(connection: Connection, commands: Sequence[Command]) -> dict[str, Output]:
    mark = f"gp{secrets.token_hex(12)}"
    done = connection.run(
        ["sh", "-s"],
        stdin=script(commands, mark),
        timeout=min(MOST_SECONDS, longest(commands)),
        limit=OUTPUT_LIMIT,
        silence=SILENCE_SECONDS,
    )
    return sections(done.stdout, commands, mark)
