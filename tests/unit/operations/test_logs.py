"""Logs of many members in the order of time, and taken up again without a gap; against an engine in this process."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from gpuplan.deploying.timestamps import nanoseconds
from gpuplan.domain.deployment import ContainerRole, Member
from gpuplan.domain.labels import MANAGED
from gpuplan.errors import UsageError
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.logs import LogChoice, Printed, _ended_by, _follow, _merged, _Source, since_seconds
from gpuplan.operations.probe import ProbeOptions
from gpuplan.operations.reached import ReachedFleet, Seen
from gpuplan.remote.connection import Connection
from gpuplan.remote.docker_engine import Engine, engine
from gpuplan.remote.local import LocalConnection
from gpuplan.remote.ssh_settings import SshSettings
from tests.engine_server import EngineServer, Request, frame, serving

MEMBER = Member(host="h", container="c", id="c1", role=ContainerRole.LEADER, state="running")


def stamped(number: float, text: str) -> bytes:
    return frame(f"2026-11-22T01:00:{number:012.9f}Z {text}\n".encode())


class Hosts:
    """One host whose engine is in this process; `reach` counts."""

    def __init__(self, engine: Engine, offset: float = 0.0) -> None:
        self.connection = LocalConnection()
        self.engine = engine
        self.reached = 0
        self.offset = offset

    @property
    def connections(self) -> Mapping[str, Connection]:
        return {"h": self.connection}

    def engine_of(self, name: str) -> Engine:
        return self.engine

    def reach(self, name: str, instead_of: Connection | None = None) -> None:
        self.reached += 1

    def seen(self, name: str) -> Seen:
        return Seen(connection=self.connection, clock_offset_seconds=self.offset)


class Answers:
    """A container's log, one answer after the other; the container runs until the last of them was given."""

    def __init__(self, *answers: Sequence[bytes], whole: Sequence[bool]) -> None:
        self.answers = list(zip(answers, whole, strict=True))
        self.asked: list[str] = []

    def log(self, request: Request) -> None:
        self.asked.append(request.path)
        chunks, whole = self.answers.pop(0)
        request.start_chunks()
        for chunk in chunks:
            request.chunk(chunk)
        if whole:
            request.wfile.write(b"0\r\n\r\n")
        request.close_connection = True

    def inspect(self, request: Request) -> None:
        state = {"Running": bool(self.answers), "Status": "running"}
        request.document({"Id": "c1", "State": state, "Config": {"Labels": {MANAGED: "true"}, "Tty": False}})


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Callable[..., tuple[Hosts, Answers]]]:
    opened: list[tuple[Any, EngineServer]] = []

    def make(*answers: Sequence[bytes], whole: Sequence[bool], offset: float = 0.0) -> tuple[Hosts, Answers]:
        given = Answers(*answers, whole=whole)
        path = tmp_path / "docker.sock"
        context = serving(
            path, {"GET /containers/c1/json": given.inspect, "GET /containers/c1/logs": given.log}
        )
        opened.append((context, context.__enter__()))
        found = engine(LocalConnection(), socket_path=str(path), cli=False, timeout=10)
        return Hosts(found, offset), given

    yield make
    for context, _ in opened:
        context.__exit__(None, None, None)


def source(hosts: Hosts, talk: Callable[[str], None] = lambda _: None) -> _Source:
    return _Source(cast("ReachedFleet", hosts), MEMBER, talk)


def test_a_broken_log_goes_on_where_it_was(hosts: Callable[..., tuple[Hosts, Answers]]) -> None:
    first = [stamped(1, "one"), stamped(1.5, "same"), stamped(1.5, "same"), stamped(2, "two")]
    second = [*first[1:], stamped(2, "two"), stamped(3, "three")]
    given, answers = hosts(first, second, whole=[False, True])
    told: list[str] = []
    texts = [printed.text for _, printed in source(given, told.append).until_now(LogChoice(), None)]
    assert texts == ["one", "same", "same", "two", "two", "three"]
    assert given.reached == 1
    assert any("connecting again" in line for line in told)
    assert "since=" in answers.asked[1]


