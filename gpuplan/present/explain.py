"""Rulebook pages for people and as data."""

from collections.abc import Sequence
from typing import Any

from gpuplan.errors import UsageError
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, wrapped
from gpuplan.present.page import Page
from gpuplan.present.rulebook import PAGES
from gpuplan.sources.catalogue.names import near_misses


def pages(code: str | None) -> tuple[Page, ...]:
    """One page, or all. Raises UsageError with near misses for an unknown code."""
    if code is None:
        return tuple(PAGES.values())
    page = PAGES.get(code.upper())
    if page is None:
        near = near_misses(code.upper(), list(PAGES), limit=3)
        meant = f"did you mean {', '.join(near)}? " if near else ""
        raise UsageError(f"there is no finding {code!r}", hint=f"{meant}`gpuplan explain` lists all codes")
    return (page,)


def page_text(page: Page, width: int) -> Lines:
    """A page under four headings."""
    lines: list[Line] = [line(Span(f"{page.code}  {page.title}", Role.TITLE))]
    for heading, text in (
        ("What it means", page.what),
        ("Why it matters", page.why),
        ("What to do", page.do),
        ("Source", page.source),
    ):
        if text:
            lines += [EMPTY, line(Span(heading, Role.DIM)), *wrapped(text, width, first="  ")]
    return tuple(lines)


def pages_text(pages: Sequence[Page], width: int) -> Lines:
    """All codes, a line each."""
    rows: list[Line] = []
    for page in pages:
        rows += wrapped(page.title, width, first=f"{page.code}  ")
    return tuple(rows)


def page_document(page: Page) -> dict[str, Any]:
    return {
        "code": page.code,
        "title": page.title,
        "what": page.what,
        "why": page.why,
        "do": page.do,
        "source": page.source,
    }
