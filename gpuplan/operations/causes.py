"""Why a deployment is not running, from the logs and states of all of its members as they are now."""

import time
from dataclasses import replace
from functools import partial

from gpuplan.deploying.diagnose import diagnose
from gpuplan.deploying.diagnosis import MemberEvidence
from gpuplan.deploying.observed import Group
from gpuplan.deploying.timestamps import seconds
from gpuplan.domain.deployment import Member, Prediction
from gpuplan.domain.fact import Fact
from gpuplan.domain.secret_text import masked
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.reached import ReachedFleet

LAST_LINES = 6000
"""Of a log: a root cause is earlier than what follows from it, and engines that fail do not print for long."""
READ_SECONDS = 30.0
EARLY_SECONDS = 0.5
"""A program may print before its engine has noted that it runs."""


def causes(fleet: ReachedFleet, group: Group, predicted: Prediction) -> tuple[Fact, ...]:
    """The root cause over all members, then what else was found; a member that cannot be read is judged by its state."""
    members = [one.member for one in group.current]
    logs = on_each({member.id: partial(_lines, fleet, member) for member in members}, READ_SECONDS)
    evidence = tuple(
        MemberEvidence(
            host=member.host,
            container=member.container,
            role=member.role,
            rank=member.rank,
            server=member.server,
            state=member.state,
            exit_code=member.exit_code,
            oom_killed=member.oom_killed,
            error=member.message or "",
            finished_at=seconds(member.finished_at) if member.finished_at is not None else None,
            lines=() if isinstance(found := logs[member.id], Outcome) else found,
            clock_offset_seconds=fleet.seen(member.host).clock_offset_seconds,
        )
        for member in members
    )
    told = diagnose(evidence, predicted, time.time()).facts()
    return tuple(replace(fact, subject={"deployment": group.name, **fact.subject}) for fact in told)


def since_start(member: Member) -> float | None:
    """Seconds since 1970 by its host's clock from which on a log is of its last start; None: from the beginning."""
    began = seconds(member.started_at) if member.started_at is not None else None
    return max(0.0, began - EARLY_SECONDS) if began is not None else None


def _lines(fleet: ReachedFleet, member: Member) -> tuple[tuple[float | None, str], ...]:
    """Of its last start: what it printed before says nothing about this end."""
    from gpuplan.remote.containers import logs

    engine = fleet.engine_of(member.host)
    with logs(engine, member.id, since=since_start(member), tail=LAST_LINES, follow=False) as stream:
        return tuple((seconds(line.at), masked(line.text)) for line in stream)
