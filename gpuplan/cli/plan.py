"""`gpuplan plan MODEL`: dry run."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output
from gpuplan.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from gpuplan.domain.plan import Plan
    from gpuplan.operations.fleet import FleetOptions
    from gpuplan.operations.plan import ServingOptions
    from gpuplan.planning.answers import Comparison

HELP = "Evaluate every placement strategy on the fleet, explain each, recommend one. Nothing is started."
EXAMPLE = "Example: gpuplan plan Qwen/Qwen3-32B -i inventory.yaml --context 32768 -- --max-num-seqs 64"


def command(
    context: typer.Context,
    model: o.OptionalModel = None,
    file: o.ModelsFile = None,
    inventory: o.Inventory = None,
    snapshot: o.Snapshot = None,
    no_probe: o.NoProbe = False,
    host: o.Hosts = None,
    label: o.Labels = None,
    gpus: o.Gpus = None,
    strategy: o.Strategies = None,
    length: o.Context = None,
    concurrency: o.Concurrency = None,
    kv_cache_dtype: o.KvCacheDtype = None,
    replicas: o.Replicas = 1,
    placement: o.PlacementOption = None,
    no_distributed: o.NoDistributed = False,
    executor: o.Executor = "auto",
    allow_overcommit: o.AllowOvercommit = False,
    no_calibration: o.NoCalibration = False,
    category: o.CategoryOption = None,
    image: o.Image = None,
    vllm_version: o.VllmVersion = None,
    vram_claim: o.VramClaim = None,
    ram_claim: o.RamClaim = None,
    host_key: o.HostKey = None,
    jobs: o.Jobs = None,
    since: o.Since = None,
    diff: o.PlanDiff = None,
    solve: o.Solve = False,
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Print the plan; exit 0 when something fits, 3 when nothing does. With --diff: exit 0, whatever changed."""
    if file is not None:
        from gpuplan.cli.plan_many import plan_file

        fleet = o.fleet_options(
            inventory=inventory,
            snapshot=snapshot,
            no_probe=no_probe,
            hosts=host,
            labels=label,
            host_key=host_key,
            jobs=jobs,
        )
        plan_file(context, model, file, fleet, output_format)
        return
    if diff is not None:
        if model is not None or snapshot is not None or inventory is not None or since:
            raise UsageError(
                "--diff reads two saved plans and nothing else", hint="leave MODEL and the fleet out"
            )
        _show_diff(*diff, output_format)
        return
    if model is None:
        raise UsageError(
            "gpuplan plan: MODEL is missing", hint=f"for example: {EXAMPLE.removeprefix('Example: ')}"
        )
    from gpuplan.operations.plan import ServingOptions

    asked = (
        model,
        o.fleet_options(
            inventory=inventory,
            snapshot=snapshot,
            no_probe=no_probe,
            hosts=host,
            labels=label,
            host_key=host_key,
            jobs=jobs,
        ),
        ServingOptions(
            context=length,
            concurrency=concurrency,
            kv_cache_dtype=kv_cache_dtype,
            category=category,
            replicas=replicas,
            placement=placement,
            executor=executor,
            image=image,
            vllm_version=vllm_version,
            vram_claim=vram_claim,
            ram_claim=ram_claim,
            allow_overcommit=allow_overcommit,
            no_distributed=no_distributed,
            no_calibration=no_calibration,
            strategies=tuple(strategy or ()),
            gpus=tuple(gpus or ()),
            engine_args=tuple(context.obj or ()),
        ),
    )
    if solve:
        from gpuplan.cli.plan_solve import solve_plan

        solve_plan(*asked, output_format)
        return
    made, changed = _made(*asked, since or [])
    if snapshot is not None:
        output.remark_age(made.taken_at)
    _show(made, changed, output_format)
    if made.recommended is None:
        raise typer.Exit(ExitCode.NO_FIT)


def _made(
    model: str, fleet_options: "FleetOptions", serving: "ServingOptions", since: list[str]
) -> tuple["Plan", "Comparison | None"]:
    """The plan, and what is different from then where that was asked."""
    if not since:
        from gpuplan.operations.plan import make_plan

        return make_plan(model, fleet_options, serving), None
    from gpuplan.operations.plan_since import make_plan_since

    return make_plan_since(model, fleet_options, serving, [Path(path) for path in since])


def _show(made: "Plan", changed: "Comparison | None", output_format: o.OutputFormat) -> None:
    if output_format is o.OutputFormat.JSON:
        from gpuplan.present.plan_document import plain, plan_document

        document = plain(plan_document(made))
        if changed is not None:
            from gpuplan.present.plan_since import since_document, told_since

            document["since"] = since_document(told_since(changed))
        output.show_json(document)
        return
    from gpuplan.present.plan_text import plan_text

    output.show(plan_text(made, output.width()))
    if changed is not None:
        from gpuplan.present.document import EMPTY
        from gpuplan.present.plan_since import since_text, told_since

        output.show((EMPTY, *since_text(told_since(changed), output.width())))


def _show_diff(before: str, after: str, output_format: o.OutputFormat) -> None:
    from gpuplan.operations.plan_since import compare_plans
    from gpuplan.present.plan_since import since_document, since_text, told_since

    since = told_since(compare_plans(Path(before), Path(after)))
    if output_format is o.OutputFormat.JSON:
        output.show_json({"schema_version": 1, **since_document(since)})
    else:
        output.show(since_text(since, output.width()))
