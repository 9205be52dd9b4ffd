"""The containers a candidate would be, on facts that are at hand: no host is asked."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gpuplan.domain.deployment import DeploymentSpec
from gpuplan.domain.fleet import Fleet
from gpuplan.domain.plan import Plan, Verdict
from gpuplan.domain.workload import Workload
from gpuplan.operations.deploy_prepare import look_on
from gpuplan.operations.deploy_request import Wanted, narrowed
from gpuplan.operations.fleet import THIS_MACHINE, FleetOptions, load_inventory
from gpuplan.operations.models import Model
from gpuplan.operations.plan import Asked, ServingOptions, engine_version, model_for, workload_of


def dry_run(
    options: FleetOptions,
    plan: Plan,
    choice: tuple[int, int],
    fleet: Fleet,
    read: Callable[[str, Workload], Model] = model_for,
    engine_args: tuple[str, ...] | None = None,
) -> DeploymentSpec:
    """What deploying a candidate (index of the strategy, of the candidate) would start on a fleet that was read.

    `engine_args`: as they were written, where the plan masks secrets; containers name them and never hold their values.
    Raises FleetChanged where the candidate is no longer there, UsageError and what reading the model raises.
    """
    request = plan.request
    inventory = load_inventory(options) or THIS_MACHINE
    candidate = plan.strategies[choice[0]].candidates[choice[1]]
    serving = serving_of(request)
    if engine_args is not None:
        serving = replace(serving, engine_args=engine_args)
    if candidate.verdict is Verdict.OVERCOMMIT:
        serving = replace(serving, allow_overcommit=True)
    version = engine_version(serving, inventory.vllm.image)
    workload = workload_of(serving, version)
    reference = str(request["reference"])
    wanted = Wanted(
        inventory=inventory,
        model=read(reference, workload),
        workload=workload,
        version=version,
        saved=None,
        asked=Asked(reference=reference, hosts=tuple(request["hosts"]), labels=tuple(request["labels"])),
        name=None,
        keep_alive_seconds=None,
        environ=options.environ,
    )
    return look_on(narrowed(fleet, wanted), wanted, candidate).spec


def serving_of(request: Mapping[str, Any]) -> ServingOptions:
    """`Plan.request` as options; masked values stay `***`."""
    return ServingOptions(
        context=_written(request["context"]),
        concurrency=request["concurrency"],
        category=request["category"],
        replicas=request["replicas"],
        placement=request["placement"],
        executor=request["executor"],
        image=request["image"],
        vllm_version=request["vllm_version"],
        vram_claim=_written(request["vram_claim_bytes"]),
        ram_claim=_written(request["ram_claim_bytes"]),
        allow_overcommit=request["allow_overcommit"],
        no_distributed=request["no_distributed"],
        no_calibration=request.get("no_calibration", False),
        strategies=tuple(request["strategies"]),
        gpus=tuple(request["gpus"]),
        engine_args=tuple(request["engine_args"]),
    )


def _written(value: int | str | None) -> str | None:
    return None if value is None else str(value)
