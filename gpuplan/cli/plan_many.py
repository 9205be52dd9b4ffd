"""`gpuplan plan -f FILE`: several models placed together."""

from typing import TYPE_CHECKING

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output
from gpuplan.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from gpuplan.operations.fleet import FleetOptions

FLEET = frozenset(
    ("file", "inventory", "snapshot", "no_probe", "host", "label", "host_key", "jobs", "output_format")
)
"""Parameters of `plan` that go with a file: the fleet, and how the answer is printed."""


def plan_file(
    context: typer.Context, model: str | None, file: str, fleet: "FleetOptions", output_format: o.OutputFormat
) -> None:
    """Print where all models go; exit 3 when one is not placed. Raises UsageError for what is asked of one model."""
    if model is not None:
        raise UsageError(
            f"plan {model[:40]} --file {file[:40]}: a model and a file of models",
            hint="leave one of them out; a further model is one more entry of the file",
        )
    _refuse_others(context)
    from gpuplan.operations.plan_many import plan_many

    answer = plan_many(file, fleet)
    if fleet.snapshot is not None:
        output.remark_age(answer.taken_at)
    if output_format is o.OutputFormat.JSON:
        from gpuplan.present.packing_document import packing_document
        from gpuplan.present.plan_document import plain

        output.show_json(plain(packing_document(answer)))
    else:
        from gpuplan.present.packing_text import packing_text

        output.show(packing_text(answer, output.width()))
    if not answer.complete:
        raise typer.Exit(ExitCode.NO_FIT)


def _refuse_others(context: typer.Context) -> None:
    for parameter in context.command.get_params(context):
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name not in FLEET and source is not None and source.name == "COMMANDLINE":
            option = max(parameter.opts, key=len)
            raise UsageError(
                f"plan --file: {option} is asked of one model",
                hint="write it into the file, at the model or under defaults (docs/packing.md)",
            )
    if context.obj:
        raise UsageError(
            f"plan --file: arguments of vLLM after -- are for one model: {context.obj[0][:40]}",
            hint="write them into the file, for example args: [--max-num-seqs, 64]",
        )
