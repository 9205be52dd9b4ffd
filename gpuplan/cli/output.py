"""stdout is data, stderr is talk: the one place that prints."""

import json
import os
import shutil
import sys
from typing import Any

from gpuplan.errors import GpuplanError
from gpuplan.present.document import Lines, Role, text_of

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


def width() -> int:
    """Columns to fill: the terminal's (or $COLUMNS), 80 at least and where there is none."""
    return max(NARROWEST, shutil.get_terminal_size((NARROWEST, 24)).columns)


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
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def show_json(value: Any) -> None:
    """Print data as one JSON document."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def complain(error: GpuplanError) -> None:
    """Print an expected failure on stderr: what is wrong, then the way out."""
    print(f"error: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
