"""Which shares of GPU memory (gmu) are worth trying, given what is free on each GPU now."""

from collections.abc import Sequence
from dataclasses import replace

from gpuplan.engine.startup import passing_utilization
from gpuplan.planning.judge import Judge
from gpuplan.planning.offers import Supply
from gpuplan.planning.request import PlanRequest

LEAST = 0.05
MOST_TRIED = 16
TENSOR_SIZES = (1, 2, 4)
"""Ranks of a group by which what the engine's own process takes differs."""


def shares_that_pass(request: PlanRequest, supply: Supply, shares: Sequence[float]) -> list[float]:
    """Those of the shares at which some GPU passes the start-up check."""
    kept = []
    for share in shares:
        judge = Judge(replace(request, utilization=share))
        if any(judge.free_enough(offer) for offer in supply.offers):
            kept.append(share)
    return kept


def shares_below(request: PlanRequest, supply: Supply, asked: float, *, own: bool) -> list[float]:
    """Shares below the asked one at which one more GPU passes the start-up check, largest first.

    No others need trying: what a placement can hold grows with the share, up to the one its fullest GPU still passes.
    Of very many the nearest are tried, and some of the rest. `own`: the GPUs of the selected hosts alone.
    """
    judge = Judge(request)
    selected = {item.host for item in request.workload.selection}
    found = {
        passing_utilization(
            offer.allocatable_bytes - judge.start_overhead(offer.device, tensor), offer.total_bytes
        )
        for offer in supply.offers
        for tensor in TENSOR_SIZES
        if not own or offer.host in selected
    }
    shares = sorted((share for share in found if LEAST <= share < asked), reverse=True)
    if len(shares) <= MOST_TRIED:
        return shares
    near, rest = shares[: MOST_TRIED // 2], shares[MOST_TRIED // 2 :]
    return near + rest[:: -(-len(rest) // (MOST_TRIED // 2))]
