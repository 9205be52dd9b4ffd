"""The SDK's client over the streams of an engine's session. Imported only when it is asked for: it needs docker."""

import io
import math
from collections.abc import Iterator
from typing import Any

from docker import APIClient

from gpuplan.remote.docker_transport import BASE_URL, EngineSession, confine

_CHUNK = 64 * 1024


class EngineClient(APIClient):
    """The low-level client of the SDK; what ends its streams is the session's `close`.

    Reads `~/.docker/config.json` of this machine for registry logins and raises docker.errors.DockerException when
    that makes no sense.
    """

    def __init__(self, session: EngineSession, *, version: str, timeout: float) -> None:
        super().__init__(base_url="tcp://localhost:2375", version=version, timeout=math.ceil(timeout))
        self.base_url = BASE_URL
        self._custom_adapter = session.adapter
        confine(self, session.adapter)

    def exec_frames(self, identity: str) -> tuple[Any, Iterator[tuple[bool, bytes]]]:
        """Start what `exec_create` made: the response, and its output as it comes, standard output or not.

        Unlike what `exec_start` gives, it does not end without a word when time is up or the stream is cut.
        """
        inside: Any = self
        response = inside._post_json(
            inside._url("/exec/{0}/start", identity),
            headers={"Connection": "Upgrade", "Upgrade": "tcp"},
            data={"Tty": False, "Detach": False},
            stream=True,
        )
        inside._raise_for_status(response)
        return response, _frames(response.raw._fp.fp, tty=False)

    def _read_from_socket(self, response: Any, stream: bool, tty: bool = True, demux: bool = False) -> Any:
        """Output of `exec` and `attach`, read without `poll`: a stream has no descriptor."""
        inherited: Any = super()
        inherited._raise_for_status(response)
        frames = _frames(response.raw._fp.fp, tty=tty)
        pairs = ((data, None) if out else (None, data) for out, data in frames)
        if stream:
            return pairs if demux else (output or error for output, error in pairs)
        with response:
            gathered = tuple(pairs)
        if not demux:
            return b"".join(output or error or b"" for output, error in gathered)
        outputs = [output for output, _ in gathered if output is not None]
        errors = [error for _, error in gathered if error is not None]
        return b"".join(outputs) if outputs else None, b"".join(errors) if errors else None


def _frames(reader: io.BufferedReader, *, tty: bool) -> Iterator[tuple[bool, bytes]]:
    """Output of a process and whether it is standard output, as the engine frames it.

    Eight bytes of head (stream, three of nothing, length) before every frame; none with a terminal
    (docs.docker.com/reference/api/engine, ContainerAttach).
    """
    if tty:
        while data := reader.read1(_CHUNK):
            yield True, data
        return
    while len(head := reader.read(8)) == 8:
        data = reader.read(int.from_bytes(head[4:], "big"))
        if data:
            yield head[0] != 2, data
