"""`gpuplan init [HOST…]`: write a first inventory."""

from typing import Annotated

import typer

from gpuplan.cli import output
from gpuplan.errors import UsageError

HELP = "Write a first inventory: of the hosts named, of ~/.ssh/config's, or of this machine."
EXAMPLE = "Example: gpuplan init gpu1=ubuntu@10.0.0.11 gpu2=ubuntu@10.0.0.12 --model-dir /data/models"


def command(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HOST]…", help="[NAME=][USER@]ADDRESS[:PORT]; `local` is this machine."),
    ] = None,
    file: Annotated[
        str, typer.Option("--inventory", "-i", metavar="FILE", help="Where to write it.")
    ] = "inventory.yaml",
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="SSH user of every host.")
    ] = None,
    identity_file: Annotated[
        str | None, typer.Option("--identity-file", metavar="FILE", help="SSH private key for every host.")
    ] = None,
    model_dir: Annotated[
        str | None, typer.Option("--model-dir", metavar="DIR", help="Where the hosts keep model files.")
    ] = None,
    jump: Annotated[
        str | None, typer.Option("--jump", metavar="HOST", help="SSH jump host for every host.")
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="This machine, whatever ~/.ssh/config names.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write the file and say what to do next."""
    import os
    import shlex
    from pathlib import Path

    from gpuplan.domain.inventory import LOCAL
    from gpuplan.operations.first_inventory import write_inventory
    from gpuplan.present.document import Role, Span, line

    targets = [*(hosts or ()), *((LOCAL,) if local else ())]
    given = {"user": user, "identity_file": identity_file, "model_dir": model_dir, "jump": jump}
    written = write_inventory(
        Path(file),
        targets,
        aliases=() if targets else _aliases(os.environ.get("HOME", "")),
        defaults={key: value for key, value in given.items() if value is not None},
        replace=force,
    )
    names = written.hosts
    few = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    option = "" if file == "inventory.yaml" else f" -i {shlex.quote(file)}"
    output.show(
        (
            line(
                Span(f"{written.path}: {len(names)} host{'s' if len(names) != 1 else ''}", Role.GOOD),
                f" from {written.source}: {few}",
            ),
            line("Next: ", Span(f"gpuplan probe{option}", Role.COMMAND), " reads what is there"),
        )
    )


def _aliases(home: str) -> tuple[str, ...]:
    """Host names of the user's SSH configuration."""
    from pathlib import Path

    from gpuplan.remote.ssh_config_files import ConfigUnusable, host_names

    try:
        return host_names(Path(home)) if home else ()
    except ConfigUnusable as error:
        raise UsageError(str(error), hint="mend the file, name hosts yourself, or use --local") from error
