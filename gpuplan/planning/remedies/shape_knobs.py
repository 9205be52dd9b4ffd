"""Other places for the same request: the plan's own sizes, another strategy, more GPUs."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuplan.domain.plan import Candidate, Parallelism, Remedy, StrategyName, StrategyResult, Verdict
from gpuplan.planning.judge import Judge
from gpuplan.planning.offers import Device, whole_cards
from gpuplan.planning.remedies.case import Case
from gpuplan.planning.remedies.ladder import with_arguments, with_workload
from gpuplan.planning.shapes import shapes, user_world
from gpuplan.planning.strategies import multi_host

GPU_COUNTS = (1, 2, 3, 4, 6, 8, 16)
SIZES = frozenset({"tensor_parallel_size", "pipeline_parallel_size"})


def own_sizes(case: Case) -> Iterator[Remedy]:
    """The user fixed the parallel sizes: those the plan would choose instead, written out."""
    if user_world(case.arguments) is None or case.request.workload.selection:
        return
    engine = replace(
        case.arguments,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        user_set=case.arguments.user_set - SIZES,
    )
    fitting = case.fitting(with_workload(case.request, engine=engine))
    if fitting is None:
        return
    shape = fitting.parallelism
    changes: dict[str, Any] = {
        "tensor_parallel_size": shape.tensor,
        "pipeline_parallel_size": shape.pipeline,
    }
    if shape.expert and not case.arguments.enable_expert_parallel:
        changes["enable_expert_parallel"] = True
    if case.fitting(with_arguments(case.request, **changes)) is None:
        return
    replicas = max(case.request.workload.replicas, case.arguments.data_parallel_size)
    whole = replicas if case.strategy is StrategyName.DATA_PARALLEL else 1
    change = {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    yield _shape_remedy(fitting, (user_world(case.arguments) or 1) * whole, change)


def _shape_remedy(candidate: Candidate, asked: int, change: Mapping[str, Any]) -> Remedy:
    shape = candidate.parallelism
    gpus = sum(len(host.gpus) for host in candidate.placement)
    return Remedy(
        kind="shape",
        change=change,
        figures={
            "shape": f"TP {shape.tensor} × PP {shape.pipeline}",
            "partition": shape.layer_partition,
            "where": ", ".join(list(dict.fromkeys(host.host for host in candidate.placement))[:3]),
            "gpus": gpus,
            "asked": asked,
        },
        size=1.5 + 0.25 * abs(gpus - asked) / max(asked, 1),
        verified=True,
    )


def other_strategies(case: Case, others: tuple[StrategyResult, ...]) -> Iterator[Remedy]:
    """Another strategy that fits the same request is a remedy of this one; of a selection, other GPUs of the same number."""
    workload = case.request.workload
    if not case.codes or workload.replicas * max(workload.engine.data_parallel_size, 1) > 1:
        return  # replicas are placed by one strategy alone
    fitting = [
        other
        for other in others
        if other.strategy not in (case.strategy, StrategyName.DATA_PARALLEL, StrategyName.MANUAL)
        and other.verdict is Verdict.FITS
        and other.candidates
    ]
    selected = sum(len(item.devices) for item in workload.selection)
    for other in fitting[:1]:
        change = {"--strategy": other.strategy.value}
        made = _shape_remedy(other.candidates[0], selected or 1, change)
        yield replace(made, figures={**made.figures, "selected": selected > 0})
    alike = (
        candidate
        for other in fitting
        for candidate in other.candidates
        if candidate.verdict is Verdict.FITS and _gpus(candidate) == selected
    )
    chosen = next(alike, None) if case.strategy is StrategyName.MANUAL else None
    if chosen is not None:
        words = tuple(
            f"{host.host}:{','.join(str(gpu.index) for gpu in host.gpus)}" for host in chosen.placement
        )
        made = _shape_remedy(chosen, selected, {"--gpus": words})
        yield replace(made, kind="gpus", size=1.0)


def _gpus(candidate: Candidate) -> int:
    return sum(len(host.gpus) for host in candidate.placement)


def other_hosts(case: Case) -> Iterator[Remedy]:
    """The user keeps a replica on one host: several hosts, where they hold it."""
    request = case.request
    if case.strategy is not StrategyName.SINGLE_HOST or request.workload.allow_distributed:
        return
    spread = replace(
        case,
        request=with_workload(request, allow_distributed=True),
        strategy=StrategyName.MULTI_HOST,
        evaluate=multi_host.evaluate,
    )
    fitting = spread.fitting(spread.request)
    if fitting is not None:
        made = _shape_remedy(fitting, len(case.supply.offers), {"without": "--no-distributed"})
        yield replace(made, kind="other_hosts", size=2.5)


def more_gpus(case: Case) -> Iterator[Remedy]:
    """The fewest GPUs of the best kind in the fleet that would do on one host, if no host has so many.

    Where one has, GPUs are not what is missing: what is held of them is.
    """
    if case.strategy in (StrategyName.MULTI_HOST, StrategyName.DATA_PARALLEL) or not case.supply.offers:
        return
    if user_world(case.arguments) is not None:
        return
    judge = Judge(case.request)
    whole = [whole_cards(host)[0] for host in case.supply.hosts]
    kinds = {offer.device for host in whole for offer in host.offers}
    if not kinds:
        return
    device = max(kinds, key=lambda kind: (kind.total_bytes, kind.name))
    here = max(sum(1 for offer in host.offers if offer.device == device) for host in whole)
    for gpus in GPU_COUNTS:
        for shape in shapes(judge, gpus):
            if judge.assess(shape, (device,) * gpus).fits:
                if gpus > here:
                    yield _more_remedy(device, shape, gpus, here)
                return


def _more_remedy(device: Device, shape: Parallelism, gpus: int, here: int) -> Remedy:
    return Remedy(
        kind="more_gpus",
        change={"gpus": gpus, "device": device.name},
        figures={
            "gpus": gpus,
            "more": gpus - here,
            "device": device.name,
            "shape": f"TP {shape.tensor} × PP {shape.pipeline}",
        },
        size=4.0 + math.log2(gpus),
        verified=True,
    )
