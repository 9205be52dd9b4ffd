"""`gpuplan plan MODEL`: dry run."""

import typer

from gpuplan.cli import options as o
from gpuplan.cli import output
from gpuplan.errors import ExitCode

HELP = "Evaluate every placement strategy on the fleet, explain each, recommend one. Nothing is started."
EXAMPLE = "Example: gpuplan plan Qwen/Qwen3-32B -i inventory.yaml --context 32768 -- --max-num-seqs 64"


def command(
    context: typer.Context,
    model: o.Model,
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
    output_format: o.Output = o.OutputFormat.TABLE,
) -> None:
    """Print the plan; exit 0 when something fits, 3 when nothing does."""
    from gpuplan.operations.plan import ServingOptions, make_plan

    made = make_plan(
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
    if snapshot is not None:
        output.remark_age(made.taken_at)
    if output_format is o.OutputFormat.JSON:
        from gpuplan.present.plan_document import plain, plan_document

        output.show_json(plain(plan_document(made)))
    else:
        from gpuplan.present.plan_text import plan_text

        output.show(plan_text(made, output.width()))
    if made.recommended is None:
        raise typer.Exit(ExitCode.NO_FIT)
