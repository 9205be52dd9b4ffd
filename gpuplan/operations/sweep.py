"""`gpuplan sweep`: stop the deployments that were idle for longer than their keep-alive (S4.8).

No daemon counts: each machine that sweeps remembers what it has seen, and stops only what it has itself seen idle for
long enough, and sees idle once more under the lock of the hosts.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from gpuplan.deploying.idleness import generation_of, weighed
from gpuplan.deploying.observed import Group
from gpuplan.deploying.state_rules import deployment_of
from gpuplan.domain.fleet import Host
from gpuplan.domain.idle import Judgement, Moment, Outcome, Sighting, Why
from gpuplan.errors import GpuplanError, NoHostError
from gpuplan.operations.across import Outcome as CallOutcome
from gpuplan.operations.across import on_each
from gpuplan.operations.fleet import FleetOptions
from gpuplan.operations.host_locks import Locked
from gpuplan.operations.observation import Answered, Observation, ask_servers, observe
from gpuplan.operations.reached import ReachedFleet
from gpuplan.operations.status import reached, silent_hosts
from gpuplan.operations.stop import Intended, OnEvent, StopChoice, Stopped, intended_of, stop_group
from gpuplan.remote.connection import HostCallFailed
from gpuplan.sources.idle_store import remembered

ASK_ALL_SECONDS = 60.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepChoice:
    """What is swept, and how it is stopped."""

    stop: StopChoice = field(default_factory=StopChoice)
    idle_for: int | None = None
    """Seconds that count instead of the keep-alive of those that have one."""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """One deployment, and what its stop came to where it was stopped."""

    judgement: Judgement
    stopped: Stopped | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """A sweep that came to its end."""

    deployments: tuple[Swept, ...]
    silent: tuple[Host, ...] = ()
    """What runs there is not known."""
    hosts: int = 0
    """That answered."""
    dry_run: bool = False
    asked: bool = True
    """False: it was not confirmed, and nothing was stopped."""

    @property
    def complete(self) -> bool:
        return not any(one.judgement.outcome is Outcome.LEFT for one in self.deployments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A deployment that is going to be stopped, for whoever is asked."""

    judgement: Judgement
    intended: Intended


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weighed:
    group: Group
    judgement: Judgement
    sighting: Sighting | None


def sweep(
    options: FleetOptions,
    choice: SweepChoice,
    confirmed: Callable[[Sequence[Due]], bool],
    on_event: OnEvent,
) -> SweepReport:
    """Judge every deployment and stop those that idled too long, one by one, when `confirmed` says so.

    Raises NoHostError when no host answers, GpuplanError when what is seen cannot be remembered.
    """
    with reached(options) as fleet:
        seen = observe(fleet)
        silent = silent_hosts(fleet, seen)
        answered = sum(name not in seen.silent for name in fleet.connections)
        if not answered:
            raise _nobody(silent)
        found = _weigh(fleet, seen, seen.groups, choice, options)
        due = [one for one in found if one.judgement.outcome is Outcome.WOULD_BE_STOPPED]
        asked = True
        if due and not choice.dry_run:
            asked = confirmed([Due(judgement=one.judgement, intended=_intended(seen, one)) for one in due])
        report = SweepReport(
            deployments=tuple(Swept(judgement=one.judgement) for one in found),
            silent=silent,
            hosts=answered,
            dry_run=choice.dry_run,
            asked=asked,
        )
        if choice.dry_run or not due:
            return report
        if not asked:
            refused = [replace(one, judgement=_kept(one.judgement, Why.NOT_CONFIRMED)) for one in due]
            ends = {one.group.name: Swept(judgement=one.judgement) for one in refused}
        else:
            ends = {one.group.name: _end(fleet, seen, one, choice, options, on_event) for one in due}
        return replace(
            report, deployments=tuple(ends.get(one.judgement.name, one) for one in report.deployments)
        )


