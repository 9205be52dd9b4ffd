"""The probe's script against real shells: sections come back whole, whatever the commands do."""

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuplan.probing.command import Command
from gpuplan.probing.output import NOT_RUN, Output
from gpuplan.probing.script import SECTION_LIMIT, longest, script, sections

MARK = "gp0123456789abcdef"
SHELLS = [
    shell
    for shell in (["sh"], ["dash"], ["bash", "--posix"], ["busybox", "sh"])
    if shutil.which(shell[0]) is not None
]


def ask(*commands: Command, shell: list[str] | None = None, before: bytes = b"") -> dict[str, Output]:
    done = subprocess.run(
        [*(shell or ["sh"]), "-s"], input=script(commands, MARK), capture_output=True, timeout=60, check=False
    )
    return sections(before + done.stdout, commands, MARK)


def command(name: str, shell: str, timeout: float = 15, group: str = "") -> Command:
    return Command(name=name, shell=shell, timeout=timeout, group=group)


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_each_command_answers_for_itself(shell: list[str]) -> None:
    found = ask(
        command("plain", "echo one; echo two >&2"),
        command("failing", "echo no; exit 9"),
        command("absent", "no-such-tool-anywhere"),
        command("quotes", """printf '%s\\n' "it's" '$HOME `id`'"""),
        command("without_newline", "printf end"),
        command("silent", ":"),
        shell=shell,
    )
    assert found["plain"] == Output(text="one\ntwo\n", exit_code=0)
    assert (found["failing"].text, found["failing"].exit_code) == ("no\n", 9)
    assert found["absent"].exit_code == 127
    assert found["quotes"].text == "it's\n$HOME `id`\n"
    assert (found["without_newline"].text, found["silent"].text) == ("end", "")


def test_commands_speak_english_and_read_no_input() -> None:
    found = ask(command("locale", "echo $LC_ALL; cat"), command("next", "echo still here"))
    assert (found["locale"].text, found["next"].text) == ("C\n", "still here\n")


def test_a_command_out_of_time_ends_and_its_group_is_left_out() -> None:
    found = ask(
        command("first", "echo begun; exec sleep 30", timeout=1, group="gpu"),
        command("second", "echo never", group="gpu"),
        command("other", "echo fine"),
    )
    assert found["first"] == Output(text="begun\n", exit_code=None, timed_out=True)
    assert found["second"] == NOT_RUN
    assert found["other"].text == "fine\n"


def test_a_command_that_ignores_the_end_of_its_time_is_killed() -> None:
    deaf = "trap '' TERM; while :; do sleep 1; done"
    found = ask(command("deaf", deaf, timeout=1), command("after", "echo fine"))
    assert found["deaf"].timed_out
    assert found["after"].text == "fine\n"


def test_a_host_without_timeout_answers_too(tmp_path: Path) -> None:
    for name in ("sh", "ls", "head"):
        where = shutil.which(name)
        assert where is not None
        (tmp_path / name).symlink_to(where)
    commands = (command("one", "echo fine"), command("two", "ls -d /; exit 3"))
    text = script(commands, MARK).replace(b'PATH="$PATH:', f'PATH="{tmp_path}:'.encode())
    text = f"PATH={tmp_path}\n".encode() + text.replace(b":/usr/local/sbin:/usr/sbin:/sbin", b"")
    done = subprocess.run(["/bin/sh", "-s"], input=text, capture_output=True, timeout=30, check=False)
    found = sections(done.stdout, commands, MARK)
    assert found["one"].text == "fine\n"
    assert (found["two"].text, found["two"].exit_code) == ("/\n", 3)


def test_what_a_login_shell_prints_is_not_taken_for_an_answer() -> None:
    asked = command("one", "echo answer")
    junk = b"Welcome!\nLast login: today\n" + bytes(range(256)) * 1000
    assert ask(asked, before=junk)["one"].text == "answer\n"


def test_output_that_breaks_off_in_the_middle_keeps_what_came_before() -> None:
    commands = (command("one", "echo 1"), command("two", "echo 2"), command("three", "echo 3"))
    whole = subprocess.run(["sh", "-s"], input=script(commands, MARK), capture_output=True, check=True).stdout
    cut = whole[: whole.index(b"2\n") + 2]
    found = sections(cut, commands, MARK)
    assert found["one"] == Output(text="1\n", exit_code=0)
    assert (found["two"].exit_code, found["two"].timed_out) == (None, True)
    assert found["three"] == NOT_RUN


def test_bytes_that_are_no_text_and_floods_are_bounded() -> None:
    found = ask(
        command("bytes", "printf 'a\\377b'"), command("flood", f"head -c {SECTION_LIMIT + 10} /dev/zero")
    )
    assert found["bytes"].text == "a�b"
    assert found["flood"].truncated
    assert len(found["flood"].text) == SECTION_LIMIT


def test_the_longest_time_counts_one_hang_of_a_group() -> None:
    grouped = [command(f"g{number}", ":", timeout=10, group="gpu") for number in range(5)]
    assert longest(grouped) < longest([command(f"a{number}", ":", timeout=10) for number in range(5)])
