"""Lines as vLLM writes them: `(APIServer pid=1) INFO 11-22 01:02:03 [utils.py:1] text` (0.32, `vllm/logger.py`)."""

import os
import sys
import time
from threading import Lock
from typing import NoReturn

_PIDS = {"APIServer": 0, "EngineCore": 37}
_FIRST_WORKER = 55
_LOCK = Lock()


def line(process: str, source: str, text: str, level: str = "INFO") -> None:
    """Write a line on standard output, with the process it comes from and the place in vLLM's source."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    plain(f"{_prefix(process)} {level} {stamp} [{source}] {text}")


def plain(text: str) -> None:
    """Write a line that has no such beginning."""
    with _LOCK:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def error(text: str) -> None:
    """Likewise on standard error."""
    with _LOCK:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def uvicorn(text: str) -> None:
    """The HTTP server's own lines: on standard error, without a beginning (0.32)."""
    error(f"INFO:     {text}")


def fail(process: str, error: str) -> NoReturn:
    """Write an error as vLLM's processes leave it behind: a traceback, line by line, with the prefix; then end with 1."""
    source = "core.py:1180" if process == "EngineCore" else "multiproc_executor.py:870"
    line(
        process,
        source,
        "EngineCore failed to start." if process == "EngineCore" else "failed to start",
        "ERROR",
    )
    for text in (
        "Traceback (most recent call last):",
        '  File "vllm/stand_in.py", line 1, in <module>',
        error,
    ):
        for part in text.splitlines():
            line(process, source, part, "ERROR")
    if process != "APIServer":
        plain(f"{_prefix('APIServer')} Traceback (most recent call last):")
        plain(
            f"{_prefix('APIServer')} RuntimeError: Engine core initialization failed. See root cause above. "
            "Failed core proc(s): {'EngineCore': 1}"
        )
    os._exit(1)


def refuse(error: str) -> NoReturn:
    """End with 1 before there is an engine: arguments and configurations that vLLM rejects."""
    plain(f"{_prefix('APIServer')} Traceback (most recent call last):")
    for part in error.splitlines():
        plain(f"{_prefix('APIServer')} {part}")
    os._exit(1)


def _prefix(process: str) -> str:
    base = os.getpid()
    if process.startswith("Worker"):
        digits = "".join(letter for letter in process if letter.isdigit())
        return f"({process} pid={base + _FIRST_WORKER + int(digits or 0)})"
    return f"({process} pid={base + _PIDS.get(process, 0)})"
