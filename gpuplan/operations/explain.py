"""Pages of the rulebook by code."""

from gpuplan.errors import UsageError
from gpuplan.present.rulebook import PAGES, Page
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
