"""One authenticated SSH connection: commands, sockets and ports of the host, side by side."""

import contextlib
import shlex
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from paramiko.common import cMSG_CHANNEL_REQUEST
from paramiko.message import Message

from gpuplan.remote.cancellation import STEP, Cancellation
from gpuplan.remote.connection import Completed, ConnectionFailed, SocketRefused, Stage, Stream
from gpuplan.remote.hops import Link
from gpuplan.remote.ssh_channels import (
    PROHIBITED,
    ChannelRefused,
    CollectingChannel,
    Kind,
    StreamChannel,
    open_channel,
    to_port,
    to_socket,
)
from gpuplan.remote.ssh_transport import wait_for
from gpuplan.remote.words import printable, seconds

HARD_STOP = 64 * 1024**2
"""Bytes of output after which a command is cut off, kept or not."""
AFTERGLOW = 2.0
"""Seconds without output after the exit status, when something the command left behind keeps its outputs open."""
PATIENCE = 3.0
"""Seconds a server that refuses a session while none of ours is open is asked again: it may still clear one up."""


class _Sessions:
    """How many sessions are open, and how many the server allows once it has refused one (MaxSessions)."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = 0
        self._most: int | None = None

    def enter(self, end: float, check: Callable[[], None]) -> None:
        """Take a place. Raises ConnectionFailed when none is free before `end` (monotonic seconds)."""
        with self._changed:
            while self._most is not None and self._open >= self._most:
                check()
                if time.monotonic() >= end:
                    raise ConnectionFailed(
                        Stage.COMMAND,
                        f"the server allows {self._most} sessions at a time, and none became free",
                    )
                self._changed.wait(STEP)
            self._open += 1

    def leave(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def refused(self, pause: float) -> bool:
        """Give the place back and wait for a better moment; whether others of ours are open."""
        with self._changed:
            self._open -= 1
            others = self._open > 0
            if others:
                self._most = self._open
            self._changed.notify_all()
            self._changed.wait(STEP if others else pause)
            return others


def _reached(wire: object) -> str | None:
    """The address at the other end of a socket of our own."""
    if not isinstance(wire, socket.socket) or wire.family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    with contextlib.suppress(OSError):
        return str(wire.getpeername()[0])
    return None


class SshConnection:
    """Implements `connection.Connection`; safe to use from several threads."""

    def __init__(self, link: Link, cancellation: Cancellation, opening: float) -> None:
        """`opening`: seconds for the server to open a session."""
        self._link = link
        self._transport = link.transport
        self._cancellation = cancellation
        self._opening = opening
        self._sessions = _Sessions()
        self.address = _reached(link.transport.sock)
        """See `Connection.address`."""

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float,
        limit: int = 4 * 1024**2,
        silence: float | None = None,
    ) -> Completed:
        """See `Connection.run`. A command that printed 64 MiB is cut off as well."""
        end = time.monotonic() + timeout
        channel = self._session(CollectingChannel, timeout)
        try:
            channel.limit = limit
            channel.settimeout(0.0)
            channel.start(shlex.join(command))
            heard = end if silence is None else min(end, time.monotonic() + silence)
            in_time = self._collect(channel, stdin, heard, end)
            return self._completed(channel, command, in_time=in_time, timeout=timeout)
        finally:
            self._end(channel)

    def _collect(self, channel: CollectingChannel, stdin: bytes, heard: float, end: float) -> bool:
        """Feed and read until the command is done; False: it said nothing until `heard`, or was not done at `end`."""
        rest = memoryview(stdin)
        open_input = True
        while True:
            channel.happened.clear()
            self._alive(channel)
            if channel.ended_by_server or channel.refused or channel.total > HARD_STOP:
                return True
            while rest and channel.send_ready() and not channel.closed:
                rest = rest[self._send(channel, bytes(rest[:32768])) :]
            if not rest and open_input and not channel.closed:
                open_input = False
                self._shutdown_input(channel)
            channel.acknowledge()
            now = time.monotonic()
            if channel.exit_status >= 0 and now - channel.last_data > AFTERGLOW:
                return True
            due = end if channel.total else heard
            if now >= due:
                return False
            channel.happened.wait(min(STEP * 5, due - now))

    def _send(self, channel: CollectingChannel, data: bytes) -> int:
        try:
            return channel.send(data)
        except TimeoutError:
            return 0
        except (OSError, EOFError):
            self._alive(channel)
            return len(data)

    def _shutdown_input(self, channel: CollectingChannel) -> None:
        try:
            channel.shutdown_write()
        except (OSError, EOFError):
            self._alive(channel)

    def _alive(self, channel: CollectingChannel) -> None:
        """Raise when the connection is gone before the command was done."""
        self._cancellation.check()
        if not self._transport.is_active() and not channel.ended_by_server:
            raise ConnectionFailed(Stage.COMMAND, self._transport.lost())

    def _completed(
        self, channel: CollectingChannel, command: Sequence[str], *, in_time: bool, timeout: float
    ) -> Completed:
        if channel.refused:
            raise ConnectionFailed(Stage.COMMAND, "the server runs no commands for this user")
        if not in_time and not channel.answered.is_set() and not channel.total:
            name = printable(" ".join(command), 60)
            raise ConnectionFailed(
                Stage.COMMAND, f"the server never started `{name}`: no answer within {seconds(timeout)}"
            )
        status = channel.exit_status if channel.exit_status >= 0 else None
        return Completed(
            exit_code=status,
            stdout=bytes(channel.output),
            stderr=bytes(channel.errors),
            truncated=channel.total > len(channel.output) + len(channel.errors),
            timed_out=not in_time and status is None,
        )

    def _end(self, channel: CollectingChannel) -> None:
        """Close it; a command that still runs is told to end, as far as the server passes that on."""
        with contextlib.suppress(OSError, EOFError):
            if channel.exit_status < 0 and not channel.closed and self._transport.is_active():
                message = Message()
                message.add_byte(cMSG_CHANNEL_REQUEST)
                message.add_int(channel.remote_chanid)
                message.add_string("signal")
                message.add_boolean(False)
                message.add_string("TERM")
                inside: Any = self._transport
                inside._send_user_message(message)
        with contextlib.suppress(OSError, EOFError):
            channel.close()

    def _session(self, kind: type[Kind], timeout: float) -> Kind:
        """A session channel, when the server has a place for it. Raises ConnectionFailed."""
        end = time.monotonic() + timeout
        alone_until: float | None = None
        pause = 0.02
        while True:
            self._sessions.enter(end, self._check)
            left = max(0.0, end - time.monotonic())
            try:
                channel = open_channel(
                    self._transport, "session", kind, self._cancellation, min(left, self._opening)
                )
            except ChannelRefused as refusal:
                if self._sessions.refused(pause):
                    alone_until = None
                    continue
                now = time.monotonic()
                alone_until = alone_until or min(end, now + PATIENCE)
                pause = min(2 * pause, 0.5)
                if now >= alone_until:
                    raise ConnectionFailed(
                        Stage.COMMAND, f"the server opens no session: {refusal.words or 'refused'}"
                    ) from refusal
            except ConnectionFailed:
                self._sessions.leave()
                raise
            else:
                channel.on_close = self._sessions.leave
                return channel

    def _check(self) -> None:
        self._cancellation.check()
        if not self._transport.is_active():
            raise ConnectionFailed(Stage.COMMAND, self._transport.lost())

    def open_socket(self, path: str, *, timeout: float) -> Stream:
        """See `Connection.open_socket`. OpenSSH gives one reason for all refusals."""
        where = printable(path, 120)
        return self._forward("direct-streamlocal@openssh.com", to_socket(path), where, timeout)

    def open_port(self, address: str, port: int, *, timeout: float) -> Stream:
        """See `Connection.open_port`."""
        where = f"{printable(address, 80)}:{port}"
        return self._forward("direct-tcpip", to_port(address, port), where, timeout)

    def _forward(
        self, kind: str, arguments: Callable[[Message], None], where: str, timeout: float
    ) -> StreamChannel:
        with self._cancellation.explaining():
            self._check()
            try:
                return open_channel(
                    self._transport, kind, StreamChannel, self._cancellation, timeout, arguments
                )
            except ChannelRefused as refusal:
                raise SocketRefused(_why(refusal, where)) from refusal

    def open_command(self, command: Sequence[str], *, timeout: float) -> StreamChannel:
        """See `Connection.open_command`; its `last_words` are what the command wrote on standard error."""
        self._check()
        end = time.monotonic() + timeout
        channel = self._session(StreamChannel, timeout)
        try:
            channel.start(shlex.join(command))
            left = max(0.0, end - time.monotonic())
            wait_for(
                channel.answered, left, self._transport, self._cancellation, "the command was not started"
            )
        except ConnectionFailed:
            channel.close()
            raise
        if channel.refused:
            channel.close()
            raise SocketRefused("the server runs no commands for this user")
        return channel

    def close(self) -> None:
        """End it at once, with its thread and everything that carried it. Safe to call again."""
        self._link.close()


def _why(refusal: ChannelRefused, target: str) -> str:
    if refusal.reason == PROHIBITED:
        return f"the SSH server forbids forwarding to {target}: {refusal.words or 'prohibited'}"
    return f"the SSH server could not open {target}: {refusal.words or 'it gives no reason'}"
