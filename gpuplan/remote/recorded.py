"""A connection that replays what a host once answered: for tests, a demo fleet, bug reports.

A recording is commands by their words, sections by their name (one script may ask for many of them), and the
documents of an HTTP server behind a socket by their path. What was not recorded is missing: a command ends with 127,
a socket is refused.
"""

import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuplan.remote.connection import Completed, ConnectionFailed, SocketRefused, Stage, Stream

_MARK = re.compile(rb"printf '[^']*%s begin %s[^']*' '([^']+)'")
_SECTION = re.compile(rb"^gp_run (\w+) ", re.MULTILINE)
_MISSING = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a host answers."""

    commands: Mapping[tuple[str, ...], Completed] = field(default_factory=dict)
    sections: Mapping[str, Completed] = field(default_factory=dict)
    """Outputs of the commands of a probe's script, by name; both streams are in `stdout`."""
    sockets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """For each socket path the JSON documents by URL path, without API version and query."""


EMPTY = Recording()


class RecordedConnection:
    """A Connection over a recording."""

    address: str | None = None
    """No address was dialled."""

    def __init__(self, recording: Recording = EMPTY) -> None:
        self._recording = recording
        self._closed = threading.Event()

    def run(
        self,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float,
        limit: int = 4 * 1024**2,
        silence: float | None = None,
    ) -> Completed:
        self._refuse_closed()
        recorded = self._recording.commands.get(tuple(command))
        if recorded is None and (mark := _MARK.search(stdin)) is not None:
            recorded = self._script(stdin, mark.group(1))
        if recorded is None:
            return Completed(exit_code=_MISSING, stdout=b"", stderr=f"{command[0]}: not recorded\n".encode())
        return Completed(
            exit_code=recorded.exit_code,
            stdout=recorded.stdout[:limit],
            stderr=recorded.stderr[:limit],
            truncated=recorded.truncated or max(len(recorded.stdout), len(recorded.stderr)) > limit,
            timed_out=recorded.timed_out,
        )

    def open_socket(self, path: str, *, timeout: float) -> Stream:
        self._refuse_closed()
        documents = self._recording.sockets.get(path)
        if documents is None:
            raise SocketRefused(f"{path}: not recorded") from FileNotFoundError(path)
        return _Documents(documents)

    def open_port(self, address: str, port: int, *, timeout: float) -> Stream:
        self._refuse_closed()
        raise SocketRefused(f"{address}:{port}: not recorded")

    def open_command(self, command: Sequence[str], *, timeout: float) -> Stream:
        self._refuse_closed()
        raise SocketRefused(f"{command[0]}: not recorded")

    def close(self) -> None:
        self._closed.set()

    def _refuse_closed(self) -> None:
        if self._closed.is_set():
            raise ConnectionFailed(Stage.CANCELLED, "the recording was closed")

    def _script(self, script: bytes, mark: bytes) -> Completed:
        """The sections a script asks for, framed by its mark; a section that hung has no end."""
        printed = bytearray()
        for name in _SECTION.findall(script):
            recorded = self._recording.sections.get(
                name.decode(), Completed(exit_code=_MISSING, stdout=b"not recorded")
            )
            printed += b"\n%s begin %s\n%s" % (mark, name, recorded.stdout)
            code = 124 if recorded.timed_out else recorded.exit_code
            if code is None:
                return Completed(exit_code=None, stdout=bytes(printed), timed_out=True)
            printed += b"\n%s end %s %d\n" % (mark, name, code)
        return Completed(exit_code=0, stdout=bytes(printed))


def load(directory: Path) -> Recording:
    """A recording kept as files.

    `NAME.txt` is a section; `exit_codes.json` gives the status of those that did not end with 0, null for one that
    hung. `sockets.json` gives the documents by socket and URL path. Raises OSError, ValueError.
    """
    codes = _mapping(directory / "exit_codes.json")
    return Recording(
        sections={
            path.stem: Completed(
                exit_code=codes.get(path.stem, 0),
                stdout=path.read_bytes(),
                timed_out=codes.get(path.stem, 0) is None,
            )
            for path in sorted(directory.glob("*.txt"))
        },
        sockets=_mapping(directory / "sockets.json"),
    )


def _mapping(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    document = json.loads(path.read_bytes())
    if not isinstance(document, dict):
        raise ValueError(f"{path}: not an object")
    return document


class _Documents:
    """An HTTP server that knows its answers by heart; one request after the other, nothing with a body."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents
        self._asked = bytearray()
        self._answer = bytearray()
        self._closed = False

    def recv(self, size: int, /) -> bytes:
        if self._closed:
            return b""
        if not self._answer:
            raise TimeoutError("nothing was asked")
        taken = bytes(self._answer[:size])
        del self._answer[:size]
        return taken

    def sendall(self, data: bytes, /) -> None:
        self._asked += data
        while (end := self._asked.find(b"\r\n\r\n")) >= 0:
            path = self._asked.split(b" ", 2)[1].decode(errors="replace")
            del self._asked[: end + 4]
            self._answer += self._response(path)

    def settimeout(self, seconds: float | None, /) -> None:
        pass

    def close(self) -> None:
        self._closed = True

    def _response(self, url: str) -> bytes:
        path = re.sub(r"^/v\d+\.\d+(?=/)", "", url.partition("?")[0])
        known = path in self._documents
        body = json.dumps(self._documents[path] if known else {"message": f"{path}: not recorded"}).encode()
        status = b"200 OK" if known else b"404 Not Found"
        head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        return head % (status, len(body)) + body
