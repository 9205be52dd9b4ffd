"""`gpuplan logs`: what all members of a deployment print, in the order of time, and as they print it.

What was printed until now is merged exactly. What follows is held back for a moment, so that hosts with different ways
to us fall into their order. A connection that is lost is made again, and the log goes on with the line after the last
one that was seen: no line is lost, none comes twice. Times are Docker's, less what the host's clock is ahead of ours.
"""

import heapq
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from gpuplan.deploying.observed import UNKNOWN, Group
from gpuplan.deploying.state_rules import place
from gpuplan.deploying.timestamps import stamp_of
from gpuplan.domain.deployment import Member
from gpuplan.domain.secret_text import masked
from gpuplan.engine.log_line import plain
from gpuplan.errors import UsageError
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.observation import observe
from gpuplan.operations.reached import ReachedFleet
from gpuplan.operations.resumed_log import ResumedLog
from gpuplan.operations.status import find, reached
from gpuplan.remote.connection import Connection, HostCallFailed
from gpuplan.sources.documents import did_you_mean, shown

if TYPE_CHECKING:
    from gpuplan.operations.probe import ProbeOptions
    from gpuplan.remote.containers import LogLine

WINDOW_SECONDS = 0.3
"""How long a line that follows waits for earlier ones of other hosts."""
BACKOFF_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0)
STOP_SECONDS = 0.2
"""Within which it is noticed that nobody wants to read on."""
ATTEMPTS = 3
"""How often a log that is not followed is taken up again."""
WORTH_CORRECTING = 0.5
"""Seconds a host's clock may differ before its times are corrected: the measurement itself is no better."""
_SPAN = re.compile(r"(\d{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

Talk = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChoice:
    """Which lines are wanted."""

    follow: bool = False
    tail: int | None = None
    """Of each member; None: all there is."""
    since: str | None = None
    """`90s`, `10m`, `2h`, `1d` ago, or a time as ISO 8601 writes it."""
    members: tuple[str, ...] = ()
    """Container, role, or HOST/ROLE; none: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """One line of one member, secrets masked, without escape sequences."""

    member: Member
    at: str
    """By our clock: `2026-11-01T12:00:00.123456789Z`."""
    text: str
    error: bool
    """Printed on standard error."""


Sink = Callable[[Printed], None]


def read_logs(
    options: FleetOptions,
    name: str,
    choice: LogChoice,
    begin: Callable[[Sequence[Member]], Sink],
    talk: Talk,
    stop: threading.Event | None = None,
) -> None:
    """Give every line to what `begin` returns for the members that were found; returns when all of them have ended.

    `talk` is told of members that cannot be read and of connections that come and go. Once `stop` is set nothing more
    is told, connections are closed, and it returns within a second. Raises UsageError.
    """
    since = since_seconds(choice.since, time.time())
    stop = stop or threading.Event()

    def told(text: str) -> None:
        if not stop.is_set():
            talk(text)

    with _ended_by(stop, options) as stoppable:
        try:
            _read(stoppable, name, choice, begin, told, stop, since)
        except (UsageError, HostCallFailed):
            if not stop.is_set():  # else hosts were silent because they were no longer waited for
                raise


def _read(
    options: FleetOptions,
    name: str,
    choice: LogChoice,
    begin: Callable[[Sequence[Member]], Sink],
    talk: Talk,
    stop: threading.Event,
    since: float | None,
) -> None:
    with reached(options) as fleet:
        seen = observe(fleet)
        group = find(seen, name)
        members = _chosen(group, choice.members)
        for member in members:
            if not member.id:
                why = (
                    seen.why.get(member.host, "it was not asked") if member.state == UNKNOWN else "it is gone"
                )
                talk(f"no log of {place(member)}: {why}")
        sources = [_Source(fleet, member, talk) for member in members if member.id]
        for source in sources:
            if abs(source.offset) / 10**9 >= WORTH_CORRECTING:
                talk(
                    f"the clock of {source.member.host} is {source.offset / 10**9:+.1f} s off: its times are corrected"
                )
        sink = begin([source.member for source in sources])
        for printed in _merged(sources, choice, since):
            if stop.is_set():
                return
            sink(printed)
        if choice.follow:
            _follow(sources, sink, stop)


@contextmanager
def _ended_by(stop: threading.Event, options: FleetOptions) -> Iterator[FleetOptions]:
    """Options whose connections are all ended when `stop` is set."""
    reach = options.reach
    assert reach is not None
    ended = threading.Event()

    def watched() -> "ProbeOptions":
        probe = reach()

        def wait() -> None:
            while not ended.is_set():
                if stop.wait(STOP_SECONDS):
                    probe.ssh.cancellation.cancel()
                    return

        threading.Thread(target=wait, daemon=True, name="logs stop").start()
        return probe

    try:
        yield replace(options, reach=watched)
    finally:
        ended.set()


def since_seconds(text: str | None, now: float) -> float | None:
    """The moment `--since` names, seconds since 1970. Raises UsageError."""
    if text is None:
        return None
    span = _SPAN.fullmatch(text)
    if span is not None:
        return now - int(span[1]) * _SECONDS[span[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise UsageError(
            f"--since {shown(text)}: neither a span nor a time",
            hint="write for example --since 10m, or --since 2026-11-22T01:20:00",
        ) from None


def _chosen(group: Group, wanted: Sequence[str]) -> tuple[Member, ...]:
    leftover = tuple(one.member for one in group.leftover)
    members = (*group.members, *leftover) if not group.members else group.members
    if not wanted:
        return members
    named = {member: _names(member) for member in (*group.members, *leftover)}
    known = sorted({name for names in named.values() for name in names})
    for one in wanted:
        if one not in known:
            raise UsageError(
                f"--member {shown(one)}: {shown(group.name)} has none of that name{did_you_mean(one, known)}",
                hint=f"members: {', '.join(shown(member.container) for member in named)}",
            )
    return tuple(member for member, names in named.items() if names & set(wanted))


def _names(member: Member) -> set[str]:
    return {member.container, member.role.value, f"{member.host}/{member.role.value}", member.host}


class _Source:
    """One member's log, read by one thread at a time, and where it was left."""

    def __init__(self, fleet: ReachedFleet, member: Member, talk: Talk) -> None:
        self.member = member
        offset = fleet.seen(member.host).clock_offset_seconds
        self.offset = round(offset * 10**9) if abs(offset) >= WORTH_CORRECTING else 0
        """Nanoseconds its clock is ahead of ours."""
        self._fleet = fleet
        self._talk = talk
        self._log = ResumedLog()
        self._stopped = threading.Event()

    def until_now(self, choice: LogChoice, since: float | None) -> Iterator[tuple[int, Printed]]:
        """What it has printed, each line with our time of it; tried again where the connection is lost."""
        theirs = since + self.offset / 10**9 if since is not None else None
        tail = max(1, choice.tail) if choice.tail is not None else None
        for attempt in range(ATTEMPTS):
            connection = self._connection()
            resumed = self._log.start is not None
            try:
                for line in self._lines(None if resumed else theirs, None if resumed else tail, follow=False):
                    if choice.tail != 0:
                        yield self._printed(line)
                return
            except HostCallFailed as failed:
                if attempt == ATTEMPTS - 1 or not self._again(connection, failed):
                    self._talk(f"the log of {place(self.member)} ends here: {masked(failed.detail)}")
                    return

    def follow(self, put: Callable[[tuple[int, Printed]], None]) -> None:
        """Everything from where it was left until the container ends, or `stop`."""
        from gpuplan.remote.docker_engine import RequestRefused

        attempt = 0
        while not self._stopped.is_set():
            connection = self._connection()
            try:
                for line in self._lines(None, None, follow=True):
                    put(self._printed(line))
                    attempt = 0
                return
            except RequestRefused as refused:
                if refused.status == 404:
                    return  # removed
                lost: HostCallFailed = refused
            except HostCallFailed as failed:
                lost = failed
            while not self._stopped.wait(BACKOFF_SECONDS[min(attempt, len(BACKOFF_SECONDS) - 1)]):
                attempt += 1
                if self._again(connection, lost):
                    break

    def stop(self) -> None:
        self._stopped.set()

    def _connection(self) -> Connection | None:
        return self._fleet.connections.get(self.member.host)

    def _again(self, broken: Connection | None, failed: HostCallFailed) -> bool:
        """Connect again; whether that went well."""
        if self._stopped.is_set():
            return False
        host = self.member.host
        if broken is not None and self._connection() is broken:
            self._talk(f"{host}: the connection was lost ({masked(failed.detail)}), connecting again")
        try:
            self._fleet.reach(host, broken)
        except HostCallFailed:
            return False
        return True

    def _lines(self, since: float | None, tail: int | None, *, follow: bool) -> Iterator["LogLine"]:
        """Lines not seen before."""
        from gpuplan.remote.containers import logs

        engine = self._fleet.engine_of(self.member.host)
        start = self._log.start or since
        with logs(engine, self.member.id, since=start, tail=tail, follow=follow) as stream:
            yield from self._log.unseen(stream)

    def _printed(self, line: "LogLine") -> tuple[int, Printed]:
        at = self._log.time_of(line) - self.offset
        text = masked(plain(line.text))
        return at, Printed(
            member=self.member, at=stamp_of(at), text=text, error=line.stream.value == "stderr"
        )


def _merged(sources: Sequence[_Source], choice: LogChoice, since: float | None) -> Iterator[Printed]:
    """All that was printed until now, in the order of time."""
    streams = [source.until_now(choice, since) for source in sources]
    for _, printed in heapq.merge(*streams, key=lambda pair: pair[0]):
        yield printed


def _follow(sources: Sequence[_Source], sink: Sink, stop: threading.Event | None = None) -> None:
    """Give lines on in order, each held back for a moment, until every container has ended or `stop` is set."""
    heard: queue.SimpleQueue[tuple[float, int, Printed] | None] = queue.SimpleQueue()

    def listen(source: _Source) -> None:
        try:
            source.follow(lambda pair: heard.put((time.monotonic(), *pair)))
        finally:
            heard.put(None)

    for source in sources:
        threading.Thread(
            target=listen, args=(source,), daemon=True, name=f"log {source.member.container}"
        ).start()
    waiting: list[tuple[int, int, float, Printed]] = []
    listening, number = len(sources), 0
    try:
        while (listening or waiting) and not (stop is not None and stop.is_set()):
            with suppress(queue.Empty):
                entry = heard.get(timeout=WINDOW_SECONDS / 3 if waiting else STOP_SECONDS)
                if entry is None:
                    listening -= 1
                else:
                    number += 1
                    heapq.heappush(waiting, (entry[1], number, entry[0], entry[2]))
                if not heard.empty():
                    continue
            due = time.monotonic() - WINDOW_SECONDS
            while waiting and (not listening or waiting[0][2] <= due):
                sink(heapq.heappop(waiting)[3])
    finally:
        for source in sources:
            source.stop()
