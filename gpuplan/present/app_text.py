"""What is always on the app's screen, and its help: lines fitted to a width, nothing in them by colour alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible, width_of, wrapped

LEAST = 14
"""Cells the source and a run under way keep, however narrow it is."""
ENOUGH = 34
"""Cells of a long source that matter more than the names of the other modes."""
CURRENT = "▸"
READ_ONLY = "READ ONLY"
SOURCE_WORDS = {
    "live": "live: {}",
    "snapshot": "snapshot: {}",
    "declared": "declared, not probed: {}",
    "demo": "DEMO – recorded fleet",
}
KEYS_WIDTH = 14
HELP_INDENT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """One of the app's modes."""

    key: str
    name: str
    current: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHelp:
    """A command as the help lists it."""

    keys: str
    title: str
    help: str
    why_not: str | None = None
    """Why it cannot be done now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGroup:
    """Commands that work at one place."""

    title: str
    rows: tuple[KeyHelp, ...]


def source_label(kind: str, name: str) -> str:
    """Where the picture of the fleet comes from."""
    return visible(SOURCE_WORDS.get(kind, "{}").format(name))


def header_line(
    width: int, tabs: Sequence[Tab], *, source: str = "", read_only: bool = False, running: str = ""
) -> Line:
    """The modes, and on the right what must never be overlooked; cut where there is no room for all of it.

    First the program's name goes, then the beginning of a long path, then the names of the other modes, then the ends of
    source and run.
    """
    marks = [Span(READ_ONLY, Role.WARNING)] if read_only else []
    others = sum(width_of(text) + 2 for text in (running, *(mark.text for mark in marks)) if text)
    whole = width_of(source) + 2 if source else 0
    left = _left(tabs, named=True, title=True)
    for named, wanted in ((True, whole), (False, min(whole, ENOUGH))):
        if _width(left) + others + wanted <= width:
            break
        left = _left(tabs, named=named, title=False)
    room = width - _width(left) - sum(width_of(mark.text) + 2 for mark in marks) - 1
    for_source, for_run = _shares(room, width_of(source), width_of(running))
    pieces = [Span(_cut(running, for_run), Role.HINT)] if for_run > 2 else []
    pieces += marks
    if for_source > 2:
        pieces.append(Span(_cut(source, for_source, keep_end=True), _source_role(source)))
    right = tuple(part for piece in pieces for part in (Span("  "), piece))
    gap = width - _width(left) - _width(right) - 1
    return (*left, Span(" " * max(0, gap)), *right, Span(" "))


def too_small(width: int, height: int, least: tuple[int, int]) -> str:
    """What stands instead of a screen that would not fit."""
    return (
        f"{width}×{height} is too small a terminal: gpuplan needs {least[0]}×{least[1]}, better 80×24. "
        "Make it larger, or leave with q."
    )


def help_lines(title: str, about: Sequence[str], groups: Sequence[KeyGroup], width: int) -> Lines:
    """The help of a screen: what its focused part shows, then the commands by place."""
    lines: list[Line] = [line(Span(title, Role.TITLE))]
    for text in about:
        lines += wrapped(text, width)
    for group in groups:
        lines += [EMPTY, line(Span(group.title, Role.TITLE))]
        for row in group.rows:
            lines += _key_lines(row, width)
    return tuple(lines)


def _key_lines(row: KeyHelp, width: int) -> Lines:
    keys = padded(row.keys, KEYS_WIDTH) if width_of(row.keys) < KEYS_WIDTH else row.keys + " "
    text = f"{row.title} – {row.help}" if row.help else row.title
    lead = " " * HELP_INDENT + keys
    role = Role.PLAIN if row.why_not is None else Role.DIM
    hanging = " " * (HELP_INDENT + KEYS_WIDTH)
    first, *rest = wrapped(text, width, first=" " * width_of(lead), rest=hanging, role=role)
    body = first[0].text[width_of(lead) :]
    lines = [line(" " * HELP_INDENT, Span(keys, Role.COMMAND), Span(body, role)), *rest]
    if row.why_not is not None:
        lines += wrapped(f"not now: {row.why_not}", width, first=hanging, role=Role.WARNING)
    return tuple(lines)


def _left(tabs: Sequence[Tab], *, named: bool, title: bool) -> Line:
    spans: list[Span] = [Span(" gpuplan ", Role.TITLE)] if title else []
    for tab in tabs:
        label = f"{tab.key} {tab.name}" if named or tab.current else tab.key
        mark = CURRENT if tab.current else " "
        spans.append(Span(f"{mark}{label} ", Role.TITLE if tab.current else Role.PLAIN))
    return tuple(spans)


def _shares(room: int, source: int, running: int) -> tuple[int, int]:
    """Cells for the source and for the run, each with the two before it taken off."""
    parts = (source > 0) + (running > 0)
    room -= 2 * parts
    if not parts or room <= 0:
        return 0, 0
    if source + running <= room:
        return source, running
    for_source = min(source, max(LEAST, room - running)) if running else min(source, room)
    for_source = min(for_source, room)
    return for_source, min(running, room - for_source)


def _cut(text: str, width: int, *, keep_end: bool = False) -> str:
    if width_of(text) <= width:
        return text
    if not keep_end:
        return padded(text, width)
    head, colon, tail = text.partition(": ")
    if not colon or len(head) + 5 > width:
        return padded(text, width)
    kept = ""
    for char in reversed(tail):
        if width_of(head) + 3 + width_of(kept + char) > width:
            break
        kept = char + kept
    return f"{head}: …{kept}"


def _source_role(source: str) -> Role:
    return Role.PLAIN if source.startswith("live") else Role.WARNING


def _width(row: Line) -> int:
    return sum(width_of(span.text) for span in row)
