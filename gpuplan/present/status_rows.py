"""Deployments a line each, in columns that a whole list shares; and what a line has no room for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuplan.domain.deployment import Deployment, Load, State
from gpuplan.domain.fact import Fact
from gpuplan.domain.fleet import Host
from gpuplan.present.document import Line, Lines, Role, Span, line, padded, visible, width_of, wrapped
from gpuplan.present.numbers import percent
from gpuplan.present.status_text import STATES, duration, places, requests, told, told_of_hosts, unreached
from gpuplan.units import plural

GLYPHS = {
    State.PREPARING: "○",
    State.STARTING: "◐",
    State.RUNNING: "●",
    State.UNHEALTHY: "▲",
    State.STOPPED: "□",
    State.ERROR: "✗",
}
"""Beside the state's word."""
UNDER_WAY = "▶"
"""Beside a deploy that goes on."""
BAR = 4
"""Cells of the bar of the KV cache."""
_GAP = "  "
_STATE = 11
_REQUESTS = 10
_CACHE = BAR + 6
_UP = 7
_NAME_MOST = 32
_NAME_LEAST = 8
_ADDRESS_LEAST = 18
_ADDRESS_MOST = 40
_WHERE_LEAST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Widths that fit a list."""

    name: int
    address: int
    where: int
    """Of model and places; 0: there is no room for them."""
    gap: str
    width: int


def address_text(deployment: Deployment) -> str:
    """The first endpoint without its scheme, which is the same for all."""
    return visible((deployment.endpoint or "–").removeprefix("http://"))


def columns(names: Sequence[str], addresses: Sequence[str], width: int) -> Columns:
    """Columns for deployments of these names and addresses in `width` cells."""
    gap = _GAP if width >= 100 else " "
    longest = max((width_of(visible(name)) for name in names), default=0)
    wanted = max((width_of(address) for address in addresses), default=0)
    fixed = _STATE + _REQUESTS + _CACHE + _UP + 5 * len(gap)
    room = width - fixed - _ADDRESS_LEAST
    name = max(_NAME_LEAST, min(max(longest, len("deployment")), _NAME_MOST, room))
    address = max(_ADDRESS_LEAST, min(wanted, _ADDRESS_MOST, width - fixed - name))
    where = width - fixed - name - address - len(gap)
    return Columns(
        name=name, address=address, where=where if where >= _WHERE_LEAST else 0, gap=gap, width=width
    )


def header_line(fitted: Columns) -> Line:
    """What the columns are."""
    words = (
        padded("deployment", fitted.name),
        padded("state", _STATE),
        padded("address", fitted.address),
        padded("requests", _REQUESTS),
        padded("KV cache", _CACHE),
        padded("up", _UP, right=True),
        *((padded("model on hosts", fitted.where),) if fitted.where else ()),
    )
    return line(fitted.gap.join(words))


def deployment_line(deployment: Deployment, fitted: Columns) -> Line:
    """Name, state, address, requests, KV cache in use, time since it started; model and places where they fit."""
    gap = fitted.gap
    state = f"{GLYPHS[deployment.state]} {deployment.state.value}"
    parts: list[str | Span] = [
        Span(padded(visible(deployment.name), fitted.name) + gap, Role.TITLE),
        Span(padded(state, _STATE) + gap, STATES[deployment.state]),
        padded(address_text(deployment), fitted.address) + gap,
        padded(requests(deployment.load), _REQUESTS) + gap,
        *_cache(deployment.load),
        gap + padded(duration(deployment.uptime_seconds), _UP, right=True),
    ]
    if fitted.where:
        parts.append(Span(gap + padded(where_text(deployment), fitted.where), Role.DIM))
    return line(*parts)


def run_line(name: str, words: str, fitted: Columns) -> Line:
    """A deploy under way: how far it is."""
    rest = max(0, fitted.width - fitted.name - len(fitted.gap))
    return line(
        Span(padded(visible(name), fitted.name) + fitted.gap, Role.TITLE),
        Span(padded(f"{UNDER_WAY} {visible(words)}", rest), Role.WARNING),
    )


def where_text(deployment: Deployment) -> str:
    """`Qwen/Qwen3-32B on h100-a:0-1, h100-b:0-1`."""
    return visible(f"{deployment.model or 'unknown model'} on {places(deployment.members) or 'no host'}")


def more_text(deployment: Deployment, facts: Sequence[Fact], width: int) -> Lines:
    """What a line has no room for: model, places, more endpoints, why it is not as it should be and what helps."""
    more = len(deployment.endpoints) - 1
    text = f"{deployment.name}: {where_text(deployment)}" + (
        f" and {plural(more, 'endpoint')} more" if more > 0 else ""
    )
    return (*wrapped(text, width, role=Role.DIM), *told(deployment, facts, width))


def hosts_text(deployments: int, silent: Sequence[Host], hosts: int, width: int) -> Lines:
    """How many hosts answered; below, each that did not, with the stage and what mends it."""
    role = Role.BAD if silent else Role.DIM
    return (
        *wrapped(told_of_hosts(deployments, len(silent), hosts), width, role=role),
        *unreached(silent, width),
    )


def keep_alive_text(deployment: Deployment, width: int) -> Lines:
    """When a sweep stops it, and how that is changed."""
    return tuple(_keep_alive(deployment, width))


def restart_text(deployment: Deployment, drain: int, width: int) -> Lines:
    """What a restart is going to do, for whoever is asked."""
    return tuple(_restart(deployment, drain, width))


def restarted_words(deployment: Deployment) -> str:
    """That a restart came to its end: `qwen3-32b serves again at http://10.10.100.11:40000`."""
    where = ", ".join(deployment.endpoints) or deployment.endpoint or "its address"
    return f"{deployment.name} serves again at {where}"


def _keep_alive(deployment: Deployment, width: int) -> Iterator[Line]:
    seconds = deployment.keep_alive_seconds
    if seconds is None or seconds < 0:
        words = "keep-alive: none, it runs until it is stopped"
    else:
        words = f"keep-alive: gpuplan sweep stops it after {duration(seconds)} without requests"
    yield from wrapped(words, width)
    yield from wrapped(
        f"another keep-alive needs a new deploy: gpuplan deploy {deployment.model or 'MODEL'} "
        f"--name {deployment.name} --keep-alive SECONDS",
        width,
        first=_GAP,
        role=Role.HINT,
    )


def _restart(deployment: Deployment, drain: int, width: int) -> Iterator[Line]:
    yield line(
        "Restart ",
        Span(visible(deployment.name), Role.TITLE),
        _GAP,
        Span(deployment.state.value, STATES[deployment.state]),
        f"  {visible(deployment.model)}" if deployment.model else "",
    )
    for member in deployment.members:
        state = member.health or member.state
        yield from wrapped(f"{member.host}: {member.container} ({state})", width, first=_GAP)
    running = deployment.load.running if deployment.load is not None else None
    if running:
        have, are = ("it has", "it is") if running == 1 else ("they have", "they are")
        wait = f"{have} {duration(drain)} to end" if drain else f"{are} cut off"
        yield from wrapped(
            f"{plural(running, 'request')} in flight: {wait}", width, first=_GAP, role=Role.WARNING
        )
    yield from wrapped(
        "They are stopped and started again as they are; it answers nothing until the model is loaded again.",
        width,
        role=Role.WARNING,
    )


def _cache(load: Load | None) -> tuple[Span, ...]:
    """`██░░░  41 %`."""
    share = load.kv_cache_share if load is not None else None
    if share is None:
        return (Span(padded("–", _CACHE)),)
    full = min(BAR, max(0, round(share * BAR)))
    if share > 0 and not full:
        full = 1
    words = padded(f" {percent(round(share, 2))}", _CACHE - BAR, right=True)
    return Span("█" * full, Role.CACHE), Span("░" * (BAR - full), Role.FREE), Span(words)
