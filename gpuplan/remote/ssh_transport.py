"""paramiko's Transport, made to keep time, to say why it failed and to leave nothing behind.

What is not public in paramiko is used in this file and in `ssh_channels` alone; the version is pinned for it.
"""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import paramiko
from paramiko.message import Message
from paramiko.packet import Packetizer

from gpuplan.remote.cancellation import STEP, Cancellation
from gpuplan.remote.connection import ConnectionFailed, Stage
from gpuplan.remote.host_keys import HostKey
from gpuplan.remote.words import printable, seconds, system_words

GREETING_LIMIT = 16 * 1024
"""Bytes a server may say before its identification."""
JOIN_SECONDS = 1.0
NO_GREETING = "nothing was said in time"
"""Told from a connection that was closed or reset, which paramiko puts into the same exception."""

_log = logging.getLogger("paramiko")
_log.addHandler(logging.NullHandler())
_log.setLevel(logging.CRITICAL + 1)
_log.propagate = False


class Wire(Protocol):
    """What carries a transport: a socket, or a channel of the transport before it."""

    def recv(self, size: int, /) -> bytes: ...
    def send(self, data: bytes, /) -> int: ...
    def settimeout(self, seconds: float | None, /) -> None: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class TimedPacketizer(Packetizer):
    """Keeps the greeting and its limits, and needs no timer thread: paramiko's outlives a failed handshake."""

    def __init__(self, wire: Any) -> None:
        super().__init__(wire)
        self._wire = wire
        self.heard = bytearray()
        """Everything before and with the identification line, and at most 127 bytes after it."""
        self._end: float | None = None

    def start_handshake(self, timeout: float) -> None:
        self._end = time.monotonic() + timeout

    def complete_handshake(self) -> None:
        """Called for each message; the end of the key exchange is what the transport waits for."""

    def handshake_timed_out(self) -> bool:
        return self._end is not None and time.monotonic() > self._end

    def handshake_done(self) -> None:
        self._end = None

    def _read_timeout(self, timeout: float) -> bytes:
        end = time.monotonic() + timeout
        while not self.closed:
            if len(self.heard) > GREETING_LIMIT:
                raise EOFError("too much was said before the identification")
            try:
                part: bytes = self._wire.recv(128)
            except TimeoutError as error:
                if time.monotonic() >= end:
                    raise TimeoutError(NO_GREETING) from error
                continue
            if not part:
                break
            self.heard += part
            return part
        raise EOFError("closed")


_DEFAULTS: Any = paramiko.Transport


def _to_channel(method: str) -> Callable[[Any, Message], None]:
    """paramiko's table names the methods of its own class; ours override some."""
    return lambda channel, message: getattr(channel, method)(message)


