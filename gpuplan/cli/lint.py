"""`gpuplan lint -- vllm serve …`: would vLLM accept this command?"""

from typing import Annotated

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output
from gpuplan.errors import ExitCode, UsageError

HELP = (
    "Whether vLLM would accept a command line: arguments, launch options, parallel sizes, the model's own limits. "
    "Nothing is started or reached. Exit 0: accepted; 2: refused."
)
EXAMPLE = "Example: gpuplan lint --gpus 8 --config Qwen/Qwen3-32B -- vllm serve Qwen/Qwen3-32B -tp 8"


def command(
    context: typer.Context,
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", min=0, help="GPUs the process would see.")
    ] = None,
    no_ray: Annotated[bool, typer.Option("--no-ray", help="The image has no Ray.")] = False,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="CONFIG.json",
            help="The model behind the command: a file, a directory or a catalogue name.",
        ),
    ] = None,
    moe: Annotated[
        bool, typer.Option("--moe", help="The model has experts; nothing else of it is known.")
    ] = False,
    vllm_version: o.VllmVersion = None,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Print the verdict with its findings."""
    from gpuplan.operations.lint import LintOptions, lint
    from gpuplan.present.lint_text import lint_document, lint_text

    if config is not None and moe:
        raise UsageError(
            "--config and --moe exclude each other", hint="the config tells whether it has experts"
        )
    made = lint(
        tuple(context.obj or ()),
        LintOptions(
            gpus=gpus,
            ray=not no_ray,
            config=config,
            moe=moe,
            vllm_version=vllm_version,
        ),
    )
    document = lint_document(
        ok=made.ok,
        version=str(made.version),
        model=made.model,
        facts=made.facts,
        parallel_config=made.parallel_config,
    )
    if output_format is o.OutputFormat.JSON:
        from gpuplan.present.plan_document import plain

        output.show_json(plain(document))
    else:
        output.show(lint_text(document, made.facts, output.width()))
    if not made.ok:
        raise typer.Exit(ExitCode.USAGE)
