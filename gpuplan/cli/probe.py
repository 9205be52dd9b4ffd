"""`gpuplan probe`: read the fleet once."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output
from gpuplan.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from gpuplan.domain.fleet import Fleet

HELP = "Read the fleet once over SSH: GPUs, who holds memory, Docker, drivers, networks, disks. Nothing is installed."
EXAMPLE = "Example: gpuplan probe -i inventory.yaml --save fleet.json"


def command(
    inventory: o.Inventory = None,
    snapshot: Annotated[
        str | None, typer.Option("--snapshot", metavar="FILE", help="Show a saved probe; no network.")
    ] = None,
    save: Annotated[
        str | None, typer.Option("--save", metavar="FILE", help="Write a snapshot, for --snapshot.")
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace names, addresses and users, for bug reports.")
    ] = False,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option("--diff", metavar="A B", help="What changed from snapshot A to snapshot B; no network."),
    ] = None,
    host: o.Hosts = None,
    label: o.Labels = None,
    host_key: o.HostKey = None,
    jobs: o.Jobs = None,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Print the fleet; exit 0 when some host has a usable GPU, else 4. With --diff: exit 0, whatever changed."""
    from gpuplan.cli.progress import STATUS
    from gpuplan.operations.fleet import see_fleet, usable
    from gpuplan.operations.probe import Interrupted

    if diff is not None:
        if snapshot is not None or save is not None:
            raise UsageError(
                "--diff reads two snapshots and nothing else", hint="leave --snapshot and --save out"
            )
        _show_changes(*diff, output_format)
        return
    if save is not None:
        _refuse_unwritable(Path(save))
    options = o.fleet_options(
        inventory=inventory, snapshot=snapshot, hosts=host, labels=label, host_key=host_key, jobs=jobs
    )
    interrupted = False
    try:
        fleet = see_fleet(options)
    except Interrupted as stop:
        fleet, interrupted = stop.fleet, True
        STATUS.end()
    if snapshot is not None:
        output.remark_age(fleet.taken_at)
    if redact:
        from gpuplan.sources.redaction import redacted

        fleet = redacted(fleet)
    if save is not None:
        _save(fleet, Path(save))
    _show(fleet, output_format)
    if interrupted:
        raise KeyboardInterrupt
    if not any(usable(seen, gpu) for seen in fleet.hosts for gpu in seen.gpus):
        raise typer.Exit(ExitCode.NO_HOST)


def _show(fleet: "Fleet", output_format: o.OutputFormat) -> None:
    if output_format is o.OutputFormat.JSON:
        from gpuplan.sources.snapshot_json import dump

        output.show_json(dump(fleet))
    else:
        from gpuplan.present.fleet_text import fleet_text

        output.show(fleet_text(fleet, output.width()))


def _show_changes(before: str, after: str, output_format: o.OutputFormat) -> None:
    from gpuplan.present.fleet_changes import changes_document, changes_text
    from gpuplan.sources.snapshot_json import load

    then, now = load(before), load(after)
    if output_format is o.OutputFormat.JSON:
        output.show_json(changes_document(then, now))
    else:
        output.show(changes_text(then, now, output.width()))


def _refuse_unwritable(path: Path) -> None:
    """Before anything is probed: what was read would be lost."""
    if path.is_dir():
        raise _unwritable(path, "Is a directory")
    if not path.parent.is_dir():
        raise _unwritable(path, "its directory is not there")
    if not os.access(path if path.exists() and not path.is_file() else path.resolve().parent, os.W_OK):
        raise _unwritable(path, "Permission denied")


def _save(fleet: "Fleet", path: Path) -> None:
    from gpuplan.sources.snapshot_json import save

    try:
        save(fleet, path)
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from error


def _unwritable(path: Path, why: str) -> UsageError:
    return UsageError(
        f"--save {path}: cannot be written: {why}", hint="name a file in a directory you may write to"
    )
