"""`gpuplan schema NAME`: JSON Schemas, generated from the types that are written."""

from typing import Annotated

import typer

from gpuplan.cli import output

NAME = "schema"
HELP = "The JSON Schema of plan, estimate, snapshot or inventory."
EXAMPLE = "Example: gpuplan schema plan"


def command(name: Annotated[str, typer.Argument(metavar="NAME", help="plan, estimate, snapshot, inventory.")]) -> None:
    """Print one schema."""
    from gpuplan.operations.schemas import schema_of

    output.show_json(schema_of(name))
