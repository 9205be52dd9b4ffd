"""`gpuplan learn LOG…`: compare vLLM start-up logs with their predictions, and keep what they teach."""

from typing import Annotated

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output
from gpuplan.errors import ExitCode, UsageError

HELP = (
    "Read start-up logs of vLLM, of this machine or another, predict the same starts, compare term by term, and keep the "
    "differences: later plans on like hardware use them and say so. Exit 0: every start was kept; 2: one was not."
)
EXAMPLE = "Example: gpuplan learn vllm.log --gpu H100-80GB --model Qwen/Qwen3-32B"

Logs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="LOG...",
        help="Log files, - for stdin. A log that names no model is one of another host of the server before it.",
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option(
        "--gpu", metavar="NAME[:COUNT]", help="The card, where the logs do not name it; or NAME=SIZE."
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="MODEL", help="The model, where the logs name a path of another machine."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Compare only; keep nothing.")]
List = Annotated[bool, typer.Option("--list", help="Show what was learned so far.")]
Forget = Annotated[
    list[str] | None,
    typer.Option("--forget", metavar="LESSON|all", help="Forget a start by its id, or all (repeatable)."),
]


def command(
    context: typer.Context,
    logs: Logs = None,
    gpu: Gpu = None,
    model: Model = None,
    vllm_version: o.VllmVersion = None,
    dry_run: DryRun = False,
    show_list: List = False,
    forget: Forget = None,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Learn from logs, or show or forget what was learned."""
    import os

    if forget or show_list:
        if logs:
            raise UsageError("learn: logs beside --list or --forget", hint="leave one of the two out")
        _kept(forget or [], output_format)
        return
    if not logs:
        raise UsageError(
            "learn: no log was named", hint="name files, or - for stdin; --list shows what was learned"
        )
    from gpuplan.operations.learn_logs import learn_logs
    from gpuplan.operations.start_question import Known

    known = Known(model=model, gpu=gpu, version=vllm_version, engine_args=tuple(context.obj or ()))
    learned = learn_logs(logs, known, environ=os.environ, keep=not dry_run)
    if output_format is o.OutputFormat.JSON:
        from gpuplan.present.learn_document import learned_document

        output.show_json(learned_document(learned))
    else:
        from gpuplan.present.document import EMPTY
        from gpuplan.present.learn_text import learned_text

        for number, one in enumerate(learned):
            rows = learned_text(one, output.width())
            output.show((EMPTY, *rows) if number else rows)
    if any(one.lesson is None or one.unwritten is not None for one in learned):
        raise typer.Exit(ExitCode.USAGE)


def _kept(forget: list[str], output_format: o.OutputFormat) -> None:
    """What is there, after what is to be forgotten was taken away."""
    import os

    from gpuplan.operations.learn_logs import forget_lessons
    from gpuplan.sources import calibration_store

    if forget:
        gone = forget_lessons(forget, os.environ)
        output.remark(f"{gone} start{'' if gone == 1 else 's'} forgotten")
    stored = calibration_store.load(os.environ)
    if stored.problem is not None:
        raise UsageError(f"{stored.path}: {stored.problem}", hint="make it readable, or delete it")
    if output_format is o.OutputFormat.JSON:
        from gpuplan.present.learn_document import lessons_document

        output.show_json(lessons_document(stored.lessons, str(stored.path), stored.unread))
    else:
        from gpuplan.present.learn_text import lessons_text

        output.show(lessons_text(stored.lessons, str(stored.path), stored.unread, output.width()))
