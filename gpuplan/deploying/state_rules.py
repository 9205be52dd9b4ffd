"""The state of a deployment (S2.1), from its members as Docker shows them and what its servers answer.

The worst member decides. A server that loads is not unhealthy: it starts until it was ready once.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuplan.deploying.observed import MISSING, UNKNOWN, Group, prediction
from gpuplan.domain import labels
from gpuplan.domain.deployment import ContainerRole, Deployment, Load, Member, State

ASKED_TO_END = frozenset({0, 143})
"""Exit codes of a server that was asked to end: by itself, by SIGTERM."""
_WHOLE = re.compile(r"-?[0-9]{1,12}")
_NO_ANSWERS: Mapping[int, "Health"] = {}
_NOBODY: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What a server's `/health` said."""

    status: int | None = None
    """None: no answer."""
    why: str = ""
    """Why there was none."""
    models: tuple[str, ...] | None = None
    """Names it serves; None: it did not tell (an API key is asked for)."""


def judged(
    group: Group, health: Mapping[int, Health] = _NO_ANSWERS, silent: Mapping[str, str] = _NOBODY
) -> tuple[State, str | None]:
    """The state of a deployment and, where it does not run, why in one sentence.

    `health`: what each server answered, by its number; one that was not asked is judged by Docker's own check alone.
    `silent`: hosts that did not answer, and why.
    """
    members = group.members
    for member in members:
        if (trouble := _trouble(member)) is not None:
            return State.ERROR, trouble
    unknown = next((member for member in members if member.state == UNKNOWN), None)
    if unknown is not None:
        said = f"does not answer ({silent[unknown.host]})" if unknown.host in silent else "was not asked"
        return State.UNHEALTHY, f"{unknown.host} {said}: what runs there is not known"
    states = {"exited" if member.state == "removing" else member.state for member in members}
    if states <= {"created", MISSING}:
        return State.PREPARING, None
    if states <= {"exited", "created", MISSING}:
        return State.STOPPED, None
    if MISSING in states or "exited" in states:
        gone = next(member for member in members if member.state in {MISSING, "exited", "removing"})
        what = "is missing" if gone.state == MISSING else "has ended"
        return State.ERROR, f"{place(gone)} {what}, the others run"
    if states & {"created", "restarting"}:
        return State.STARTING, None
    if "paused" in states:
        paused = next(member for member in members if member.state == "paused")
        return State.UNHEALTHY, f"{place(paused)} is paused"
    return _answering(group, health)


def deployment_of(
    group: Group,
    *,
    health: Mapping[int, Health] = _NO_ANSWERS,
    silent: Mapping[str, str] = _NOBODY,
    loads: Sequence[Load] = (),
    uptime_seconds: int | None = None,
) -> Deployment:
    """What `gpuplan status` tells of a group."""
    state, message = judged(group, health, silent)
    given = group.label
    endpoints = tuple(endpoint.url for endpoint in group.endpoints)
    keep_alive = given.get(labels.KEEP_ALIVE, "")
    return Deployment(
        name=group.name,
        state=state,
        model=given.get(labels.MODEL, ""),
        served_name=given.get(labels.SERVED_NAME, ""),
        endpoint=endpoints[0] if endpoints else None,
        endpoints=endpoints,
        image=given.get(labels.IMAGE_REFERENCE, ""),
        vllm_version=given.get(labels.VLLM_VERSION, ""),
        members=group.members,
        predicted=prediction(given.get(labels.PREDICTED, "")),
        load=added(loads) if loads else None,
        uptime_seconds=uptime_seconds,
        message=message,
        keep_alive_seconds=int(keep_alive) if _WHOLE.fullmatch(keep_alive) else None,
    )


def added(loads: Sequence[Load]) -> Load:
    """Servers together: requests summed, the fullest cache."""
    shares = [load.kv_cache_share for load in loads if load.kv_cache_share is not None]
    return Load(
        running=_sum([load.running for load in loads]),
        waiting=_sum([load.waiting for load in loads]),
        kv_cache_share=max(shares) if shares else None,
        requests=_sum([load.requests for load in loads]),
        tokens=_sum([load.tokens for load in loads]),
    )


def place(member: Member) -> str:
    """`follower 1 on h100-b`."""
    rank = f" {member.rank}" if member.role is ContainerRole.FOLLOWER else ""
    return f"{member.role.value}{rank} on {member.host}"


def _trouble(member: Member) -> str | None:
    """Why a member has failed; None where it has not."""
    if member.state == "dead":
        return f"{place(member)} is dead: Docker could not remove it"
    if member.state == "created" and member.message:
        return f"{place(member)} could not be started: {member.message}"
    if member.state != "exited":
        return None
    if member.oom_killed:
        return f"{place(member)} was killed: the host is out of memory"
    if member.exit_code not in ASKED_TO_END:
        return f"{place(member)} ended with exit code {member.exit_code}"
    return None


def _answering(group: Group, health: Mapping[int, Health]) -> tuple[State, str | None]:
    """All members run: what Docker's checks and the servers themselves say; the servers know better."""
    serving = {one.member.id: one.member for one in group.current if labels.ENDPOINT in one.labels}
    for member in group.members:
        answer = health.get(member.server)
        if member.health == "unhealthy" and not (member.id in serving and _well(answer)):
            return State.UNHEALTHY, f"{place(member)} does not pass its check{_said(answer)}"
    checks = {member.server: member.health for member in serving.values()}
    for server, check in checks.items():
        answer = health.get(server)
        if _well(answer) or (answer is None and check == "healthy"):
            continue
        if check != "healthy":
            return State.STARTING, None
        where = next((one.host for one in group.endpoints if one.server == server), "its host")
        return State.UNHEALTHY, f"the server on {where} was ready and is not now{_said(answer)}"
    wrong = _misnamed(group, health)
    return (State.UNHEALTHY, wrong) if wrong is not None else (State.RUNNING, None)


def _said(answer: Health | None) -> str:
    if answer is None:
        return ""
    if answer.status is not None:
        return f": /health says {answer.status}"
    return f": /health gives no answer ({answer.why})" if answer.why else ": /health gives no answer"


def _well(answer: Health | None) -> bool:
    return answer is not None and answer.status == 200


def _misnamed(group: Group, health: Mapping[int, Health]) -> str | None:
    name = group.label.get(labels.SERVED_NAME, "")
    for answer in health.values():
        if name and answer.models is not None and name not in answer.models:
            return f"/v1/models does not list {name}: it serves {', '.join(answer.models) or 'nothing'}"
    return None


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
