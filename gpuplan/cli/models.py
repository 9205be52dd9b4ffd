"""`gpuplan models [WORDS]`: the built-in model catalogue."""

from typing import Annotated

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output

HELP = "The built-in models, or those whose name or family contains every given word."
EXAMPLE = "Example: gpuplan models qwen3 fp8"


def command(
    words: Annotated[list[str] | None, typer.Argument(metavar="[WORD]...", help="Parts of the name.")] = None,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Print the catalogue."""
    from gpuplan.operations.catalogues import find_models
    from gpuplan.present.catalogues import models_document, models_text

    found = find_models(words or [])
    if output_format is o.OutputFormat.JSON:
        output.show_json({"schema_version": 1, "models": models_document(found)})
    else:
        output.show(models_text(found, output.width()))
