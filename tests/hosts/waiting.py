"""Waiting for something outside this process that tells nobody when it is done."""

import time
from collections.abc import Callable

_PAUSE = 0.02


class NeverCame(Exception):
    """The deadline passed first."""


def wait_for(what: str, check: Callable[[], bool], seconds: float = 60) -> None:
    """Look again and again until `check` holds; raises NeverCame after `seconds`, long enough for a busy machine."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise NeverCame(f"{what}: not within {seconds:g} s")
        time.sleep(_PAUSE)
