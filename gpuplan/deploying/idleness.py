"""When a deployment has been idle for longer than its keep-alive (S4.8), from looks that are minutes or days apart.

Servers tell how many requests they have served and how many tokens they have worked on, not when the last one came.
Two looks with the same figures and nothing in flight prove that nothing ended between them. So the clock of a
deployment starts at the first look that finds it idle and starts again whenever anything differs: it may run late,
never early, whoever else looks from elsewhere. Nothing is judged that did not answer in full.
"""

from collections.abc import Mapping

from gpuplan.deploying.observed import UNKNOWN, Group
from gpuplan.domain.deployment import Deployment, Load, State
from gpuplan.domain.idle import Counters, Judgement, Moment, Outcome, Sighting, Why

_NOT_TOLD = -1
_AT_WORK = frozenset({"running", "paused", "restarting"})


def weighed(
    group: Group,
    deployment: Deployment,
    loads: Mapping[int, Load | None],
    before: Sighting | None,
    now: Moment,
    idle_for: int | None = None,
) -> tuple[Judgement, Sighting | None]:
    """What a sweep makes of a deployment, and what is to be remembered of it; None: nothing new was learned.

    `loads`: what each of its servers told of its load, by number. `before`: what was remembered. `now`: not before the
    loads were asked for. `idle_for`: seconds that count instead of its keep-alive, if it has one.
    """
    keep_alive = deployment.keep_alive_seconds
    if keep_alive is not None and keep_alive >= 0 and idle_for is not None:
        keep_alive = idle_for

    def judged(outcome: Outcome, why: Why, detail: str = "", **more: int) -> Judgement:
        return Judgement(
            name=group.name,
            outcome=outcome,
            why=why,
            detail=detail,
            keep_alive_seconds=keep_alive,
            load=deployment.load or Load(),
            **more,
        )

    if keep_alive is None:
        return judged(Outcome.KEPT, Why.NO_KEEP_ALIVE), None
    if keep_alive < 0:
        return judged(Outcome.KEPT, Why.NEVER), None
    unseen = _unseen(group, deployment, loads)
    if unseen is not None:
        return judged(*unseen), None
    figures = {server: load for server, load in loads.items() if load is not None}
    sighting = look(group, figures, before, now)
    idle = elapsed(sighting.since, now)
    if _in_flight(figures):
        return judged(Outcome.KEPT, Why.IN_FLIGHT, idle_seconds=0), sighting
    if idle >= keep_alive:
        return judged(Outcome.WOULD_BE_STOPPED, Why.IDLE, idle_seconds=idle), sighting
    fresh = before is None or sighting.since != before.since
    return judged(Outcome.KEPT, Why.FIRST_SEEN if fresh else Why.NOT_YET, idle_seconds=idle), sighting


def look(group: Group, figures: Mapping[int, Load], before: Sighting | None, now: Moment) -> Sighting:
    """What is remembered after a look: the clock goes on only where nothing moved and nothing is in flight."""
    starts = tuple(sorted(f"{one.member.id} {one.member.started_at}" for one in group.current))
    counters = _counters(figures)
    goes_on = (
        before is not None
        and before.starts == starts
        and before.counters == counters
        and before.since.wall <= now.wall
        and not _in_flight(figures)
    )
    return Sighting(
        name=group.name,
        generation=generation_of(group),
        starts=starts,
        counters=counters,
        since=before.since if before is not None and goes_on else now,
        looked=now.wall,
    )


def elapsed(since: Moment, now: Moment) -> int:
    """Seconds that have surely passed: a wall clock that was set forward makes nothing idle within one boot."""
    passed = now.wall - since.wall
    if since.boot and since.boot == now.boot:
        passed = min(passed, now.steady - since.steady)
    return max(0, int(passed))


def generation_of(group: Group) -> str:
    """Of the containers that count."""
    return next((one.generation for one in group.current), "")


def _unseen(
    group: Group, deployment: Deployment, loads: Mapping[int, Load | None]
) -> tuple[Outcome, Why, str] | None:
    """Why it cannot be told whether it is idle, or why that is not the question; None: it can."""
    silent = next((member for member in group.members if member.state == UNKNOWN), None)
    if silent is not None:
        return Outcome.UNKNOWN, Why.SILENT, silent.host
    if deployment.state is State.UNHEALTHY:
        return Outcome.UNKNOWN, Why.UNHEALTHY, deployment.message or ""
    if deployment.state is not State.RUNNING:
        return Outcome.KEPT, Why.NOT_RUNNING, deployment.state.value
    other = next((one for one in group.leftover if one.state in _AT_WORK), None)
    if other is not None:
        return Outcome.UNKNOWN, Why.OTHERS_RUN, f"{other.name} on {other.host}"
    places = {member.server: member.host for member in reversed(group.members)}
    for server, host in sorted(places.items()):
        load = loads.get(server)
        if load is None:
            return Outcome.UNKNOWN, Why.SILENT, f"the server on {host}"
        if load.running is None or load.waiting is None or load.requests is None:
            return Outcome.UNKNOWN, Why.NO_FIGURES, f"the server on {host}"
    return None


def _in_flight(figures: Mapping[int, Load]) -> bool:
    return any(load.running or load.waiting for load in figures.values())


def _counters(figures: Mapping[int, Load]) -> Counters:
    return tuple(
        (
            server,
            _NOT_TOLD if load.requests is None else load.requests,
            _NOT_TOLD if load.tokens is None else load.tokens,
        )
        for server, load in sorted(figures.items())
    )
