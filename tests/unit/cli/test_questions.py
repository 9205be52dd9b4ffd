"""What is asked on a terminal, by a pair of pseudo-terminals; what happens without one."""

import os
import pty
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuplan.cli.questions import TerminalQuestions


@pytest.fixture
def pair() -> Iterator[tuple[int, Path]]:
    """The side of the person, and the path of the terminal."""
    ours, theirs = pty.openpty()
    yield ours, Path(os.ttyname(theirs))
    os.close(ours)
    os.close(theirs)


def _read_until(descriptor: int, mark: bytes) -> bytes:
    said = b""
    while mark not in said:
        said += os.read(descriptor, 1000)
    return said


@pytest.mark.parametrize(
    ("typed", "expected"), [("y", True), ("YES", True), ("", False), ("n", False), ("yep", False)]
)
def test_only_yes_trusts_a_key(typed: str, expected: bool, pair: tuple[int, Path]) -> None:
    ours, path = pair
    questions = TerminalQuestions.open(path)
    assert questions is not None
    answers: list[bool] = []
    thread = threading.Thread(
        target=lambda: answers.append(questions.trust_host_key("h1\x1b[2J", "ssh-ed25519", "SHA256:abc"))
    )
    thread.start()
    said = _read_until(ours, b"[y/N]")
    os.write(ours, f"{typed}\n".encode())
    thread.join(5)
    questions.close()
    assert answers == [expected]
    assert b"SHA256:abc" in said
    assert b"\x1b" not in said


def test_a_passphrase_is_not_echoed_and_the_terminal_is_put_back(pair: tuple[int, Path]) -> None:
    ours, path = pair
    questions = TerminalQuestions.open(path)
    assert questions is not None
    answers: list[str | None] = []
    thread = threading.Thread(target=lambda: answers.append(questions.passphrase("/home/u/.ssh/id")))
    thread.start()
    _read_until(ours, b"/home/u/.ssh/id: ")
    os.write(ours, b"open sesame\n")
    thread.join(5)
    after = os.read(ours, 1000)
    assert answers == ["open sesame"]
    assert b"sesame" not in after
    assert termios.tcgetattr(ours)[3] & termios.ECHO
    questions.close()


def test_a_withdrawn_question_ends_and_gives_the_echo_back(pair: tuple[int, Path]) -> None:
    ours, path = pair
    questions = TerminalQuestions.open(path)
    assert questions is not None
    answers: list[str | None] = []
    thread = threading.Thread(target=lambda: answers.append(questions.password("u@h")))
    thread.start()
    _read_until(ours, b"u@h: ")
    questions.close()
    thread.join(2)
    assert answers == [None]
    assert termios.tcgetattr(ours)[3] & termios.ECHO
    assert questions.password("u@h") is None


def test_no_terminal_no_questions(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert TerminalQuestions.open(tmp_path / "absent") is None
    assert TerminalQuestions.open(tmp_path / "file") is None
