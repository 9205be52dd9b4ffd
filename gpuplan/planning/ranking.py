"""The order of candidates: cheapest correct answer first, ties broken by host name and GPU index."""

from collections.abc import Iterable

from gpuplan.domain.plan import Candidate, Verdict
from gpuplan.domain.throughput import Throughput
from gpuplan.domain.workload import Placement

_ORDER = {Verdict.FITS: 0, Verdict.OVERCOMMIT: 1, Verdict.NO_FIT: 2, Verdict.SKIPPED: 3}


def sort_key(candidate: Candidate, placement: Placement) -> tuple[float, ...]:
    """Verdict; how many deployments are stopped for it; whether weights stay in host memory; what the image can run, what
    can be started on the hosts as they are; how much stays in host memory; GPUs, hosts, pipeline stages; then the smallest
    cards; of those as large the ones that answer fastest; the fullest of them (binpack) or the emptiest (spread)."""
    score, offloaded = candidate.score, offloaded_gib(candidate)
    return (
        _ORDER[candidate.verdict],
        len(candidate.evicts),
        offloaded > 0,
        score.ray,
        score.unready_hosts,
        offloaded,
        score.gpus,
        score.hosts,
        score.stages,
        score.total_bytes,
        -_speed(candidate),
        score.free_bytes if placement is Placement.BINPACK else -score.free_bytes,
    )


def offloaded_gib(candidate: Candidate) -> int:
    """GiB of weights that the plan leaves in host memory, over all GPUs."""
    return sum(host.cpu_offload_gib * len(host.gpus) for host in candidate.placement)


def _speed(candidate: Candidate) -> float:
    """Tokens per second of all users together, to three digits: what differs by less is no reason."""
    told = candidate.throughput
    return float(f"{told.decode.total:.3g}") if isinstance(told, Throughput) else 0.0


def ranked(candidates: Iterable[Candidate], placement: Placement) -> list[Candidate]:
    """Candidates, best first; equals stay as they came, which strategies make host name and GPU index."""
    return sorted(candidates, key=lambda candidate: sort_key(candidate, placement))
