"""What a sweep is going to stop and what it made of every deployment, for people and for a log."""

from collections import Counter
from collections.abc import Iterator, Sequence

from gpuplan.domain.deployment import Load
from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import Host
from gpuplan.domain.idle import Judgement, Outcome, Why
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible, wrapped
from gpuplan.present.findings import word
from gpuplan.present.fleet_text import LABELS, ROLES
from gpuplan.present.status_text import duration, unreached
from gpuplan.units import plural

OUTCOMES = {
    Outcome.KEPT: ("kept", Role.DIM),
    Outcome.WOULD_BE_STOPPED: ("would be stopped", Role.WARNING),
    Outcome.STOPPED: ("stopped", Role.GOOD),
    Outcome.LEFT: ("not stopped", Role.BAD),
    Outcome.UNKNOWN: ("unknown", Role.WARNING),
}
DONE = frozenset({Outcome.STOPPED, Outcome.LEFT, Outcome.WOULD_BE_STOPPED})
"""What is told also where only changes are."""

REASONS = {
    Why.IDLE: "idle for at least {idle}, its keep-alive is {keep}",
    Why.NOT_YET: "idle for {idle} of {keep}: {left} to go",
    Why.FIRST_SEEN: "idle now; its {keep} begin with this look: it was not seen before, or worked since",
    Why.IN_FLIGHT: "{busy}: its {keep} begin when they have ended",
    Why.NO_KEEP_ALIVE: "no keep-alive: it runs until it is stopped",
    Why.NEVER: "its keep-alive is negative: no sweep stops it",
    Why.NOT_RUNNING: "its state is {detail}: that is no idleness",
    Why.LOCKED: "idle for at least {idle}, but {detail}",
    Why.CHANGED: "stopped or deployed anew by somebody else meanwhile",
    Why.NOT_CONFIRMED: "idle for at least {idle}; the answer was no",
    Why.FAILED: "idle for at least {idle}, but {detail}",
    Why.SILENT: "{detail} does not answer or was not asked: whether it is idle is not known",
    Why.NO_FIGURES: "{detail} does not tell its requests in /metrics (--disable-log-stats?): whether it is idle is not known",
    Why.UNHEALTHY: "it is unhealthy: {detail}",
    Why.OTHERS_RUN: "of another deploy of that name runs {detail}: whether that is idle is not known",
}
"""By the kind of reason."""

Row = tuple[Judgement, Sequence[Fact]]
"""A deployment, and what did not go well when it was stopped."""


def sweep_text(rows: Sequence[Row], silent: Sequence[Host], hosts: int, width: int) -> Lines:
    """Every deployment with what became of it and why; `hosts`: how many answered."""
    return tuple(_report(rows, silent, hosts, width))


def changes_text(rows: Sequence[Row], width: int) -> Lines:
    """Only what was stopped, would be, or could not be; nothing where nothing was."""
    return tuple(_rows([row for row in rows if row[0].outcome in DONE], width))


def reason(judgement: Judgement) -> str:
    """Why it was kept or stopped, and how long until it may be."""
    return REASONS[judgement.why].format(
        keep=duration(judgement.keep_alive_seconds),
        idle=duration(judgement.idle_seconds),
        left=duration(judgement.remaining_seconds),
        busy=_in_flight(judgement.load),
        detail=judgement.detail,
    )


def _in_flight(load: Load) -> str:
    number = plural(load.running or 0, "request")
    return f"{number} in flight, {load.waiting} waiting" if load.waiting else f"{number} in flight"


def _report(rows: Sequence[Row], silent: Sequence[Host], hosts: int, width: int) -> Iterator[Line]:
    if rows:
        yield from _rows(rows, width)
        yield EMPTY
    yield from unreached(silent, width)
    number = Counter(judgement.outcome for judgement, _ in rows)
    counts = [f"{number[outcome]} {OUTCOMES[outcome][0]}" for outcome in Outcome if number[outcome]]
    told = ", ".join(counts) or f"nothing is deployed on {plural(hosts, 'host')}"
    if silent:
        told += f"; {plural(len(silent), 'host')} did not answer: what runs there is not known"
    yield from wrapped(told, width, role=Role.BAD if silent else Role.DIM)


def _rows(rows: Sequence[Row], width: int) -> Iterator[Line]:
    column = min(max((len(visible(judgement.name)) for judgement, _ in rows), default=0), 24)
    for judgement, facts in rows:
        text, role = OUTCOMES[judgement.outcome]
        yield line(Span(padded(visible(judgement.name), column), Role.TITLE), "  ", Span(text, role))
        yield from wrapped(reason(judgement), width, first="  ", role=Role.DIM)
        for fact in facts:
            finding = word(fact)
            yield from wrapped(
                f"{finding.headline} [{finding.code}]",
                width,
                first=f"  {LABELS[fact.severity]}: ",
                role=ROLES[fact.severity],
            )
            if finding.hint is not None:
                yield from wrapped(finding.hint, width, first="    hint: ", role=Role.HINT)
