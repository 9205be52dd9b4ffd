"""What the planner is asked: a fleet, a model, a workload and an engine version, all values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuplan.domain.fleet import Fleet
from gpuplan.domain.model import ModelProfile
from gpuplan.domain.workload import EMPTY_WORKLOAD, Workload
from gpuplan.engine.versions import DEFAULT, EngineVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """One question to the planner."""

    fleet: Fleet
    profile: ModelProfile
    workload: Workload = EMPTY_WORKLOAD
    version: EngineVersion = DEFAULT
    utilization: float | None = None
    """Share of each GPU's total memory the engine takes (gmu); None: the engine claims only what it needs (S0.3)."""
    model_path: str = ""
    """What stands behind `vllm serve`."""
    siblings: Callable[[], tuple[ModelProfile, ...]] = field(default=tuple, compare=False)
    """Quantized variants of the model, offered as remedies."""
    echo: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)
    """The request as the caller wants it repeated in the plan."""
