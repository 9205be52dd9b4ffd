"""What every strategy returns, in one way: ranked candidates, or the reason there are none."""

from collections.abc import Sequence

from gpuplan.domain.fact import Fact
from gpuplan.domain.plan import Candidate, StrategyName, StrategyResult, Verdict
from gpuplan.planning.judge import Judge
from gpuplan.planning.ranking import ranked


def result(
    strategy: StrategyName,
    candidates: Sequence[Candidate],
    facts: Sequence[Fact],
    judge: Judge,
    *,
    reason: str | None = None,
) -> StrategyResult:
    """A strategy that was evaluated: it fits when a candidate does, else the first reason stands for it."""
    ordered = tuple(ranked(candidates, judge.request.workload.placement))
    if any(candidate.verdict is Verdict.FITS for candidate in ordered):
        verdict = Verdict.FITS
    elif ordered and any(candidate.verdict is Verdict.OVERCOMMIT for candidate in ordered):
        verdict = Verdict.OVERCOMMIT
    else:
        verdict = Verdict.NO_FIT
    return StrategyResult(
        strategy=strategy,
        verdict=verdict,
        reason=None if verdict is Verdict.FITS else reason,
        candidates=ordered,
        facts=tuple(facts),
        remedies=(),
    )


def skipped(strategy: StrategyName, reason: str) -> StrategyResult:
    """A strategy that does not apply to this request, and why."""
    return StrategyResult(
        strategy=strategy, verdict=Verdict.SKIPPED, reason=reason, candidates=(), facts=(), remedies=()
    )
