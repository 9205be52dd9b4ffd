"""`gpuplan verify`: the chosen image started on the chosen GPUs with made-up weights, listened to, compared, removed.

It goes the way of a deploy up to the start (`operations.deploy`), with its locks, checks and undoing; whatever happens,
nothing it made is left. It ends as soon as the engine has said what it takes.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuplan.deploying import timestamps
from gpuplan.deploying.verify_spec import LASTS_SECONDS, is_trial
from gpuplan.domain.deployment import DirectoryModel, State
from gpuplan.domain.events import At, Phase, Remark, SpecDecided, StateChanged, Undone
from gpuplan.domain.verification import Verification
from gpuplan.engine.startup_log import LogLine
from gpuplan.errors import UsageError
from gpuplan.operations.across import Outcome
from gpuplan.operations.deploy_bring import bring
from gpuplan.operations.deploy_end import OVERDUE, causes, failed, interrupted, taken_back
from gpuplan.operations.deploy_preflight import require_ways
from gpuplan.operations.deploy_prepare import Prepared, existing_of, prepare, prepare_again
from gpuplan.operations.deploy_record import Record, recorded
from gpuplan.operations.deploy_replace import clear_helpers
from gpuplan.operations.deploy_request import DeployRequest, opened_fleet
from gpuplan.operations.deploy_run import (
    Halted,
    Patience,
    Run,
    Sink,
    Teller,
    Uninterrupted,
    halted,
    host_lost,
)
from gpuplan.operations.deploy_start import create_all, start_all
from gpuplan.operations.deploy_undo import remove_found
from gpuplan.operations.deploy_watch import Watch
from gpuplan.operations.deployed import Existing
from gpuplan.operations.host_locks import hold, this_run
from gpuplan.operations.kept_logs import keep_logs
from gpuplan.operations.memory_back import await_memory, owed
from gpuplan.operations.stopped import DeploymentFailed
from gpuplan.operations.verify_learn import learn_from_trial
from gpuplan.operations.verify_measures import Measured
from gpuplan.operations.verify_outcome import outcome_of
from gpuplan.operations.verify_parameters import ParameterBytes, parameters_of
from gpuplan.operations.verify_request import read_trial
from gpuplan.operations.verify_terms import compare, in_order
from gpuplan.operations.verify_verdict import verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.domain.fact import Fact
    from gpuplan.domain.fleet import Gpu
    from gpuplan.operations.probe import OpenFleet

READY_SECONDS = 3600.0
"""Made-up weights load from nowhere: an hour is for compiling and capturing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """How a verification goes about it."""

    confirm: Callable[[Prepared], bool]
    """Asked once, before anything is touched."""
    state_directory: Path
    environ: Mapping[str, str]
    document_of: Callable[[At], Mapping[str, Any]]
    lock_wait: float = 0.0
    image_source: str = "auto"
    patience: Patience = field(default_factory=lambda: Patience.within(READY_SECONDS))
    uninterrupted: Uninterrupted = nullcontext


class NotVerified(DeploymentFailed):
    """The trial did not come so far that it says anything of the prediction; what it had started was taken back."""

    def __init__(self, before: DeploymentFailed) -> None:
        super().__init__(before.facts, before.deployment, before.logs)
        self.about = f"{before.deployment.model or before.deployment.name} was not verified"


def verify(request: DeployRequest, options: VerifyOptions, sink: Sink) -> Verification | None:
    """Plan, confirm, start, listen, remove, compare; None when it was not confirmed.

    An engine that fails to start is an answer (`Verification.started` is False). Raises NotVerified and Interrupted after
    everything was taken back; before anything was touched NothingFits, NotReady, Locked, FleetChanged and what planning
    raises.
    """
    wanted = read_trial(request)
    if options.patience.ready > LASTS_SECONDS - 300:
        raise UsageError(
            f"--timeout {options.patience.ready:.0f}: a trial ends by itself after {LASTS_SECONDS} s",
            hint=f"give at most {LASTS_SECONDS - 300}",
        )
    with opened_fleet(request, wanted) as opened:
        prepared = prepare(opened, wanted)
        _require_trial(prepared)
        if not options.confirm(prepared):
            return None
        return _recorded(opened, prepared, options, sink)


def _require_trial(prepared: Prepared) -> None:
    """What runs under the name may be removed: an earlier trial, nothing else; nobody is stopped for it."""
    if prepared.evicts:
        raise UsageError(
            f"a trial stops nobody, and this one would take the place of {prepared.evicts[0].deployment}",
            hint="leave --strategy evict out, or stop that one first",
        )
    others = [one for one in prepared.existing.containers if not is_trial(one.labels)]
    if others:
        raise UsageError(
            f"{prepared.name} is a deployment that serves, no trial: {others[0].name} on {others[0].host}",
            hint="give the trial another name with --name",
        )


def _recorded(opened: "OpenFleet", prepared: Prepared, options: VerifyOptions, sink: Sink) -> Verification:
    directory = options.state_directory / prepared.name
    return recorded(directory, sink, options.document_of, partial(_locked, opened, prepared, options))


