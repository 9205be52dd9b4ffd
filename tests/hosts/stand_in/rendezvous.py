"""How the members of a server find each other: the leader listens, the others say who they are and stay.

One line of JSON a message, over TCP. Both of vLLM's ways are like this from outside: the torch rendezvous on the master
port (`--nnodes`), and the handshake of data-parallel engines on the RPC port.
"""

import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_PAUSE = 0.2


class Unreachable(Exception):
    """In c10d's words."""


@dataclass(kw_only=True)
class Leader:
    """The listening end."""

    port: int
    expected: int
    """Members that are to join."""
    seconds: float
    members: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What each member said, by rank."""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _links: list[socket.socket] = field(default_factory=list)
    loaded: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)

    def listen(self) -> None:
        """Begin. Raises OSError where the port is taken."""
        server = socket.create_server(("", self.port), family=socket.AF_INET)
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()

    def _accept(self, server: socket.socket) -> None:
        while True:
            link, _ = server.accept()
            threading.Thread(target=self._hear, args=(link,), daemon=True).start()

    def _hear(self, link: socket.socket) -> None:
        rank = -1
        with link, link.makefile("rw") as lines:
            for text in _heard(lines):
                message = json.loads(text)
                with self._changed:
                    if "rank" in message:
                        rank = int(message["rank"])
                        self.members[rank] = message
                        self._links.append(link)
                    if message.get("loaded"):
                        self.loaded.add(rank)
                    self._changed.notify_all()
        with self._changed:
            self.gone.add(rank)
            self._changed.notify_all()

    def await_joined(self) -> bool:
        """Until everybody is there; False when the time is over."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.members) >= self.expected, self.seconds)

    def release(self) -> None:
        """Tell the members that everybody is there."""
        for link in list(self._links):
            _say(link, {"go": True})

    def await_loaded(self) -> None:
        """Until everybody has loaded, for ever where one of them is lost: nobody tells the others."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.loaded) >= self.expected)

    @property
    def whole(self) -> bool:
        return not self.gone


@dataclass(kw_only=True)
class Follower:
    """The other end."""

    address: str
    port: int
    seconds: float
    _link: socket.socket | None = None

    def join(self, said: dict[str, Any]) -> None:
        """Connect, say who we are, wait until everybody is there. Raises Unreachable."""
        deadline = time.monotonic() + self.seconds
        while self._link is None:
            try:
                self._link = socket.create_connection((self.address, self.port), timeout=5)
            except OSError as error:
                if time.monotonic() > deadline:
                    raise Unreachable(
                        "torch.distributed.DistNetworkError: The client socket has timed out after "
                        f"{self.seconds * 1000:.0f}ms while trying to connect to ({self.address}, {self.port})."
                    ) from error
                time.sleep(_PAUSE)
        self._link.settimeout(None)
        _say(self._link, said)

    def await_release(self) -> bool:
        """Until everybody is there; False when the leader was lost before."""
        return bool(self._read_line())

    def tell_loaded(self) -> None:
        assert self._link is not None
        _say(self._link, {"loaded": True})

    def stay(self, lost: Callable[[str, str], None]) -> None:
        """For ever; once the leader is gone, `lost` is told both ends of the connection, again and again."""
        assert self._link is not None
        ours, theirs = (
            f"[{name[0]}]:{name[1]}" for name in (self._link.getsockname(), self._link.getpeername())
        )
        while self._read_line():
            pass
        while True:
            lost(ours, theirs)
            time.sleep(1)

    def _read_line(self) -> bytes:
        assert self._link is not None
        line = b""
        while not line.endswith(b"\n"):
            try:
                byte = self._link.recv(1)
            except OSError:
                return b""
            if not byte:
                return b""
            line += byte
        return line


def _say(link: socket.socket, message: dict[str, Any]) -> None:
    try:
        link.sendall(json.dumps(message).encode() + b"\n")
    except OSError:  # gone; whoever reads from it notices
        return


def _heard(lines: Any) -> Any:
    while True:
        try:
            text = lines.readline()
        except OSError:
            return
        if not text:
            return
        yield text
