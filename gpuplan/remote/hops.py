"""Jump hosts in use: one connection to each, shared by all hosts behind it, closed with the last of them."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from gpuplan.remote.cancellation import STEP, Cancellation
from gpuplan.remote.connection import ConnectionFailed, Stage
from gpuplan.remote.ssh_transport import SshTransport

FAILURE_SECONDS = 30.0
"""How long a jump host that failed is taken to be down: 200 hosts behind it do not each wait for it."""


class Link(Protocol):
    """An authenticated connection and what carries it."""

    @property
    def transport(self) -> SshTransport: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class _Slot:
    """One jump host: being opened, open, or failed."""

    ready: threading.Event = field(default_factory=threading.Event)
    link: Link | None = None
    failure: ConnectionFailed | None = None
    failed_at: float = 0.0
    users: int = 0

    def usable(self) -> bool:
        """Still being opened, open and alive, or failed a moment ago."""
        if not self.ready.is_set():
            return True
        if self.link is not None:
            return self.link.transport.is_active()
        return time.monotonic() - self.failed_at < FAILURE_SECONDS


class Lease:
    """The right to use a jump host's connection until `close`."""

    def __init__(self, slot: _Slot, release: Callable[[], None]) -> None:
        self._slot = slot
        self._release: Callable[[], None] | None = release

    @property
    def transport(self) -> SshTransport:
        link = self._slot.link
        if link is None:
            raise ConnectionFailed(Stage.JUMP, "it is not connected")
        return link.transport

    def close(self) -> None:
        """Give it back. Safe to call again."""
        release, self._release = self._release, None
        if release is not None:
            release()


class Hops:
    """The pool; safe to use from several threads."""

    def __init__(self, cancellation: Cancellation) -> None:
        self._cancellation = cancellation
        self._lock = threading.Lock()
        self._slots: dict[object, _Slot] = {}

    def lease(self, key: object, connect: Callable[[], Link]) -> Lease:
        """Use the connection under `key`; the first to come makes it, the others wait. Raises ConnectionFailed."""
        with self._lock:
            slot = self._slots.get(key)
            first = slot is None or not slot.usable()
            if slot is None or first:
                slot = self._slots[key] = _Slot()
            slot.users += 1
        lease = Lease(slot, lambda: self._release(key, slot))
        try:
            if first:
                self._fill(slot, connect)
            while not slot.ready.wait(STEP):
                self._cancellation.check()
            if slot.link is None:
                failure = slot.failure or ConnectionFailed(Stage.JUMP, "it could not be reached")
                raise ConnectionFailed(failure.stage, failure.detail)
        except BaseException:
            lease.close()
            raise
        return lease

    def _fill(self, slot: _Slot, connect: Callable[[], Link]) -> None:
        try:
            slot.link = connect()
        except ConnectionFailed as failure:
            slot.failure = failure
            slot.failed_at = time.monotonic()
        finally:
            slot.ready.set()

    def _release(self, key: object, slot: _Slot) -> None:
        with self._lock:
            slot.users -= 1
            last = slot.users == 0
            if last and self._slots.get(key) is slot and slot.failure is None:
                del self._slots[key]
        if last and slot.link is not None:
            slot.link.close()
