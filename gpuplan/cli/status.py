"""`gpuplan status [NAME]`: what runs."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output

if TYPE_CHECKING:
    from gpuplan.operations.status import StatusReport

HELP = (
    "What runs on the fleet: every deployment with its members, endpoint, requests and memory; one of them in full "
    "with NAME. Found by the labels of containers, from any machine with the inventory. Exit 0, also when hosts do "
    "not answer: they are named."
)
EXAMPLE = "Example: gpuplan status qwen3-32b -i inventory.yaml"


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Only this deployment, in full.", show_default=False)
    ] = None,
    inventory: o.Inventory = None,
    host: o.Hosts = None,
    label: o.Labels = None,
    host_key: o.HostKey = None,
    jobs: o.Jobs = None,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Print what runs."""
    from gpuplan.operations.status import read_status

    meant = o.fleet_options(
        inventory=inventory, snapshot=None, hosts=host, labels=label, host_key=host_key, jobs=jobs
    )
    as_json = output_format is o.OutputFormat.JSON
    report = read_status(meant, name, actual=as_json or name is not None)
    if as_json:
        from gpuplan.present.plan_document import plain
        from gpuplan.present.status_document import status_document

        seen = [(one.deployment, one.facts) for one in report.deployments]
        output.show_json(plain(status_document(seen, report.silent)))
    else:
        _show(report, name)


def _show(report: "StatusReport", name: str | None) -> None:
    from gpuplan.present.status_text import deployment_text, status_text

    seen = [(one.deployment, one.facts) for one in report.deployments]
    if name is None:
        output.show(status_text(seen, report.silent, report.hosts, output.width()))
    else:
        deployment, facts = seen[0]
        output.show(deployment_text(deployment, facts, report.silent, output.width()))
