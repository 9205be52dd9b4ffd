"""The locks of hosts, a row each."""

from collections.abc import Iterator, Sequence

from gpuplan.domain.fleet import Host
from gpuplan.present.document import Line, Lines, Role, padded, visible, wrapped
from gpuplan.present.status_text import unreached


def locks_text(rows: Sequence[tuple[str, str, bool]], silent: Sequence[Host], width: int) -> Lines:
    """Host, what is told of its lock, and whether that stands in the way; then the hosts that did not answer."""
    return tuple(_rows(rows, silent, width))


def _rows(rows: Sequence[tuple[str, str, bool]], silent: Sequence[Host], width: int) -> Iterator[Line]:
    name = min(max((len(visible(host)) for host, _, _ in rows), default=4), 24)
    for host, text, bad in rows:
        yield from wrapped(
            text, width, first=f"{padded(visible(host), name)}  ", role=Role.WARNING if bad else Role.PLAIN
        )
    yield from unreached(silent, width)
