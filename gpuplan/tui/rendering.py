"""Documents as Textual shows them: spans with roles become styled segments. Text from elsewhere never is markup."""

from collections.abc import Mapping

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.color import Color, ColorParseError
from textual.content import Content
from textual.content import Span as ContentSpan
from textual.filter import LineFilter
from textual.strip import Strip

from gpuplan.present.document import Line, Lines, Role, visible

VARIABLES = {
    Role.TITLE: "primary",
    Role.GOOD: "success",
    Role.BAD: "error",
    Role.WARNING: "warning",
    Role.COMMAND: "accent",
    Role.HINT: "secondary",
    Role.WEIGHTS: "primary",
    Role.ACTIVATION: "warning",
    Role.GRAPHS: "secondary",
    Role.CACHE: "success",
    Role.HELD: "error",
}
"""The theme's colour behind a role; the others have the plain one."""
BOLD = frozenset({Role.TITLE})
DIM = frozenset({Role.DIM, Role.FREE})

Styles = Mapping[Role, Style]


def styles_of(variables: Mapping[str, str]) -> Styles:
    """A style for each role under a theme (`App.theme_variables`)."""
    return {role: _style(role, variables.get(VARIABLES.get(role, ""), "")) for role in Role}


def _style(role: Role, colour: str) -> Style:
    try:
        parsed = Color.parse(colour).rich_color if colour else None
    except ColorParseError:
        parsed = None
    return Style(color=parsed, bold=role in BOLD or None, dim=role in DIM or None)


def strip_of(line: Line, styles: Styles) -> Strip:
    """One line as a strip as wide as its text, measured as it will be cut."""
    return Strip([Segment(span.text, styles[span.role]) for span in line if span.text])


def text_of(line: Line, styles: Styles) -> Text:
    """One line as Rich text, for cells of a table."""
    return Text.assemble(*((span.text, styles[span.role]) for span in line), no_wrap=True, end="")


def content_of(lines: Lines) -> Content:
    """A short document as Textual content, for labels and dialogs."""
    pieces: list[Content] = []
    for number, line in enumerate(lines):
        text = "".join(span.text for span in line)
        spans, at = [], 0
        for span in line:
            style = _content_style(span.role)
            if style:
                spans.append(ContentSpan(at, at + len(span.text), style))
            at += len(span.text)
        pieces.append(Content(text + ("\n" if number < len(lines) - 1 else ""), spans=spans))
    return Content("").join(pieces)


def _content_style(role: Role) -> str:
    words = ["bold"] if role in BOLD else ["dim"] if role in DIM else []
    if role in VARIABLES:
        words.append(f"${VARIABLES[role]}")
    return " ".join(words)


def safe(text: object) -> Content:
    """Text from elsewhere as content: harmless, visible, never markup."""
    return Content(visible(str(text)))


class Harmless(LineFilter):
    """The last thing that happens to every line: what a widget of Textual's was given, or typed, cannot move the cursor.

    Every character keeps its cells: one that takes none goes, the others become a sign.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments without control, bidirectional and zero-width characters."""
        if all(
            segment.control or segment.text.isprintable() or segment.text in _BLANK for segment in segments
        ):
            return segments
        return [
            segment if segment.control else Segment(_printable(segment.text), segment.style)
            for segment in segments
        ]


_BLANK = frozenset({"\xa0"})


def _printable(text: str) -> str:
    return "".join(
        char if char.isprintable() or char in _BLANK else "�".ljust(cell_len(char)) if cell_len(char) else ""
        for char in text
    )
