"""`gpuplan estimate MODEL --gpu NAME[:COUNT]`: no inventory needed."""

from typing import Annotated

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output
from gpuplan.errors import ExitCode

HELP = "What one placement of the model needs and gives on named hardware, without an inventory."
EXAMPLE = "Example: gpuplan estimate Qwen/Qwen3-32B --gpu H100-80GB:2 --context 32768"


def command(
    context: typer.Context,
    model: o.Model,
    gpu: Annotated[
        str,
        typer.Option(
            "--gpu", metavar="NAME[:COUNT]", help="Catalogue name, or NAME=SIZE for other hardware."
        ),
    ],
    free: Annotated[
        str | None,
        typer.Option("--free", metavar="SIZE", help="Free on each GPU at start (default: all)."),
    ] = None,
    layouts: Annotated[
        bool,
        typer.Option(
            "--layouts", help="Compare tensor, pipeline, data and expert parallel sizes on these GPUs."
        ),
    ] = False,
    length: o.Context = None,
    concurrency: o.Concurrency = None,
    kv_cache_dtype: o.KvCacheDtype = None,
    category: o.CategoryOption = None,
    image: o.Image = None,
    vllm_version: o.VllmVersion = None,
    vram_claim: o.VramClaim = None,
    no_calibration: o.NoCalibration = False,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Print the estimate; exit 0 when it fits, 3 when it does not."""
    from gpuplan.domain.plan import Verdict
    from gpuplan.operations.estimate import make_estimate
    from gpuplan.operations.plan import ServingOptions

    made = make_estimate(
        model,
        gpu,
        free,
        ServingOptions(
            context=length,
            concurrency=concurrency,
            kv_cache_dtype=kv_cache_dtype,
            category=category,
            image=image,
            vllm_version=vllm_version,
            vram_claim=vram_claim,
            no_calibration=no_calibration,
            engine_args=tuple(context.obj or ()),
        ),
        layouts=layouts,
    )
    if output_format is o.OutputFormat.JSON:
        from gpuplan.present.plan_document import estimate_document, plain

        output.show_json(plain(estimate_document(made.model, made.hardware, made.result, made.facts)))
    else:
        from gpuplan.present.estimate_text import estimate_text

        output.show(estimate_text(made.model, made.hardware, made.result, made.facts, output.width()))
    if made.result.verdict is not Verdict.FITS:
        raise typer.Exit(ExitCode.NO_FIT)
