"""A document: lines of spans with roles, already fitted to a width. Faces map roles to colours; words carry the meaning."""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from unicodedata import category, east_asian_width


class Role(StrEnum):
    PLAIN = "plain"
    TITLE = "title"
    GOOD = "good"
    BAD = "bad"
    WARNING = "warning"
    DIM = "dim"
    COMMAND = "command"
    HINT = "hint"
    WEIGHTS = "weights"
    ACTIVATION = "activation"
    GRAPHS = "graphs"
    CACHE = "cache"
    FREE = "free"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line with its role."""

    text: str
    role: Role = Role.PLAIN


_SELECTORS = frozenset(
    map(chr, (*range(0x180B, 0x180E), 0x180F, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)
"""They choose between pictures of the character before, of other widths in other terminals."""
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
"""Letters and marks without a picture."""
_NO_CELLS = ((0x1160, 0x11FF), (0xD7B0, 0xD7FF), (0x1F3FB, 0x1F3FF))
"""What joins the letter or the picture before: vowels and finals of Hangul, skin tones."""
_TWO_CELLS = ((0x2630, 0x2637), (0x268A, 0x268F), (0x4DC0, 0x4DFF), (0x1D300, 0x1D376))
"""Wide since Unicode 16."""
_MARKS = frozenset({"Mn", "Me", "Mc"})

Line = tuple[Span, ...]
Lines = tuple[Line, ...]
EMPTY: Line = ()


def line(*parts: str | Span) -> Line:
    """A line of texts and spans."""
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts)


def visible(text: str) -> str:
    """Text from elsewhere without control, bidirectional or zero-width characters, so that it cannot move the cursor."""
    if text.isprintable() and _SELECTORS.isdisjoint(text) and _UNSEEN.isdisjoint(text):
        return text
    return "".join(map(_harmless, text))


def _harmless(char: str) -> str:
    if char in _SELECTORS:
        return ""
    if char.isprintable() and char not in _UNSEEN:
        return char
    return " " if char in "\t\n" else "�"


def width_of(text: str) -> int:
    """Terminal cells a text takes, as Unicode 17 has them (and Rich counts) for whatever `visible` lets through."""
    return len(text) if text.isascii() else sum(map(_cells, text))


@lru_cache(maxsize=4096)
def _cells(char: str) -> int:
    if category(char) in _MARKS or _within(char, _NO_CELLS):
        return 0
    return 2 if east_asian_width(char) in "WF" or _within(char, _TWO_CELLS) else 1


def _within(char: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= ord(char) <= last for first, last in ranges)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text cut or filled to exactly `width` cells."""
    if width <= 0:
        return ""
    if width_of(text) > width:
        text = _start(text, width - 1) + "…"
    fill = " " * (width - width_of(text))
    return fill + text if right else text + fill


def _start(text: str, width: int) -> str:
    """As much of it as `width` cells hold."""
    taken = 0
    for number, char in enumerate(text):
        taken += _cells(char)
        if taken > width:
            return text[:number]
    return text


def wrapped(
    text: str, width: int, *, first: str = "", rest: str | None = None, role: Role = Role.PLAIN
) -> Lines:
    """Text broken into lines of at most `width` cells, hanging under its first line."""
    indent = " " * width_of(first) if rest is None else rest
    shown, width = visible(text), max(20, width)
    if width_of(first + shown + indent) == len(first + shown + indent):
        pieces = textwrap.wrap(
            shown, width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False
        )
    else:
        pieces = list(_by_cells(shown.split(), width, first, indent))
    return tuple((Span(piece, role),) for piece in pieces) or ((Span(first, role),),)


def _by_cells(words: list[str], width: int, first: str, rest: str) -> Iterator[str]:
    """As `textwrap` does it, for characters that take no cell or two."""
    row, empty = first, True
    for word in words:
        left = word
        if not empty:
            if width_of(row) + 1 + width_of(word) <= width:
                row += " " + word
                continue
            yield row
            row = rest
        while width_of(row) + width_of(left) > width:
            head = _start(left, width - width_of(row)) or (left[0] if row == rest else "")
            yield row + head
            row, left = rest, left[len(head) :]
        row, empty = row + left, False
    if not empty:
        yield row


def text_of(lines: Lines) -> str:
    """The document without roles."""
    return "\n".join("".join(span.text for span in row).rstrip() for row in lines)
