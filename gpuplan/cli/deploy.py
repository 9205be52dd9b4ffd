"""`gpuplan deploy MODEL|PLAN.json`: plan, confirm, launch, wait until it serves."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output
from gpuplan.cli.told import worded
from gpuplan.errors import ExitCode, UsageError
from gpuplan.units import parse_duration, plural

if TYPE_CHECKING:
    from gpuplan.domain.deployment import Deployment
    from gpuplan.domain.plan import Plan
    from gpuplan.operations.deploy_prepare import Prepared
    from gpuplan.operations.deploy_request import DeployRequest
    from gpuplan.operations.stopped import Interrupted

HELP = (
    "Plan, confirm, launch the containers over SSH, wait until the model answers. All or nothing: a failure or Ctrl-C "
    "takes back what was started and restores what was replaced. Exit 0: it serves; 3: nothing fits; 5: it failed and "
    "was rolled back; 6: the fleet changed since the plan."
)
EXAMPLE = (
    "Example: gpuplan deploy Qwen/Qwen3-32B -i inventory.yaml --yes --context 32768 -- --max-num-seqs 64"
)
EXPORTS = ("compose", "systemd", "script")


def _duration(text: str) -> int:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"--wait-for-capacity: {error}", hint="--wait-for-capacity 30m") from None
    if seconds < 1:
        raise UsageError("--wait-for-capacity 0: must be at least 1 second", hint="leave it out not to wait")
    return seconds


Reference = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|PLAN.json",
        help="Hugging Face id, directory, config.json, catalogue name, or a plan saved with `plan -o json`.",
    ),
]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Name of the deployment (default: from the model)."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed where no terminal is.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print every step and the docker run lines; start nothing.")
]
Export = Annotated[
    str | None,
    typer.Option("--export", metavar="compose|systemd|script", help="Write the containers as files instead."),
]
Into = Annotated[str, typer.Option("--into", metavar="DIR", help="Directory --export writes to.")]
Timeout = Annotated[
    int | None,
    typer.Option(
        "--timeout",
        parser=o._whole("--timeout"),
        metavar="SECONDS",
        help="Until it must serve (default 7200).",
    ),
]
Wait = Annotated[
    int,
    typer.Option(
        "--wait",
        parser=o._whole("--wait"),
        metavar="SECONDS",
        help="Wait so long for another deploy on these hosts.",
    ),
]
ImageSource = Annotated[
    str,
    typer.Option(
        "--image-source",
        metavar="auto|registry|fleet|never|FILE",
        help="Where hosts without the image get it: pulled, streamed from a host that has it, or from a tar file.",
    ),
]
WaitForCapacity = Annotated[
    int | None,
    typer.Option(
        "--wait-for-capacity",
        parser=_duration,
        metavar="DURATION",
        help="When nothing fits now, look again until it does, so long at most: 90s, 30m, 2h. First come, first served.",
    ),
]
KeepAlive = Annotated[
    int | None,
    typer.Option(
        "--keep-alive",
        parser=o._whole("--keep-alive"),
        metavar="SECONDS",
        help="Idle time after which a sweep may stop it (default: never).",
    ),
]


def command(
    context: typer.Context,
    model: Reference,
    name: Name = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    export: Export = None,
    into: Into = ".",
    timeout: Timeout = None,
    wait: Wait = 0,
    wait_for_capacity: WaitForCapacity = None,
    image_source: ImageSource = "auto",
    keep_alive: KeepAlive = None,
    inventory: o.Inventory = None,
    snapshot: o.Snapshot = None,
    no_probe: o.NoProbe = False,
    host: o.Hosts = None,
    label: o.Labels = None,
    gpus: o.Gpus = None,
    strategy: o.Strategies = None,
    length: o.Context = None,
    concurrency: o.Concurrency = None,
    kv_cache_dtype: o.KvCacheDtype = None,
    replicas: o.Replicas = 1,
    placement: o.PlacementOption = None,
    no_distributed: o.NoDistributed = False,
    executor: o.Executor = "auto",
    allow_overcommit: o.AllowOvercommit = False,
    no_calibration: o.NoCalibration = False,
    category: o.CategoryOption = None,
    image: o.Image = None,
    vllm_version: o.VllmVersion = None,
    vram_claim: o.VramClaim = None,
    ram_claim: o.RamClaim = None,
    host_key: o.HostKey = None,
    jobs: o.Jobs = None,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Deploy, or show what would be done; the exit status is that of the interface."""
    from gpuplan.operations.deploy_request import DeployRequest
    from gpuplan.operations.plan import ServingOptions

    looking = dry_run or export is not None
    if export is not None and export not in EXPORTS:
        raise UsageError(f"--export {export[:40]}: not one of {', '.join(EXPORTS)}", hint="--export compose")
    if (snapshot is not None or no_probe) and not looking:
        which = "--snapshot" if snapshot is not None else "--no-probe"
        raise UsageError(
            f"deploy {which}: containers are started on hosts as they are, not as they were",
            hint="leave it out, or add --dry-run to see what would be done",
        )
    if looking and wait_for_capacity is not None:
        raise UsageError(
            "deploy --wait-for-capacity: nothing is started, so there is nothing to wait for",
            hint="leave it out, or leave --dry-run and --export out",
        )
    if not looking and not yes and not output.can_ask():
        raise UsageError(
            "deploy asks before it starts anything, and there is no terminal to ask on",
            hint="add --yes, or --dry-run to see what would be done",
        )
    fleet = o.fleet_options(
        inventory=inventory,
        snapshot=snapshot,
        no_probe=no_probe,
        hosts=host,
        labels=label,
        host_key=host_key,
        jobs=jobs,
    )
    request = DeployRequest(
        reference=model,
        name=name,
        keep_alive_seconds=keep_alive,
        fleet=fleet,
        serving=ServingOptions(
            context=length,
            concurrency=concurrency,
            kv_cache_dtype=kv_cache_dtype,
            category=category,
            replicas=replicas,
            placement=placement,
            executor=executor,
            image=image,
            vllm_version=vllm_version,
            vram_claim=vram_claim,
            ram_claim=ram_claim,
            allow_overcommit=allow_overcommit,
            no_distributed=no_distributed,
            no_calibration=no_calibration,
            strategies=tuple(strategy or ()),
            gpus=tuple(gpus or ()),
            engine_args=tuple(context.obj or ()),
        ),
    )
    if looking:
        _look(request, export, into, output_format)
    else:
        _deploy(
            request,
            yes=yes,
            timeout=timeout,
            wait=wait,
            wait_for_capacity=wait_for_capacity,
            image_source=image_source,
            output_format=output_format,
        )


