"""A plan as it was told in a file, as far as two of them are compared."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuplan.domain.plan import Plan, StrategyName


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldFinding:
    """A finding in the words it was told in."""

    code: str
    severity: str
    headline: str
    subject: Mapping[str, Any] = field(default_factory=dict, hash=False)
    figures: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldPlan:
    """Verdicts, placements and memory; facts and remedies of `plan` are empty."""

    path: str
    """Of the file; what it is called where there is none."""
    plan: Plan
    findings: tuple[ToldFinding, ...] = ()
    """About fleet, model and question."""
    refusals: Mapping[StrategyName, tuple[ToldFinding, ...]] = field(default_factory=dict, hash=False)
