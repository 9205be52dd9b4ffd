"""A plan that was written to a file, as far as it can be launched from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuplan.domain.fleet import Basis
from gpuplan.domain.plan import Eviction, Parallelism, PlacedHost, StrategyName, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCandidate:
    """The recommended placement with its command, as it was planned."""

    verdict: Verdict
    parallelism: Parallelism
    placement: tuple[PlacedHost, ...]
    vllm_args: tuple[str, ...] = ()
    """Without the flags whose values were masked."""
    env: tuple[tuple[str, str], ...] = ()
    evicts: tuple[Eviction, ...] = ()
    """To be stopped before it starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPlan:
    """What was asked, and what was recommended."""

    path: str
    reference: str
    """MODEL as the user wrote it."""
    serving: Mapping[str, Any] = field(hash=False)
    """What was asked of the model, by the names of `operations.plan.ServingOptions`."""
    hosts: tuple[str, ...] = ()
    """`--host`."""
    labels: tuple[str, ...] = ()
    """`--label K=V` each."""
    strategy: StrategyName
    candidate: SavedCandidate
    basis: Basis
    """What the picture of the fleet rested on."""
