"""What a stop is going to end, and what became of it."""

from collections.abc import Iterator, Sequence

from gpuplan.domain.deployment import Deployment
from gpuplan.domain.fact import Fact
from gpuplan.present.document import Line, Lines, Role, Span, line, visible, wrapped
from gpuplan.present.findings import word
from gpuplan.present.fleet_text import LABELS, ROLES
from gpuplan.present.status_text import STATES, duration
from gpuplan.units import plural

_INDENT = "  "


def intent_text(
    deployment: Deployment,
    containers: Sequence[tuple[str, str, str]],
    silent: Sequence[str],
    drain: int,
    width: int,
) -> Lines:
    """What will be stopped: host, container and state of each, and the requests that are waited for."""
    return tuple(_intent(deployment, containers, silent, drain, width))


def outcome_text(
    name: str, removed: Sequence[tuple[str, str]], facts: Sequence[Fact], logs: Sequence[str], width: int
) -> Lines:
    """What was removed, what was not, and where the logs lie."""
    return tuple(_outcome(name, removed, facts, logs, width))


def leaving_changes_text(changes: Sequence[str], width: int) -> Lines:
    """Before the app is left while it stops or restarts something: `restart qwen3-32b`."""
    return (
        *wrapped(f"Under way: {', '.join(changes)}.", width, role=Role.TITLE),
        *wrapped(
            "This is done by the app itself. Left now, it is broken off where it is: containers may be left stopped, "
            "or not removed.",
            width,
            role=Role.WARNING,
        ),
        *wrapped(
            "Nothing of it is lost: gpuplan status shows what there is, and it can be done again.", width
        ),
    )


def _intent(
    deployment: Deployment,
    containers: Sequence[tuple[str, str, str]],
    silent: Sequence[str],
    drain: int,
    width: int,
) -> Iterator[Line]:
    yield line(
        "Stop ",
        Span(visible(deployment.name), Role.TITLE),
        _INDENT,
        Span(deployment.state.value, STATES[deployment.state]),
        f"  {visible(deployment.model)}" if deployment.model else "",
    )
    for host, container, state in containers:
        yield from wrapped(f"{host}: {container} ({state})", width, first=_INDENT)
    running = deployment.load.running if deployment.load is not None else None
    if running:
        waiting = deployment.load.waiting if deployment.load is not None else None
        also = f" and {waiting} waiting" if waiting else ""
        have, are = ("it has", "it is") if running + (waiting or 0) == 1 else ("they have", "they are")
        wait = f"{have} {duration(drain)} to end" if drain else f"{are} cut off"
        yield from wrapped(
            f"{plural(running, 'request')} in flight{also}: {wait}", width, first=_INDENT, role=Role.WARNING
        )
    for host in silent:
        yield from wrapped(
            f"{host} does not answer: what runs there goes on", width, first=_INDENT, role=Role.BAD
        )


def _outcome(
    name: str, removed: Sequence[tuple[str, str]], facts: Sequence[Fact], logs: Sequence[str], width: int
) -> Iterator[Line]:
    if removed:
        hosts = len({host for host, _ in removed})
        text = f"{visible(name)}: {plural(len(removed), 'container')} on {plural(hosts, 'host')} stopped and removed"
        yield from wrapped(text, width, role=Role.GOOD)
    else:
        yield from wrapped(f"{visible(name)}: nothing was stopped", width, role=Role.DIM)
    for fact in facts:
        finding = word(fact)
        yield from wrapped(
            f"{finding.headline} [{finding.code}]",
            width,
            first=f"{LABELS[fact.severity]}: ",
            role=ROLES[fact.severity],
        )
        if finding.hint is not None:
            yield from wrapped(finding.hint, width, first=f"{_INDENT}hint: ", role=Role.HINT)
    if logs:
        place = logs[0].rpartition("/")[0]
        yield from wrapped(f"logs of {plural(len(logs), 'member')} saved in {place}", width, role=Role.DIM)
