"""All or nothing: what was created is removed, what was set aside runs again, every member's first log is saved before."""

import time
from collections.abc import Callable
from functools import partial

from gpuplan.deploying.observed import Container, container_of
from gpuplan.domain import labels
from gpuplan.domain.events import Phase, Undone
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.deploy_run import Run, SetAside
from gpuplan.operations.deploy_watch import RECONNECT_SECONDS, reconnect
from gpuplan.operations.deployed import list_containers
from gpuplan.units import plural

REMOVE_SECONDS = 90.0
AGAIN_SECONDS = 30.0
"""A host or engine that is away is tried again for so long: an engine that restarts comes back within it."""
BETWEEN_SECONDS = 1.0
LEFT = "`gpuplan status` shows it, `gpuplan stop` removes it once the host answers"


def undo(run: Run) -> None:
    """Take back what the run did, host by host; what cannot be taken back is told. Never raises for a host."""
    run.tell.break_off()
    run.end()
    if not run.made and not run.aside:
        return
    run.tell.phase(Phase.UNDO, "every container of this deploy to be gone", REMOVE_SECONDS)
    made = tuple(run.made)
    removed = everywhere(run, {host for host, _ in made}, partial(_remove_new, run))
    restored = everywhere(run, {one.found.host for one in run.aside}, partial(_restore, run))
    for host, name in made:
        outcome = removed[host]
        if isinstance(outcome, Outcome):
            run.tell(Undone(host=host, container=name, what="left", why=f"{outcome.why}; {LEFT}"))
        elif name in outcome:
            run.tell(Undone(host=host, container=name, what="removed"))
    for one in run.aside:
        outcome = restored[one.found.host]
        why = f"{outcome.why}; {way_back(run, one)}" if isinstance(outcome, Outcome) else None
        what = "left" if why is not None else ("restored" if one.ran else "kept")
        run.tell(Undone(host=one.found.host, container=one.name_before, what=what, why=why))
    run.tell.done()


def way_back(run: Run, one: SetAside) -> str:
    """How what was set aside and could not be restored runs again."""
    if _made_room(run, one):
        return f"it was stopped to make room: gpuplan restart {one.found.deployment} starts it again"
    return f"its container is {one.found.name}"


def _made_room(run: Run, one: SetAside) -> bool:
    """It is of another deployment."""
    return one.found.deployment != run.spec.name


def remove_aside(run: Run) -> None:
    """What was replaced is not needed any more."""
    run.tell.phase(
        Phase.CLEAN, f"{plural(len(run.aside), 'replaced container')} to be removed", REMOVE_SECONDS
    )

    def remove(host: str) -> set[str]:
        from gpuplan.remote import containers as remote

        mine = [one for one in run.aside if one.found.host == host]
        for one in mine:
            remote.remove(run.opened.engine_of(host), one.found.id)
        return {one.name_before for one in mine}

    outcomes = everywhere(run, {one.found.host for one in run.aside}, remove)
    for one in run.aside:
        outcome = outcomes[one.found.host]
        if isinstance(outcome, Outcome):
            run.tell(
                Undone(
                    host=one.found.host, container=one.name_before, what="left", why=f"{outcome.why}; {LEFT}"
                )
            )
        elif _made_room(run, one):
            why = f"it made room for {run.spec.name}"
            run.tell(Undone(host=one.found.host, container=one.name_before, what="removed", why=why))


def remove_found(run: Run, found: tuple[Container, ...]) -> dict[str, set[str] | Outcome]:
    """Remove containers of ours that an interrupted deploy left."""

    def remove(host: str) -> set[str]:
        from gpuplan.remote import containers as remote

        mine = [one for one in found if one.host == host]
        for one in mine:
            remote.remove(run.opened.engine_of(host), one.id)
        return {one.name for one in mine}

    return everywhere(run, {one.host for one in found}, remove)


def _remove_new(run: Run, host: str) -> set[str]:
    """Remove what this run made on a host: by id where it is known, else by generation, since an answer may be lost."""
    from gpuplan.remote import containers as remote

    engine = run.opened.engine_of(host)
    gone = set()
    for found in list_containers(run.opened, host, run.spec.name):
        if found.labels.get(labels.GENERATION) == run.generation:
            remote.remove(engine, found.id)
            gone.add(found.name)
    return gone


def _restore(run: Run, host: str) -> set[str]:
    from gpuplan.remote import containers as remote

    engine = run.opened.engine_of(host)
    for one in run.aside:
        if one.found.host == host:
            document = remote.inspect(engine, one.found.id)
            if document is not None and container_of(host, document).name != one.name_before:
                remote.rename(engine, one.found.id, one.name_before)
    for one in run.aside:
        if one.found.host == host and one.ran:
            remote.start(engine, one.found.id)
    return {one.name_before for one in run.aside if one.found.host == host}


def everywhere(
    run: Run, hosts: set[str], work: Callable[[str], set[str]], *, seconds: float = REMOVE_SECONDS
) -> dict[str, set[str] | Outcome]:
    """Work on each host, tried again where the connection or the engine is away, over a fresh connection if need be."""
    outcomes: dict[str, set[str] | Outcome] = {}
    waiting = set(hosts)
    ends = time.monotonic() + min(AGAIN_SECONDS, run.patience.host_lost)
    while True:
        results = on_each({host: partial(work, host) for host in sorted(waiting)}, seconds)
        outcomes |= results
        lost = {host: one for host, one in results.items() if isinstance(one, Outcome) and one.lost}
        waiting = set(lost)
        if not lost or time.monotonic() > ends:
            return outcomes
        time.sleep(BETWEEN_SECONDS)
        unheard = sorted(host for host, one in lost.items() if one.unheard)
        on_each({host: partial(reconnect, run, host) for host in unheard}, RECONNECT_SECONDS)
