"""What is to be told about a packing, as facts (GP260 to GP268)."""

from collections.abc import Iterator, Sequence
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.planning.packing.blocking import Blocked, Why
from gpuplan.planning.packing.moves import Action, Reason, Step
from gpuplan.planning.packing.values import Packing, Place

CODES = {
    Why.BLOCKED: "GP260",
    Why.NEVER: "GP261",
    Why.FULL: "GP262",
    Why.PINNED: "GP263",
    Why.APART: "GP264",
}
GAP = "GP265"
DETOUR = "GP266"
DOWNTIME = "GP267"
DROPPED = "GP268"


def about_blocked(one: Blocked, copies: int, priority: int) -> Fact:
    """Why a model is not placed, and what would let it in."""
    more = None if one.more is None else {"kind": _kind(one.more[0]), "count": one.more[1]}
    return Fact(
        code=CODES[one.why],
        severity=Severity.ERROR,
        subject={"model": one.item},
        figures={
            "replicas": copies,
            "priority": priority,
            "room_for": one.copies,
            "blockers": [
                {"model": other.item, "gpus": other.cards, "priority": other.priority}
                for other in one.blockers
            ],
            "without": list(one.without),
            "without_all": list(one.without_all),
            "stopping": list(one.stopping),
            "more": more,
            "unpinned": one.unpinned,
            "together": one.together,
        },
    )


def _kind(kind: Any) -> str:
    return str(getattr(kind, "name", kind))


def about_gap(packing: Packing) -> Iterator[Fact]:
    """GP265 where a better packing is not ruled out."""
    if packing.optimal:
        return
    cost, bound = packing.cost, packing.bound
    yield Fact(
        code=GAP,
        severity=Severity.INFO,
        subject={"packing": "gap"},
        figures={
            "left_out": cost[0],
            "least_left_out": bound[0],
            "gpus": cost[1],
            "least_gpus": bound[1] if cost[0] == bound[0] else None,
            "gpu_gap": _gap(cost[1], bound[1]) if cost[0] == bound[0] else None,
        },
    )


def _gap(value: int, least: int) -> float:
    """Share of the GPUs that a better packing could do without at most."""
    return round((value - least) / value, 4) if value else 0.0


def about_steps(steps: Sequence[Step]) -> Iterator[Fact]:
    """Detours, interruptions, and what is stopped for good."""
    for step in steps:
        if step.reason is Reason.DETOUR:
            yield _of_step(DETOUR, Severity.INFO, step)
        elif step.action is Action.STOP and step.reason is Reason.DOWNTIME:
            yield _of_step(DOWNTIME, Severity.WARNING, step)
        elif step.action is Action.STOP and step.reason is Reason.DROPPED:
            yield _of_step(DROPPED, Severity.WARNING, step)


def _of_step(code: str, severity: Severity, step: Step) -> Fact:
    return Fact(
        code=code,
        severity=severity,
        subject={"model": step.item, "deployment": step.deployment},
        figures={"gpus": places(step.cards), "instead_of": step.instead_of},
    )


def places(cards: Sequence[tuple[Place, int]]) -> list[str]:
    """`h1:0,1` for each host."""
    by_host: dict[str, list[int]] = {}
    for (host, index), _ in cards:
        by_host.setdefault(host, []).append(index)
    return [f"{host}:{','.join(map(str, sorted(indexes)))}" for host, indexes in by_host.items()]
