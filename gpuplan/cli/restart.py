"""`gpuplan restart NAME`: end a deployment's containers and start them again, as they are."""

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from gpuplan.cli import changing, output
from gpuplan.cli import options as o
from gpuplan.errors import ExitCode

if TYPE_CHECKING:
    from gpuplan.domain.deployment import Deployment

HELP = (
    "Restart a deployment: wait for requests in flight, end all of its containers, start the same ones again, and wait "
    "until it serves. Nothing is made or removed. Asks first. Exit 0: it serves again; 5: it does not; 130: the answer was no."
)
EXAMPLE = "Example: gpuplan restart qwen3-32b --drain 120 --yes"


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
    """Restart it; exit 5 when it does not serve again."""
    from gpuplan.cli.progress import STATUS
    from gpuplan.cli.told import worded
    from gpuplan.operations.restart import RestartChoice, RestartFailed, restart
    from gpuplan.operations.stop import DRAIN_SECONDS
    from gpuplan.operations.stopped import StoppedByFacts

    changing.refuse_senseless("restart", yes=yes, drain=drain, wait=wait)
    meant = o.fleet_options(
        inventory=inventory, snapshot=None, hosts=host, labels=label, host_key=host_key, jobs=jobs
    )
    choice = RestartChoice(drain=DRAIN_SECONDS if drain is None else drain, lock=wait or 0)
    confirmed = False

    def confirm(deployment: "Deployment") -> bool:
        nonlocal confirmed
        confirmed = _confirmed(deployment, choice.drain, yes=yes)
        return confirmed

    try:
        deployment = restart(meant, name, choice, changing.tell, confirmed=confirm)
    except StoppedByFacts as stopped:
        told = worded(stopped)
        if output_format is o.OutputFormat.JSON and isinstance(stopped, RestartFailed):
            _show(replace(stopped.deployment, message=told.message), output_format)
        raise told from stopped
    except KeyboardInterrupt:
        if confirmed:
            output.remark(
                f"gpuplan status {name} shows what runs of it; gpuplan restart {name} starts the rest"
            )
        raise
    finally:
        STATUS.clear()
    if deployment is None:
        output.remark("nothing was restarted")
        raise typer.Exit(ExitCode.INTERRUPTED)
    _show(deployment, output_format)


def _confirmed(deployment: "Deployment", drain: int, *, yes: bool) -> bool:
    from gpuplan.present.status_rows import restart_text

    output.talk(restart_text(deployment, drain, output.width()))
    return yes or output.asked("Stop these containers and start them again?")


def _show(deployment: "Deployment", output_format: o.OutputFormat) -> None:
    if output_format is o.OutputFormat.JSON:
        from gpuplan.present.deployment_document import deployment_document

        output.show_json(deployment_document(deployment))
        return
    from gpuplan.present.document import Role, wrapped
    from gpuplan.present.status_rows import restarted_words

    output.show(tuple(wrapped(restarted_words(deployment), output.width(), role=Role.GOOD)))
