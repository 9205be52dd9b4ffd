"""`gpuplan deploy`: from a plan to servers that answer, or to the hosts as they were.

The order is that of `deploy-facts` section 6. Whatever fails after the first container was created, an interrupt
included, is taken back before this returns. Once it serves it stays.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuplan.domain.deployment import Actual, Deployment, State
from gpuplan.domain.events import (
    At,
    Event,
    MemberSeen,
    Phase,
    Remark,
    SpecDecided,
    StateChanged,
)
from gpuplan.domain.fact import Fact, Severity
from gpuplan.operations.deploy_answer import serve_and_answer
from gpuplan.operations.deploy_bring import bring
from gpuplan.operations.deploy_end import failed, interrupted, taken_back
from gpuplan.operations.deploy_evicted import gone, told
from gpuplan.operations.deploy_learn import learn_from_run
from gpuplan.operations.deploy_make_room import make_room
from gpuplan.operations.deploy_preflight import require_ways
from gpuplan.operations.deploy_prepare import Prepared, existing_of, prepare, prepare_again, require_room
from gpuplan.operations.deploy_ready import ask_ready
from gpuplan.operations.deploy_record import Record, recorded
from gpuplan.operations.deploy_replace import (
    clear_helpers,
    require_own_name,
    same_running,
    set_aside,
    take_up,
)
from gpuplan.operations.deploy_request import DeployRequest, opened_fleet, read_wanted
from gpuplan.operations.deploy_run import Halted, Patience, Run, Sink, Teller, Uninterrupted
from gpuplan.operations.deploy_start import create_all, member_of, start_all
from gpuplan.operations.deploy_undo import remove_aside
from gpuplan.operations.deploy_wait import Wait, reached_by, when_it_fits
from gpuplan.operations.deploy_watch import Watch
from gpuplan.operations.deployed import Existing, Generation
from gpuplan.operations.host_locks import hold, this_run
from gpuplan.operations.kept_logs import keep_logs
from gpuplan.operations.stopped import FleetChanged
from gpuplan.sources.capacity_queue import queue_file

if TYPE_CHECKING:
    from gpuplan.operations.probe import OpenFleet

LOCK_WAIT_SECONDS = 0.0
ATTEMPTS = 3
"""Plans made by a deploy that waits for others: each may take what it had planned."""


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
    capacity_wait: float | None = None
    """Seconds that room is waited for; None: not at all."""
    image_source: str = "auto"
    patience: Patience = field(default_factory=Patience)
    uninterrupted: Uninterrupted = nullcontext


class Overtaken(FleetChanged):
    """What was planned is taken by the deploy that this one has waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a deploy ended."""

    deployment: Deployment
    changed: bool = True
    """False: what was asked for ran already."""


def deploy(request: DeployRequest, options: DeployOptions, sink: Sink) -> Outcome | None:
    """Plan, confirm, launch, wait until it serves; None when it was not confirmed.

    Raises DeploymentFailed and Interrupted after everything was taken back; before anything was touched NothingFits,
    StillNoRoom, QueueFull, NotReady, Locked, FleetChanged and what planning raises.
    """
    wanted = read_wanted(request)
    with opened_fleet(request, wanted) as opened:
        if options.capacity_wait is not None:
            queue = queue_file(options.environ, reached_by(wanted.inventory))
            wait = Wait(seconds=options.capacity_wait, queue=queue)
            begin = partial(_confirmed, opened, options=options, sink=sink)
            return when_it_fits(opened, wanted, wait, Teller(sink), begin)
        prepared = prepare(opened, wanted)
        for attempt in range(ATTEMPTS):
            if not options.confirm(prepared):
                return None
            try:
                return _recorded(opened, prepared, options, sink)
            except Overtaken:
                if attempt == ATTEMPTS - 1:
                    raise
            opened.read_again(tuple(opened.connections))
            prepared = prepare(opened, wanted)
    raise AssertionError("the last attempt returns or raises")


def _confirmed(
    opened: "OpenFleet", prepared: Prepared, *, options: DeployOptions, sink: Sink
) -> Outcome | None:
    return _recorded(opened, prepared, options, sink) if options.confirm(prepared) else None


def _recorded(opened: "OpenFleet", prepared: Prepared, options: DeployOptions, sink: Sink) -> Outcome:
    directory = options.state_directory / prepared.name
    return recorded(directory, sink, options.document_of, partial(_locked, opened, prepared, options))


def _locked(
    opened: "OpenFleet",
    prepared: Prepared,
    options: DeployOptions,
    tell: Teller,
    generation: str,
    record: Record,
) -> Outcome:
    existing = existing_of(opened, prepared.name)
    hosts = tuple(dict.fromkeys((*prepared.hosts, *(one.host for one in existing.containers))))
    evicted = prepared.evicted or ()
    makes_room = (
        *(told(one, prepared.name) for one in evicted),
        *gone(prepared.candidate.evicts, evicted),
    )
    tell(StateChanged(state=State.PREPARING))
    for fact in (*prepared.remarks, *makes_room, *_unseen(existing)):
        tell(Remark(fact=fact))
    tell.phase(Phase.LOCK, f"{', '.join(hosts)} to be free of other deploys", options.lock_wait or None)
    holder = this_run(prepared.name, generation)
    waited: list[Event] = []

    def waits(event: Event) -> None:
        waited.append(event)
        tell(event)

    with hold(opened, hosts, holder, wait=options.lock_wait, on_event=waits) as locks:
        tell.phase(Phase.COMPARE, "the hosts to be as they were planned on")
        try:
            current = prepare_again(opened, prepared)
        except FleetChanged as changed:
            if prepared.wanted.saved is not None or not waited:
                raise
            for fact in changed.facts:
                tell(Remark(fact=replace(fact, severity=Severity.INFO)))
            raise Overtaken(changed.facts) from changed
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
            uninterrupted=options.uninterrupted,
            directory=record.directory,
        )
        with Watch(run) as watch:
            try:
                return _carried_out(run, watch, current, options, record, hosts)
            except Halted as halt:
                if run.started:
                    learn_from_run(run, watch, current, options.environ)
                raise failed(run, watch, halt, current, record) from halt
            except KeyboardInterrupt:
                raise interrupted(run, watch, record) from None
            except BaseException:
                taken_back(run, watch, record)
                raise


def _carried_out(
    run: Run,
    watch: Watch,
    prepared: Prepared,
    options: DeployOptions,
    record: Record,
    locked: tuple[str, ...],
) -> Outcome:
    clear_helpers(run)
    if not prepared.existing.containers:
        require_ways(run, prepared)
    bring(run, prepared, options.image_source, options.environ)
    run.tell(SpecDecided(spec=run.spec, spec_hash=run.spec_hash, generation=run.generation))
    existing = existing_of(run.opened, run.spec.name)
    require_own_name(run, existing, locked)
    already = same_running(existing, run.spec_hash)
    if already is not None:
        serves = all(ask_ready(run, server).ready for server in run.spec.servers)
        run.committed = serves
        with run.uninterrupted():
            take_up(run, existing, already)
        if serves:
            return _nothing_to_do(run, already, prepared, record)
        run.started = True
        run.tell(Remark(fact=_info("GP812", {"deployment": run.spec.name}, generation=already.id)))
    else:
        make_room(run, prepared.evicted or (), partial(require_room, run.opened, prepared))
        set_aside(run, existing)
        create_all(run)
        require_own_name(run, existing_of(run.opened, run.spec.name), locked)
    run.tell(StateChanged(state=State.STARTING))
    watch.look()
    if already is None:
        start_all(run, watch.hear)
    else:
        for host, name in run.made:
            watch.hear(run.container(host, name))
    actual = serve_and_answer(run, watch, prepared)
    _commit(run)
    learn_from_run(run, watch, prepared, options.environ)
    return _served(run, record, actual)


def _commit(run: Run) -> None:
    """From here on it stays, a late Ctrl-C notwithstanding; what it replaced goes, its logs stay."""
    run.committed = True
    with suppress(KeyboardInterrupt), run.uninterrupted():
        if run.aside:
            keep_logs(run, [one.found for one in run.aside])
            remove_aside(run)


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
    found = {one.id: one for one in already.containers}
    for (host, name), identity in run.made.items():
        member = member_of(run.container(host, name), identity, found[identity].state, run)
        run.tell(MemberSeen(member=replace(member, health=found[identity].health)))
    _commit(run)
    run.tell(Remark(fact=_info("GP811", {"deployment": run.spec.name}, endpoint=prepared.endpoints)))
    run.tell.done()
    run.tell(StateChanged(state=State.RUNNING))
    return Outcome(deployment=record.deployment, changed=False)


def _info(code: str, subject: Mapping[str, object], **figures: object) -> Fact:
    return Fact(code=code, severity=Severity.INFO, subject=subject, figures=figures)
