"""`gpuplan verify MODEL|PLAN.json`: a start with made-up weights, predicted beside actual."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output
from gpuplan.cli.deploy import ImageSource, Reference, Yes
from gpuplan.cli.told import worded
from gpuplan.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from gpuplan.domain.verification import Verification
    from gpuplan.operations.deploy_prepare import Prepared
    from gpuplan.operations.deploy_request import DeployRequest
    from gpuplan.operations.stopped import Interrupted

HELP = (
    "Measure on the spot: start the image on the chosen GPUs with made-up weights (none are downloaded), read its log, "
    "print predicted against actual term by term, remove the container. Exit 0: it started, whether or not every figure "
    "was in its range; 3: nothing fits; 5: it did not start, or could not be tried."
)
EXAMPLE = "Example: gpuplan verify Qwen/Qwen3-32B -i inventory.yaml --host gpu-a --yes"

Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="Name of the trial's containers, behind verify- (default: from the model).",
    ),
]
ParametersOnly = Annotated[
    bool,
    typer.Option(
        "--parameters-only",
        help="Only count the parameters by the image's own model class: no GPU is touched, no engine started.",
    ),
]
Timeout = Annotated[
    int | None,
    typer.Option(
        "--timeout", parser=o._whole("--timeout"), metavar="SECONDS", help="For the start (default 3600)."
    ),
]
Wait = Annotated[
    int,
    typer.Option(
        "--wait", parser=o._whole("--wait"), metavar="SECONDS", help="Wait for another run on its hosts."
    ),
]


def command(
    context: typer.Context,
    model: Reference,
    name: Name = None,
    yes: Yes = False,
    parameters_only: ParametersOnly = False,
    timeout: Timeout = None,
    wait: Wait = 0,
    image_source: ImageSource = "auto",
    inventory: o.Inventory = None,
    host: o.Hosts = None,
    label: o.Labels = None,
    gpus: o.Gpus = None,
    strategy: o.Strategies = None,
    length: o.Context = None,
    concurrency: o.Concurrency = None,
    kv_cache_dtype: o.KvCacheDtype = None,
    no_distributed: o.NoDistributed = False,
    executor: o.Executor = "auto",
    allow_overcommit: o.AllowOvercommit = False,
    no_calibration: o.NoCalibration = False,
    category: o.CategoryOption = None,
    image: o.Image = None,
    vllm_version: o.VllmVersion = None,
    host_key: o.HostKey = None,
    jobs: o.Jobs = None,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Verify; the exit status is that of the interface."""
    from gpuplan.operations.deploy_request import DeployRequest
    from gpuplan.operations.plan import ServingOptions

    if not parameters_only and not yes and not output.can_ask():
        raise UsageError(
            "verify asks before it takes GPUs, and there is no terminal to ask on",
            hint="add --yes, or --parameters-only, which touches no GPU",
        )
    if timeout is not None and timeout < 1:
        raise UsageError(f"--timeout {timeout}: must be at least 1", hint="leave it out for 3600 seconds")
    if wait < 0:
        raise UsageError(f"--wait {wait}: must not be negative", hint="leave it out not to wait")
    request = DeployRequest(
        reference=model,
        name=name,
        fleet=o.fleet_options(
            inventory=inventory, snapshot=None, hosts=host, labels=label, host_key=host_key, jobs=jobs
        ),
        serving=ServingOptions(
            context=length,
            concurrency=concurrency,
            kv_cache_dtype=kv_cache_dtype,
            category=category,
            executor=executor,
            image=image,
            vllm_version=vllm_version,
            allow_overcommit=allow_overcommit,
            no_distributed=no_distributed,
            no_calibration=no_calibration,
            strategies=tuple(strategy or ()),
            gpus=tuple(gpus or ()),
            engine_args=tuple(context.obj or ()),
        ),
    )
    outcome = _verified(
        request,
        yes=yes,
        parameters_only=parameters_only,
        timeout=timeout,
        wait=wait,
        image_source=image_source,
        output_format=output_format,
    )
    if outcome is None:
        output.remark("nothing was started")
        raise typer.Exit(ExitCode.INTERRUPTED)
    if output_format is o.OutputFormat.JSON:
        from gpuplan.present.verify_document import verification_document

        output.show_json(verification_document(outcome))
    else:
        from gpuplan.present.verify_text import verification_text

        output.show(verification_text(outcome, output.width()))
    if outcome.started is False or (outcome.started is None and not outcome.parameters):
        raise typer.Exit(ExitCode.DEPLOYMENT_FAILED)


def _verified(
    request: "DeployRequest",
    *,
    yes: bool,
    parameters_only: bool,
    timeout: int | None,
    wait: int,
    image_source: str,
    output_format: o.OutputFormat,
) -> "Verification | None":
    import os

    from gpuplan.cli.deploy import show_plan
    from gpuplan.cli.deploy_progress import progress
    from gpuplan.cli.interrupts import Interrupts
    from gpuplan.operations.deploy_run import Patience
    from gpuplan.operations.stopped import Interrupted, NothingFits, StoppedByFacts
    from gpuplan.operations.verify import READY_SECONDS, VerifyOptions, verify
    from gpuplan.operations.verify_parameters import count_parameters
    from gpuplan.present.event_words import event_document
    from gpuplan.sources.state import state_directory

    with Interrupts() as interrupts, progress(as_json=False) as sink:
        options = VerifyOptions(
            confirm=lambda prepared: yes or _confirmed(prepared),
            state_directory=state_directory(os.environ),
            environ=os.environ,
            document_of=event_document,
            lock_wait=wait,
            image_source=image_source,
            uninterrupted=interrupts.uninterrupted,
            patience=Patience.within(READY_SECONDS if timeout is None else timeout),
        )
        try:
            return count_parameters(request) if parameters_only else verify(request, options, sink)
        except NothingFits as nothing:
            show_plan(nothing.plan, output_format)
            raise
        except Interrupted as interrupted:
            _say_left(interrupted)
            raise
        except StoppedByFacts as stopped:
            raise worded(stopped) from stopped


def _say_left(interrupted: "Interrupted") -> None:
    """On stderr: whether something of the trial is still there."""
    if interrupted.left:
        output.remark(f"left as it is: {', '.join(interrupted.left)}")
        output.remark(f"gpuplan status shows it; gpuplan stop {interrupted.deployment.name} removes it")
    elif interrupted.deployment.name:
        output.remark("everything was taken back")


def _confirmed(prepared: "Prepared") -> bool:
    """Ask, with what is going to be taken before the eyes; anything but yes is no."""
    from gpuplan.cli.progress import STATUS
    from gpuplan.present.verify_text import trial_text

    with STATUS.aside():
        output.talk(trial_text(prepared.spec, output.width()))
        return output.asked("Start it?")
