"""The lock's scripts, run for real by every login shell there is, and what their answers read as."""

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan.deploying import host_lock
from gpuplan.deploying.host_lock import Answer, Busy, Free, Held, Holder, Unlockable

SHELLS = [shell for shell in ("dash", "bash", "csh", "fish", "sh") if shutil.which(shell)]
ALICE = Holder(who="alice@laptop", pid=7, since="2026-11-22T01:20:00Z", deployment="qwen3", run="aa")


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "engine")


def directory(place: str) -> str:
    machine = Path("/etc/machine-id")
    network = "".join(filter(str.isdigit, str(Path("/proc/self/ns/net").readlink())))
    return f"{place}-{machine.read_text()[:8] if machine.exists() else ''}-{network}.lock"


@contextmanager
def held(
    place: str, shell: str = "sh", holder: Holder = ALICE, silence: int = 60
) -> Iterator[subprocess.Popen[bytes]]:
    words = [shell, "-c", shlex.join(host_lock.hold_command(place, holder, silence))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            told(process, host_lock.GO)
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(line)


def answer(process: subprocess.Popen[bytes]) -> Answer | None:
    return host_lock.parse(heard(process))


def heard(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode()


def asked(words: tuple[str, ...], shell: str = "sh", **environment: str) -> Answer | None:
    done = subprocess.run(
        [shell, "-c", shlex.join(words)], capture_output=True, text=True, check=False, env=environment or None
    )
    return host_lock.parse(done.stdout)


@pytest.mark.parametrize("shell", SHELLS)
def test_is_held_told_and_let_go_through_every_login_shell(place: str, shell: str) -> None:
    with held(place, shell, replace(ALICE, who="o'brien!@lap\\top")) as process:
        assert answer(process) == Held()
        told(process, host_lock.BEAT)
        assert heard(process) == ".\n"
        busy = asked(host_lock.read_command(place), shell)
        assert isinstance(busy, Busy)
        assert busy.holder.who == "o?brien?@lap?top"
        assert (busy.holder.pid, busy.holder.deployment, busy.holder.since) == (7, "qwen3", ALICE.since)
        assert busy.holder.remote_pid > 0
        assert busy.holder.login
        told(process, host_lock.END)
        assert process.wait(10) == 0
    assert asked(host_lock.read_command(place), shell) == Free()


def test_a_second_is_told_who_holds_it(place: str) -> None:
    with held(place) as first:
        assert answer(first) == Held()
        with held(place, holder=replace(ALICE, who="bob@desk")) as second:
            busy = answer(second)
    assert isinstance(busy, Busy)
    assert busy.holder.who == "alice@laptop"


def test_nothing_is_locked_before_it_is_told_to(place: str) -> None:
    with held(place) as first:
        assert answer(first) == Held()
        waiting = host_lock.hold_command(place, ALICE)
        done = subprocess.run(list(waiting), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


def test_the_end_of_its_input_frees_it(place: str) -> None:
    with held(place) as process:
        assert answer(process) == Held()
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0
    assert asked(host_lock.read_command(place)) == Free()


def test_silence_frees_it(place: str) -> None:
    with held(place, silence=1) as process:
        assert answer(process) == Held()
        process.wait(20)
    assert asked(host_lock.read_command(place)) == Free()


def test_a_killed_shell_leaves_only_its_name(place: str) -> None:
    with held(place) as process:
        assert answer(process) == Held()
        busy = asked(host_lock.read_command(place))
        assert isinstance(busy, Busy)
        subprocess.run(["kill", "-9", str(busy.holder.remote_pid)], check=True)
        process.wait(10)
        free = asked(host_lock.read_command(place))
        assert isinstance(free, Free)
        assert free.left is not None
        assert free.left.who == "alice@laptop"
        assert asked(host_lock.break_command(place, 1)) == Free()
    assert asked(host_lock.read_command(place)) == Free()


@pytest.mark.parametrize("shell", SHELLS)
def test_breaking_ends_the_shell_that_holds_it(place: str, shell: str) -> None:
    with held(place, shell) as process:
        assert answer(process) == Held()
        busy = asked(host_lock.read_command(place), shell)
        assert isinstance(busy, Busy)
        assert asked(host_lock.break_command(place, busy.holder.remote_pid), shell) == Free()
        process.wait(10)


def test_breaking_ends_no_other_process(place: str) -> None:
    with (
        held(place) as process,
        held(f"{place}2") as other,
        subprocess.Popen(["sleep", "100"]) as sleeper,
    ):
        assert answer(process) == Held()
        assert answer(other) == Held()
        for pid in (sleeper.pid, other.pid):
            refused = asked(host_lock.break_command(place, pid))
            assert isinstance(refused, Unlockable)
            assert str(pid) in refused.detail
            assert isinstance(asked(host_lock.read_command(place)), Busy)
        ended = sleeper.poll()
        sleeper.kill()
        assert ended is None


def test_a_missing_program_is_named(place: str, tmp_path: Path) -> None:
    for name in ("sh", "timeout", "head", "id"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    done = subprocess.run(
        list(host_lock.hold_command(place, ALICE)),
        input=host_lock.GO,
        capture_output=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert host_lock.parse(done.stdout.decode()) == Unlockable(detail="flock is missing", missing="flock")
    assert "flock" in host_lock.PACKAGES


def test_a_link_or_a_file_in_its_place_is_refused(place: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    there = Path(directory(place))
    there.symlink_to(tmp_path / "elsewhere")
    with held(place) as process:
        assert answer(process) == Unlockable(detail=f"{there} is a link")
    there.unlink()
    there.touch()
    with held(place) as process:
        refused = answer(process)
        assert isinstance(refused, Unlockable)
        assert "is no directory" in refused.detail


def test_a_directory_that_goes_away_meanwhile_was_another_runs(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try loses to one who lets go at once, and takes the directory along."""
    tool = tmp_path / "bin" / "flock"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\nrmdir {shlex.quote(directory(place))}\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")
    with held(place) as process:
        assert answer(process) == Busy(holder=host_lock.NOBODY)


def test_a_place_where_nothing_can_be_made_is_refused(tmp_path: Path) -> None:
    with held(str(tmp_path / "nowhere" / "engine")) as process:
        refused = answer(process)
        assert isinstance(refused, Unlockable)
        assert "cannot be made by" in refused.detail


def test_it_is_named_after_engine_and_machine(place: str, tmp_path: Path) -> None:
    assert host_lock.prefix("9aa6b3c8-0d5c-4b1e") == "/tmp/gpuplan-9aa6b3c80d5c"
    assert host_lock.prefix("ABCD:EFGH:IJKL:MNOP") == "/tmp/gpuplan-abcdefghijkl"
    assert host_lock.prefix("../../etc") == "/tmp/gpuplan-etc"
    assert host_lock.prefix("") == "/tmp/gpuplan-engine"
    with held(place) as process:
        assert answer(process) == Held()
        assert [path.name for path in tmp_path.iterdir()] == [Path(directory(place)).name]
        told(process, host_lock.END)
        process.wait(10)
    assert list(tmp_path.iterdir()) == [], "nothing stays"


def test_readers_do_not_take_each_other_for_holders(place: str) -> None:
    Path(directory(place)).mkdir()
    words = list(host_lock.read_command(place))

    def read(_: int) -> bytes:
        return subprocess.run(words, capture_output=True, check=True).stdout

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(read, range(30))) == {b"gpuplan-lock: free \n"}


@pytest.mark.parametrize(
    ("printed", "read"),
    [
        ("", None),
        ("Welcome!\nheld\n", None),
        ("gpuplan-lock: hel", None),
        ("Welcome!\ngpuplan-lock: held\n", Held()),
        ("gpuplan-lock: busy not json\n", Busy(holder=host_lock.NOBODY)),
        ('gpuplan-lock: free {"who": 3}\n', Free()),
        ("gpuplan-lock: refused \x1b[31mno\n", Unlockable(detail="[31mno")),
    ],
)
def test_answers_read(printed: str, read: Answer | None) -> None:
    assert host_lock.parse(printed) == read


def test_a_holder_is_never_markup() -> None:
    holder = host_lock.read_holder('{"who": "a\\u001b[31m@b\\n", "pid": "x", "since": 3, "other": 1}')
    assert holder == Holder(who="a[31m@b", purpose="")