def _locked(
    opened: "OpenFleet",
    prepared: Prepared,
    options: VerifyOptions,
    tell: Teller,
    generation: str,
    record: Record,
) -> Verification:
    there = (one.host for one in prepared.existing.containers)
    hosts = tuple(dict.fromkeys((*prepared.spec.hosts, *there)))
    tell(StateChanged(state=State.PREPARING))
    tell.phase(Phase.LOCK, f"{', '.join(hosts)} to be free of other deploys", options.lock_wait or None)
    holder = this_run(prepared.name, generation, purpose="verify")
    with hold(opened, hosts, holder, wait=options.lock_wait, on_event=tell) as locks:
        tell.phase(Phase.COMPARE, "the hosts to be as they were planned on")
        current = prepare_again(opened, prepared)
        _require_trial(current)
        for fact in current.remarks:
            tell(Remark(fact=fact))
        model = current.compile_request.model
        carried = isinstance(model, DirectoryModel) and model.carried
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
            files=current.wanted.carried if carried else {},
            files_at=current.spec.model,
        )
        measured = Measured(current)
        with Watch(run, measured) as watch:
            try:
                return _carried_out(run, watch, current, options, record)
            except Halted as halt:
                raise NotVerified(failed(run, watch, halt, current, record)) from halt
            except KeyboardInterrupt:
                raise interrupted(run, watch, record) from None
            except BaseException:
                taken_back(run, watch, record)
                raise


def _carried_out(
    run: Run, watch: Watch, prepared: Prepared, options: VerifyOptions, record: Record
) -> Verification:
    clear_helpers(run)
    _clear_earlier(run, existing_of(run.opened, run.spec.name))
    require_ways(run, prepared)
    bring(run, prepared, options.image_source, options.environ)
    run.tell.phase(Phase.PREFLIGHT, "the parameters to be counted in the image")
    parameters = _counted(run, prepared)
    run.tell(SpecDecided(spec=run.spec, spec_hash=run.spec_hash, generation=run.generation))
    create_all(run)
    run.tell(StateChanged(state=State.STARTING))
    watch.look()
    began = time.monotonic()
    start_all(run, watch.hear)
    facts: tuple[Fact, ...] = ()
    try:
        watch.until_served()
    except Halted as halt:
        facts = causes(run, watch, halt, prepared)
        late = all(fact.code == OVERDUE for fact in halt.facts)
        if not (facts and late) or facts[0].code == OVERDUE:
            raise  # a host or our patience ended it: that says nothing of the prediction
    seconds = round(time.monotonic() - began, 1)
    printed = heard(watch)
    logs = taken_back(run, watch, record)
    taught = learn_from_trial(prepared, printed, options.environ)
    rows = in_order(compare(prepared.candidate.memory, prepared.candidate.parallelism, printed), taught.rows)
    outcome = outcome_of(prepared.wanted, prepared.candidate, run.spec.name, run.spec.image)
    return replace(
        outcome,
        started=not facts,
        compared=rows,
        parameters=parameters.ranks,
        facts=(*verdict(outcome.predicted, rows, failure=facts), *parameters.facts, *taught.facts),
        learned=taught.kept,
        logs=logs,
        seconds=seconds,
    )


def _counted(run: Run, prepared: Prepared) -> ParameterBytes:
    """Where the leader will run, before it does."""
    host = run.spec.hosts[0]
    return parameters_of(run.opened, prepared.wanted, prepared.candidate, host, run.image_ids[host])


def heard(watch: Watch) -> dict[str, tuple[LogLine, ...]]:
    """Every container's lines with their times, secrets masked."""
    return {
        f"{host}/{name}": tuple(
            (timestamps.seconds(line.at), watch.run.secrets.masked(line.text)) for line in ear.lines
        )
        for (host, name), ear in watch.ears.items()
    }


def _clear_earlier(run: Run, existing: Existing) -> None:
    """Remove what an interrupted trial of the same name has left; its memory is waited for. Raises Halted."""
    found = existing.containers
    if not found:
        return
    strangers = [one for one in found if not is_trial(one.labels)]
    if strangers:
        raise halted(Phase.REPLACE, "GP821", {"deployment": run.spec.name}, hosts=(strangers[0].host,))
    run.tell.phase(Phase.REPLACE, f"what an earlier trial left of {run.spec.name} to be gone", 90.0)
    before = {host.name: host.gpus for host in run.opened.fleet.hosts}
    with run.uninterrupted():
        keep_logs(run, found)
        outcomes = remove_found(run, found)
    for host, outcome in outcomes.items():
        if isinstance(outcome, Outcome):
            raise host_lost(Phase.REPLACE, host, outcome.why)
    for one in found:
        why = "an interrupted trial had left it"
        run.tell(Undone(host=one.host, container=one.name, what="removed", why=why))
    back = await_memory(partial(_gpus, run), owed(found, before), seconds=run.patience.memory_back)
    for fact in back:
        run.tell(Remark(fact=fact))


def _gpus(run: Run, hosts: "Sequence[str]") -> "dict[str, tuple[Gpu, ...]]":
    return {host.name: host.gpus for host in run.opened.read_again(hosts).hosts if host.name in hosts}