def _look(request: "DeployRequest", export: str | None, into: str, output_format: o.OutputFormat) -> None:
    """What would be done, on stdout or as files; nothing is touched."""
    from gpuplan.operations.deploy_prepare import look
    from gpuplan.operations.stopped import NothingFits, StoppedByFacts

    try:
        prepared = look(request)
    except NothingFits as nothing:
        show_plan(nothing.plan, output_format)
        raise
    except StoppedByFacts as stopped:
        raise worded(stopped) from stopped
    if export is None:
        ends = (*prepared.evicted_members, *prepared.replaces)
        if output_format is o.OutputFormat.JSON:
            from gpuplan.present.deployment_document import dry_run_document

            output.show_json(dry_run_document(prepared.spec, ends, prepared.evicts))
        else:
            from gpuplan.present.deployment_text import dry_run_text

            output.show(dry_run_text(prepared.spec, output.width(), ends, prepared.evicts))
        return
    from gpuplan.operations.deploy_export import write

    for path in write(prepared.spec, export, into):
        print(path)


def _deploy(
    request: "DeployRequest",
    *,
    yes: bool,
    timeout: int | None,
    wait: int,
    wait_for_capacity: int | None,
    image_source: str,
    output_format: o.OutputFormat,
) -> None:
    import os

    from gpuplan.cli.deploy_progress import progress
    from gpuplan.cli.interrupts import Interrupts
    from gpuplan.operations.deploy import DeployOptions, deploy
    from gpuplan.operations.deploy_run import Patience
    from gpuplan.operations.stopped import (
        DeploymentFailed,
        Interrupted,
        NothingFits,
        StillNoRoom,
        StoppedByFacts,
    )
    from gpuplan.present.event_words import event_document
    from gpuplan.sources.state import state_directory

    as_json = output_format is o.OutputFormat.JSON
    if timeout is not None and timeout < 1:
        raise UsageError(f"--timeout {timeout}: must be at least 1", hint="leave it out for 7200 seconds")
    if wait < 0:
        raise UsageError(f"--wait {wait}: must not be negative", hint="leave it out not to wait")
    with Interrupts() as interrupts, progress(as_json=as_json) as sink:
        options = DeployOptions(
            confirm=lambda prepared: yes or _confirmed(prepared),
            state_directory=state_directory(os.environ),
            environ=os.environ,
            document_of=event_document,
            lock_wait=wait,
            capacity_wait=wait_for_capacity,
            image_source=image_source,
            uninterrupted=interrupts.uninterrupted,
            patience=Patience() if timeout is None else Patience.within(timeout),
        )
        try:
            outcome = deploy(request, options, sink)
        except NothingFits as nothing:
            show_plan(nothing.plan, output_format)
            raise
        except StillNoRoom as over:
            if over.plan is not None:
                show_plan(over.plan, output_format)
            raise worded(over) from over
        except Interrupted as interrupted:
            if as_json and interrupted.deployment.name:
                _show(interrupted.deployment)
            _say_left(interrupted)
            raise
        except StoppedByFacts as stopped:
            told = worded(stopped)
            if as_json and isinstance(stopped, DeploymentFailed):
                _show(replace(stopped.deployment, message=told.message))
            raise told from stopped
    if outcome is None:
        output.remark("nothing was started")
        raise typer.Exit(ExitCode.INTERRUPTED)
    if as_json:
        _show(outcome.deployment)
    else:
        from gpuplan.present.outcome_text import outcome_text

        output.show(outcome_text(outcome.deployment, output.width(), changed=outcome.changed))


