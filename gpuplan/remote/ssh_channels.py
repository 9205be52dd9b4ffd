"""Channels of a transport: sessions that collect a command's output, and streams to sockets, ports and commands."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import paramiko
from paramiko.common import cMSG_CHANNEL_OPEN, cMSG_CHANNEL_REQUEST, cMSG_CHANNEL_WINDOW_ADJUST
from paramiko.message import Message

from gpuplan.remote.cancellation import Cancellation
from gpuplan.remote.connection import ConnectionFailed, Stage
from gpuplan.remote.ssh_transport import SshTransport, wait_for

PROHIBITED = 1
"""Administratively prohibited (RFC 4254, 5.1)."""
TAIL = 4096
"""Bytes kept of what a streamed command writes on its standard error."""


class ChannelRefused(Exception):
    """The server did not open a channel: reason code (RFC 4254, 5.1) and its words."""

    def __init__(self, reason: int, words: str) -> None:
        super().__init__(words)
        self.reason = reason
        self.words = words


class CommandChannel(paramiko.Channel):
    """A channel whose messages for an exec request are noted."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.answered = threading.Event()
        """The exec request was accepted, or refused."""
        self.refused = False
        self.ended_by_server = False
        self.on_close: Callable[[], None] | None = None

    def start(self, command: str) -> None:
        """Ask for a command, without waiting for the answer."""
        message = Message()
        message.add_byte(cMSG_CHANNEL_REQUEST)
        message.add_int(self.remote_chanid)
        message.add_string("exec")
        message.add_boolean(True)
        message.add_string(command.encode("utf-8", "surrogateescape"))
        _send(self, message)

    def _request_success(self, message: Message) -> None:
        self.answered.set()

    def _request_failed(self, message: Message) -> None:
        self.refused = True
        self.answered.set()
        self._noticed()

    def _handle_close(self, message: Message) -> None:
        self.ended_by_server = True
        inherited: Any = super()
        inherited._handle_close(message)
        self.answered.set()
        self._noticed()

    def _noticed(self) -> None:
        """Something happened; from the transport's thread."""

    def close(self) -> None:
        with suppress(EOFError, OSError):  # the transport is gone: there is nobody to tell it to
            super().close()
        if self.on_close is not None:
            self.on_close()
            self.on_close = None


class CollectingChannel(CommandChannel):
    """Keeps the first bytes of both outputs and throws the rest away; the reader is woken by `happened`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.limit = 0
        self.output, self.errors = bytearray(), bytearray()
        self.total = 0
        """Bytes received of both, kept or not."""
        self.last_data = time.monotonic()
        self.happened = threading.Event()
        self._unacknowledged = 0

    def _feed(self, message: Message | bytes) -> None:
        self._keep(self.output, message if isinstance(message, bytes) else message.get_binary())

    def _feed_extended(self, message: Message) -> None:
        message.get_int()
        self._keep(self.errors, message.get_binary())

    def _keep(self, kept: bytearray, data: bytes) -> None:
        room = self.limit - len(kept)
        if room > 0:
            kept += data[:room]
        self.total += len(data)
        self.last_data = time.monotonic()
        with self.lock:
            self._unacknowledged += len(data)
        self.happened.set()

    def _noticed(self) -> None:
        self.happened.set()

    def _handle_eof(self, message: Message) -> None:
        inherited: Any = super()
        inherited._handle_eof(message)
        self.happened.set()

    def _handle_request(self, message: Message) -> None:
        inherited: Any = super()
        inherited._handle_request(message)
        self.happened.set()

    def _window_adjust(self, message: Message) -> None:
        inherited: Any = super()
        inherited._window_adjust(message)
        self.happened.set()

    def _unlink(self) -> None:
        inherited: Any = super()
        inherited._unlink()
        self.happened.set()

    def acknowledge(self) -> None:
        """Give the server room for what has been taken; from the reader's thread, never the transport's."""
        with self.lock:
            size = self._unacknowledged
            if size <= self.in_window_threshold or self.closed or self.eof_received:
                return
            self._unacknowledged = 0
        message = Message()
        message.add_byte(cMSG_CHANNEL_WINDOW_ADJUST)
        message.add_int(self.remote_chanid)
        message.add_int(size)
        _send(self, message)


class StreamChannel(CommandChannel):
    """Two ways to a command, socket or port; a command's last words on standard error are kept apart."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.error_tail = b""

    def recv(self, nbytes: int, /) -> bytes:
        data: bytes = super().recv(nbytes)
        self._drain_errors()
        return data

    def _drain_errors(self) -> None:
        while self.recv_stderr_ready():
            part = self.recv_stderr(TAIL)
            if not part:
                break
            self.error_tail = (self.error_tail + part)[-TAIL:]

    def last_words(self) -> bytes:
        """What the command last wrote on its standard error."""
        self._drain_errors()
        return self.error_tail


Kind = TypeVar("Kind", bound=CommandChannel)


def open_channel(
    transport: SshTransport,
    kind: str,
    channel_type: type[Kind],
    cancellation: Cancellation,
    timeout: float,
    arguments: Callable[[Message], None] | None = None,
) -> Kind:
    """Open a channel; `arguments` writes what belongs to its kind.

    paramiko opens no `direct-streamlocal@openssh.com` (OpenSSH's PROTOCOL, 2.4), and keeps one reason for all
    channels. Raises ChannelRefused, ConnectionFailed (stage COMMAND) when the server does not answer.
    """
    inside: Any = transport
    event = threading.Event()
    message = Message()
    with transport.lock:
        number: int = inside._next_channel()
        window = inside._sanitize_window_size(None)
        packet = inside._sanitize_packet_size(None)
        channel = channel_type(number)
        handle: Any = channel
        inside._channels.put(number, channel)
        transport.channel_events[number] = event
        transport.channels_seen[number] = True
        handle._set_transport(transport)
        handle._set_window(window, packet)
    message.add_byte(cMSG_CHANNEL_OPEN)
    message.add_string(kind)
    message.add_int(number)
    message.add_int(window)
    message.add_int(packet)
    if arguments is not None:
        arguments(message)
    _send(channel, message)
    wait_for(event, timeout, transport, cancellation, "the server accepted us and then opened no session")
    refusal = transport.refusals.pop(number, None)
    if refusal is not None:
        raise ChannelRefused(*refusal)
    if not transport.is_active():
        raise ConnectionFailed(Stage.COMMAND, transport.lost())
    return channel


def to_socket(path: str) -> Callable[[Message], None]:
    """Arguments of `direct-streamlocal@openssh.com`: the path, and two reserved fields."""

    def write(message: Message) -> None:
        message.add_string(path.encode("utf-8", "surrogateescape"))
        message.add_string(b"")
        message.add_int(0)

    return write


def to_port(address: str, port: int) -> Callable[[Message], None]:
    """Arguments of `direct-tcpip` (RFC 4254, 7.2): the destination, and where the connection came from."""

    def write(message: Message) -> None:
        message.add_string(address)
        message.add_int(port)
        message.add_string("127.0.0.1")
        message.add_int(0)

    return write


def _send(channel: paramiko.Channel, message: Message) -> None:
    """Send in turn with a key exchange under way. Raises ConnectionFailed when the connection is gone."""
    transport: Any = channel.transport
    try:
        transport._send_user_message(message)
    except (EOFError, OSError, paramiko.SSHException) as error:
        raise ConnectionFailed(Stage.COMMAND, transport.lost()) from error
