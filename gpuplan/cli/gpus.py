"""`gpuplan gpus [WORDS]`: the built-in accelerator catalogue."""

from typing import Annotated

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output

HELP = "The built-in accelerators with the memory the driver really reports, or those whose name contains every given word."
EXAMPLE = "Example: gpuplan gpus h100"


def command(
    words: Annotated[list[str] | None, typer.Argument(metavar="[WORD]...", help="Parts of the name.")] = None,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Print the catalogue."""
    from gpuplan.operations.catalogues import find_accelerators
    from gpuplan.present.catalogues import accelerators_document, accelerators_text

    found = find_accelerators(words or [])
    if output_format is o.OutputFormat.JSON:
        output.show_json({"schema_version": 1, "gpus": accelerators_document(found)})
    else:
        output.show(accelerators_text(found, output.width()))
