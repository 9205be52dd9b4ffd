"""What the planner is asked: a fleet, a model, a workload and an engine version, all values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuplan.domain.fleet import Fleet
from gpuplan.domain.hardware import Accelerator
from gpuplan.domain.model import ModelProfile
from gpuplan.domain.workload import EMPTY_WORKLOAD, Workload
from gpuplan.engine.versions import DEFAULT, EngineVersion
from gpuplan.planning.likeness import NO_LESSONS, Lessons


def no_cards(_name: str, _total_bytes: int | None) -> Accelerator | None:
    """A catalogue that knows no card."""
    return None


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
    accelerators: Callable[[str, int | None], Accelerator | None] = field(default=no_cards, compare=False)
    """The data sheet of a card by its device name and memory (bytes), for what it can do in a second."""
    lessons: Lessons = field(default=NO_LESSONS, hash=False)
    """What earlier starts measured; none where they are to be ignored."""
    echo: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)
    """The request as the caller wants it repeated in the plan."""


def with_offload(request: PlanRequest, gib: int) -> PlanRequest:
    """The request with so many GiB of weights per GPU left in host memory by the plan (S4.3); 0 changes nothing."""
    if not gib:
        return request
    engine = replace(request.workload.engine, cpu_offload_gb=float(gib))
    return replace(request, workload=replace(request.workload, engine=engine))
