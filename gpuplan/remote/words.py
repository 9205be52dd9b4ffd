"""What a far machine or the system said, as one printable line of plain words."""

import errno
import os

LONGEST = 300
"""Characters of a detail."""

_WORDS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset by the other side",
    errno.ECONNABORTED: "connection aborted",
    errno.EPIPE: "connection closed by the other side",
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "no route to its network",
    errno.EHOSTDOWN: "the host is down",
    errno.ETIMEDOUT: "no answer in time",
    errno.EACCES: "not permitted",
    errno.EPERM: "not permitted (a local firewall?)",
    errno.ENOENT: "no such file",
    errno.EMFILE: "too many open files here (ulimit -n)",
    errno.ENFILE: "too many open files on this machine",
}


def printable(text: str | bytes, limit: int = LONGEST) -> str:
    """One line without control characters; bytes are read as UTF-8, what is not is replaced; cut at `limit`."""
    if isinstance(text, bytes):
        text = text[: 4 * limit].decode("utf-8", "replace")
    text = text[: 4 * limit]
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def system_words(error: OSError) -> str:
    """The system's error in plain words."""
    if isinstance(error, TimeoutError):
        return _WORDS[errno.ETIMEDOUT]
    if error.errno == errno.EPERM and error.filename is not None:
        return _WORDS[errno.EACCES]
    if error.errno in _WORDS:
        return _WORDS[error.errno]
    if error.errno is not None:
        return os.strerror(error.errno)
    return printable(str(error)) or type(error).__name__


def seconds(number: float) -> str:
    """`10 s`, `0.5 s`: to a tenth, and at least that."""
    return f"{max(0.1, round(number, 1)):g} s"
