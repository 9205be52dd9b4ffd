"""`gpuplan estimate`: what one placement needs and gives on named hardware, without an inventory."""

from dataclasses import dataclass, replace
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Basis, Fleet, Host
from gpuplan.domain.hardware import Accelerator
from gpuplan.domain.plan import Candidate, Plan, Remedy, StrategyName, StrategyResult, Verdict
from gpuplan.domain.workload import EngineArguments, GpuSelection
from gpuplan.engine.utilization import gpu_memory_utilization
from gpuplan.errors import UsageError
from gpuplan.operations.cards import card_of
from gpuplan.operations.plan import (
    Asked,
    ServingOptions,
    echo,
    engine_version,
    lessons_for,
    model_for,
    workload_of,
)
from gpuplan.planning.layouts import compare as layouts_of
from gpuplan.planning.layouts import fact_of
from gpuplan.planning.planner import plan
from gpuplan.planning.request import PlanRequest
from gpuplan.sources.catalogue import accelerators
from gpuplan.units import GIB, parse_size

HOST = "host"
GPUS_OF_A_HOST = 8
"""More GPUs than this are taken to stand in several hosts where their layouts are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """One placement on hardware that need not exist."""

    model: dict[str, Any]
    hardware: dict[str, Any]
    result: StrategyResult
    facts: tuple[Fact, ...]
    plan: Plan

    @property
    def candidate(self) -> Candidate:
        return self.result.candidates[0]

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return self.result.remedies


def make_estimate(
    reference: str, gpu: str, free: str | None, options: ServingOptions, *, layouts: bool = False
) -> Estimate:
    """Judge the model on all GPUs of `--gpu NAME[:COUNT]` as one placement.

    `free` is what is free on each GPU at start (`--free`); `layouts` compares all ways to use the GPUs. Raises GpuplanError
    for anything the user can correct.
    """
    accelerator, count = accelerators.parse_gpu_option(gpu)
    version = engine_version(options, None)
    workload = workload_of(options, version)
    model = model_for(reference, workload)
    free_bytes = _free(free, accelerator)
    paid = 0 if accelerator.unified else _paid_by_host(workload.engine, count)
    fleet = hardware_fleet(accelerator, count, free_bytes, ram_bytes=paid or None)
    utilization = gpu_memory_utilization(
        workload.engine, category=model.category, architectures=(model.profile.architecture,), version=version
    )
    selected = replace(
        workload,
        category=model.category,
        selection=(GpuSelection(host=HOST, devices=tuple(str(index) for index in range(count))),),
    )
    request = PlanRequest(
        fleet=fleet,
        profile=model.profile,
        workload=selected,
        version=version,
        utilization=utilization,
        model_path=model.path,
        siblings=model.siblings,
        accelerators=card_of,
        lessons=lessons_for(workload),
        echo=echo(model.path, workload, version, utilization, model.category, Asked(reference=reference)),
    )
    made = plan(request)
    result = _judged(next(item for item in made.strategies if item.strategy is StrategyName.MANUAL))
    return Estimate(
        model=dict(made.model),
        hardware=_hardware(accelerator, count, free_bytes),
        result=result,
        facts=(
            *(_compared(request, accelerator, count, free_bytes, result) if layouts else ()),
            *made.facts,
            *_taken_for(accelerator),
            *_ram_assumed(paid),
        ),
        plan=made,
    )


def _compared(
    request: PlanRequest, accelerator: Accelerator, count: int, free_bytes: int | None, result: StrategyResult
) -> tuple[Fact, ...]:
    """GP312 over all GPUs, on hosts of eight where there are more; none where the estimate itself has it."""
    if any(fact.code == "GP312" for item in result.candidates for fact in item.facts):
        return ()
    size = GPUS_OF_A_HOST if count % GPUS_OF_A_HOST == 0 else count
    (alike,) = hardware_fleet(accelerator, size, free_bytes).hosts
    hosts = tuple(replace(alike, name=f"{HOST}-{number}") for number in range(count // size))
    places = [(host.name, gpu.index) for host in hosts for gpu in host.gpus]
    fleet = replace(request.fleet, hosts=hosts)
    compared = layouts_of(replace(request, fleet=fleet), places)
    return (fact_of(compared),) if compared is not None and compared.layouts else ()


def _judged(result: StrategyResult) -> StrategyResult:
    """A placement that is only asked about is refused, not overcommitted; remedies that name a fleet are left out."""
    if result.verdict is Verdict.FITS:
        return result
    return replace(
        result,
        verdict=Verdict.NO_FIT,
        candidates=tuple(
            replace(item, verdict=Verdict.NO_FIT, throughput=None) for item in result.candidates
        ),
        remedies=tuple(
            remedy for remedy in result.remedies if not {"--strategy", "--gpus"} & set(remedy.change)
        ),
    )


def hardware_fleet(
    accelerator: Accelerator, count: int, free_bytes: int | None, *, ram_bytes: int | None = None
) -> Fleet:
    """One host with `count` such GPUs, each with `free_bytes` free (None: all of it), and RAM (None: not known)."""
    gpus = accelerators.as_gpus(accelerator, count)
    if free_bytes is not None:
        gpus = tuple(replace(gpu, free_bytes=free_bytes) for gpu in gpus)
    return Fleet(hosts=(Host(name=HOST, gpus=gpus, ram_available_bytes=ram_bytes),), basis=Basis.ASSUMED)


def _free(text: str | None, accelerator: Accelerator) -> int | None:
    if text is None:
        return None
    try:
        size = parse_size(text)
    except ValueError as error:
        raise UsageError(f"--free {text}: {error}", hint="write for example --free 19.6GiB") from error
    if size > accelerator.memory_bytes:
        raise UsageError(
            f"--free {text}: more than the card has ({accelerator.memory_bytes / GIB:.2f} GiB)",
            hint="give what is free on one GPU",
        )
    return size


def _paid_by_host(engine: EngineArguments, count: int) -> int:
    """Bytes of host memory for what is offloaded: of a host that need not exist it is not asked whether it has them."""
    return int(engine.cpu_offload_gb * GIB) * count + int((engine.kv_offloading_size or 0) * GIB)


def _ram_assumed(size: int) -> tuple[Fact, ...]:
    if not size:
        return ()
    text = f"the host has {size / GIB:.2f} GiB of RAM free for what is offloaded to it; `gpuplan plan` asks a real host"
    return (
        Fact(
            code="GP502",
            severity=Severity.INFO,
            subject={"host": HOST},
            figures={"assumption": text},
        ),
    )


def _taken_for(accelerator: Accelerator) -> tuple[Fact, ...]:
    """What was assumed of hardware that was given by its size alone."""
    if not accelerator.taken_for:
        return ()
    names = " or ".join(card.name for card in accelerator.taken_for)
    spans = ", and the ranges cover both" if len(accelerator.taken_for) > 1 else ""
    text = (
        f"{accelerator.memory_bytes / GIB:.2f} GiB is what {names} reports: {accelerator.name} is taken for one{spans}; "
        "name the card with --gpu to change that"
    )
    return (
        Fact(
            code="GP502",
            severity=Severity.INFO,
            subject={"gpu": accelerator.name},
            figures={"assumption": text},
        ),
    )


def _hardware(accelerator: Accelerator, count: int, free_bytes: int | None) -> dict[str, Any]:
    return {
        "name": accelerator.name,
        "count": count,
        "total_bytes": accelerator.memory_bytes,
        "free_bytes": accelerator.memory_bytes if free_bytes is None else free_bytes,
        "memory_basis": accelerator.memory_basis.value,
        "backend": accelerator.backend,
        "compute_capability": accelerator.compute_capability,
        "bandwidth_bytes_per_second": accelerator.bandwidth_bytes_per_second,
        "source": accelerator.source,
        "taken_for": [card.name for card in accelerator.taken_for],
    }
