"""A document in parts that fold: every part has a key that outlives its words, so a face can keep what was opened."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuplan.present.document import Line, Lines, Role, Span, width_of

Key = tuple[str, ...]
"""Path of a part: its section, then what it is about."""
OPEN, CLOSED = "▾ ", "▸ "
CONTINUED = "      "
"""Begins what is left of a line that was too wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Lines, with parts below them. Without any below, the lines stand as they are, indented already."""

    key: Key
    lines: Lines
    below: tuple["Part", ...] = ()
    is_open: bool = False
    """Unless somebody folds or opens it."""
    folds: bool = False
    """Can be opened though nothing is below yet."""

    @property
    def can_fold(self) -> bool:
        return self.folds or bool(self.below)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of what is shown."""

    key: Key
    """Of the part, and the number of the line."""
    part: Key
    line: Line
    can_fold: bool


def rows_of(parts: Sequence[Part], opened: Mapping[Key, bool], depth: int = 0) -> Iterator[Row]:
    """The rows that are seen; `opened` has what was opened (True) or folded (False) by hand."""
    for part in parts:
        is_open = opened.get(part.key, part.is_open)
        for number, line in enumerate(part.lines):
            yield Row(
                key=(*part.key, f"#{number}"),
                part=part.key,
                line=_marked(line, depth, number, is_open=is_open) if part.can_fold else line,
                can_fold=part.can_fold,
            )
        if is_open:
            yield from rows_of(part.below, opened, depth + 1)


def _marked(line: Line, depth: int, number: int, *, is_open: bool) -> Line:
    mark = "  " if number else OPEN if is_open else CLOSED
    return (Span("  " * depth), Span(mark, Role.DIM), *line)


def fitted(parts: Sequence[Part], width: int, depth: int = 0) -> tuple[Part, ...]:
    """The parts with every line that is wider than `width` broken, in the middle of a word where it has to be."""
    return tuple(
        replace(
            part,
            lines=tuple(
                row for line in part.lines for row in _broken(line, width - _mark_cells(part, depth))
            ),
            below=fitted(part.below, width, depth + 1),
        )
        for part in parts
    )


def _mark_cells(part: Part, depth: int) -> int:
    return 2 * depth + len(OPEN) if part.can_fold else 0


def _broken(line: Line, width: int) -> Iterator[Line]:
    if sum(width_of(span.text) for span in line) <= width:
        yield line
        return
    row: list[Span] = []
    used = 0
    for span in line:
        text = ""
        for char in span.text:
            cells = width_of(char)
            if used + cells > width:
                yield (*row, Span(text, span.role))
                row, text, used = [Span(CONTINUED, Role.DIM)], "", width_of(CONTINUED)
            text, used = text + char, used + cells
        row.append(Span(text, span.role))
    yield tuple(row)


def indented(lines: Lines, by: int) -> Lines:
    """The lines behind spaces."""
    return tuple((Span(" " * by), *line) for line in lines)
