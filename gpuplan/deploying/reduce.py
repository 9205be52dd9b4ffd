"""A deployment is its events put together: whoever reads the same events sees the same deployment.

Once it has failed, only a new attempt or a state that is told outright makes it anything else. A follower's end is
recorded on the follower, the leader's on the deployment (S2.1).
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce as folded
from typing import assert_never

from gpuplan.domain.deployment import GONE, ContainerRole, Deployment, Member, State
from gpuplan.domain.events import (
    At,
    Failed,
    MemberSeen,
    Milestone,
    Phase,
    PhaseDone,
    PhaseStarted,
    Remark,
    SpecDecided,
    StateChanged,
    Transfer,
    Undone,
)

NOTHING = Deployment(name="", state=State.PREPARING)
"""Before the first event."""
_SETTLED = frozenset({State.ERROR, State.STOPPED})
_STARTING = frozenset({Phase.START, Phase.REGISTER, Phase.LOAD, Phase.READY, Phase.ANSWER})
_STOPPING = "it is being stopped"


def reduce(events: Iterable[At], deployment: Deployment = NOTHING) -> Deployment:
    """The deployment after these events, from what it was before them."""
    return folded(apply, events, deployment)


def apply(deployment: Deployment, at: At) -> Deployment:
    """The deployment after one more event."""
    match at.event:
        case SpecDecided():
            return _decided(deployment, at.event)
        case PhaseStarted():
            return _phase_started(deployment, at.event.phase)
        case PhaseDone():
            return _phase_done(deployment, at.event.phase)
        case MemberSeen():
            return _seen(deployment, at.event.member)
        case Failed():
            return _failed(deployment, at.event)
        case Undone():
            return _undone(deployment, at.event)
        case StateChanged():
            return replace(deployment, state=at.event.state, message=at.event.message)
        case Transfer() | Milestone() | Remark():
            return deployment
        case _:
            assert_never(at.event)


def _decided(deployment: Deployment, decided: SpecDecided) -> Deployment:
    spec = decided.spec
    first = spec.servers[0] if spec.servers else None
    return replace(
        deployment,
        name=spec.name,
        model=spec.model,
        served_name=spec.served_name,
        endpoint=None if first is None else first.endpoint,
        endpoints=tuple(server.endpoint for server in spec.servers),
        image=spec.image,
        vllm_version=spec.vllm_version,
        predicted=spec.predicted,
    )


def _phase_started(deployment: Deployment, phase: Phase) -> Deployment:
    """CONNECT begins a new attempt; what follows a failure changes nothing. In a stop and an undo members are meant to end."""
    match phase:
        case Phase.CONNECT:
            return replace(deployment, state=State.PREPARING, message=None)
        case Phase.STOP:
            return replace(deployment, state=State.STOPPED, message=_STOPPING)
        case Phase.UNDO:
            message = deployment.message or "it was taken back before it served"
            return replace(deployment, state=State.ERROR, message=message)
        case Phase.CLEAN:
            return deployment
        case _ if deployment.state in _SETTLED:
            return deployment
        case _:
            return replace(deployment, state=State.STARTING if phase in _STARTING else State.PREPARING)


def _phase_done(deployment: Deployment, phase: Phase) -> Deployment:
    if phase is Phase.STOP:
        return replace(deployment, state=State.STOPPED, message=None)
    if phase is Phase.ANSWER and deployment.state is State.STARTING:
        return replace(deployment, state=State.RUNNING, message=None)
    return deployment


def _seen(deployment: Deployment, member: Member) -> Deployment:
    known = _place(member)
    told = member
    if member.state in GONE and not member.message:
        told = replace(member, message=_ending(member))
    others = tuple(item for item in deployment.members if _place(item) != known)
    members = (
        tuple(told if _place(item) == known else item for item in deployment.members)
        if len(others) < len(deployment.members)
        else (*others, told)
    )
    return _judged(replace(deployment, members=members), told)


def _judged(deployment: Deployment, member: Member) -> Deployment:
    """What one member's state makes of the whole while it starts or runs; helpers are meant to end."""
    watched = deployment.state in (State.STARTING, State.RUNNING, State.UNHEALTHY)
    if not watched or member.role is ContainerRole.HELPER:
        return deployment
    ended = member.state in GONE
    if ended and member.role is not ContainerRole.FOLLOWER:
        return replace(deployment, state=State.ERROR, message=member.message)
    if deployment.state is State.RUNNING and (ended or member.health == "unhealthy"):
        return replace(deployment, state=State.UNHEALTHY)
    if deployment.state is State.UNHEALTHY and all(_is_well(item) for item in deployment.members):
        return replace(deployment, state=State.RUNNING)
    return deployment


def _is_well(member: Member) -> bool:
    return member.role is ContainerRole.HELPER or (member.state == "running" and member.health != "unhealthy")


def _place(member: Member) -> tuple[str, str]:
    return member.host, member.container


def _ending(member: Member) -> str:
    """`leader on h100-a ended with exit code 1`."""
    if member.state == "missing":
        return f"{member.role.value} on {member.host} is gone"
    if member.oom_killed:
        return f"{member.role.value} on {member.host} was killed: out of memory"
    code = "" if member.exit_code is None else f" with exit code {member.exit_code}"
    return f"{member.role.value} on {member.host} ended{code}"


def _failed(deployment: Deployment, failed: Failed) -> Deployment:
    """The facts are worded where they are shown; a message that was told before them is more than their code."""
    codes = ", ".join(dict.fromkeys(fact.code for fact in failed.facts[:1]))
    short = f"failed in the phase {failed.phase.value}" + (f" [{codes}]" if codes else "")
    return replace(deployment, state=State.ERROR, message=deployment.message or short)


def _undone(deployment: Deployment, undone: Undone) -> Deployment:
    place = undone.host, undone.container
    match undone.what:
        case "removed":
            kept = tuple(item for item in deployment.members if _place(item) != place)
            return replace(deployment, members=kept)
        case "left":
            members = tuple(
                replace(item, message=undone.why or item.message) if _place(item) == place else item
                for item in deployment.members
            )
            return replace(deployment, members=members)
        case _:
            return deployment
