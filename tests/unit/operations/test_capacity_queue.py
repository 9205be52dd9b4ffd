"""S4.10: whoever waits for room stands in a bounded queue; of those that fit the first goes first."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuplan.errors import ExitCode, GpuplanError
from gpuplan.operations.capacity_queue import LAGS_SECONDS, MOST_WAITING, QueueFull, Turn
from gpuplan.sources import capacity_queue
from gpuplan.sources.capacity_queue import Waiter, opened, queue_file


class Time:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def now() -> Time:
    return Time()


@pytest.fixture
def turn(tmp_path: Path, now: Time) -> Callable[[str], Turn]:
    return lambda name: Turn(tmp_path / "queue.json", name, clock=now)


def names(turn: Turn) -> list[str]:
    return [one.name for one in turn.others()]


def test_the_first_that_fits_goes_first(turn: Callable[[str], Turn], now: Time) -> None:
    with turn("large") as large, turn("small") as small:
        assert large.tell(looked=now(), fits=False).place == 1
        now.seconds += 1
        standing = small.tell(looked=now(), fits=True)
        assert (standing.place, standing.waiting) == (2, 2)
        assert standing.blocked_by is not None, "the first has not looked since there is room"
        assert standing.blocked_by.name == "large"
        now.seconds += 1
        assert large.tell(looked=now(), fits=False).blocked_by is None
        assert small.tell(looked=now(), fits=True).blocked_by is None, "it needs less than the first"
        assert large.tell(looked=now(), fits=True).blocked_by is None, "nobody is before the first"
        assert small.tell(looked=now(), fits=True).blocked_by is not None, "both fit: the first goes first"


def test_room_that_came_and_went_is_new_room(turn: Callable[[str], Turn], now: Time) -> None:
    with turn("first") as first, turn("second") as second:
        first.tell(looked=now(), fits=False)
        second.tell(looked=now(), fits=False)
        now.seconds += 5
        first.tell(looked=now(), fits=False)
        now.seconds += 5
        assert second.tell(looked=now(), fits=True).blocked_by is not None
        now.seconds += 1
        second.tell(looked=now(), fits=False)
        first.tell(looked=now(), fits=False)
        now.seconds += 1
        assert second.tell(looked=now(), fits=True).blocked_by is not None


def test_whoever_tries_or_does_not_look_keeps_nobody_waiting(turn: Callable[[str], Turn], now: Time) -> None:
    with turn("first") as first, turn("second") as second, turn("third") as third:
        first.tell(looked=now(), fits=True)
        first.begin()
        assert names(second) == []
        second.tell(looked=now(), fits=False)
        now.seconds += 1
        third_fits = now()
        standing = third.tell(looked=third_fits, fits=True)
        assert (standing.place, standing.waiting) == (2, 2)
        assert standing.blocked_by is not None
        now.seconds += LAGS_SECONDS + 1
        assert third.tell(looked=now(), fits=True).blocked_by is None, "the second is stopped, or hangs"
        again = first.tell(looked=now(), fits=False)
        assert again.place == 1, "it keeps its place when it was overtaken"
        assert names(first) == ["second", "third"]
    assert names(turn("nobody")) == []


def test_the_queue_is_bounded_and_says_who_waits(turn: Callable[[str], Turn], now: Time) -> None:
    waiting = [turn(f"model-{number}") for number in range(MOST_WAITING)]
    for one in waiting:
        one.tell(looked=now(), fits=False)
    with turn("late") as late, pytest.raises(QueueFull) as full:
        late.tell(looked=now(), fits=False)
    assert full.value.exit_code is ExitCode.NO_FIT
    assert full.value.message.startswith("busy: nothing fits now, and 8 deploys wait")
    for number in range(MOST_WAITING):
        assert f"model-{number} (pid {os.getpid()}, since " in full.value.message
    with turn("fits") as fits:
        assert fits.tell(looked=now(), fits=True).place == MOST_WAITING + 1, "one that fits soon leaves"
    waiting[0].__exit__(None, None, None)
    with turn("next") as following:
        assert following.tell(looked=now(), fits=False).place == MOST_WAITING
    for one in waiting:
        one.__exit__(None, None, None)


def test_whoever_ended_without_leaving_is_dropped(
    turn: Callable[[str], Turn], now: Time, tmp_path: Path
) -> None:
    program = (
        "import sys; from pathlib import Path; from gpuplan.operations.capacity_queue import Turn\n"
        "turn = Turn(Path(sys.argv[1]), 'killed'); turn.tell(looked=0.0, fits=False)\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = tmp_path / "queue.json"
    subprocess.run([sys.executable, "-c", program, str(path)], check=False, timeout=60)
    assert "killed" in path.read_text()
    with opened(path) as waiters:
        mine = Waiter(id="old", pid=os.getpid(), process="another boot 17", name="old", since=1.0)
        waiters[mine.id] = mine
    with turn("alive") as alive:
        assert alive.tell(looked=now(), fits=False).place == 1
        assert [entry["name"] for entry in json.loads(path.read_text())["waiting"]] == ["alive"]
    assert json.loads(path.read_text())["waiting"] == []


def test_a_broken_file_holds_nobody(turn: Callable[[str], Turn], tmp_path: Path, now: Time) -> None:
    path = tmp_path / "queue.json"
    good = {"id": "a", "pid": 1, "process": "x", "name": "n", "since": 1.0, "looked": 1.0}
    for content in (
        b"",
        b"{",
        b"[]",
        b'{"schema": 2, "waiting": []}',
        json.dumps({"schema": 1, "waiting": [{**good, "fits": True}, 7, None]}).encode(),
        json.dumps({"schema": 1, "waiting": [{**good, "fits": 0, "trying": 0, "since": math.inf}]}).encode(),
        json.dumps({"schema": 1, "waiting": {"a": good}}).encode(),
        b"[" * 100_000,
    ):
        path.write_bytes(content)
        with opened(path) as waiters:
            assert waiters == {}, content[:80]
    path.unlink()
    with opened(path):
        pass
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    path.mkdir()
    with pytest.raises(GpuplanError, match="nobody could know who waits") as refused:
        turn("n").tell(looked=now(), fits=False)
    assert refused.value.hint is not None


def test_a_fleet_is_its_hosts(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    one = queue_file(environ, ["10.0.0.1:None", "10.0.0.2:None"])
    assert one.parent == tmp_path / "gpuplan"
    assert one == queue_file(environ, ["10.0.0.2:None", "10.0.0.1:None"])
    assert one != queue_file(environ, ["10.0.0.1:None"])
    assert capacity_queue.SCHEMA == 1
