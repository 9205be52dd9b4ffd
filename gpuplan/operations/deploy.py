"""`gpuplan deploy`: from a plan to servers that answer, or to the hosts as they were.

The order is that of `deploy-facts` section 6. Whatever fails after the first container was created, an interrupt
included, is taken back before this returns.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuplan.domain.deployment import Actual, Deployment, State
from gpuplan.domain.events import At, Failed, MemberSeen, Phase, Remark, SpecDecided, StateChanged
from gpuplan.domain.fact import Fact, Severity
from gpuplan.operations.deploy_answer import serve_and_answer
from gpuplan.operations.deploy_bring import bring
from gpuplan.operations.deploy_preflight import require_ways
from gpuplan.operations.deploy_prepare import (
    DeployRequest,
    Prepared,
    existing_of,
    opened_fleet,
    prepare,
    prepare_again,
    read_wanted,
)
from gpuplan.operations.deploy_ready import ask_ready
from gpuplan.operations.deploy_remedy import replanned
from gpuplan.operations.deploy_replace import same_running, set_aside
from gpuplan.operations.deploy_run import Halted, Patience, Run, Sink, Teller
from gpuplan.operations.deploy_start import create_all, member_of, start_all
from gpuplan.operations.deploy_undo import remove_aside, undo
from gpuplan.operations.deploy_watch import Watch
from gpuplan.operations.deployed import Existing, Generation
from gpuplan.operations.host_locks import hold, this_run
from gpuplan.operations.stopped import DeploymentFailed
from gpuplan.sources.state import append_lines

if TYPE_CHECKING:
    from gpuplan.operations.probe import OpenFleet

LOCK_WAIT_SECONDS = 0.0
OVERDUE = "GP814"
"""That something did not come in time: what the members said of it comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOptions:
    """How a deploy goes about it."""

    confirm: Callable[[Prepared], bool]
    """Asked once, before anything is touched."""
    state_directory: Path
    """Where the events and the members' first logs are kept."""
    environ: Mapping[str, str]
    document_of: Callable[[At], Mapping[str, Any]]
    """An event as it is kept."""
    lock_wait: float = LOCK_WAIT_SECONDS
    image_source: str = "auto"
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a deploy ended."""

    deployment: Deployment
    changed: bool = True
    """False: what was asked for ran already."""


def deploy(request: DeployRequest, options: DeployOptions, sink: Sink) -> Outcome | None:
    """Plan, confirm, launch, wait until it serves; None when it was not confirmed.

    Raises DeploymentFailed after everything was taken back; before anything was touched NothingFits, NotReady, Locked,
    FleetChanged and what planning raises. KeyboardInterrupt passes through after the same undoing.
    """
    wanted = read_wanted(request)
    with opened_fleet(request, wanted) as opened:
        prepared = prepare(opened, wanted)
        if not options.confirm(prepared):
            return None
        generation = f"{int(time.time()):x}-{secrets.token_hex(3)}"
        record = Record(options.state_directory / prepared.name / generation, sink, options.document_of)
        try:
            return _locked(opened, prepared, options, Teller(record), generation, record)
        finally:
            record.close()


class Record:
    """Keeps every event and passes it on; the deployment is what they add up to."""

    def __init__(self, directory: Path, sink: Sink, document_of: Callable[[At], Mapping[str, Any]]) -> None:
        self.directory = directory
        self._document_of = document_of
        self._sink = sink
        self._events: list[At] = []

    def __call__(self, event: At) -> None:
        self._events.append(event)
        self._sink(event)

    @property
    def deployment(self) -> Deployment:
        from gpuplan.deploying.reduce import reduce

        return reduce(self._events)

    def close(self) -> None:
        """Write the events down; a disk that is full costs the record, not the deploy."""
        append_lines(self.directory / "events.jsonl", [self._document_of(at) for at in self._events])


def _locked(
    opened: "OpenFleet",
    prepared: Prepared,
    options: DeployOptions,
    tell: Teller,
    generation: str,
    record: Record,
) -> Outcome:
    existing = existing_of(opened, prepared.name)
    hosts = tuple(dict.fromkeys((*prepared.spec.hosts, *(one.host for one in existing.containers))))
    tell(StateChanged(state=State.PREPARING))
    for fact in (*prepared.remarks, *_unseen(existing)):
        tell(Remark(fact=fact))
    tell.phase(Phase.LOCK, f"{', '.join(hosts)} to be free of other deploys", options.lock_wait or None)
    holder = this_run(prepared.name, generation)
    with hold(opened, hosts, holder, wait=options.lock_wait, on_event=tell) as locks:
        tell.phase(Phase.COMPARE, "the hosts to be as they were planned on")
        current = prepare_again(opened, prepared)
        for fact in current.remarks:
            if fact not in prepared.remarks:
                tell(Remark(fact=fact))
        run = Run(
            opened=opened,
            spec=current.spec,
            spec_hash="",
            generation=generation,
            secrets=current.secrets,
            tell=tell,
            patience=options.patience,
            lost_locks=locks.lost,
        )
        with Watch(run) as watch:
            try:
                return _carried_out(run, watch, current, options, record)
            except Halted as halt:
                raise _failed(run, watch, halt, current, record) from halt
            except BaseException:
                _taken_back(run, watch, record)
                raise


def _carried_out(
    run: Run, watch: Watch, prepared: Prepared, options: DeployOptions, record: Record
) -> Outcome:
    if not existing_of(run.opened, run.spec.name).containers:
        require_ways(run, prepared)
    bring(run, prepared, options.image_source, options.environ)
    run.tell(SpecDecided(spec=run.spec, spec_hash=run.spec_hash, generation=run.generation))
    existing = existing_of(run.opened, run.spec.name)
    already = same_running(existing, run.spec_hash)
    if already is not None and all(ask_ready(run, server).ready for server in run.spec.servers):
        return _nothing_to_do(run, already, prepared, record)
    if already is not None:
        run.generation = already.id
        run.made.update({(found.host, found.name): found.id for found in already.containers})
        run.started = True
        run.tell(Remark(fact=_info("GP812", {"deployment": run.spec.name}, generation=already.id)))
    else:
        set_aside(run, existing)
        create_all(run)
    run.tell(StateChanged(state=State.STARTING))
    watch.look()
    if already is None:
        start_all(run, watch.hear)
    else:
        for host, name in run.made:
            watch.hear(run.container(host, name))
    actual = serve_and_answer(run, watch, prepared)
    if run.aside:
        remove_aside(run)
    return _served(run, record, actual)


def _unseen(existing: Existing) -> tuple[Fact, ...]:
    """Hosts that were reached and whose containers could not be listed (GP815)."""
    if not existing.silent:
        return ()
    return (
        Fact(
            code="GP815",
            severity=Severity.WARNING,
            subject={},
            figures={"silent": tuple(f"{host}: {why}" for host, why in existing.silent.items())},
        ),
    )


def _served(run: Run, record: Record, actual: Actual) -> Outcome:
    run.tell.done()
    run.tell(StateChanged(state=State.RUNNING))
    return Outcome(deployment=replace(record.deployment, actual=actual))


def _nothing_to_do(run: Run, already: Generation, prepared: Prepared, record: Record) -> Outcome:
    for found in already.containers:
        spec = run.container(found.host, found.name)
        run.tell(MemberSeen(member=replace(member_of(spec, found.id, found.state, run), health=found.health)))
    run.tell(Remark(fact=_info("GP811", {"deployment": run.spec.name}, endpoint=prepared.endpoints)))
    run.tell.done()
    run.tell(StateChanged(state=State.RUNNING))
    return Outcome(deployment=record.deployment, changed=False)


def _failed(run: Run, watch: Watch, halt: Halted, prepared: Prepared, record: Record) -> DeploymentFailed:
    """Take everything back and say why, what was undone, where the logs are."""
    from gpuplan.operations.evidence import diagnosed

    found = diagnosed(run, watch) if run.started else None
    facts = halt.facts
    if found is not None:
        remedy = replanned(prepared, found)
        causes = (*found.facts()[:1], *((remedy,) if remedy is not None else ()), *found.facts()[1:])
        overdue = all(fact.code == OVERDUE for fact in halt.facts)
        facts = _once((*causes, *halt.facts) if overdue else (*halt.facts, *causes))
    logs = _taken_back(run, watch, record)
    run.tell(Failed(phase=halt.phase, facts=facts, logs=logs))
    return DeploymentFailed(facts, record.deployment, logs)


def _once(facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """Each code and place once: a start that was refused is also what the container's state tells."""
    seen: dict[str, Fact] = {}
    for fact in facts:
        seen.setdefault(f"{fact.code} {fact.subject}", fact)
    return tuple(seen.values())


def _taken_back(run: Run, watch: Watch, record: Record) -> tuple[str, ...]:
    from gpuplan.operations.evidence import save_logs

    watch.stop()
    logs = save_logs(run, watch, record.directory)
    undo(run)
    return logs


def _info(code: str, subject: Mapping[str, object], **figures: object) -> Fact:
    return Fact(code=code, severity=Severity.INFO, subject=subject, figures=figures)
