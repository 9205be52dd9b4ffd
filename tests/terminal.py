"""A real terminal for a program: a tmux server of its own, keys sent, the screen read back as a person sees it.

What was typed and what is shown are not in step: `until` is asked for words that only the next state has.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.hosts.waiting import NeverCame, wait_for

ENDED = "the program has ended: "
LONGEST = 60
"""Seconds after which a screen has failed to come, on a busy machine."""
_COLOUR = re.compile(r"\x1b\[([0-9;:]*)m")


class Terminal:
    """One program in one window; used as a context, which ends both."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        columns: int = 80,
        lines: int = 24,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        if shutil.which("tmux") is None:
            if os.environ.get("GPUPLAN_TEST_HOSTS") == "required":
                pytest.fail("there is no tmux")
            pytest.skip("a terminal needs tmux (Debian: apt-get install tmux)")
        self._place = tempfile.mkdtemp(prefix="gpuplan-terminal-")
        self._socket = f"{self._place}/tmux"
        env = dict(os.environ if environment is None else environment)
        env.pop("TMUX", None)
        words = f"{shlex.join(command)}; printf '\\n{ENDED}%s\\n' $?; exec sleep 600"
        subprocess.run(
            [
                "tmux", "-u", "-S", self._socket, "-f", "/dev/null", "new-session", "-d", "-s", "main",
                "-x", str(columns), "-y", str(lines), "-c", str(directory or Path.cwd()), "sh", "-c", words,
            ],
            env={**env, "TERM": "screen-256color", "LC_ALL": "C.UTF-8"},
            check=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tmux("kill-server", check=False)
        shutil.rmtree(self._place, ignore_errors=True)

    # ------------------------------------------------------------------ what a person does

    def press(self, *keys: str) -> None:
        """Keys as tmux names them: `Enter`, `Escape`, `C-q`, `Down`, `d`. After Escape wait for what it does first."""
        self._tmux("send-keys", "-t", "main", *keys)

    def type(self, text: str) -> None:
        """Characters as they are."""
        self._tmux("send-keys", "-t", "main", "-l", text)

    def move(self, key: str, text: str) -> None:
        """A key that moves the cursor to the line with this text: wait until that line looks different."""
        before = self._look(text)
        self.press(key)
        self.until_it(lambda _screen: self._look(text) != before, f"the cursor at {text}")

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-t", "main", "-x", str(columns), "-y", str(lines))

    # ------------------------------------------------------------------ what a person sees

    @property
    def screen(self) -> str:
        """What is on it now, without colours."""
        return self._tmux("capture-pane", "-p", "-t", "main")

    @property
    def colours(self) -> set[int]:
        """Numbers of the colours on it, of the 256; those a program left to the terminal are not among them."""
        return {number for codes in _COLOUR.findall(self._styled) for number in _colours(codes)}

    @property
    def _styled(self) -> str:
        """The screen with its escape sequences."""
        return self._tmux("capture-pane", "-p", "-e", "-t", "main")

    def _look(self, text: str) -> list[str]:
        """The escape sequences and texts of the lines with this text."""
        return [line for line in self._styled.split("\n") if text in _COLOUR.sub("", line)]

    @property
    def is_restored(self) -> bool:
        """Whether it is as a shell expects it: its own screen, a cursor, a mouse that selects."""
        shown = "#{alternate_on} #{cursor_flag} #{mouse_any_flag} #{keypad_flag}"
        return self._tmux("display-message", "-p", "-t", "main", shown).split() == ["0", "1", "0", "0"]

    def until(self, *texts: str, seconds: float = LONGEST) -> str:
        """The screen once it shows all of these; fails with what it shows instead."""
        return self.until_it(
            lambda screen: all(text in screen for text in texts), " and ".join(texts), seconds
        )

    def until_gone(self, text: str, seconds: float = LONGEST) -> str:
        """The screen once it no longer shows this."""
        return self.until_it(lambda screen: text not in screen, f"no {text}", seconds)

    def until_it(self, holds: Callable[[str], bool], what: str, seconds: float = LONGEST) -> str:
        """The screen once this holds for it."""
        shown = [""]

        def seen() -> bool:
            shown[0] = self.screen
            if holds(shown[0]):
                return True
            if ENDED in shown[0]:
                raise NeverCame(f"{what} on the screen")
            return False

        try:
            wait_for(f"{what} on the screen", seen, seconds)
        except NeverCame as error:
            raise AssertionError(f"{error}; the screen:\n{shown[0]}") from error
        return shown[0]

    def exit_status(self, seconds: float = LONGEST) -> int:
        """Of the program, once it has ended."""
        screen = self.until(ENDED, seconds=seconds)
        return int(screen.rpartition(ENDED)[2].split()[0])

    def _tmux(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["tmux", "-u", "-S", self._socket, *words],
            check=check,
            capture_output=True,
            text=True,
            timeout=20,
        )
        return done.stdout


def _colours(codes: str) -> Iterator[int]:
    """Of one escape sequence."""
    numbers = [int(code) for code in re.split("[;:]", codes) if code]
    while numbers:
        code, *numbers = numbers
        if code in {38, 48} and numbers[:1] == [5]:
            yield numbers[1]
            numbers = numbers[2:]
        elif code in {38, 48} and numbers[:1] == [2]:
            red, green, blue = numbers[1:4]
            yield 232 + red * 23 // 255 if red == green == blue else 1
            numbers = numbers[4:]
        elif code // 10 in {3, 4} and code % 10 < 8:
            yield code % 10
        elif code // 10 in {9, 10} and code % 10 < 8:
            yield 8 + code % 10
