"""What containers print: lines with the engine's time stamps, whole again after frames, pieces and cuts.

A followed log that ends is looked into: only when the container has ended (or is gone) that was all. Else it is told
as lost, and whoever follows begins again with `since` the last line's time stamp, of which lines may come twice.
"""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self
from urllib.parse import quote

from gpuplan.remote.connection import ConnectionFailed, Stage
from gpuplan.remote.docker_engine import Engine, RequestRefused
from gpuplan.remote.engine_calls import AnswerStream, BrokenOff, asking, inspect, stream_answer

LONGEST_LINE = 1024**2
"""Bytes of a line; more is given as another line."""
ENDING_SECONDS = 3.0
"""How long a container whose log has ended may take to be told as ended."""
_PAUSE = 0.1
_HEAD = 8
"""Bytes before a frame: the stream, three of nothing, the length."""
_STDERR = 2
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ?")


class Output(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line a container printed."""

    at: str
    """`2026-11-01T12:00:00.123456789Z`, as the engine prints it; empty without time stamps."""
    text: str
    """Without the newline; what is not UTF-8 is replaced, control characters are as they were printed."""
    stream: Output
    """With a terminal everything is standard output."""


class LogStream:
    """Lines of one container, to be read by one thread; `close` may be called by any."""

    def __init__(
        self, engine: Engine, container: str, answer: AnswerStream, splitter: "LineSplitter", *, follow: bool
    ) -> None:
        self._engine = engine
        self._container = container
        self._answer = answer
        self._follow = follow
        self._lines = self._read(splitter)

    def __iter__(self) -> Iterator[LogLine]:
        return self

    def __next__(self) -> LogLine:
        """The next line. Raises ConnectionFailed, EngineFailed when the log broke off before the container ended."""
        return next(self._lines)

    def close(self) -> None:
        """End it at once: the reader finds the end."""
        self._answer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, splitter: "LineSplitter") -> Iterator[LogLine]:
        whole = True
        try:
            for piece in self._answer.pieces():
                yield from splitter.feed(piece)
        except BrokenOff:
            whole = False
        yield from splitter.rest()
        if not self._answer.closed and not (whole and (not self._follow or self._ended())):
            self._look()
            raise ConnectionFailed(Stage.COMMAND, f"the log of {self._container} broke off before its end")

    def _ended(self) -> bool:
        """Whether the container has, by now: its state may be told a moment after the end of its log."""
        deadline = time.monotonic() + ENDING_SECONDS
        while self._look():
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE)
        return True

    def _look(self) -> bool:
        """Whether the container runs. Raises what tells that the connection or the engine is gone."""
        found = inspect(self._engine, self._container)
        return bool(((found or {}).get("State") or {}).get("Running"))


def logs(
    engine: Engine,
    container: str,
    *,
    since: float | str | None = None,
    tail: int | None = None,
    follow: bool,
    timestamps: bool = True,
) -> LogStream:
    """What a container has printed and, with `follow`, prints until it ends; the oldest line first.

    `since`: seconds since 1970, or the `at` of a line, which then is the first one again. `tail`: of those, the last
    so many. Raises RequestRefused (404: no such container), EngineFailed, ConnectionFailed.
    """
    found = inspect(engine, container)
    if found is None:
        raise RequestRefused(404, f"No such container: {container}")
    parameters = {
        "stdout": "1",
        "stderr": "1",
        "timestamps": "1" if timestamps else "0",
        "follow": "1" if follow else "0",
        "tail": "all" if tail is None else str(tail),
        **({} if since is None else {"since": _since(since)}),
    }
    identity = str(found["Id"])
    with asking(engine, f"read the log of {container}"):
        answer = stream_answer(engine, "GET", f"/containers/{identity}/logs", parameters=parameters)
    if follow:
        answer.wait_at_most(None)
    splitter = LineSplitter(framed=not _has_terminal(found), stamped=timestamps)
    return LogStream(engine, identity, answer, splitter, follow=follow)


def gathered_output(engine: Engine, container: str, limit: int) -> tuple[bytes, bytes, bool]:
    """Both outputs of a container that has ended, `limit` bytes of each, and whether there was more."""
    found = inspect(engine, container)
    frames = FrameReader(framed=not _has_terminal(found or {}))
    kept = {Output.STDOUT: bytearray(), Output.STDERR: bytearray()}
    truncated = False
    with asking(engine, f"read the log of {container}"):
        answer = stream_answer(
            engine, "GET", f"/containers/{quote(container)}/logs", parameters={"stdout": "1", "stderr": "1"}
        )
        with closing(answer):
            for piece in answer.pieces():
                for output, data in frames.feed(piece):
                    room = limit - len(kept[output])
                    truncated = truncated or len(data) > room
                    kept[output] += data[: max(0, room)]
    return bytes(kept[Output.STDOUT]), bytes(kept[Output.STDERR]), truncated


class FrameReader:
    """Finds the frames in pieces of any size (docs.docker.com/reference/api/engine, ContainerAttach)."""

    def __init__(self, *, framed: bool) -> None:
        """`framed` is False for a container with a terminal: its output comes as it is."""
        self._framed = framed
        self._waiting = bytearray()

    def feed(self, piece: bytes) -> Iterator[tuple[Output, bytes]]:
        """The frames that are whole now."""
        if not self._framed:
            yield Output.STDOUT, piece
            return
        waiting = self._waiting
        waiting += piece
        while len(waiting) >= _HEAD:
            end = _HEAD + int.from_bytes(waiting[4:_HEAD], "big")
            if len(waiting) < end:
                return
            output = Output.STDERR if waiting[0] == _STDERR else Output.STDOUT
            data = bytes(waiting[_HEAD:end])
            del waiting[:end]
            yield output, data


class LineSplitter:
    """Makes lines of frames. The engine cuts long lines at 16 KiB, and stamps each piece: one stamp is kept."""

    def __init__(self, *, framed: bool, stamped: bool) -> None:
        self._frames = FrameReader(framed=framed)
        self._framed = framed
        self._stamped = stamped
        self._begun: dict[Output, bytearray] = {Output.STDOUT: bytearray(), Output.STDERR: bytearray()}

    def feed(self, piece: bytes) -> Iterator[LogLine]:
        """The lines that are whole now."""
        for output, data in self._frames.feed(piece):
            yield from self._add(output, data)

    def rest(self) -> Iterator[LogLine]:
        """What was not ended by a newline."""
        for output, begun in self._begun.items():
            if begun:
                yield self._line(output, bytes(begun))
                begun.clear()

    def _add(self, output: Output, data: bytes) -> Iterator[LogLine]:
        begun = self._begun[output]
        stamp = _STAMP.match(data) if begun and self._framed and self._stamped else None
        begun += data[stamp.end() :] if stamp else data
        *whole, left = bytes(begun).split(b"\n") if b"\n" in data else (bytes(begun),)
        for line in whole:
            yield self._line(output, line)
        if len(left) > LONGEST_LINE:
            stamp = _STAMP.match(left) if self._stamped else None
            yield self._line(output, left)
            left = stamp.group() if stamp else b""
        begun[:] = left

    def _line(self, output: Output, raw: bytes) -> LogLine:
        stamp = _STAMP.match(raw) if self._stamped else None
        text = raw[stamp.end() :] if stamp else raw
        return LogLine(
            at=stamp.group(1).decode() if stamp else "",
            text=text.decode("utf-8", "replace").removesuffix("\r"),
            stream=output,
        )


def _has_terminal(inspected: Mapping[str, Any]) -> bool:
    return bool((inspected.get("Config") or {}).get("Tty"))


def _since(when: float | str) -> str:
    """Seconds and nanoseconds since 1970, as the engine takes them."""
    if not isinstance(when, str):
        return f"{when:.9f}"
    seconds, _, fraction = when.removesuffix("Z").partition(".")
    whole = int(datetime.fromisoformat(seconds).replace(tzinfo=UTC).timestamp())
    return f"{whole}.{fraction or '0'}"
