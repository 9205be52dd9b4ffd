"""`gpuplan stop NAME`: end a deployment."""

from typing import TYPE_CHECKING

import typer

from gpuplan.cli import changing, output
from gpuplan.cli import options as o
from gpuplan.errors import ExitCode

if TYPE_CHECKING:
    from gpuplan.operations.stop import Intended, Stopped

HELP = (
    "Stop a deployment: wait for requests in flight, end and remove all of its containers, save their logs, and wait "
    "until the memory of its GPUs is free. Asks first. Exit 0: it is gone; 5: something of it is left; 130: the answer was no."
)
EXAMPLE = "Example: gpuplan stop qwen3-32b --drain 120 --yes"


def command(
    name: changing.Name,
    yes: changing.Yes = False,
    drain: changing.Drain = None,
    wait: changing.Wait = None,
    inventory: o.Inventory = None,
    host: o.Hosts = None,
    label: o.Labels = None,
    host_key: o.HostKey = None,
    jobs: o.Jobs = None,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Stop it; exit 5 when a container is left."""
    from gpuplan.cli.progress import STATUS
    from gpuplan.operations.stop import DRAIN_SECONDS, StopChoice, stop

    changing.refuse_senseless("stop", yes=yes, drain=drain, wait=wait)
    meant = o.fleet_options(
        inventory=inventory, snapshot=None, hosts=host, labels=label, host_key=host_key, jobs=jobs
    )
    choice = StopChoice(drain_seconds=DRAIN_SECONDS if drain is None else drain, wait_seconds=wait or 0)
    try:
        stopped = stop(
            meant,
            name,
            choice,
            lambda intended: _confirmed(intended, choice.drain_seconds, yes=yes),
            changing.tell,
        )
    finally:
        STATUS.clear()
    _show(stopped, output_format)
    if not stopped.asked:
        raise typer.Exit(ExitCode.INTERRUPTED)
    if not stopped.complete:
        raise typer.Exit(ExitCode.DEPLOYMENT_FAILED)


def _confirmed(intended: "Intended", drain: int, *, yes: bool) -> bool:
    from gpuplan.present.stop_text import intent_text

    containers = [
        (one.member.host, one.member.container, one.member.health or one.member.state)
        for one in intended.containers
    ]
    output.talk(intent_text(intended.deployment, containers, intended.silent, drain, output.width()))
    return yes or output.asked("Stop and remove these containers?")


def _show(stopped: "Stopped", output_format: o.OutputFormat) -> None:
    if output_format is o.OutputFormat.JSON:
        from gpuplan.present.plan_document import finding_document, plain

        output.show_json(
            {
                "schema_version": 1,
                "name": stopped.name,
                "removed": [{"host": host, "container": container} for host, container in stopped.removed],
                "complete": stopped.complete and stopped.asked,
                "findings": [plain(finding_document(fact)) for fact in stopped.facts],
                "logs": list(stopped.logs),
            }
        )
        return
    from gpuplan.present.stop_text import outcome_text

    output.show(outcome_text(stopped.name, stopped.removed, stopped.facts, stopped.logs, output.width()))
