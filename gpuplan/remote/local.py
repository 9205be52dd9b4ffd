"""This machine as a connection: commands as child processes, sockets directly.

Every command runs in a session of its own, and the whole of it is killed at the deadline, on `close` and when the
command ends: a probe leaves nothing behind. A process that cannot be killed (a driver that hangs in the kernel) is
left to a thread that reaps it; nobody waits for it.
"""

import os
import selectors
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from signal import SIGKILL
from typing import IO, NoReturn, Self

from gpuplan.remote.connection import Completed, ConnectionFailed, SocketRefused, Stage
from gpuplan.remote.words import system_words

_CHUNK = 64 * 1024
_REAP_SECONDS = 0.5
"""How long a killed process may take to go before it is left behind."""
_EXIT_POLL_SECONDS = 0.05
"""How often the end of a process is looked for where the kernel cannot tell it (no pidfd)."""


class LocalConnection:
    """Commands, sockets and ports of the machine gpuplan runs on; a Connection."""

    address: str | None = None
    """No address was dialled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[_Execution | _LocalStream] = set()
        self._closed = False

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float,
        limit: int = 4 * 1024**2,
        silence: float | None = None,
    ) -> Completed:
        """Run a command; one that is missing or may not be run ends with 127 or 126, as in a shell."""
        deadline = time.monotonic() + timeout
        heard = deadline if silence is None else min(deadline, time.monotonic() + silence)
        self._refuse_closed()
        try:
            process = _spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            code = 127 if isinstance(error, FileNotFoundError | NotADirectoryError) else 126
            return Completed(exit_code=code, stdout=b"", stderr=_not_started(command, error).encode())
        with _Execution(process, stdin, limit) as execution:
            self._register(execution)
            try:
                completed = execution.complete(heard, deadline)
            finally:
                self._forget(execution)
        self._refuse_closed()
        return completed

    def open_socket(self, path: str, *, timeout: float) -> "_LocalStream":
        """The cause of SocketRefused is the OSError that says why."""
        return self._connected(socket.AF_UNIX, path, path, timeout)

    def open_port(self, address: str, port: int, *, timeout: float) -> "_LocalStream":
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return self._connected(family, (address, port), f"{address}:{port}", timeout)

    def open_command(self, command: Sequence[str], *, timeout: float) -> "_LocalStream":
        """Its error output is thrown away."""
        self._refuse_closed()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = _spawn(
                    command, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL
                )
            except OSError as error:
                ours.close()
                raise SocketRefused(_not_started(command, error)) from error
        return self._stream(ours, timeout, process)

    def close(self) -> None:
        """Kill what runs and close every stream; calls under way raise ConnectionFailed."""
        with self._lock:
            self._closed = True
            under_way = tuple(self._open)
        for each in under_way:
            each.abort()

    def _connected(
        self, family: int, target: str | tuple[str, int], shown: str, timeout: float
    ) -> "_LocalStream":
        self._refuse_closed()
        ours = socket.socket(family, socket.SOCK_STREAM)
        try:
            ours.settimeout(timeout)
            ours.connect(target)
        except OSError as error:
            ours.close()
            raise SocketRefused(f"{shown}: {system_words(error)}") from error
        return self._stream(ours, timeout)

    def _stream(
        self, ours: socket.socket, timeout: float, process: "subprocess.Popen[bytes] | None" = None
    ) -> "_LocalStream":
        ours.settimeout(timeout)
        stream = _LocalStream(self, ours, process)
        self._register(stream)
        return stream

    def _register(self, each: "_Execution | _LocalStream") -> None:
        with self._lock:
            self._open.add(each)
            closed = self._closed
        if closed:
            each.abort()

    def _forget(self, each: "_Execution | _LocalStream") -> None:
        with self._lock:
            self._open.discard(each)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ConnectionFailed(Stage.CANCELLED, "the connection to this machine was closed")


class _LocalStream:
    """A socket, or a command behind one end of a socket pair."""

    def __init__(
        self, owner: LocalConnection, ours: socket.socket, process: "subprocess.Popen[bytes] | None"
    ) -> None:
        self._owner = owner
        self._socket = ours
        self._process = process
        self._aborted = False

    def recv(self, size: int, /) -> bytes:
        try:
            received = self._socket.recv(size)
        except OSError as error:
            self._raise(error)
        if not received and self._aborted:
            self._raise(ConnectionAbortedError())
        return received

    def sendall(self, data: bytes, /) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            self._raise(error)

    def settimeout(self, seconds: float | None, /) -> None:
        with suppress(OSError):  # of a closed socket: the next call tells
            self._socket.settimeout(seconds)

    def close(self) -> None:
        """A reader in another thread wakes up; the command behind it is killed."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        process, self._process = self._process, None
        if process is not None:
            _kill(process)
        self._owner._forget(self)

    def abort(self) -> None:
        self._aborted = True
        self.close()

    def _raise(self, error: OSError) -> NoReturn:
        if self._aborted:
            raise ConnectionFailed(Stage.CANCELLED, "the connection to this machine was closed") from error
        raise error


