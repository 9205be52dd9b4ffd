"""Questions to a person: one at a time, each once, the answers shared between all connections."""

import threading
from collections.abc import Callable
from typing import TypeVar

from gpuplan.remote.cancellation import STEP, Cancellation
from gpuplan.remote.ssh_settings import Questions

Answer = TypeVar("Answer")
Subject = TypeVar("Subject")


class SharedAnswers:
    """Puts the questions of many threads in a row and remembers what was answered."""

    def __init__(self, questions: Questions, cancellation: Cancellation) -> None:
        self._questions = questions
        self._cancellation = cancellation
        self._turn = threading.Lock()
        self._trusted: dict[tuple[str, str], bool] = {}
        self._passphrases: dict[str, str | None] = {}
        self._passwords: dict[str, str | None] = {}

    def trust_host_key(self, host: str, key_type: str, fingerprint: str) -> bool:
        return self._once(
            self._trusted,
            (host, fingerprint),
            lambda: self._questions.trust_host_key(host, key_type, fingerprint),
        )

    def passphrase(self, path: str) -> str | None:
        return self._once(self._passphrases, path, lambda: self._questions.passphrase(path))

    def password(self, user_at_host: str) -> str | None:
        return self._once(self._passwords, user_at_host, lambda: self._questions.password(user_at_host))

    def _once(self, answers: dict[Subject, Answer], subject: Subject, ask: Callable[[], Answer]) -> Answer:
        """Raises ConnectionFailed (stage CANCELLED), also while it waits for its turn."""
        while not self._turn.acquire(timeout=STEP):
            self._cancellation.check()
        try:
            self._cancellation.check()
            if subject not in answers:
                answers[subject] = ask()
            return answers[subject]
        finally:
            self._turn.release()
