"""stdout is data, stderr is talk: the one place that prints."""

import json
import os
import shutil
import sys
from typing import Any

from gpuplan.errors import GpuplanError
from gpuplan.present.document import Lines, Role, text_of, visible

STYLES = {
    Role.TITLE: "1",
    Role.GOOD: "32",
    Role.BAD: "31",
    Role.WARNING: "33",
    Role.DIM: "2",
    Role.COMMAND: "1",
    Role.HINT: "36",
    Role.WEIGHTS: "34",
    Role.ACTIVATION: "35",
    Role.GRAPHS: "33",
    Role.CACHE: "32",
    Role.FREE: "2",
    Role.HELD: "31",
}
NARROWEST = 80
WIDEST = 400


def width() -> int:
    """Columns to fill: the terminal's (or $COLUMNS), between 80 and 400; 80 where there is none."""
    return min(WIDEST, max(NARROWEST, shutil.get_terminal_size((NARROWEST, 24)).columns))


def show(lines: Lines) -> None:
    """Print a document, coloured on a terminal unless NO_COLOR is set."""
    if not coloured():
        print(text_of(lines))
        return
    for row in lines:
        print(
            "".join(
                f"\x1b[{STYLES[span.role]}m{span.text}\x1b[0m" if span.role in STYLES else span.text
                for span in row
            )
        )


def coloured() -> bool:
    """Whether colours are wanted on stdout."""
    return (
        sys.stdout is not None
        and sys.stdout.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def show_json(value: Any) -> None:
    """Print data as one JSON document, on one line unless a person reads it: indenting takes ten times as long.

    What a terminal would obey or cannot show is escaped.
    """
    indent = 2 if sys.stdout is not None and sys.stdout.isatty() else None
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    if not text.replace("\n", "").isprintable() or not _can_show(text):
        text = json.dumps(value, indent=indent, ensure_ascii=True, allow_nan=False)
    print(text)


def _can_show(text: str) -> bool:
    try:
        text.encode((sys.stdout and sys.stdout.encoding) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def complain(error: GpuplanError) -> None:
    """Print an expected failure on stderr: what is wrong, a line for each fault, then the way out."""
    for number, text in enumerate(error.message.split("\n")):
        print(f"{'' if number else 'error: '}{visible(text)}", file=sys.stderr)
    if error.hint:
        print(f"hint: {visible(error.hint)}", file=sys.stderr)


def remark(text: str) -> None:
    """Print something worth knowing on stderr, on a line of its own."""
    from gpuplan.cli.progress import STATUS

    with STATUS.aside():
        print(f"note: {visible(text)}", file=sys.stderr)


def talk(lines: Lines) -> None:
    """Print a document on stderr, for a person who is about to be asked."""
    print(text_of(lines), file=sys.stderr)


def can_ask() -> bool:
    """Whether somebody can answer a question: both ends are a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


def asked(question: str) -> bool:
    """Whether the answer is yes; anything else, an end of input included, is no."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def remark_age(taken_at: str | None) -> None:
    """Say how old the snapshot is that a command works on; one written by hand has no age."""
    if taken_at is None:
        return
    from datetime import UTC, datetime

    from gpuplan.present.age import age_note

    remark(age_note(taken_at, datetime.now(UTC)))
