"""Which hosts reach which: each host listens on its data address and connects to the others', all at once.

One session a host. A program sent over standard input listens on the first port of a few that can be bound,
prints it, reads where to connect to, prints how each try went, and ends with its standard input: closing the
connection is enough to leave nothing behind, and after `LIFETIME` seconds it ends by itself. Whoever is reached says
a word only that host was given, so that nothing else at the address is taken for it; who connected closes first, so
that the port is free again at once.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuplan.planning.preflight_measures import ReachOutcome
from gpuplan.probing.reachability_programs import MARK, bootstrap, listener_program
from gpuplan.remote.connection import ConnectionFailed, SocketRefused, Stream

CONNECT_SECONDS = 3.0
"""For one try."""
LISTEN_SECONDS = 15.0
"""From opening the session to the line that names the port."""
LIFETIME = 120
"""Seconds after which a listener that was forgotten ends."""
AT_ONCE = 32
"""Tries a host makes at the same time."""
MOST_PAIRS_HOSTS = 16
"""Up to this many hosts every pair is tried in both directions."""
PORTS_TRIED = 8
_LONGEST = 1024**2

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A listener another host is to reach."""

    host: str
    address: str
    port: int
    word: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """How one connection attempt ended."""

    host: str
    outcome: ReachOutcome
    milliseconds: float | None = None
    detail: str = ""


ENDED_EARLY = "the session ended early"


class ListenerFailed(Exception):
    """The program does not run on the host; one sentence says why."""


def directions(hosts: Sequence[str]) -> tuple[Pair, ...]:
    """Which host connects to which: every ordered pair up to 16 hosts, above that a ring and a star.

    The ring shows each neighbour, the star every host from and to the first; both in both directions.
    """
    names = list(hosts)
    if len(names) <= MOST_PAIRS_HOSTS:
        return tuple((a, b) for a in names for b in names if a != b)
    ring = zip(names, [*names[1:], names[0]], strict=True)
    star = ((names[0], name) for name in names[1:])
    links = [*ring, *star]
    return tuple(dict.fromkeys(pair for a, b in links for pair in ((a, b), (b, a))))


class Starts(Protocol):
    """The part of a Connection that is needed here."""

    def open_command(self, command: Sequence[str], *, timeout: float) -> Stream: ...


class Listener:
    """A listener on one host, and the tries made from there. Not safe for use from several threads."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._buffer = b""
        self.port: int | None = None
        """None: the host cannot listen; it can still connect."""
        self.why = ""
        """The host's own words where it cannot."""

    @classmethod
    def open(cls, connection: Starts, address: str, ports: Sequence[int], word: str) -> "Listener":
        """Listen on the first of `ports` that is free.

        Raises ListenerFailed when the host does not come to run the program, ConnectionFailed when it is lost.
        """
        program = listener_program(
            address=address,
            ports=ports[:PORTS_TRIED],
            word=word,
            lifetime=LIFETIME,
            connect_seconds=CONNECT_SECONDS,
            at_once=AT_ONCE,
        )
        try:
            stream = connection.open_command(bootstrap(program), timeout=LISTEN_SECONDS)
        except SocketRefused as error:
            raise ListenerFailed(f"no second session on the connection: {error}") from error
        listener = cls(stream)
        try:
            stream.sendall(program)
            words = listener._line(time.monotonic() + LISTEN_SECONDS)
        except (BrokenPipeError, ConnectionResetError) as error:
            stream.close()
            raise ListenerFailed(ENDED_EARLY) from error
        except (OSError, ConnectionFailed) as error:
            stream.close()
            raise ListenerFailed(str(error) or "the session ended") from error
        match words:
            case ["listen", port] if port.isdecimal():
                listener.port = int(port)
            case ["deaf", *why]:
                listener.why = " ".join(why)
            case _:
                stream.close()
                raise ListenerFailed(f"it said {' '.join(words)[:200]!r}")
        return listener

    def connect(self, targets: Sequence[Target]) -> tuple[Try, ...]:
        """Connect to every target from this host; one that is not reported did not answer in time."""
        batches = -(-len(targets) // AT_ONCE)
        ends = time.monotonic() + batches * (CONNECT_SECONDS + 2) + 5
        asked = {str(number): target for number, target in enumerate(targets)}
        orders = [
            f"connect {number} {target.address} {target.port} {target.word}\n"
            for number, target in asked.items()
        ]
        found: dict[str, Try] = {}
        why = "the host stopped answering"
        try:
            self._stream.sendall("".join([*orders, "go\n"]).encode())
            while (words := self._line(ends))[:1] != ["done"]:
                if words[:1] == ["reach"] and len(words) >= 4 and words[1] in asked:
                    found[words[1]] = _try_of(asked[words[1]].host, words)
        except (OSError, ConnectionFailed) as error:
            why = str(error) or why
        return tuple(
            found.get(number) or Try(host=target.host, outcome=ReachOutcome.NO_ANSWER, detail=why)
            for number, target in asked.items()
        )

    def close(self) -> None:
        """End the listener: its standard input ends."""
        self._stream.close()

    def _line(self, ends: float) -> list[str]:
        """The words of the next line of ours; what a login shell prints is passed over. OSError when none comes."""
        seen = 0
        while True:
            head, newline, rest = self._buffer.partition(b"\n")
            if newline:
                self._buffer = rest
                words = head.decode(errors="replace").split()
                if words[:1] == [MARK]:
                    return words[1:]
                continue
            left = ends - time.monotonic()
            if left <= 0 or seen > _LONGEST:
                raise TimeoutError("no answer in time")
            self._stream.settimeout(left)
            chunk = self._stream.recv(65536)
            if not chunk:
                raise OSError(ENDED_EARLY + self._last_words())
            seen += len(chunk)
            self._buffer += chunk

    def _last_words(self) -> str:
        text = " ".join(self._buffer.decode(errors="replace").split())
        return f": {text[:200]}" if text else ""


def _try_of(host: str, words: Sequence[str]) -> Try:
    """`reach NUMBER OUTCOME MILLISECONDS DETAIL…`."""
    outcomes: Mapping[str, ReachOutcome] = {item.value: item for item in ReachOutcome}
    try:
        milliseconds = float(words[3])
    except ValueError:
        milliseconds = None
    return Try(
        host=host,
        outcome=outcomes.get(words[2], ReachOutcome.NO_ANSWER),
        milliseconds=milliseconds,
        detail=" ".join(words[4:])[:300],
    )
