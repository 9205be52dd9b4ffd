"""One page of the rulebook."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What `gpuplan explain` prints of a code."""

    code: str
    title: str
    what: str
    why: str
    do: str
    source: str


def page(code: str, title: str, what: str, why: str, do: str, source: str) -> Page:
    """A page, its parts in the order they are read."""
    return Page(code=code, title=title, what=what, why=why, do=do, source=source)
