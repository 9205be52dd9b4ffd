"""`gpuplan plan MODEL --solve`: what it takes."""

from typing import TYPE_CHECKING

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output
from gpuplan.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from gpuplan.operations.fleet import FleetOptions
    from gpuplan.operations.plan import ServingOptions


def solve_plan(
    model: str, fleet: "FleetOptions", serving: "ServingOptions", output_format: o.OutputFormat
) -> None:
    """Print the answer; exit 0 when anything serves it, on the fleet or in the catalogue, 3 when nothing does."""
    if serving.gpus or serving.strategies:
        raise UsageError(
            "--solve looks for the GPUs itself", hint="leave --gpus and --strategy out, or --solve"
        )
    from gpuplan.operations.solve import make_solution

    solution = make_solution(model, fleet, serving)
    if output_format is o.OutputFormat.JSON:
        from gpuplan.present.plan_document import plain
        from gpuplan.present.solve_document import solve_document

        output.show_json(plain(solve_document(solution)))
    else:
        from gpuplan.present.solve_text import solve_text

        output.show(solve_text(solution, output.width()))
    if not solution.found:
        raise typer.Exit(ExitCode.NO_FIT)