def test_following_ends_with_the_container_and_survives_a_cut(
    hosts: Callable[..., tuple[Hosts, Answers]],
) -> None:
    given, _ = hosts(
        [stamped(1, "one")],
        [stamped(1, "one"), stamped(2, "two")],
        [stamped(2, "two"), stamped(3, "three")],
        whole=[True, False, True],
    )
    one = source(given)
    assert [printed.text for _, printed in one.until_now(LogChoice(), None)] == ["one"]
    heard: list[str] = []
    one.follow(lambda pair: heard.append(pair[1].text))
    assert heard == ["two", "three"]


def test_only_what_is_new_is_shown_after_a_tail_of_none(
    hosts: Callable[..., tuple[Hosts, Answers]],
) -> None:
    given, answers = hosts([stamped(1, "one")], whole=[True])
    assert list(source(given).until_now(LogChoice(tail=0), None)) == []
    assert "tail=1" in answers.asked[0]


def test_times_are_ours_and_secrets_are_masked(hosts: Callable[..., tuple[Hosts, Answers]]) -> None:
    given, _ = hosts([stamped(10, "\x1b[32mtoken=abcdefgh\x1b[0m")], whole=[True], offset=4.0)
    printed = [printed for _, printed in source(given).until_now(LogChoice(), None)]
    assert [(one.at, one.text) for one in printed] == [("2026-11-22T01:00:06.000000000Z", "token=***")]


class Script:
    """A source that gives what it is told to."""

    def __init__(self, name: str, before: Sequence[int], after: Sequence[int] = ()) -> None:
        self.member = Member(host=name, container=name, role=ContainerRole.LEADER, state="running")
        self.before, self.after = before, after
        self.others = threading.Event()

    def line(self, at: int) -> tuple[int, Printed]:
        return at, Printed(member=self.member, at=str(at), text=f"{self.member.host}{at}", error=False)

    def until_now(self, choice: LogChoice, since: float | None) -> Iterator[tuple[int, Printed]]:
        yield from map(self.line, self.before)

    def follow(self, put: Callable[[tuple[int, Printed]], None]) -> None:
        for at in self.after:
            put(self.line(at))

    def stop(self) -> None:
        self.others.set()


def test_members_are_merged_by_time() -> None:
    scripts = [Script("a", [1, 4, 5], [20, 22]), Script("b", [2, 3, 9], [21, 23])]
    sources = cast("list[_Source]", scripts)
    assert [one.text for one in _merged(sources, LogChoice(), None)] == ["a1", "b2", "b3", "a4", "a5", "b9"]
    heard: list[str] = []
    _follow(sources, lambda printed: heard.append(printed.text))
    assert heard == ["a20", "b21", "a22", "b23"]
    assert all(script.others.is_set() for script in scripts)


def test_a_log_that_is_followed_ends_when_it_is_no_longer_wanted() -> None:
    class Endless(Script):
        def follow(self, put: Callable[[tuple[int, Printed]], None]) -> None:
            put(self.line(1))
            self.others.wait(60)

    script, stop = Endless("a", []), threading.Event()
    heard: list[str] = []

    def hear(printed: Printed) -> None:
        heard.append(printed.text)
        stop.set()

    _follow(cast("list[_Source]", [script]), hear, stop)
    assert heard == ["a1"]
    assert script.others.is_set()


def test_every_connection_ends_with_the_wish_to_read(tmp_path: Path) -> None:
    settings = SshSettings(known_hosts=tmp_path / "known_hosts", home=tmp_path)
    options = FleetOptions(environ={}, cwd=tmp_path, reach=lambda: ProbeOptions(ssh=settings))
    stop = threading.Event()
    with _ended_by(stop, options) as stoppable:
        assert stoppable.reach is not None
        stoppable.reach()
        cancelled = threading.Event()
        settings.cancellation.register(cancelled.set)
        stop.set()
        assert cancelled.wait(5)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90s", 910),
        ("10m", 400),
        ("1970-01-01T00:05:00Z", 300),
        ("1970-01-01T00:05:00+00:00", 300),
        (None, None),
    ],
)
def test_since(text: str | None, moment: float | None) -> None:
    assert since_seconds(text, 1000) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "10", "-5m"])
def test_since_is_a_span_or_a_time(text: str) -> None:
    with pytest.raises(UsageError, match="--since"):
        since_seconds(text, 1000)


def test_the_stamps_of_these_tests_are_stamps() -> None:
    assert nanoseconds("2026-11-22T01:00:01.500000000Z") is not None
