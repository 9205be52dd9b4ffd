"""Lines that members print, one row each: who, when, what; text from elsewhere cannot move the cursor."""

import re
from collections.abc import Sequence

from gpuplan.domain.deployment import Member
from gpuplan.present.document import Line, Role, Span, padded, visible, width_of

_GRAVE = re.compile(r"\b(?:ERROR|CRITICAL|FATAL|Traceback|panic)\b")
_NOTED = re.compile(r"\bWARN(?:ING)?\b")
_LEVEL_WITHIN = 60
"""Characters of a line's beginning that its level stands in."""
WIDEST_LABEL = 28


def member_label(member: Member) -> str:
    """`h100-b/follower1`."""
    server = f"-{member.server}" if member.server else ""
    return f"{member.host}/{member.role.value}{member.rank or ''}{server}"


def label_column(members: Sequence[Member]) -> int:
    """Cells the labels of these members take."""
    return min(WIDEST_LABEL, max((width_of(visible(member_label(one))) for one in members), default=0))


def clock(at: str) -> str:
    """`01:00:06.250` of Docker's time stamp."""
    return at[11:23] if len(at) >= 23 else at


def log_line(
    label: str, at: str, text: str, *, column: int, times: bool, found: str = "", sensitive: bool = False
) -> Line:
    """One row. `found` is marked where it stands; `column` 0 leaves the label out."""
    shown = visible(text)
    start: list[Span] = []
    if column:
        start.append(Span(padded(visible(label), column) + "  ", Role.DIM))
    if times:
        start.append(Span(f"{visible(clock(at)):<12}  ", Role.DIM))
    role = _role(shown)
    return (*start, *_marked(shown, found, role, sensitive=sensitive))


def said_line(text: str) -> Line:
    """A remark of ours between the lines."""
    return (Span(f"── {visible(text)}", Role.HINT),)


def _role(text: str) -> Role:
    beginning = text[:_LEVEL_WITHIN]
    if _GRAVE.search(beginning):
        return Role.BAD
    return Role.WARNING if _NOTED.search(beginning) else Role.PLAIN


def _marked(text: str, found: str, role: Role, *, sensitive: bool) -> Line:
    if not found:
        return (Span(text, role),)
    within, sought = (text, found) if sensitive else (text.lower(), found.lower())
    if len(within) != len(text):  # a letter whose small form is longer: places would not agree
        return (Span(text, role),)
    pieces: list[Span] = []
    at = 0
    while (hit := within.find(sought, at)) >= 0:
        pieces += [Span(text[at:hit], role), Span(text[hit : hit + len(sought)], Role.COMMAND)]
        at = hit + len(sought)
    return (*pieces, Span(text[at:], role))
