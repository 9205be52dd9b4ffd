"""From a host's name to a connected socket, in bounded time: resolve, connect, or start a proxy command."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

from gpuplan.remote.cancellation import STEP, Cancellation
from gpuplan.remote.connection import ConnectionFailed, Stage
from gpuplan.remote.words import printable, seconds, system_words

STAGGER = 0.3
"""Seconds an address is given before the next one is tried beside it (RFC 8305 allows 0.1 to 2)."""
UNANSWERED = 60_000
"""Milliseconds data may stay unacknowledged before the system gives the connection up."""

ENDING = 0.2
"""Seconds a proxy command that closed its output is given to end."""

Address = tuple[int, tuple[Any, ...]]
"""Family and socket address."""


def resolve(host: str, port: int, timeout: float, cancellation: Cancellation) -> Sequence[Address]:
    """The addresses of a name, best first.

    The system's resolver cannot be interrupted: one that hangs is left behind in a daemon thread.
    """
    answers: list[list[Any]] = []
    failures: list[OSError | UnicodeError] = []
    done = threading.Event()

    def ask(flags: int = 0) -> None:
        try:
            answers.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags))
        except (OSError, UnicodeError) as error:  # UnicodeError: a label too long for a name
            failures.append(error)
        done.set()

    ask(socket.AI_NUMERICHOST)
    if failures:
        failures.clear()
        done.clear()
        threading.Thread(target=ask, name=f"resolve {host}", daemon=True).start()
        end = time.monotonic() + timeout
        while not done.wait(STEP):
            cancellation.check()
            if time.monotonic() > end:
                raise ConnectionFailed(
                    Stage.RESOLVE, f"no answer about the name {printable(host)} within {seconds(timeout)}"
                )
    if failures:
        raise ConnectionFailed(Stage.RESOLVE, _unresolved(host, failures[0]))
    return [(family, address) for family, _kind, _protocol, _canonical, address in answers[0]]


def _unresolved(host: str, error: OSError | UnicodeError) -> str:
    name = printable(host)
    if isinstance(error, socket.gaierror) and error.errno in {socket.EAI_NONAME, socket.EAI_NODATA}:
        return f"the name {name} is unknown"
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
        return f"the name {name} cannot be looked up now: no name server answers"
    return f"the name {name} cannot be looked up: {printable(str(error.args[-1]))}"


class _Attempts:
    """Connects under way to the addresses of one host; the first to succeed wins, the others are closed."""

    def __init__(self) -> None:
        self.open: dict[int, socket.socket] = {}
        self.last: OSError | None = None
        self.poll = select.poll()

    def start(self, family: int, address: tuple[Any, ...]) -> None:
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self.last = error
            return
        self.open[sock.fileno()] = sock
        sock.setblocking(False)
        try:
            sock.connect(address)
        except BlockingIOError:
            pass
        except OSError as error:
            self.drop(sock.fileno(), error)
            return
        self.poll.register(sock, select.POLLOUT)

    def drop(self, number: int, error: OSError) -> None:
        self.last = error
        self.open.pop(number).close()

    def connected(self, wait: float) -> socket.socket | None:
        """The first socket that is connected, taken out; None when none is within `wait` seconds."""
        for number, _event in self.poll.poll(wait * 1000):
            code = self.open[number].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            self.poll.unregister(number)
            if not code:
                return self.open.pop(number)
            self.drop(number, OSError(code, os.strerror(code)))
        return None

    def close(self) -> None:
        for sock in self.open.values():
            sock.close()


def dial(addresses: Sequence[Address], timeout: float, cancellation: Cancellation) -> socket.socket:
    """A connected socket to the first address that answers; `timeout` seconds for all of them together."""
    waiting = list(addresses)
    attempts = _Attempts()
    now = time.monotonic()
    end, start_next = now + timeout, now
    try:
        while now < end:
            cancellation.check()
            if waiting and (now >= start_next or not attempts.open):
                attempts.start(*waiting.pop(0))
                start_next = now + STAGGER
            if attempts.open:
                until = min(end, start_next) if waiting else end
                sock = attempts.connected(max(0.0, min(STEP, until - now)))
                if sock is not None:
                    return _tuned(sock)
            elif not waiting:
                raise ConnectionFailed(Stage.CONNECT, system_words(attempts.last or OSError("no address")))
            now = time.monotonic()
    finally:
        attempts.close()
    raise ConnectionFailed(Stage.CONNECT, f"no answer within {seconds(timeout)}")


def _tuned(sock: socket.socket) -> socket.socket:
    """Small packets leave at once, and a dead peer is noticed by the keepalives that it does not acknowledge."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED)
    return sock


class ProxyProcess:
    """A `ProxyCommand` under way: its standard input and output are one end of a socket pair, ours is the other.

    It runs in a session of its own and is ended, with whatever it started, and waited for by `close`.
    """

    def __init__(self, command: str, environ: Mapping[str, str]) -> None:
        """Raises ConnectionFailed when the shell cannot be started."""
        self.command = command
        self.sock, theirs = socket.socketpair()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by `close`
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                env=dict(environ) or None,
                start_new_session=True,
            )
        except OSError as error:
            self.sock.close()
            self._errors.close()
            raise ConnectionFailed(
                Stage.CONNECT, f"ProxyCommand cannot be started: {system_words(error)}"
            ) from error
        finally:
            theirs.close()

    def said(self) -> str:
        """What it last wrote on its standard error, and how it ended if it did; empty when it runs and is silent."""
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._process.wait(ENDING)
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 1000))
        words = printable(self._errors.read(1000), 200)
        ended = "" if status is None else f"it ended with exit code {status}"
        return ": ".join(part for part in (ended, words) if part)

    def close(self) -> None:
        """End it and everything it started. Safe to call again."""
        self.sock.close()
        if self._errors.closed:
            return
        for kind in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, kind)
            try:
                self._process.wait(1.0)
                break
            except subprocess.TimeoutExpired:
                continue
        self._errors.close()
