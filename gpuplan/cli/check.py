"""`gpuplan check`: preflight of every host."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output
from gpuplan.errors import ExitCode

if TYPE_CHECKING:
    from gpuplan.planning.preflight_report import Preflight

HELP = (
    "Preflight of every host: SSH, Docker, GPUs, toolkit, driver, disk, ports, and whether the hosts reach each "
    "other. Nothing stays on a host. Exit 0: nothing failed (warnings do not count); 1: something failed; 4: no "
    "host can be used."
)
EXAMPLE = "Example: gpuplan check -i inventory.yaml --model Qwen/Qwen3-32B --run-gpu-test"


def command(
    inventory: o.Inventory = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="MODEL", help="Judge disk, and its files on the hosts, for this model."
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="IMAGE", help="Judge for this image (default: the inventory's)."),
    ] = None,
    run_gpu_test: Annotated[
        bool,
        typer.Option(
            "--run-gpu-test", help="Run a short container with all GPUs where the image is present."
        ),
    ] = False,
    host: o.Hosts = None,
    label: o.Labels = None,
    host_key: o.HostKey = None,
    jobs: o.Jobs = None,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Print the ladders; exit 0 when nothing is red, 4 when every host has something red, else 1."""
    from gpuplan.cli.progress import STATUS, ProbeProgress
    from gpuplan.cli.reaching import probe_options
    from gpuplan.operations.check import CheckOptions, check
    from gpuplan.operations.fleet import THIS_MACHINE, load_inventory, meant_hosts

    meant = o.fleet_options(
        inventory=inventory, snapshot=None, hosts=host, labels=label, host_key=host_key, jobs=jobs
    )
    read = load_inventory(meant) or THIS_MACHINE
    names = meant_hosts(read, meant)
    with ProbeProgress(len(names)) as progress:
        report = check(
            read,
            probe_options(host_key, jobs),
            CheckOptions(image=image, model=model, gpu_test=run_gpu_test),
            progress,
            lambda words: STATUS.show(f"measuring: {words}"),
            only=names,
        )
    _show(report, output_format)
    if not report.ok:
        raise typer.Exit(ExitCode.UNEXPECTED if report.usable else ExitCode.NO_HOST)


def _show(report: "Preflight", output_format: o.OutputFormat) -> None:
    if output_format is o.OutputFormat.JSON:
        from gpuplan.present.check_document import check_document

        output.show_json(check_document(report))
    else:
        from gpuplan.present.check_text import check_text

        output.show(check_text(report, output.width()))
