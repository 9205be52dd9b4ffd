"""Questions about hosts, put on the controlling terminal even when stdin and stdout are pipes; none without one."""

import os
import select
import termios
import threading
from pathlib import Path
from typing import Self

from gpuplan.present.document import visible

TERMINAL = Path("/dev/tty")
YES = frozenset({"y", "yes"})
STEP = 0.1
"""Seconds after which a question looks whether it was withdrawn."""
LONGEST = 4096
"""Bytes of an answer."""


class TerminalQuestions:
    """Implements `remote.ssh_settings.Questions`. The default answer is no; an empty one declines.

    A question is asked from any thread; `close` withdraws it and gives the terminal back as it was.
    """

    def __init__(self, terminal: int) -> None:
        """`terminal`: a descriptor to read from and write to, closed by `close`."""
        self._terminal = terminal
        self._withdrawn = threading.Event()
        self._asking = threading.Lock()

    @classmethod
    def open(cls, path: Path = TERMINAL) -> Self | None:
        """None when this process has no terminal: nobody can be asked."""
        try:
            terminal = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return None
        if os.isatty(terminal):
            return cls(terminal)
        os.close(terminal)
        return None

    def close(self) -> None:
        """Safe to call again."""
        if not self._withdrawn.is_set():
            self._withdrawn.set()
            with self._asking:
                os.close(self._terminal)

    def trust_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        """Anything but `y` or `yes` declines."""
        answer = self._ask(
            f"The host {visible(host)} is not known. Its {visible(key_type)} key has the fingerprint\n"
            f"  {visible(fingerprint)}\n"
            "Connect, and remember this key? [y/N] "
        )
        return (answer or "").strip().lower() in YES

    def passphrase(self, path: str) -> str | None:
        return self._ask(f"Passphrase of {visible(path)}: ", hidden=True) or None

    def password(self, user_at_host: str) -> str | None:
        return self._ask(f"Password of {visible(user_at_host)}: ", hidden=True) or None

    def _ask(self, question: str, *, hidden: bool = False) -> str | None:
        """The answer without its line end; None when the question was withdrawn or the terminal is gone."""
        with self._asking:
            if self._withdrawn.is_set():
                return None
            try:
                if not hidden:
                    os.write(self._terminal, question.encode())
                    return self._line()
                usual = termios.tcgetattr(self._terminal)
                silent = usual.copy()
                silent[3] &= ~termios.ECHO
                termios.tcsetattr(self._terminal, termios.TCSAFLUSH, silent)
                try:
                    os.write(self._terminal, question.encode())
                    return self._line()
                finally:
                    termios.tcsetattr(self._terminal, termios.TCSADRAIN, usual)
                    os.write(self._terminal, b"\n")
            except (OSError, termios.error):
                return None

    def _line(self) -> str | None:
        data = b""
        while not data.endswith(b"\n") and len(data) < LONGEST:
            if self._withdrawn.is_set():
                return None
            if select.select([self._terminal], [], [], STEP)[0]:
                part = os.read(self._terminal, LONGEST)
                if not part:
                    return None
                data += part
        return data.decode("utf-8", "replace").rstrip("\r\n")
