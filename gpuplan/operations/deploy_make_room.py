"""Evictions carried out (S4.6, S4.7): stopped one and all, their memory awaited, the placement judged again.

What is stopped is kept, under its own name, until the new one serves: a failure or Ctrl-C starts it again, and after a
gpuplan that was killed `gpuplan restart NAME` does. Before the first stop everything is as agreed or nothing is touched.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from gpuplan.deploying.observed import Container
from gpuplan.domain.events import Event, Phase, PhaseStarted, Remark
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Gpu
from gpuplan.operations.across import Outcome
from gpuplan.operations.deploy_evicted import Evicted, as_agreed
from gpuplan.operations.deploy_replace import in_starting_order
from gpuplan.operations.deploy_run import Halted, Run, SetAside, host_lost
from gpuplan.operations.deploy_undo import everywhere
from gpuplan.operations.memory_back import Owed, await_memory, owed
from gpuplan.operations.stop import DRAIN_SECONDS, MARGIN, RUNS, drained, order, patience
from gpuplan.operations.stopped import FleetChanged
from gpuplan.units import plural

REFUSED, NO_ROOM = "GP888", "GP889"


def make_room(
    run: Run, agreed: Sequence[Evicted], judge: Callable[[], object], drain_seconds: int = DRAIN_SECONDS
) -> None:
    """Stop them and wait until the placement fits for good; `judge` raises FleetChanged where it does not.

    Raises FleetChanged before anything was stopped, Halted after.
    """
    if not agreed:
        return
    names = ", ".join(one.name for one in agreed)
    run.tell.phase(Phase.REPLACE, f"{names} to be as it was agreed to be stopped")
    due = as_agreed(run.opened, agreed)
    for one in due:
        for fact in drained(run.opened, one.group, drain_seconds, partial(_drains, run, one.name)):
            run.tell(Remark(fact=fact))
    for host in run.lost_locks():
        raise host_lost(
            Phase.REPLACE, host, "the lock that keeps other deploys away was lost with its connection"
        )
    mine = [one for evicted in due for one in evicted.group.containers if one.state in RUNS]
    hosts = sorted({one.host for one in mine})
    back = owed(mine, _gpus(run, hosts))
    if mine:
        _stop(run, names, mine)
    facts = _awaited(run, back)
    for fact in facts:
        run.tell(Remark(fact=fact))
    run.opened.read_again(tuple(dict.fromkeys((*run.spec.hosts, *hosts))))
    try:
        judge()
    except FleetChanged as changed:
        raise Halted(
            Phase.REPLACE, _no_room(run, names, short=bool(facts)), *facts, *changed.facts
        ) from changed


def _drains(run: Run, name: str, event: Event) -> None:
    """What a stop tells of its drain, as a part of this deploy."""
    if isinstance(event, PhaseStarted):
        run.tell.phase(Phase.REPLACE, f"{event.awaits} on {name}", event.deadline_seconds)
    else:
        run.tell(event)


def _stop(run: Run, names: str, containers: Sequence[Container]) -> None:
    """Remembered before they are asked to end, so that whatever happens they start again."""
    seconds = MARGIN + max((sum(map(patience, group)) for group in _by_host(containers).values()), default=0)
    what = plural(len(containers), "container")
    run.tell.phase(Phase.REPLACE, f"{names} to stop ({what}), to make room", seconds)
    with run.uninterrupted():
        for one in in_starting_order(containers):
            run.aside.append(SetAside(found=one, name_before=one.name, ran=True))
        by_host = _by_host(sorted(containers, key=order))
        outcomes = everywhere(run, set(by_host), partial(_stop_on, run, by_host), seconds=seconds)
    failed = {host: one.why for host, one in outcomes.items() if isinstance(one, Outcome)}
    if failed:
        raise Halted(Phase.REPLACE, *(_refused(names, host, why) for host, why in failed.items()))


def _by_host(containers: Sequence[Container]) -> dict[str, list[Container]]:
    found: dict[str, list[Container]] = {}
    for one in containers:
        found.setdefault(one.host, []).append(one)
    return found


def _stop_on(run: Run, by_host: Mapping[str, Sequence[Container]], host: str) -> set[str]:
    """Raises HostCallFailed where the engine says that one did not end."""
    from gpuplan.remote import containers as remote

    engine = run.opened.engine_of(host)
    for one in by_host[host]:
        remote.stop(engine, one.id, patience(one))
    return {one.name for one in by_host[host]}


def _awaited(run: Run, back: Sequence[Owed]) -> tuple[Fact, ...]:
    seconds = run.patience.memory_back
    if back:
        places = ", ".join(f"{one.host}:{one.index}" for one in back[:4])
        run.tell.phase(Phase.REPLACE, f"the memory of {places} to come back", seconds)
    return await_memory(partial(_gpus, run), back, seconds=seconds)


def _gpus(run: Run, hosts: Sequence[str]) -> Mapping[str, tuple[Gpu, ...]]:
    return {host.name: host.gpus for host in run.opened.read_again(hosts).hosts if host.name in hosts}


def _refused(names: str, host: str, why: str) -> Fact:
    return Fact(
        code=REFUSED,
        severity=Severity.ERROR,
        subject={"host": host},
        figures={"names": names, "why": why},
    )


def _no_room(run: Run, names: str, *, short: bool) -> Fact:
    return Fact(
        code=NO_ROOM,
        severity=Severity.ERROR,
        subject={"hosts": list(run.spec.hosts)},
        figures={"names": names, "short": short},
    )
