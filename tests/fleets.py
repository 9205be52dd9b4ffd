"""Fleets, models and requests for tests, by hand."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from gpuplan.domain.fleet import Fleet, Gpu, Host
from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import Plan, StrategyName, StrategyResult
from gpuplan.domain.workload import Workload
from gpuplan.engine.architectures import describe
from gpuplan.engine.arguments import parse
from gpuplan.engine.versions import version_of
from gpuplan.planning.planner import plan
from gpuplan.planning.request import PlanRequest
from gpuplan.units import GIB

CONFIGS = Path(__file__).parent / "data" / "configs"
CARDS = {
    "H100": ("NVIDIA H100 80GB HBM3", 79.19, "9.0"),
    "A100": ("NVIDIA A100-SXM4-80GB", 79.25, "8.0"),
    "4090": ("NVIDIA GeForce RTX 4090", 23.52, "8.9"),
    "L40S": ("NVIDIA L40S", 44.39, "8.9"),
    "T4": ("Tesla T4", 14.56, "7.5"),
}


def gpu(index: int, card: str, free: float | None = None) -> Gpu:
    """A card with `free` GiB free (all of it)."""
    name, total, capability = CARDS[card]
    return Gpu(
        index=index,
        name=name,
        compute_capability=capability,
        total_bytes=int(total * GIB),
        free_bytes=None if free is None else int(free * GIB),
    )


def host(
    name: str, card: str, count: int, *, free: dict[int, float] | None = None, ram: float | None = None
) -> Host:
    """A host of equal cards; `free` is GiB by index, `ram` GiB."""
    return Host(
        name=name,
        gpus=tuple(gpu(index, card, (free or {}).get(index)) for index in range(count)),
        ram_available_bytes=None if ram is None else int(ram * GIB),
    )


@cache
def profile(name: str) -> ModelProfile:
    """A model by its file in tests/data/configs."""
    return describe(name.replace("__", "/"), json.loads((CONFIGS / f"{name}.json").read_text()))


def planned(
    name: str,
    *hosts: Host,
    arguments: str = "",
    version: str = "0.33.0",
    utilization: float | None = 0.92,
    siblings: tuple[ModelProfile, ...] = (),
    **workload: Any,
) -> Plan:
    """A plan for a model on hosts."""
    engine = parse([arguments] if arguments else [], version=version_of(version))
    return plan(
        PlanRequest(
            fleet=Fleet(hosts=hosts),
            profile=profile(name),
            workload=Workload(engine=engine, **workload),
            version=version_of(version),
            utilization=engine.gpu_memory_utilization or utilization,
            siblings=lambda: siblings,
        )
    )


def of(made: Plan, strategy: StrategyName) -> StrategyResult:
    """One strategy's part of a plan."""
    return next(result for result in made.strategies if result.strategy is strategy)
