"""Locks of several hosts: all or none, one run at a time, and nothing left by a run that was killed."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from gpuplan.deploying import host_lock
from gpuplan.deploying.host_lock import Busy, Free
from gpuplan.domain.events import Event, Remark
from gpuplan.errors import ExitCode
from gpuplan.operations.host_locks import (
    TERMS,
    Locked,
    LockFailed,
    break_lock,
    hold,
    read_lock,
    read_locks,
    this_run,
)
from gpuplan.remote.docker_engine import Engine
from gpuplan.remote.local import LocalConnection
from tests.hosts.waiting import wait_for

if TYPE_CHECKING:
    from gpuplan.remote.connection import Connection

HOLDING = """
import sys, time
from tests.unit.operations.test_host_locks import Machines
from gpuplan.operations.host_locks import hold, this_run
with hold(Machines(dict(pair.split("=") for pair in sys.argv[1:])), [pair.split("=")[0] for pair in sys.argv[1:]],
          this_run("qwen3")) as locks:
    print("held", flush=True)
    time.sleep(600)
"""


@dataclass
class FakeEngine:
    id: str
    version: Mapping[str, Any] = field(default_factory=dict)

    def get(self, path: str) -> Any:
        assert path == "/info"
        return {"ID": self.id}


class Machines:
    """Hosts that are all this machine, with engines of their own."""

    def __init__(self, ids: Mapping[str, str]) -> None:
        self.ids = ids
        self.connections: dict[str, Connection] = {name: LocalConnection() for name in ids}

    def engine_of(self, host: str) -> Engine:
        return cast("Engine", FakeEngine(self.ids[host]))

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()


@pytest.fixture
def engines() -> Iterator[dict[str, str]]:
    ids = {name: f"{name}{os.getpid():010d}" for name in ("e1", "e2", "e3")}
    yield ids
    left = [
        path for one in ids.values() for path in Path("/tmp").glob(f"{Path(host_lock.prefix(one)).name}*")
    ]
    for path in left:
        (path / "holder").unlink(missing_ok=True)
        with suppress(FileNotFoundError):  # its shell was just letting go
            path.rmdir()


@contextmanager
def fleet(ids: Mapping[str, str], *names: str) -> Iterator[Machines]:
    machines = Machines({name: ids[name] for name in names or ids})
    try:
        yield machines
    finally:
        machines.close()


@contextmanager
def elsewhere(ids: Mapping[str, str], *names: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds locks."""
    words = [sys.executable, "-c", HOLDING, *(f"{name}={ids[name]}" for name in names)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lock ")]


def test_hosts_are_held_and_let_go(engines: dict[str, str]) -> None:
    with fleet(engines) as machines:
        with hold(machines, ["e2", "e1"], this_run("qwen3")) as locks:
            assert set(locks.hosts) == {"e1", "e2"}
            assert locks.lost() == ()
            seen = read_locks(machines, ["e1", "e2", "e3"])
            assert isinstance(seen["e1"], Busy)
            assert seen["e1"].holder.deployment == "qwen3"
            assert seen["e1"].holder.pid == os.getpid()
            assert seen["e3"] == Free()
        assert read_locks(machines, ["e1", "e2"]) == {"e1": Free(), "e2": Free()}
        assert locks.lost() == ()
    assert threads() == []


def test_a_host_that_is_held_gives_none(engines: dict[str, str]) -> None:
    with fleet(engines) as machines, elsewhere(engines, "e2"):
        with pytest.raises(Locked) as caught, hold(machines, ["e1", "e2", "e3"], this_run("llama")):
            pass
        assert caught.value.exit_code is ExitCode.DEPLOYMENT_FAILED
        assert caught.value.host == "e2"
        assert "deploys qwen3" in caught.value.message
        assert "gpuplan unlock --host e2" in str(caught.value.hint)
        assert read_locks(machines, ["e1", "e3"]) == {"e1": Free(), "e3": Free()}


def test_a_killed_run_frees_its_hosts(engines: dict[str, str]) -> None:
    with fleet(engines) as machines, elsewhere(engines, "e1", "e2") as other:
        other.send_signal(signal.SIGKILL)
        other.wait(10)
        with hold(machines, ["e1", "e2"], this_run("llama"), wait=30) as locks:
            assert set(locks.hosts) == {"e1", "e2"}


def test_waiting_says_for_whom_and_gets_it(engines: dict[str, str]) -> None:
    events: list[Event] = []
    with fleet(engines) as machines, elsewhere(engines, "e1") as other:

        def heard(event: Event) -> None:
            events.append(event)
            other.kill()

        with hold(machines, ["e1"], this_run(), wait=60, on_event=heard) as locks:
            assert locks.hosts == ("e1",)
    assert [type(event) for event in events] == [Remark]
    assert isinstance(events[0], Remark)
    assert events[0].fact.code == "GP850"
    assert "deploys qwen3" in events[0].fact.figures["holder"]


def test_a_broken_lock_is_lost(engines: dict[str, str]) -> None:
    with fleet(engines) as machines, hold(machines, ["e1", "e2"], this_run()) as locks:
        busy = read_lock(machines.connections["e1"], machines.engine_of("e1"))
        assert isinstance(busy, Busy)
        assert break_lock(machines.connections["e1"], machines.engine_of("e1"), busy.holder) == Free()
        wait_for("the loss", lambda: locks.lost() == ("e1",))


def test_a_lock_whose_beats_are_not_answered_is_lost(engines: dict[str, str]) -> None:
    terms = replace(TERMS, silence_seconds=2, beat_seconds=0.2)
    with fleet(engines) as machines, hold(machines, ["e1"], this_run(), terms=terms) as locks:
        busy = read_lock(machines.connections["e1"], machines.engine_of("e1"))
        assert isinstance(busy, Busy)
        os.kill(busy.holder.remote_pid, signal.SIGSTOP)
        wait_for("the loss", lambda: locks.lost() == ("e1",))
        os.kill(busy.holder.remote_pid, signal.SIGKILL)


def test_beats_keep_it_longer_than_silence_would(engines: dict[str, str]) -> None:
    terms = replace(TERMS, silence_seconds=1, beat_seconds=0.1)
    with fleet(engines) as machines, hold(machines, ["e1"], this_run(), terms=terms) as locks:
        done = machines.connections["e1"].run(("sleep", "3"), timeout=60)
        assert done.exit_code == 0
        assert locks.lost() == ()
        assert isinstance(read_lock(machines.connections["e1"], machines.engine_of("e1")), Busy)


def test_two_names_of_one_machine_are_one_lock(engines: dict[str, str]) -> None:
    with (
        fleet({"a": engines["e1"], "b": engines["e1"]}) as machines,
        hold(machines, ["a", "b"], this_run()) as locks,
    ):
        assert len(locks.hosts) == 1


def test_of_two_overlapping_runs_one_gets_all(engines: dict[str, str]) -> None:
    wanted = {"left": ("e1", "e2"), "right": ("e2", "e3"), "all": ("e3", "e1", "e2")}
    got: dict[str, bool] = {}
    start, done = threading.Barrier(len(wanted)), threading.Barrier(len(wanted))

    def run(name: str, hosts: tuple[str, ...]) -> None:
        with fleet(engines, *hosts) as machines:
            start.wait(30)
            try:
                with hold(machines, hosts, this_run(name)):
                    got[name] = True
                    done.wait(60)
            except Locked:
                got[name] = False
                done.wait(60)

    runners = [threading.Thread(target=run, args=pair) for pair in wanted.items()]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert len(got) == len(wanted)
    assert any(got.values())
    assert not (got["all"] and (got["left"] or got["right"]))
    assert not (got["left"] and got["right"])


def test_a_host_without_flock_names_its_package(engines: dict[str, str]) -> None:
    class Bare(LocalConnection):
        def open_command(self, command: Any, *, timeout: float) -> Any:
            return super().open_command(["env", "PATH=/nowhere", "/bin/sh", *command[1:]], timeout=timeout)

    with fleet(engines, "e1") as machines:
        machines.connections["e1"] = Bare()
        with pytest.raises(LockFailed) as caught, hold(machines, ["e1"], this_run()):
            pass
        assert "flock is missing" in caught.value.message
        assert "util-linux" in str(caught.value.hint)
        machines.connections["e1"].close()


def test_a_host_that_does_not_answer_is_named(engines: dict[str, str]) -> None:
    with (
        fleet(engines, "e1") as machines,
        pytest.raises(LockFailed, match="e9 cannot be locked"),
        hold(machines, ["e1", "e9"], this_run()),
    ):
        pass


def test_an_engine_without_an_id_of_its_own_is_locked_by_its_machine() -> None:
    class Podman(Machines):
        def engine_of(self, host: str) -> Engine:
            version = {"Components": [{"Name": "Podman Engine"}]}
            return cast("Engine", FakeEngine(json.dumps(os.urandom(8).hex()), version))

    machines = Podman({"e1": "e1"})
    with hold(machines, ["e1"], this_run()):
        assert isinstance(read_lock(machines.connections["e1"], machines.engine_of("e1")), Busy)
    machines.close()
