"""The ssh-agent: which keys it holds, and signatures by them. A connection is made for each request and closed.

The protocol is draft-miller-ssh-agent. Keys the agent alone can use, as hardware tokens, work as well.
"""

import socket
from dataclasses import dataclass

from gpuplan.remote.words import printable, system_words

_REQUEST_IDENTITIES, _IDENTITIES = 11, 12
_SIGN_REQUEST, _SIGNATURE = 13, 14
_FLAGS = {"rsa-sha2-256": 2, "rsa-sha2-512": 4}
_LARGEST = 1024**2
LIST_SECONDS = 3.0
SIGN_SECONDS = 30.0
"""A token may want to be touched."""


class AgentFailed(Exception):
    """The agent cannot be reached, or refuses: one sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentKey:
    """A public key the agent can sign with."""

    blob: bytes
    comment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The agent behind a Unix socket."""

    path: str

    def keys(self) -> tuple[AgentKey, ...]:
        """In the agent's order. Raises AgentFailed."""
        answer = _Reader(self._ask(bytes([_REQUEST_IDENTITIES]), _IDENTITIES, LIST_SECONDS))
        return tuple(
            AgentKey(blob=answer.string(), comment=printable(answer.string(), 100))
            for _ in range(answer.number())
        )

    def sign(self, blob: bytes, text: bytes, algorithm: str) -> bytes:
        """The signature in SSH's own form. Raises AgentFailed."""
        flags = _FLAGS.get(algorithm.removesuffix("-cert-v01@openssh.com"), 0)
        request = bytes([_SIGN_REQUEST]) + packed(blob) + packed(text) + flags.to_bytes(4, "big")
        return _Reader(self._ask(request, _SIGNATURE, SIGN_SECONDS)).string()

    def _ask(self, request: bytes, expected: int, seconds: float) -> bytes:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.settimeout(seconds)
                sock.connect(self.path)
                sock.sendall(packed(request))
                size = int.from_bytes(_exactly(sock, 4), "big")
                if not 0 < size <= _LARGEST:
                    raise AgentFailed(f"{self.path} does not speak as an ssh-agent does")
                answer = _exactly(sock, size)
        except OSError as error:
            raise AgentFailed(f"the ssh-agent at {printable(self.path)}: {system_words(error)}") from error
        if answer[0] != expected:
            raise AgentFailed(f"the ssh-agent at {printable(self.path)} refused")
        return answer[1:]


def packed(data: bytes) -> bytes:
    """A string as SSH writes it: its length in four bytes, then itself."""
    return len(data).to_bytes(4, "big") + data


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise AgentFailed("the ssh-agent closed the connection")
        data += part
    return bytes(data)


class _Reader:
    """Takes SSH's strings and numbers from an answer, in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        self._at += 4
        if self._at > len(self._data):
            raise AgentFailed("the ssh-agent's answer is cut short")
        return int.from_bytes(self._data[self._at - 4 : self._at], "big")

    def string(self) -> bytes:
        size = self.number()
        self._at += size
        if self._at > len(self._data):
            raise AgentFailed("the ssh-agent's answer is cut short")
        return self._data[self._at - size : self._at]
