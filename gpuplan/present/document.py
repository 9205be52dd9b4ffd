"""A document: lines of spans with roles, already fitted to a width. Faces map roles to colours; words carry the meaning."""

import textwrap
from dataclasses import dataclass
from enum import StrEnum
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


Line = tuple[Span, ...]
Lines = tuple[Line, ...]
EMPTY: Line = ()


def line(*parts: str | Span) -> Line:
    """A line of texts and spans."""
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts)


def visible(text: str) -> str:
    """Text from elsewhere without control, bidirectional or zero-width characters, so that it cannot move the cursor."""
    return "".join(
        char if char == " " or category(char)[0] not in "CZ" else " " if char in "\t\n" else "�"
        for char in text
    )


def width_of(text: str) -> int:
    """Terminal cells a text takes."""
    return sum(
        0 if category(char) in ("Mn", "Me") else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )


def padded(text: str, width: int, *, right: bool = False) -> str:
    """The text cut or filled to exactly `width` cells."""
    if width_of(text) > width:
        kept = ""
        for char in text:
            if width_of(kept + char) > width - 1:
                break
            kept += char
        text = kept + "…"
    fill = " " * (width - width_of(text))
    return fill + text if right else text + fill


def wrapped(
    text: str, width: int, *, first: str = "", rest: str | None = None, role: Role = Role.PLAIN
) -> Lines:
    """Text broken into lines of at most `width` cells, hanging under its first line."""
    indent = " " * width_of(first) if rest is None else rest
    pieces = textwrap.wrap(
        visible(text),
        max(20, width),
        initial_indent=first,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return tuple((Span(piece, role),) for piece in pieces) or ((Span(first, role),),)


def text_of(lines: Lines) -> str:
    """The document without roles."""
    return "\n".join("".join(span.text for span in row).rstrip() for row in lines)
