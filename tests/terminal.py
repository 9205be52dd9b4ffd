"""A real terminal for a program: a tmux server of its own, keys sent, the screen read back as a person sees it."""

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.hosts.waiting import wait_for

ENDED = "the program has ended: "


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
        self._place = tempfile.mkdtemp(prefix="gpuplan-terminal-")
        self._socket = f"{self._place}/tmux"
        env = dict(os.environ if environment is None else environment)
        env.pop("TMUX", None)
        words = f"{shlex.join(command)}; printf '\\n{ENDED}%s\\n' $?; exec sleep 600"
        subprocess.run(
            [
                "tmux", "-S", self._socket, "-f", "/dev/null", "new-session", "-d", "-s", "main",
                "-x", str(columns), "-y", str(lines), "-c", str(directory or Path.cwd()), "sh", "-c", words,
            ],
            env={**env, "TERM": "screen-256color"},
            check=True,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tmux("kill-server", check=False)

    def press(self, *keys: str) -> None:
        """Keys as tmux names them: `Enter`, `Escape`, `C-q`, `Down`, `d`."""
        self._tmux("send-keys", "-t", "main", *keys)

    def type(self, text: str) -> None:
        """Characters as they are."""
        self._tmux("send-keys", "-t", "main", "-l", text)

    @property
    def screen(self) -> str:
        """What is on it now, without colours."""
        return self._tmux("capture-pane", "-p", "-t", "main")

    def until(self, *texts: str, seconds: float = 30) -> str:
        """The screen once it shows all of these; fails with what it shows instead."""
        return self.until_it(
            lambda screen: all(text in screen for text in texts), " and ".join(texts), seconds
        )

    def until_gone(self, text: str, seconds: float = 30) -> str:
        """The screen once it no longer shows this."""
        return self.until_it(lambda screen: text not in screen, f"no {text}", seconds)

    def until_it(self, holds: Callable[[str], bool], what: str, seconds: float = 30) -> str:
        try:
            wait_for(f"{what} on the screen", lambda: holds(self.screen), seconds)
        except Exception as error:
            raise AssertionError(f"{error}; the screen:\n{self.screen}") from error
        return self.screen

    def exit_status(self, seconds: float = 10) -> int:
        """Of the program, once it has ended."""
        screen = self.until(ENDED, seconds=seconds)
        return int(screen.rpartition(ENDED)[2].split()[0])

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-t", "main", "-x", str(columns), "-y", str(lines))

    def _tmux(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *words], check=check, capture_output=True, text=True, timeout=20
        )
        return done.stdout
