"""`gpuplan explain CODE`: the page behind a finding's code."""

from typing import Annotated

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output

HELP = "The page behind a finding's code; without a code, all of them in a line each."
EXAMPLE = "Example: gpuplan explain GP204"


def command(
    code: Annotated[str | None, typer.Argument(metavar="CODE", help="For example GP204.")] = None,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Print one page, or the list."""
    from gpuplan.present.explain import page_document, page_text, pages, pages_text

    found = pages(code)
    if output_format is o.OutputFormat.JSON:
        output.show_json({"schema_version": 1, "pages": [page_document(page) for page in found]})
    elif code is None:
        output.show(pages_text(found, output.width()))
    else:
        output.show(page_text(found[0], output.width()))