class SshTransport(paramiko.Transport):
    """One connection to one SSH server, with its thread."""

    active: bool

    # The cheapest first. paramiko knows no chacha20-poly1305; AES-GCM needs no separate MAC.
    _preferred_ciphers = (
        "aes128-gcm@openssh.com",
        "aes256-gcm@openssh.com",
        "aes128-ctr",
        "aes192-ctr",
        "aes256-ctr",
    )
    _preferred_macs = (
        "hmac-sha2-256-etm@openssh.com",
        "hmac-sha2-512-etm@openssh.com",
        "hmac-sha2-256",
        "hmac-sha2-512",
    )

    _channel_handler_table = {  # noqa: RUF012  paramiko's attribute, never changed
        number: _to_channel(handler.__name__) for number, handler in _DEFAULTS._channel_handler_table.items()
    }

    def __init__(self, wire: Wire) -> None:
        carrier: Any = wire
        super().__init__(carrier, packetizer_class=TimedPacketizer)
        self.wire = wire
        self.farewell = ""
        """What the server said when it ended the connection."""
        self._ended_here = False
        self.refusals: dict[int, tuple[int, str]] = {}
        """Reason and text for each channel that was not opened."""
        self.kinds: Sequence[str] = _DEFAULTS._preferred_keys
        """Host key algorithms in the order they are proposed."""

    @property
    def preferred_keys(self) -> Sequence[str]:
        """Plain keys only: paramiko would accept a host certificate without looking at its authority."""
        return self.kinds

    @property
    def heard(self) -> str:
        """What the server said before and with its identification."""
        packetizer: Any = self.packetizer
        return bytes(packetizer.heard).decode("utf-8", "replace")

    def _parse_disconnect(self, message: Message) -> None:
        message.get_int()
        self.farewell = printable(message.get_binary())

    def _parse_channel_open_failure(self, message: Message) -> None:
        number, reason = message.get_int(), message.get_int()
        self.refusals[number] = (reason, printable(message.get_binary()))
        inside: Any = self
        with self.lock:
            inside._channels.delete(number)
            event = self.channel_events.pop(number, None)
        if event is not None:
            event.set()

    def negotiate(self, banner: float, cancellation: Cancellation) -> HostKey:
        """Greet and agree on keys, each within `banner` seconds. Raises ConnectionFailed (stage CONNECT)."""
        self.banner_timeout = self.handshake_timeout = banner
        done = threading.Event()
        self.start_client(event=done)
        end = time.monotonic() + 2 * banner + 1
        while not done.wait(STEP):
            cancellation.check()
            if not self.is_active() or time.monotonic() > end:
                break
        cancellation.check()
        if not self.is_active() or not done.is_set():
            raise ConnectionFailed(Stage.CONNECT, self._why_not(banner))
        packetizer: Any = self.packetizer
        packetizer.handshake_done()
        return HostKey(blob=self.get_remote_server_key().asbytes())

    def _why_not(self, banner: float) -> str:
        error = self.get_exception()
        heard = self.heard
        lines = heard.splitlines()
        if not heard:
            if NO_GREETING in str(error):
                return f"connected, but no SSH server greeted within {seconds(banner)}"
            return (
                "connected, but closed before a greeting: no SSH server, a firewall, "
                "or the server's limit of new connections (MaxStartups)"
            )
        if not any(line.startswith("SSH-") for line in lines):
            return f"not an SSH server: it said '{printable(heard, 160)}'"
        if isinstance(error, paramiko.SSHException):
            return f"no agreement with the SSH server: {printable(str(error), 200)}"
        if isinstance(error, OSError):
            return f"lost while agreeing on keys: {system_words(error)}"
        if self.farewell:
            return f"the SSH server ended the connection: {self.farewell}"
        return f"the SSH server did not agree on keys, or closed, within {seconds(banner)}"

    def lost(self) -> str:
        """Why the connection is no more, as far as is known."""
        if self._ended_here:
            return "the connection was closed here"
        if self.farewell:
            return f"the server ended the connection: {self.farewell}"
        error = self.saved_exception
        if isinstance(error, OSError) and not isinstance(error, EOFError):
            return f"the connection was lost: {system_words(error)}"
        if isinstance(error, paramiko.SSHException):
            return f"the connection was lost: {printable(str(error), 200)}"
        return "the connection was lost: closed by the other side"

    def abandon(self) -> None:
        """End it from any thread without waiting: its thread wakes up and finds the connection closed."""
        self._ended_here = self._ended_here or self.active
        self.active = False
        wake(self.wire)

    def close(self) -> None:
        """End it, its thread and its channels. Safe to call again, from any thread."""
        self._ended_here = self._ended_here or self.active
        self.active = False
        if isinstance(self.wire, paramiko.Channel):
            self.wire.close()
        wake(self.wire)
        if self.is_alive() and self is not threading.current_thread():
            self.join(JOIN_SECONDS)
        inside: Any = self
        for channel in inside._channels.values():
            channel._unlink()
        for event in list(self.channel_events.values()):
            event.set()
        self.packetizer.close()


def wake(wire: Wire) -> None:
    """Whoever reads from it or writes to it finds it closed; nothing is waited for."""
    if isinstance(wire, paramiko.Channel):
        channel: Any = wire
        channel._unlink()
        return
    with contextlib.suppress(OSError):
        wire.shutdown(socket.SHUT_RDWR)


def wait_for(
    event: threading.Event, timeout: float, transport: SshTransport, cancellation: Cancellation, phase: str
) -> None:
    """Wait for an answer of the server. Raises ConnectionFailed (stage COMMAND) in good time."""
    end = time.monotonic() + timeout
    while not event.wait(min(STEP, max(0.0, end - time.monotonic()))):
        cancellation.check()
        if not transport.is_active():
            raise ConnectionFailed(Stage.COMMAND, transport.lost())
        if time.monotonic() >= end:
            raise ConnectionFailed(Stage.COMMAND, f"{phase}: no answer within {seconds(timeout)}")
