"""A user's file is read within bounds, and every fault found in it names file, line and key."""

import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from gpuplan.errors import InventoryError

MAX_SHOWN = 10
"""Faults of one document that are printed; the rest is counted."""
_MAX_WORD = 60

Location = tuple[str | int, ...]


class Fault(NamedTuple):
    """One thing wrong in a document."""

    location: str
    """As the user would write it, `hosts[1].labels`; empty for the document itself."""
    text: str
    line: int | None = None
    """Counted from 1."""


class Faults:
    """Gathers what is wrong in one document, so that a user repairs it in one go."""

    def __init__(self, *, path: str, hint: str | None = None) -> None:
        self.path = path
        self.hint = hint
        self.found: list[Fault] = []
        self.uncounted = 0
        """Faults that are there and were not looked at."""

    def add(self, location: str, text: str, line: int | None = None) -> None:
        self.found.append(Fault(location=location, text=text, line=line))

    def raise_if_any(self) -> None:
        """Raise InventoryError with the first faults in the order of their lines."""
        if not self.found:
            return
        ordered = sorted(self.found, key=lambda fault: fault.line or 0)
        lines = list(dict.fromkeys(self._written(fault) for fault in ordered))
        rest = max(len(lines) - MAX_SHOWN, 0) + self.uncounted
        shown = lines[:MAX_SHOWN] + ([f"{self.path}: and {rest} more"] if rest > 0 else [])
        raise InventoryError("\n".join(shown), hint=self.hint)

    def _written(self, fault: Fault) -> str:
        place = f"{self.path}:{fault.line}" if fault.line is not None else self.path
        return ": ".join(part for part in (place, fault.location, fault.text) if part)


def location(parts: Sequence[str | int]) -> str:
    """Write a path into a document as `hosts[1].gpus.count`."""
    written = ""
    for part in parts:
        if isinstance(part, int):
            written += f"[{part}]"
        else:
            written += ("." if written else "") + key_name(part)
    return written


def key_name(key: str) -> str:
    """A key safe to print: what follows = or : is cut, as `TOKEN:secret` lacks but a space to be key and value."""
    name = re.split("[=:]", key, maxsplit=1)[0]
    return shown(name) + ("…" if len(name) < len(key) else "")


def shown(text: object) -> str:
    """A word of the document made safe to print: short, and free of control characters."""
    word = "".join(c if c.isprintable() else "?" for c in str(text)[: _MAX_WORD + 1])
    return word if len(word) <= _MAX_WORD else word[:_MAX_WORD] + "…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'labels'?`, or nothing when no known word is near."""
    close = nearest(word, known)
    return f"; did you mean {shown(close)!r}?" if close is not None else ""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word closest to a mistyped one, case aside."""
    import difflib

    by_folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(word[:_MAX_WORD].casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[close[0]] if close else None


def read_bytes(path: Path | str, *, limit: int, missing_hint: str) -> bytes:
    """Read a whole file of at most `limit` bytes.

    Raises InventoryError when it is missing, unreadable, larger, or neither a file nor a pipe. A named pipe
    that nobody writes to counts as empty instead of blocking.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISDIR(mode):
                raise InventoryError(f"{path}: is a directory, not a file", hint=missing_hint)
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
                raise InventoryError(f"{path}: is a device, not a file", hint=missing_hint)
            os.set_blocking(file.fileno(), True)
            content = file.read(limit + 1)
    except FileNotFoundError:
        raise InventoryError(f"{path}: no such file", hint=missing_hint) from None
    except ValueError:
        raise InventoryError(f"{shown(path)}: is not a path", hint=missing_hint) from None
    except OSError as error:
        raise InventoryError(
            f"{path}: cannot be read: {error.strerror or error}", hint=missing_hint
        ) from None
    if len(content) > limit:
        raise InventoryError(
            f"{path}: is larger than {limit // 1024**2} MiB, the most that is read", hint=missing_hint
        )
    return content


def decode(path: Path | str, content: bytes) -> str:
    """Decode UTF-8 with or without a byte order mark; anything else is an InventoryError with its line."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InventoryError(
            f"{path}:{line}: is not UTF-8 text (byte {error.start})",
            hint="save the file as UTF-8 text",
        ) from None
