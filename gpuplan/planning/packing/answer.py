"""The answer to several models at once, as it is shown."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuplan.domain.fact import Fact
from gpuplan.domain.plan import Candidate
from gpuplan.planning.packing.blocking import Blocked
from gpuplan.planning.packing.moves import Step
from gpuplan.planning.packing.values import Packing


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One copy in its home."""

    deployment: str
    stays: bool
    """It runs there already."""
    share: float | None
    """gpu_memory_utilization; None: it claims only what it needs."""
    candidate: Candidate
    """As `gpuplan plan --gpus` has it beside the other models."""
    request: Mapping[str, Any]
    """What that plan was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswer:
    """One model of the file."""

    name: str
    reference: str
    priority: int
    replicas: int
    copies: tuple[Copy, ...] = ()
    """Empty: it is not placed."""
    blocked: Blocked | None = None

    @property
    def placed(self) -> bool:
        return bool(self.copies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A step, and what a deploy is asked where it is a start."""

    step: Step
    request: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """All models, and the way there."""

    path: str
    models: tuple[ModelAnswer, ...]
    """In the order of the file."""
    moves: tuple[Move, ...]
    packing: Packing
    hosts: int
    gpus: int
    """Usable ones of the fleet."""
    fleet_basis: str
    taken_at: str | None
    inventory: str | None
    """The file the commands name; None: none was named."""
    facts: tuple[Fact, ...] = ()

    @property
    def complete(self) -> bool:
        return all(model.placed for model in self.models)
