"""How many requests a placement must hold at once (S4.1, S4.11)."""

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.memory import MemoryEstimate
from gpuplan.planning.request import PlanRequest


def slots(request: PlanRequest) -> int:
    """Requests to hold at once, by which the context is multiplied; one of a pooling model, which keeps nothing of a
    request once it has answered (S4.11)."""
    return 1 if request.profile.pooling else request.workload.concurrency or 1


def about_slots(request: PlanRequest) -> list[Fact]:
    """GP331 where more requests at once were asked of a pooling model than it is planned for."""
    asked = request.workload.concurrency or 1
    if asked == slots(request):
        return []
    return [
        Fact(
            code="GP331",
            severity=Severity.INFO,
            subject={"model": request.profile.name},
            figures={"asked": asked, "planned": slots(request)},
        )
    ]


def reached(memory: MemoryEstimate, asked: int) -> int:
    """The most requests at once that the poorest rank holds at the safe end, `asked` at most; 0: not even one (S4.1)."""
    held = [
        max(0, rank.kv_cache_low) * asked // rank.kv_needed_bytes
        for rank in memory.ranks
        if rank.kv_needed_bytes
    ]
    return min((asked, *held))
