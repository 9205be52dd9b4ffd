"""Reading the fleet and watching it: what is heard in threads becomes state, at most a few times a second.

Nobody waits for a thread: a reading that is superseded or left is broken off, and what it still tells is dropped by its
serial number.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from textual import events, on, work
from textual.app import App
from textual.message import Message
from textual.reactive import reactive

from gpuplan.domain.fleet import Fleet, Gpu, Host, HostStatus
from gpuplan.errors import GpuplanError
from gpuplan.operations.monitor import EVERY_SECONDS, merged
from gpuplan.present import age
from gpuplan.present.document import visible
from gpuplan.tui.background import BrokenOff, in_thread
from gpuplan.tui.messages import FleetRead, GpusTold, HostRead, ReadingBegan, ReadingFailed, WatchEnded
from gpuplan.tui.services import Services, Source, SourceKind
from gpuplan.tui.state import NO_FLEET, NOTHING_READ, FleetState, GpuKey

REPAINT_SECONDS = 0.25
"""What hosts told within it is shown at once."""
MOST_AT_ONCE = 250
"""Hosts whose live figures are taken in at a time: more would hold up the keys."""
WATCHED = frozenset((SourceKind.LIVE, SourceKind.DEMO))


def utc_now() -> datetime:
    return datetime.now(UTC)


class ReadingApp(App[None]):
    """An app with a fleet in its state."""

    state: reactive[FleetState] = reactive(NOTHING_READ)
    """The fleet; screens are bound to it."""
    marked: reactive[frozenset[GpuKey]] = reactive(frozenset())
    """GPUs chosen by hand."""
    refresh_seconds: float = EVERY_SECONDS
    """Between two looks of the watch."""

    def __init__(self, services: Services, *, now: Callable[[], datetime] = utc_now) -> None:
        super().__init__()
        self.services = services
        self.now = now
        """The clock behind every age on the screen."""
        self._serial = 0
        self._asked: frozenset[str] = frozenset()
        self._read_hosts: dict[str, Host] = {}
        self._told_gpus: dict[str, tuple[Gpu, ...]] = {}
        self._take_in_is_due = False
        self._watch_stop: threading.Event | None = None
        self._watch_serial = 0
        self._watched: frozenset[str] = frozenset()

    @on(events.Mount)
    def _begin(self) -> None:
        self.read_again()

    @on(events.Unmount)
    def _leave(self) -> None:
        self._end_watch()
        threading.Thread(target=self.services.cancel_reading, daemon=True).start()

    # ------------------------------------------------------------------ reading

    def read_again(self, only: Collection[str] = ()) -> None:
        """Read all hosts, or `only` these; a reading under way ends, what it still waits for is read now."""
        names = frozenset(only)
        if names and self.state.reading:
            names |= self.state.waiting
        self._serial += 1
        self._read_hosts.clear()
        if not names:
            self._end_watch()
        self._read(self._serial, names)

    @work(exclusive=True, group="reading")
    async def _read(self, serial: int, only: frozenset[str]) -> None:
        def told(host: Host) -> None:
            self._tell(HostRead(host, serial))

        try:
            await in_thread(self.services.cancel_reading)
            source, expected = await in_thread(self._meant)
            asked = only & frozenset(expected) or frozenset(expected)
            self.post_message(ReadingBegan(serial, source, expected, asked))
            ordered = tuple(name for name in expected if name in asked) if only else ()
            fleet = await in_thread(partial(self.services.read_fleet, told, ordered))
        except BrokenOff:
            broken = GpuplanError("the reading was broken off", hint="read again")
            self.post_message(ReadingFailed(broken, serial))
        except GpuplanError as error:
            self.post_message(ReadingFailed(error, serial))
        else:
            self.post_message(FleetRead(fleet, serial))

    def _meant(self) -> tuple[Source, tuple[str, ...]]:
        return self.services.source, self.services.expected()

    def _tell(self, message: Message) -> None:
        """Post from a thread; an app that was left hears nothing."""
        with suppress(RuntimeError):  # its event loop is closed
            self.post_message(message)

    @on(ReadingBegan)
    def _reading_began(self, message: ReadingBegan) -> None:
        if message.serial != self._serial:
            return
        self._asked = message.asked
        before = {host.name: host for host in self.state.fleet.hosts}
        hosts = tuple(before.get(name) or Host(name=name) for name in message.expected)
        self.state = replace(
            self.state,
            fleet=replace(self.state.fleet, hosts=hosts),
            waiting=message.asked,
            total=len(message.asked),
            failed=0,
            error=None,
            hint=None,
            source=message.source,
        )

    @on(HostRead)
    def _host_read(self, message: HostRead) -> None:
        if message.serial == self._serial:
            self._read_hosts[message.host.name] = message.host
            self._take_in_soon()

    @on(FleetRead)
    def _fleet_read(self, message: FleetRead) -> None:
        if message.serial != self._serial:
            return
        fresh = {host.name: host for host in message.fleet.hosts if host.name in self._asked}
        self._read_hosts = fresh
        self._take_in()
        state = self.state
        known = {host.name for host in state.fleet.hosts}
        added = tuple(host for host in message.fleet.hosts if host.name not in known)
        self.state = replace(
            state,
            fleet=replace(message.fleet, hosts=(*state.fleet.hosts, *added)),
            waiting=frozenset(),
            total=0,
            read_at={**state.read_at, **self._taken(message.fleet)},
        )
        self._keep_marks()
        self._watch_as_read()

    @on(ReadingFailed)
    def _reading_failed(self, message: ReadingFailed) -> None:
        if message.serial != self._serial:
            return
        self._take_in()
        text, hint = str(message.error), getattr(message.error, "hint", None)
        known = any(host.gpus or host.failure for host in self.state.fleet.hosts)
        fleet = self.state.fleet if known else NO_FLEET
        self.state = replace(self.state, fleet=fleet, waiting=frozenset(), total=0, error=text, hint=hint)
        if known:
            words = f"{text}: {hint}" if hint else text
            self.notify(visible(words), title="not read", severity="error", markup=False)
        self._watch_as_read()

    def _taken(self, fleet: Fleet) -> dict[str, datetime]:
        """When hosts were seen that nobody read just now: a snapshot tells, declared hardware never was seen."""
        source = self.state.source
        if source is None or source.kind is not SourceKind.SNAPSHOT or fleet.taken_at is None:
            return {}
        taken = age.moment(fleet.taken_at)
        return {host.name: taken for host in fleet.hosts} if taken is not None else {}

    def _keep_marks(self) -> None:
        there = {(host.name, gpu.index) for host in self.state.fleet.hosts for gpu in host.gpus}
        self.marked &= there

    # ------------------------------------------------------------------ into the state

    def _take_in_soon(self) -> None:
        if not self._take_in_is_due:
            self._take_in_is_due = True
            self.set_timer(REPAINT_SECONDS, self._take_in)

    def _take_in(self) -> None:
        """Everything that was told since the last time."""
        self._take_in_is_due = False
        read, told = self._read_hosts, self._told_gpus
        if not (read or told):
            return
        self._read_hosts, self._told_gpus = {}, dict(list(told.items())[MOST_AT_ONCE:])
        told = dict(list(told.items())[:MOST_AT_ONCE])
        if self._told_gpus:
            self._take_in_soon()
        now = self.now()
        state = self.state
        fleet = state.fleet
        if read:
            fleet = replace(fleet, hosts=tuple(read.get(host.name, host) for host in fleet.hosts))
        if told:
            fleet = merged(fleet, {name: gpus for name, gpus in told.items() if name not in read})
        fresh = read.keys() & state.waiting
        failed = sum(read[name].status is not HostStatus.OK for name in fresh)
        seen = state.source is not None and state.source.kind in WATCHED
        self.state = replace(
            state,
            fleet=fleet,
            waiting=state.waiting - read.keys(),
            failed=state.failed + failed,
            read_at={**state.read_at, **dict.fromkeys(fresh if seen else (), now)}
            if fresh
            else state.read_at,
            live_at={**state.live_at, **dict.fromkeys(told, now)} if told else state.live_at,
        )

    # ------------------------------------------------------------------ watching

    def pause_watch(self) -> bool:
        """Let the watch rest, or go on; tells whether it rests."""
        self.state = replace(self.state, paused=not self.state.paused)
        if self.state.paused:
            self._end_watch()
        else:
            self._watch_as_read()
        return self.state.paused

    def _watch_as_read(self) -> None:
        """Watch the hosts that answered, once they are known."""
        state = self.state
        names = frozenset(
            host.name for host in state.fleet.hosts if host.status is HostStatus.OK and host.gpus
        )
        if state.source is None or state.source.kind not in WATCHED or state.paused or not names:
            return
        if self._watch_stop is not None and names == self._watched:
            return
        self._end_watch()
        self._watched = names
        self._watch_serial += 1
        self._watch_stop = threading.Event()
        call = partial(self._watch, self._watch_serial, self._watch_stop)
        threading.Thread(target=call, daemon=True).start()

    def _end_watch(self) -> None:
        if self._watch_stop is not None:
            self._watch_stop.set()
            self._watch_stop = None

    def _watch(self, serial: int, stop: threading.Event) -> None:
        """In its own thread, which outlives nothing but itself."""

        def told(gpus: Mapping[str, tuple[Gpu, ...]]) -> None:
            if not stop.is_set():
                self._tell(GpusTold(gpus, serial))

        try:
            self.services.watch(self.refresh_seconds, stop, told)
        except BaseException as error:  # noqa: BLE001 - told to the app, which raises what nobody expected
            self._tell(WatchEnded(error, serial))
        else:
            self._tell(WatchEnded(None, serial))

    @on(GpusTold)
    def _gpus_told(self, message: GpusTold) -> None:
        if message.serial == self._watch_serial and self._watch_stop is not None:
            self._told_gpus.update(message.gpus)
            self._take_in_soon()

    @on(WatchEnded)
    def _watch_ended(self, message: WatchEnded) -> None:
        if message.serial != self._watch_serial:
            return
        self._watch_stop = None
        match message.error:
            case None:
                return
            case GpuplanError() as error:
                self.notify(visible(str(error)), title="not watched", severity="warning", markup=False)
            case error:
                raise error
