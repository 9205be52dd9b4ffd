"""Requests to an engine beyond `Engine.get`: one translation of what fails, one way to read an answer as it comes.

Nothing of the SDK, requests or urllib3 leaves this package as an exception: callers meet `HostCallFailed` only.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from gpuplan.remote.connection import ConnectionFailed, HostCallFailed, SocketRefused
from gpuplan.remote.docker_engine import Cause, Engine, EngineFailed, RequestRefused, unreachable
from gpuplan.remote.words import printable

CHUNK = 256 * 1024
LOOK_SECONDS = 5.0
"""How long an engine is asked whether it is still there, after a request broke off."""


class BrokenOff(HostCallFailed):
    """An answer ended in the middle; `lost` tells what became of the connection or the engine."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class Silent(BrokenOff):
    """Nothing more came in time; the stream stood."""


@contextmanager
def asking(engine: Engine, what: str) -> Iterator[None]:
    """What fails in the block, told as RequestRefused, EngineFailed or ConnectionFailed. `what`: `start gpuplan-x`."""
    try:
        with answering():
            yield
    except SocketRefused as refused:
        raise unreachable(refused) from refused
    except BrokenOff as broken:
        raise lost(engine, what, broken) from broken


@contextmanager
def answering() -> Iterator[None]:
    """What the libraries raise in the block as RequestRefused, BrokenOff or Silent; the family's own goes through."""
    import requests
    import urllib3
    from docker.errors import APIError, DockerException

    from gpuplan.remote.docker_transport import plain_words

    try:
        yield
    except APIError as error:
        raise RequestRefused(error.status_code or 500, printable(error.explanation or str(error))) from error
    except (requests.RequestException, urllib3.exceptions.HTTPError, HTTPException, OSError) as error:
        kind = Silent if _timed_out(error) else BrokenOff
        raise kind(plain_words(error)) from error
    except DockerException as error:
        raise EngineFailed(Cause.OTHER, printable(str(error))) from error


def lost(engine: Engine, what: str, broken: BrokenOff) -> HostCallFailed:
    """Why a request broke off: the connection is gone, the engine is, or only this request was cut."""
    try:
        engine.get("/version", timeout=LOOK_SECONDS)
    except ConnectionFailed as gone:
        return gone
    except EngineFailed as failed:
        return EngineFailed(failed.cause, f"{what}: {broken.detail}; {failed.detail}")
    except RequestRefused:
        pass  # it answers
    return EngineFailed(Cause.OTHER, f"{what}: {broken.detail}")


def inspect(engine: Engine, container: str) -> dict[str, Any] | None:
    """What the engine says of a container, ours or not, by id or name; None when there is none."""
    try:
        found = engine.get(f"/containers/{quote(container, safe='')}/json")
    except RequestRefused as refused:
        if refused.status == 404:
            return None
        raise
    return found if isinstance(found, dict) else None


class AnswerStream:
    """The body of one answer, read as it comes and closed from any thread."""

    def __init__(self, response: Any) -> None:
        self._response = response
        connection = getattr(response.raw, "connection", None)
        self._socket = getattr(connection, "stream_socket", None)
        self._closed = threading.Event()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed.is_set()

    def wait_at_most(self, seconds: float | None) -> None:
        """For each next piece; None: as long as it takes."""
        if self._socket is not None:
            self._socket.settimeout(seconds)

    def finish_by(self, deadline: float) -> None:
        """All of it has to be there at this time of the monotonic clock."""
        if self._socket is not None:
            self._socket.finish_by(deadline)

    def pieces(self) -> Iterator[bytes]:
        """Bytes as they come; ends early, without a word, when it was closed. Raises BrokenOff, Silent."""
        try:
            with answering():
                yield from self._response.raw.stream(CHUNK, decode_content=True)
        except HostCallFailed:
            if not self.closed:
                raise
        finally:
            self._end()

    def close(self) -> None:
        """End it now: a reader in another thread finds the end at once."""
        self._closed.set()
        self._end()

    def _end(self) -> None:
        """The stream first: a response that is being read cannot be closed by another thread without waiting."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown()


def stream_answer(
    engine: Engine,
    method: str,
    path: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    silence: float | None = None,
) -> AnswerStream:
    """The answer to a request, its body not yet read; `silence` (seconds) holds for its head and each piece.

    `body`: bytes, or an iterator of bytes that is sent as it comes. Raises RequestRefused, BrokenOff, SocketRefused,
    ConnectionFailed: callers wrap it in `asking`.
    """
    quiet = engine.timeout if silence is None else silence
    alone = {"Connection": "close"}  # a stream that may be cut at any time is never another request's next
    with answering():
        api: Any = engine.api
        response = api.request(
            method,
            api.base_url + f"/v{engine.api_version}{path}",
            params=dict(parameters or {}),
            headers={**(headers or {}), **alone},
            data=body,
            stream=True,
            timeout=(max(engine.timeout, quiet) if body is not None else engine.timeout, quiet),
            allow_redirects=False,
        )
        if response.status_code >= 400:
            with response:
                api._raise_for_status(response)
        return AnswerStream(response)


def _timed_out(error: BaseException) -> bool:
    import requests
    import urllib3

    link: BaseException | None = error
    while link is not None:
        if isinstance(link, TimeoutError | urllib3.exceptions.TimeoutError | requests.Timeout):
            return True
        link = link.__cause__ or link.__context__
    return False
