"""The fleet's rows: hosts with their GPUs beneath, sorted, filtered and folded. Nothing is worded before it is shown."""

import re
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import accumulate
from typing import Any

from gpuplan.domain.fleet import Host, HostStatus
from gpuplan.planning.allocatable import Ours, ours_by_gpu
from gpuplan.present.age import ago
from gpuplan.present.document import Line
from gpuplan.present.fleet_rows import (
    Columns,
    HostLook,
    columns,
    gpu_line,
    header,
    host_line,
    status_of,
    width_of_names,
)
from gpuplan.tui.fleet_filter import Filter, texts_of
from gpuplan.tui.reading import WATCHED
from gpuplan.tui.state import NOTHING_READ, FleetState, GpuKey

RowKey = tuple[str, int | None]
"""Host and GPU index; None: the host's own row."""
MOST_OPENED = 50
"""Hosts up to which all GPUs are shown at first."""
OLD_SECONDS = 10
"""Age from which watched figures are told as old."""
_DIGITS = re.compile(r"(\d+)")


class Order(StrEnum):
    """What hosts are sorted by; the value is what the screen says."""

    INVENTORY = "inventory order"
    NAME = "by name"
    FREE = "by free memory"
    GPUS = "by number of GPUs"
    STATUS = "by status"

    @property
    def next(self) -> "Order":
        every = list(Order)
        return every[(every.index(self) + 1) % len(every)]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How a person wants to see the fleet."""

    order: Order = Order.INVENTORY
    filter: Filter = Filter.EMPTY
    opened: bool | None = None
    """Whether hosts are opened where nothing else is said; None: while they are few."""
    folds: Mapping[str, bool] = field(default_factory=dict)
    """Hosts opened (or closed) by hand."""

    def folded(self, names: Iterable[str], *, opened: bool) -> "View":
        """With these hosts opened or closed."""
        return replace(self, folds={**self.folds, **dict.fromkeys(names, opened)})


class FleetRows:
    """A RowSource. `arrange` decides which rows there are, `refresh` only renews what they say."""

    def __init__(self) -> None:
        self.state: FleetState = NOTHING_READ
        self.view = View()
        self.marked: frozenset[GpuKey] = frozenset()
        self.old: dict[str, str] = {}
        """Hosts whose figures are old, and how old."""
        self._names: list[str] = []
        self._gpus: list[tuple[int, ...]] = []
        """Positions in the host's `gpus` of those that are shown, opened or not."""
        self._starts: list[int] = [0]
        """Index of each host's row, and after the last the number of rows."""
        self._places: dict[str, int] = {}
        self._hosts: dict[str, Host] = {}
        self._texts: dict[str, tuple[Host, str, tuple[str, ...]]] = {}
        self._ours: dict[str, tuple[Host, Ours]] = {}
        self._longest = 4

    # ------------------------------------------------------------------ as a RowSource

    def __len__(self) -> int:
        return self._starts[-1]

    def key(self, index: int) -> Hashable:
        return self.row(index)

    def row(self, index: int) -> RowKey:
        place = bisect_right(self._starts, index) - 1
        name, position = self._names[place], index - self._starts[place] - 1
        return name, None if position < 0 else self._hosts[name].gpus[self._gpus[place][position]].index

    def index(self, key: Hashable) -> int | None:
        if not isinstance(key, tuple) or key[0] not in self._places:
            return None
        name, gpu = key
        place = self._places[name]
        start = self._starts[place]
        if gpu is not None and self._starts[place + 1] - start > 1:
            gpus = self._hosts[name].gpus
            for offset, position in enumerate(self._gpus[place], start=1):
                if gpus[position].index == gpu:
                    return start + offset
        return start

    def line(self, index: int, width: int) -> Line:
        name, gpu = self.row(index)
        host = self._hosts[name]
        shape = self.columns(width)
        if gpu is None:
            return host_line(host, shape, self._look(host))
        found = next(one for one in host.gpus if one.index == gpu)
        known = self._ours.get(name)
        if known is None or known[0] is not host:
            known = self._ours[name] = host, ours_by_gpu(host)
        return gpu_line(host, found, shape, ours=known[1], marked=(name, gpu) in self.marked)

    def columns(self, width: int) -> Columns:
        return columns(width, self._longest)

    def header(self, width: int) -> Line:
        return header(self.columns(width))

    # ------------------------------------------------------------------ what is shown

    @property
    def names(self) -> tuple[str, ...]:
        """Hosts that are shown, in their order."""
        return tuple(self._names)

    def host(self, name: str) -> Host | None:
        return self._hosts.get(name)

    def gpus_shown(self, name: str) -> tuple[int, ...]:
        """Indexes of the GPUs of a host the filter leaves."""
        gpus = self._hosts[name].gpus
        return tuple(gpus[position].index for position in self._gpus[self._places[name]])

    def opened(self, name: str) -> bool:
        by_hand = self.view.folds.get(name, self.view.opened)
        if by_hand is not None:
            return by_hand
        return len(self.state.fleet.hosts) <= MOST_OPENED or bool(self.view.filter)

    def keys_of(self, names: Iterable[str]) -> list[Hashable]:
        """The rows of hosts, shown or not."""
        return [
            (name, gpu)
            for name in names
            if name in self._hosts
            for gpu in (None, *(one.index for one in self._hosts[name].gpus))
        ]

    def changed(self, state: FleetState) -> list[str]:
        """Hosts that look different in this state."""
        known, waited, unread = self._hosts, self.state.waiting, self.state.read_at
        return [
            host.name
            for host in state.fleet.hosts
            if known.get(host.name) is not host
            or (host.name in waited) is not (host.name in state.waiting)
            or (host.name in unread) is not (host.name in state.read_at)
        ]

    def rearranges(self, state: FleetState) -> bool:
        """Whether rows come or go with this state; figures alone change no row's place."""
        hosts = state.fleet.hosts
        return (
            state.waiting != self.state.waiting
            or len(hosts) != len(self._hosts)
            or any(
                host.name not in self._hosts or len(self._hosts[host.name].gpus) != len(host.gpus)
                for host in hosts
            )
            or state.read_at != self.state.read_at
        )

    def refresh(self, state: FleetState) -> None:
        """The same rows with what they say now."""
        self.state = state
        self._hosts = {host.name: host for host in state.fleet.hosts}

    def arrange(self, state: FleetState, view: View) -> None:
        """Which rows there are, in which order."""
        self.refresh(state)
        self.view = view
        shown: list[tuple[Host, tuple[int, ...]]] = []
        for host in state.fleet.hosts:
            gpus = self._left(host)
            if gpus is not None:
                shown.append((host, gpus))
        sort_key = _SORT_KEYS.get(view.order)
        if sort_key is not None:
            shown.sort(key=lambda item: sort_key(item[0], self._look(item[0])))
        self._names = [host.name for host, _ in shown]
        self._gpus = [gpus for _, gpus in shown]
        self._places = {name: place for place, name in enumerate(self._names)}
        rows = (1 + (len(gpus) if self.opened(host.name) else 0) for host, gpus in shown)
        self._starts = list(accumulate(rows, initial=0))
        self._longest = width_of_names(state.fleet.hosts)

    def _left(self, host: Host) -> tuple[int, ...] | None:
        if not self.view.filter:
            return tuple(range(len(host.gpus)))
        known = self._texts.get(host.name)
        look = self._look(host)
        if known is None or known[0] is not host or look.waiting or look.unread:
            known = self._texts[host.name] = (host, *texts_of(host, look))
        return self.view.filter.gpus_of(host, known[1], known[2])

    def _look(self, host: Host) -> HostLook:
        name = host.name
        place = self._places.get(name)
        marked = sum((name, gpu.index) in self.marked for gpu in host.gpus) if self.marked else 0
        return HostLook(
            opened=self.opened(name) if place is not None and self._gpus[place] else None,
            waiting=name in self.state.waiting,
            unread=self._unread(name),
            old=self.old.get(name, ""),
            marked=marked,
        )

    def _unread(self, name: str) -> bool:
        source = self.state.source
        return source is not None and source.kind in WATCHED and name not in self.state.read_at

    # ------------------------------------------------------------------ age

    def aged(self, now: datetime) -> list[str]:
        """Take note of the time: hosts whose figures are old, or old in other words than before."""
        state = self.state
        old: dict[str, str] = {}
        if state.live_at and not state.paused:
            for host in state.fleet.hosts:
                seen = [at[host.name] for at in (state.live_at, state.read_at) if host.name in at]
                if host.gpus and seen and (now - max(seen)).total_seconds() > OLD_SECONDS:
                    old[host.name] = ago(max(seen), now).replace(" ago", " old")
        before, self.old = self.old, old
        return [name for name in before.keys() | old.keys() if before.get(name) != old.get(name)]


def _natural(name: str) -> list[tuple[int, str]]:
    """`gpu2` before `gpu10`."""
    return [(int(part), "") if part.isdecimal() else (0, part.casefold()) for part in _DIGITS.split(name)]


def _by_free(host: Host, _look: HostLook) -> int:
    return -sum((gpu.total_bytes if gpu.free_bytes is None else gpu.free_bytes) or 0 for gpu in host.gpus)


def _by_status(host: Host, look: HostLook) -> tuple[bool, bool, str]:
    """What needs a person first."""
    fine = host.status is HostStatus.OK
    word = status_of(host, replace(look, old="")).text
    return fine, word == "ok", word


_SORT_KEYS: Mapping[Order, Callable[[Host, HostLook], Any]] = {
    Order.NAME: lambda host, _look: _natural(host.name),
    Order.FREE: _by_free,
    Order.GPUS: lambda host, _look: -len(host.gpus),
    Order.STATUS: _by_status,
}