def moment() -> Moment:
    """Now, by all the clocks this machine has."""
    boot, steady = "", 0.0
    with suppress(OSError, AttributeError, ValueError):
        steady = time.clock_gettime(time.CLOCK_BOOTTIME)
        boot = _BOOT_ID.read_text(encoding="ascii").strip()
    return Moment(wall=time.time(), steady=steady, boot=boot)


def _weigh(
    fleet: ReachedFleet,
    seen: Observation,
    groups: Sequence[Group],
    choice: SweepChoice,
    options: FleetOptions,
) -> list[_Weighed]:
    """Ask the servers, judge, and remember what was seen; the clock is read after the answers."""
    answers = on_each({group.name: partial(ask_servers, fleet, group) for group in groups}, ASK_ALL_SECONDS)
    with remembered(options.environ) as memory:
        now = moment()
        found = []
        for group in groups:
            answer = answers[group.name]
            told = {} if isinstance(answer, CallOutcome) else answer
            before = memory.get((group.name, generation_of(group)))
            one = _judged(seen, group, told, before, now, choice.idle_for)
            if one.sighting is not None:
                memory[one.sighting.key] = one.sighting
            found.append(one)
    return found


def _judged(
    seen: Observation,
    group: Group,
    answers: Mapping[int, Answered],
    before: Sighting | None,
    now: Moment,
    idle_for: int | None,
) -> _Weighed:
    loads = {server: answer.load for server, answer in answers.items()}
    deployment = deployment_of(
        group,
        health={server: answer.health for server, answer in answers.items()},
        silent=seen.why,
        loads=[load for load in loads.values() if load is not None],
    )
    judgement, sighting = weighed(group, deployment, loads, before, now, idle_for)
    return _Weighed(group=group, judgement=judgement, sighting=sighting)


def _end(
    fleet: ReachedFleet,
    seen: Observation,
    due: _Weighed,
    choice: SweepChoice,
    options: FleetOptions,
    on_event: OnEvent,
) -> Swept:
    """Stop one, if it is idle still once its hosts are locked."""
    judgement = _kept(due.judgement, Why.CHANGED)

    def still(again: Observation, group: Group) -> bool:
        nonlocal judgement
        if not group.current or generation_of(group) != generation_of(due.group):
            return False
        (now,) = _weigh(fleet, again, [group], choice, options)
        judgement = now.judgement
        return judgement.outcome is Outcome.WOULD_BE_STOPPED

    try:
        stopped = stop_group(fleet, seen, due.group, choice.stop, options, on_event, still)
    except Locked as locked:
        return Swept(judgement=_kept(due.judgement, Why.LOCKED, locked.message))
    except (GpuplanError, HostCallFailed) as failed:
        detail = failed.message if isinstance(failed, GpuplanError) else failed.detail
        left = replace(due.judgement, outcome=Outcome.LEFT, why=Why.FAILED, detail=detail)
        return Swept(judgement=left)
    if not stopped.asked:
        return Swept(judgement=judgement)
    outcome = Outcome.STOPPED if stopped.complete else Outcome.LEFT
    if stopped.complete and due.sighting is not None:
        with suppress(GpuplanError), remembered(options.environ) as memory:
            memory.pop(due.sighting.key, None)
    return Swept(judgement=replace(judgement, outcome=outcome), stopped=stopped)


def _intended(seen: Observation, one: _Weighed) -> Intended:
    return intended_of(seen, one.group, [one.judgement.load])


def _kept(judgement: Judgement, why: Why, detail: str = "") -> Judgement:
    return replace(judgement, outcome=Outcome.KEPT, why=why, detail=detail)


def _nobody(silent: Sequence[Host]) -> NoHostError:
    reasons = [f"{host.name}: {host.failure.detail}" for host in silent[:6] if host.failure is not None]
    more = f" and {len(silent) - 6} more" if len(silent) > 6 else ""
    return NoHostError(
        f"no host answers, so nothing was swept ({'; '.join(reasons)}{more})",
        hint="`gpuplan check` says what to mend",
    )
