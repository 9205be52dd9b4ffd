"""A preflight for people: a ladder a host, then what concerns several, each rung with the way out."""

from collections.abc import Iterator

from gpuplan.planning.preflight_report import HostLadder, Preflight, Rung, RungName, Status, worst
from gpuplan.present.check_words import tell
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, visible, wrapped
from gpuplan.units import plural

WORDS = {
    Status.GREEN: ("ok", Role.GOOD),
    Status.AMBER: ("warning", Role.WARNING),
    Status.RED: ("failed", Role.BAD),
    Status.GREY: ("skipped", Role.DIM),
}
"""Every status is a word, readable without colour."""
NAMES = {
    RungName.SSH: "SSH",
    RungName.PROBE: "probe",
    RungName.DOCKER: "Docker",
    RungName.GPU: "GPUs",
    RungName.GPU_HEALTH: "GPU health",
    RungName.TOOLKIT: "toolkit",
    RungName.DRIVER: "driver",
    RungName.ARCHITECTURE: "architecture",
    RungName.IMAGE_DISK: "image",
    RungName.WEIGHTS: "weights",
    RungName.PORTS: "ports",
    RungName.SHARED_MEMORY: "shared memory",
    RungName.INTERFACE: "interface",
    RungName.IDENTITY: "machines",
    RungName.REACHABILITY: "reachability",
    RungName.MTU: "MTU",
    RungName.CLOCKS: "clocks",
    RungName.SAME_DRIVER: "same driver",
    RungName.SAME_IMAGE: "same image",
    RungName.SAME_MODEL: "same model",
}
_INDENT = 2 + 9 + 15
"""Columns before a rung's headline: margin, status, name."""


def check_text(report: Preflight, width: int) -> Lines:
    """Every ladder in at most `width` columns, and a summary at the end."""
    return tuple(_lines(report, width))


def _lines(report: Preflight, width: int) -> Iterator[Line]:
    for ladder in report.hosts:
        yield line(Span(visible(ladder.host), Role.TITLE))
        yield from _ladder(ladder, width)
        yield EMPTY
    if report.across:
        yield line(Span("between the hosts" if len(report.hosts) > 1 else "clock", Role.TITLE))
        for rung in report.across:
            yield from _rung(rung, None, width)
        yield EMPTY
    yield from _summary(report, width)


def _ladder(ladder: HostLadder, width: int) -> Iterator[Line]:
    """The rungs; those that a host that was not reached never came to are told in one line."""
    beyond = [rung for rung in ladder.rungs if _not_come_to(rung)]
    for rung in ladder.rungs:
        if not _not_come_to(rung):
            yield from _rung(rung, ladder.host, width)
    if beyond:
        text = f"{plural(len(beyond), 'rung')} above it: the host was not reached"
        yield line("  ", Span(f"{'skipped':<9}", Role.DIM), Span(text, Role.DIM))


def _not_come_to(rung: Rung) -> bool:
    return rung.status is Status.GREY and rung.reason == "unreached"


def _rung(rung: Rung, host: str | None, width: int) -> Iterator[Line]:
    word, role = WORDS[rung.status]
    told = tell(rung, host)
    rows = wrapped(told.headline, width - _INDENT)
    for number, row in enumerate(rows):
        text = Span(row[0].text, role if rung.status in {Status.AMBER, Status.RED} else row[0].role)
        if number:
            yield line(" " * _INDENT, text)
        else:
            yield line("  ", Span(f"{word:<9}", role), f"{NAMES[rung.name]:<15}", text)
    for reason in told.because:
        for row in wrapped(reason, width - _INDENT, role=Role.DIM):
            yield line(" " * _INDENT, *row)
    if told.fix is not None and rung.status is not Status.GREEN:
        for row in wrapped(told.fix, width - _INDENT, first="→ ", role=Role.HINT):
            yield line(" " * _INDENT, *row)


def _summary(report: Preflight, width: int) -> Iterator[Line]:
    statuses = [ladder.status for ladder in report.hosts]
    counted = [
        f"{statuses.count(status)} {words}"
        for status, words in (
            (Status.GREEN, "ok"),
            (Status.AMBER, "with warnings"),
            (Status.RED, "failed"),
            (Status.GREY, "not judged"),
        )
        if status in statuses
    ]
    between = WORDS[worst(report.across)][0] if len(report.hosts) > 1 and report.across else None
    text = f"{plural(len(report.hosts), 'host')}: {', '.join(counted)}"
    if between is not None:
        text += f"; between them: {between}"
    overall = worst(tuple(rung for ladder in report.hosts for rung in ladder.rungs) + report.across)
    yield from wrapped(text, width, role=WORDS[overall][1])
    model = f", model {report.model}" if report.model else ""
    yield from wrapped(f"checked for {report.image}{model}", width, role=Role.DIM)
