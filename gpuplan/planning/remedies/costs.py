"""What a remedy costs in figures: bytes gained, and tokens per second with and without it."""

from typing import Any

from gpuplan.domain.plan import Candidate, StrategyResult, Verdict
from gpuplan.domain.throughput import Throughput
from gpuplan.planning.remedies.case import Case
from gpuplan.planning.remedies.ladder import Step
from gpuplan.planning.request import PlanRequest, no_cards
from gpuplan.planning.speeds import Speeds

SLOWER = frozenset({"--enforce-eager", "--cpu-offload-gb"})
"""Arguments that cost speed for the same answer."""
SMALLER = frozenset({"--max-num-seqs", "--max-num-batched-tokens"})
"""Arguments that shrink what is held while a step runs."""


def costs(case: Case, step: Step, candidate: Candidate, *, alone: bool = True) -> dict[str, Any]:
    """Figures of one change; the bytes of a pair are not told apart."""
    found: dict[str, Any] = {}
    if alone and SMALLER & set(step.change):
        found |= {"gained_bytes": _gained(case, candidate)}
    if SLOWER & set(step.change) and case.request.accelerators is not no_cards:
        after = _speed(case, step.apply(case.request), candidate)
        before = _speed(case, case.request, candidate)
        if after is not None and before is not None:
            found |= {"decode": after, "decode_before": before}
    return found


def _gained(case: Case, candidate: Candidate) -> int:
    """Activation bytes the change saves on a candidate's own GPUs."""
    before, after = case.memory(candidate), candidate.memory
    if before is None or after is None:
        return 0
    return max(0, before.ranks[0].activation.bytes - after.ranks[0].activation.bytes)


def _speed(case: Case, request: PlanRequest, candidate: Candidate) -> float | None:
    """Tokens per second of each user on a placement; None where no card of it is known."""
    told = Speeds(request=request).told(
        StrategyResult(
            strategy=case.strategy,
            verdict=Verdict.FITS,
            reason=None,
            candidates=(candidate,),
            facts=(),
            remedies=(),
        )
    )
    answer = told.candidates[0].throughput
    return answer.decode.per_user if isinstance(answer, Throughput) else None
