"""How a run ends that is taken back: its members' logs saved, everything undone, and why, in facts."""

from dataclasses import replace

from gpuplan.domain.events import Failed, Undone
from gpuplan.domain.fact import Fact, Severity
from gpuplan.operations.deploy_prepare import Prepared
from gpuplan.operations.deploy_record import Record
from gpuplan.operations.deploy_remedy import replanned
from gpuplan.operations.deploy_run import Halted, Run
from gpuplan.operations.deploy_undo import LEFT, undo, way_back
from gpuplan.operations.deploy_watch import Watch
from gpuplan.operations.stopped import DeploymentFailed, Interrupted

OVERDUE = "GP814"
"""That something did not come in time: what the members said of it comes first."""


def failed(run: Run, watch: Watch, halt: Halted, prepared: Prepared, record: Record) -> DeploymentFailed:
    """Take everything back and say why, what was undone, where the logs are."""
    facts = causes(run, watch, halt, prepared)
    logs = taken_back(run, watch, record)
    place = {"deployment": run.spec.name, **({"saved": str(record.directory)} if logs else {})}
    facts = tuple(replace(fact, subject={**place, **fact.subject}) for fact in facts)
    run.tell(Failed(phase=halt.phase, facts=facts, logs=logs))
    return DeploymentFailed(facts, replace(record.deployment, name=run.spec.name), logs)


def causes(run: Run, watch: Watch, halt: Halted, prepared: Prepared) -> tuple[Fact, ...]:
    """Why the run cannot go on, the root cause first; its members are asked while they are there."""
    from gpuplan.operations.evidence import diagnosed

    found = diagnosed(run, watch) if run.started else None
    if found is None:
        return halt.facts
    remedy = replanned(prepared, found)
    told = (*found.facts()[:1], *((remedy,) if remedy is not None else ()), *found.facts()[1:])
    overdue = all(fact.code == OVERDUE for fact in halt.facts)
    return _once((*told, *halt.facts) if overdue else (*halt.facts, *told))


def _once(facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """Each code and place once: a start that was refused is also what the container's state tells."""
    seen: dict[str, Fact] = {}
    for fact in facts:
        seen.setdefault(f"{fact.code} {fact.subject}", fact)
    return tuple(seen.values())


def taken_back(run: Run, watch: Watch, record: Record) -> tuple[str, ...]:
    """Save the logs, then undo; the first Ctrl-C meanwhile is put off, the next leaves things as they are."""
    from gpuplan.operations.evidence import save_logs

    watch.stop()
    try:
        with run.uninterrupted():
            logs = save_logs(run, watch, record.directory)
            if not run.committed:
                undo(run)
    except KeyboardInterrupt:
        raise Interrupted(record.deployment, _told_left(run, record)) from None
    return logs


def interrupted(run: Run, watch: Watch, record: Record) -> Interrupted:
    """Take everything back and say that it was asked for (GP818)."""
    phase = run.tell.current
    logs = taken_back(run, watch, record)
    fact = Fact(
        code="GP818", severity=Severity.ERROR, subject={"deployment": run.spec.name}, figures={"phase": phase}
    )
    run.tell(Failed(phase=phase, facts=(fact,), logs=logs))
    return Interrupted(record.deployment, record.left)


def _told_left(run: Run, record: Record) -> tuple[str, ...]:
    """Tell what was not taken back because nobody wanted to wait for it."""
    done = record.taken_back
    for host, name in () if run.committed else tuple(run.made):
        if (host, name) not in done:
            run.tell(Undone(host=host, container=name, what="left", why=f"it was not waited for; {LEFT}"))
    for one in () if run.committed else tuple(run.aside):
        if (one.found.host, one.name_before) not in done:
            why = f"it was not waited for; {way_back(run, one)}"
            run.tell(Undone(host=one.found.host, container=one.name_before, what="left", why=why))
    return record.left