class _Execution:
    """One command under way: feeds its input, gathers what it prints, knows when it ended."""

    def __init__(self, process: "subprocess.Popen[bytes]", stdin: bytes, limit: int) -> None:
        self._process = process
        self._unsent = memoryview(stdin)
        self._limit = limit
        self._kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._truncated = False
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._pidfd: int | None = None
        self._killed = False

    def __enter__(self) -> Self:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for pipe in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(pipe.fileno(), False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, "wake")
        self._selector.register(process.stdout, selectors.EVENT_READ, "stdout")
        self._selector.register(process.stderr, selectors.EVENT_READ, "stderr")
        if self._unsent:
            self._selector.register(process.stdin, selectors.EVENT_WRITE, "stdin")
        else:
            process.stdin.close()
        with suppress(OSError, AttributeError):  # an old kernel, or not Linux: the end is polled for
            self._pidfd = os.pidfd_open(process.pid)
            self._selector.register(self._pidfd, selectors.EVENT_READ, "exit")
        return self

    def __exit__(self, *_: object) -> None:
        if not self._killed:
            _kill(self._process)
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):  # input nobody took
                    pipe.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
        self._wake_reader.close()
        self._wake_writer.close()

    def abort(self) -> None:
        """From another thread: `complete` returns at once."""
        with suppress(OSError):  # it has just ended
            self._wake_writer.send(b"!")

    def complete(self, heard: float, deadline: float) -> Completed:
        """Wait for the end of the command, the deadline or `abort`, and kill what is left of it.

        A command that has printed nothing until `heard` is not waited for.

        What others of its session still write after the command itself has ended is not waited for.
        """
        timed_out = False
        while True:
            left = (deadline if any(self._kept.values()) else heard) - time.monotonic()
            if left <= 0:
                timed_out = True
                break
            ready = self._selector.select(left if self._pidfd is not None else min(left, _EXIT_POLL_SECONDS))
            happened = {key.data for key, _ in ready}
            if "wake" in happened:
                break
            ended = "exit" in happened or (self._pidfd is None and _has_ended(self._process))
            for key, _ in ready:
                if key.data == "stdin":
                    self._feed()
                elif key.data in self._kept:
                    self._gather(key.data)
            if ended:
                self._drain()
                break
        self._killed = True
        exit_code = _kill(self._process)
        return Completed(
            exit_code=None if timed_out or exit_code is None or exit_code < 0 else exit_code,
            stdout=bytes(self._kept["stdout"]),
            stderr=bytes(self._kept["stderr"]),
            truncated=self._truncated,
            timed_out=timed_out,
        )

    def _feed(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            self._unsent = self._unsent[os.write(stdin.fileno(), self._unsent[:_CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._unsent = memoryview(b"")
        if not self._unsent:
            self._selector.unregister(stdin)
            stdin.close()

    def _gather(self, name: str) -> bool:
        """Read once; False when nothing is there or the end was reached."""
        pipe = self._pipe(name)
        if pipe.closed:
            return False
        try:
            printed = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return False
        if not printed:
            self._selector.unregister(pipe)
            pipe.close()
            return False
        kept = self._kept[name]
        room = self._limit - len(kept)
        self._truncated = self._truncated or len(printed) > room
        kept += printed[: max(0, room)]
        return True

    def _drain(self) -> None:
        """What the ended command left in its pipes: at most their size, whoever else writes there."""
        for name in self._kept:
            for _ in range(_MOST_READS_OF_A_FULL_PIPE):
                if not self._gather(name):
                    break

    def _pipe(self, name: str) -> IO[bytes]:
        pipe = self._process.stdout if name == "stdout" else self._process.stderr
        assert pipe is not None
        return pipe


_MOST_READS_OF_A_FULL_PIPE = 1024 * 1024 // _CHUNK + 1
"""A pipe holds 64 KiB, 1 MiB at most without privileges."""


def _spawn(command: Sequence[str], *, stdin: int, stdout: int, stderr: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        list(command), stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True, bufsize=0
    )


def _has_ended(process: "subprocess.Popen[bytes]") -> bool:
    """Whether it has ended, without reaping it: until then its process group is surely its own."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _kill(process: "subprocess.Popen[bytes]") -> int | None:
    """Kill the session of a process and reap it; None when it does not go, and a thread waits for it instead."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):  # nothing left, or only processes of another user
            os.killpg(process.pid, SIGKILL)
        try:
            return process.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:
            threading.Thread(target=process.wait, name=f"reap {process.pid}", daemon=True).start()
            return None
    return process.returncode


def _not_started(command: Sequence[str], error: OSError) -> str:
    return f"{command[0]}: {system_words(error)}"
