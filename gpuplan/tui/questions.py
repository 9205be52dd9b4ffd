"""What SSH asks while the app runs, asked in dialogs: unknown host keys, passphrases, passwords. No answer declines.

A deploy is a process of its own and cannot ask: it uses what was accepted here (host keys) and what the agent holds.
"""

import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from gpuplan.present.document import Role, wrapped
from gpuplan.present.run_texts import trust_text
from gpuplan.tui.messages import PersonAsked
from gpuplan.tui.screens.confirm import AskScreen, Choice, Dialog, PromptScreen

if TYPE_CHECKING:
    from textual.app import App

STEP = 0.2
"""Seconds after which a question looks whether the app is still there."""
PROMPT_WIDTH = 68


class AppQuestions:
    """Implements `remote.ssh_settings.Questions`; asked from threads, one question after the other."""

    def __init__(self) -> None:
        self._app: App[Any] | None = None
        self._asking = threading.Lock()

    def attach(self, app: "App[Any]") -> None:
        """From now on there is somebody to ask; before, and once the app has been left, everything is declined."""
        self._app = app

    def trust_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        choices = (
            Choice(id="decline", text="Do not connect"),
            Choice(id="trust", text="Connect and remember it", grave=True),
        )
        make = partial(trust_text, host, key_type, fingerprint)
        return self._ask(lambda: AskScreen(make, choices)) == "trust"

    def passphrase(self, path: str) -> str | None:
        return self._hidden(f"Passphrase of {path}")

    def password(self, user_at_host: str) -> str | None:
        return self._hidden(f"Password of {user_at_host}")

    def _hidden(self, text: str) -> str | None:
        lines = wrapped(text, PROMPT_WIDTH, role=Role.TITLE)
        return self._ask(lambda: PromptScreen(lines, hidden=True))

    def _ask(self, make: Callable[[], Dialog]) -> str | None:
        """From a thread: what the dialog was left with; None where nobody is there any more."""
        with self._asking:
            app = self._app
            if app is None or not app.is_running:
                return None
            answered = threading.Event()
            answers: list[str | None] = []

            async def ask() -> None:
                try:
                    answers.append(await app.push_screen_wait(make()))
                finally:
                    answered.set()

            question: Callable[[], Coroutine[Any, Any, None]] = ask
            with suppress(RuntimeError):  # the event loop is closed
                app.post_message(PersonAsked(question))
                while not answered.wait(STEP) and app.is_running:
                    pass
            return answers[0] if answers else None
