"""Logs of containers in files: what of them is kept, for whom, and under which names."""

import os
from pathlib import Path

import pytest

from gpuplan.operations import saved_logs
from gpuplan.operations.saved_logs import FIRST_LINES, LAST_LINES, KeptLines, file_name, read_log, write_log
from gpuplan.remote.connection import ConnectionFailed, Stage
from gpuplan.remote.container_logs import LogLine, Output
from gpuplan.remote.docker_engine import Engine


def line(text: str) -> LogLine:
    return LogLine(at="2026-11-22T01:00:01.5Z", text=text, stream=Output.STDOUT)


def test_the_first_and_the_last_lines_are_kept() -> None:
    kept = KeptLines()
    for number in range(FIRST_LINES + LAST_LINES + 2):
        kept.add(line(str(number)))
    numbers = [int(one.text) for one in kept.lines]
    assert numbers[:FIRST_LINES] == list(range(FIRST_LINES))
    assert numbers[FIRST_LINES:] == list(range(FIRST_LINES + 2, FIRST_LINES + LAST_LINES + 2))
    assert kept.cut is None


def test_a_log_that_cannot_be_read_is_cut() -> None:
    def lost() -> Engine:
        raise ConnectionFailed(Stage.CONNECT, "the connection was lost")

    log = read_log(lost, "c1")
    assert (log.lines, log.cut) == ((), "the connection was lost")


def test_a_file_is_its_owners_and_holds_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "made" / "one.log"
    write_log(path, [line("token=abcdefgh"), line("\udce9")], cut="password=abcdefgh")
    stamp = "2026-11-22T01:00:01.5Z"
    assert path.read_text() == f"{stamp} token=***\n{stamp} ?\nthe log ends here: password=***\n"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_nothing_that_is_there_is_written_over(tmp_path: Path) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    there.write_text("mine")
    link.symlink_to(tmp_path / "nowhere")
    for path in (there, link):
        with pytest.raises(FileExistsError):
            write_log(path, [line("new")])
    assert there.read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h-c.log", "h-c.log"),
        (f"..{os.sep}..{os.sep}c.log", "_.._c.log"),
        ("..", "_"),
        ("", "_"),
        ("a\0b", "a_b"),
        ("x" * 300, "x" * saved_logs.LONGEST_NAME),
    ],
)
def test_names_lead_nowhere_else(text: str, name: str) -> None:
    assert file_name(text) == name
