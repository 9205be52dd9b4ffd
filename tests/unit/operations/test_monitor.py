"""GPUs watched over open connections: told again and again, one lost host delays no other, `stop` ends it all."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gpuplan.domain.fleet import Fleet, Gpu, GpuProcess
from gpuplan.domain.inventory import HostEntry, Inventory
from gpuplan.operations.monitor import merged, watch_gpus
from gpuplan.operations.probe import ProbeOptions
from gpuplan.remote.connection import Completed, Connection, ConnectionFailed, Stage
from gpuplan.remote.recorded import RecordedConnection, Recording
from gpuplan.remote.ssh_settings import SshSettings
from gpuplan.units import GIB, MIB
from tests.fleets import host

CSV = (
    "index, uuid, name, pci.bus_id, memory.total [MiB], memory.reserved [MiB], memory.used [MiB],"
    " memory.free [MiB], compute_cap, driver_version\n"
    "0, GPU-1, NVIDIA L4, 00000000:01:00.0, 23034 MiB, 535 MiB, 0 MiB, {free} MiB, 8.9, 580.95.05\n"
)
PATIENCE = 20.0
"""Seconds a test waits at most for a thread."""


class Machine(RecordedConnection):
    """Tells less free memory every time; `fails` makes it lose its connection, `hangs` makes it wait."""

    def __init__(self) -> None:
        super().__init__()
        self.free = 22000
        self.fails = False
        self.hangs: threading.Event | None = None
        self.closed = threading.Event()

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float,
        limit: int = 4 * 1024**2,
        silence: float | None = None,
    ) -> Completed:
        if self.fails:
            raise ConnectionFailed(Stage.COMMAND, "the connection was lost")
        if self.hangs is not None:
            self.hangs.wait()
        self.free -= 100
        text = CSV.format(free=self.free).encode()
        answer = RecordedConnection(Recording(sections={"nvidia_csv": Completed(exit_code=0, stdout=text)}))
        return answer.run(command, stdin=stdin, timeout=timeout, limit=limit, silence=silence)

    def close(self) -> None:
        self.closed.set()


class Watched:
    """A watch in a thread, with what it told."""

    def __init__(self, connect: Callable[[HostEntry], Connection], *names: str) -> None:
        self.told: list[Mapping[str, tuple[Gpu, ...]]] = []
        self.stop = threading.Event()
        self._news = threading.Condition()
        nowhere = Path("/nonexistent")
        inventory = Inventory(path="i", hosts=tuple(HostEntry(name=name, address=name) for name in names))
        options = ProbeOptions(ssh=SshSettings(known_hosts=nowhere, home=nowhere), connect=connect)

        def on_gpus(gpus: Mapping[str, tuple[Gpu, ...]]) -> None:
            with self._news:
                self.told.append(gpus)
                self._news.notify_all()

        self.thread = threading.Thread(
            target=watch_gpus, args=(inventory, options, names, 0.01, self.stop, on_gpus), daemon=True
        )
        self.thread.start()

    def free(self, name: str) -> list[int]:
        """What the host was told to have free, in MiB, in turn."""
        return [(gpus[name][0].free_bytes or 0) // MIB for gpus in list(self.told) if name in gpus]

    def until(self, condition: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(condition, PATIENCE)

    def end(self) -> None:
        self.stop.set()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


def test_figures_are_told_until_it_is_stopped_and_connections_end() -> None:
    machine = Machine()
    watched = Watched(lambda _entry: machine, "a")
    watched.until(lambda: len(watched.free("a")) >= 3)
    watched.end()
    free = watched.free("a")
    assert free == sorted(free, reverse=True)
    assert len(set(free)) == len(free)
    assert machine.closed.is_set()


def test_a_host_that_hangs_delays_no_other() -> None:
    released = threading.Event()
    machines = {"hangs": Machine(), "well": Machine()}
    machines["hangs"].hangs = released
    watched = Watched(lambda entry: machines[entry.name], "hangs", "well")
    watched.until(lambda: len(watched.free("well")) >= 3)
    assert not watched.free("hangs")
    watched.end()
    released.set()


def test_a_lost_host_is_reached_again() -> None:
    made: list[Machine] = []

    def connect(_entry: HostEntry) -> Connection:
        if len(made) == 1 and not made[0].closed.is_set():
            raise AssertionError("the old connection is ended first")
        if len(made) == 1:
            made.append(Machine())
            raise ConnectionFailed(Stage.CONNECT, "still down")
        made.append(Machine())
        return made[-1]

    watched = Watched(connect, "a")
    watched.until(lambda: len(watched.free("a")) >= 1)
    made[0].fails = True
    watched.until(lambda: len(made) == 3 and made[2].free < 22000 and watched.free("a")[-1] == made[2].free)
    watched.end()


def test_nobody_is_watched_where_nobody_is_named() -> None:
    watched = Watched(lambda _entry: Machine())
    watched.thread.join(PATIENCE)
    assert not watched.told


FLEET = Fleet(hosts=(host("a", "H100", 2, free={0: 70.0, 1: 70.0}), host("b", "L40S", 1)), taken_at="t")


def told(gpu: Gpu, free: float, **more: object) -> Gpu:
    fresh = replace(gpu, free_bytes=int(free * GIB), utilization_percent=90, temperature_celsius=66)
    return replace(fresh, **more)  # type: ignore[arg-type]


def test_figures_find_their_gpu_by_uuid_else_by_index() -> None:
    first = replace(FLEET.hosts[0].gpus[0], uuid="GPU-x", reserved_bytes=GIB)
    fleet = replace(
        FLEET, hosts=(replace(FLEET.hosts[0], gpus=(first, FLEET.hosts[0].gpus[1])), FLEET.hosts[1])
    )
    process = GpuProcess(pid=1, used_bytes=GIB)
    reading = (
        told(first, 5, index=1, processes=(process,), reserved_bytes=0),
        told(FLEET.hosts[0].gpus[1], 6, index=0),
    )
    a, b = merged(fleet, {"a": reading}).hosts
    assert [(gpu.free_bytes or 0) // GIB for gpu in a.gpus] == [5, 70], "index 1 belongs to another card now"
    assert a.gpus[0].processes == (process,)
    assert (a.gpus[0].utilization_percent, a.gpus[0].temperature_celsius) == (90, 66)
    assert a.gpus[0].reserved_bytes == GIB, "what the inventory says stays"
    assert b is FLEET.hosts[1]


def test_another_card_in_the_same_place_is_not_mistaken() -> None:
    known = replace(FLEET.hosts[1], gpus=(replace(FLEET.hosts[1].gpus[0], uuid="GPU-old"),))
    fleet = Fleet(hosts=(known,))
    assert merged(fleet, {"b": (told(known.gpus[0], 1, uuid="GPU-new"),)}).hosts[0] is known


def test_under_windows_a_reading_leaves_what_windows_keeps() -> None:
    card = replace(FLEET.hosts[1].gpus[0], reported_bytes=80 * GIB, total_bytes=80 * GIB)
    under = replace(FLEET.hosts[1], gpus=(card,), facts=replace(FLEET.hosts[1].facts, os="Ubuntu (WSL)"))
    (seen,) = merged(Fleet(hosts=(under,)), {"b": (replace(card, free_bytes=80 * GIB),)}).hosts
    assert seen.gpus[0].free_bytes == 80 * GIB - GIB // 2 - 80 * GIB // 50


def test_equal_figures_change_no_object() -> None:
    again = merged(FLEET, {host.name: host.gpus for host in FLEET.hosts})
    assert all(new is old for new, old in zip(again.hosts, FLEET.hosts, strict=True))
    assert again.taken_at == "t"
