"""What is remembered between runs, under `$XDG_STATE_HOME/gpuplan`: anything here may be deleted at any time."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def state_directory(environ: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/gpuplan`, else `~/.local/state/gpuplan`; not made here."""
    named = environ.get("XDG_STATE_HOME", "")
    if named.startswith("/"):
        return Path(named) / "gpuplan"
    return Path(environ.get("HOME") or "~").expanduser() / ".local" / "state" / "gpuplan"


def append_lines(path: Path, documents: Iterable[Mapping[str, Any]]) -> str | None:
    """Write each document as one line of a file only its owner can read; why it could not, else None."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            for document in documents:
                file.write(json.dumps(document, ensure_ascii=True) + "\n")
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None