def _show(deployment: "Deployment") -> None:
    """The last line of the JSON Lines."""
    import json

    from gpuplan.present.deployment_document import deployment_document

    print(json.dumps(deployment_document(deployment), ensure_ascii=True))


def _say_left(interrupted: "Interrupted") -> None:
    """On stderr, whatever stdout is: whether something of the deploy is still there."""
    if interrupted.left:
        output.remark(f"left as it is: {', '.join(interrupted.left)}")
        output.remark(f"gpuplan status shows it; gpuplan stop {interrupted.deployment.name} removes it")
    elif interrupted.deployment.name:
        output.remark(f"{interrupted.deployment.name}: everything was taken back")


def show_plan(plan: "Plan", output_format: o.OutputFormat) -> None:
    """Why nothing fits, as `gpuplan plan` says it."""
    if output_format is o.OutputFormat.JSON:
        from gpuplan.present.plan_document import plain, plan_document

        output.show_json(plain(plan_document(plan)))
    else:
        from gpuplan.present.plan_text import plan_text

        output.show(plan_text(plan, output.width()))


def _confirmed(prepared: "Prepared") -> bool:
    """Ask, with what is going to be done before the eyes; anything but yes is no."""
    from gpuplan.cli.progress import STATUS
    from gpuplan.present.deployment_text import confirm_text

    evicts = prepared.evicts
    with STATUS.aside():
        output.talk(confirm_text(prepared.spec, prepared.replaces, output.width(), evicts))
        return output.asked(
            f"Stop {plural(len(evicts), 'deployment')} and start it?" if evicts else "Start it?"
        )
