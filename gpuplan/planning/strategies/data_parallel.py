"""Replicas: N copies on disjoint GPUs, each checked by itself (S0 corrections 1 and 9, S3.2).

A dense model's replicas are N independent servers. With `--data-parallel-size` those of a mixture of experts are one
server: attention stands whole in each replica, the experts are spread over the ranks of all, so no rank is what it
would be alone and all replicas are placed or none (vLLM `FusedMoEParallelConfig.make`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Candidate, Parallelism, Role, Score, StrategyName, StrategyResult, Verdict
from gpuplan.domain.workload import Placement
from gpuplan.engine.divisibility import grouped, split_of
from gpuplan.engine.weights import experts_on_rank
from gpuplan.planning.judge import Judge
from gpuplan.planning.offers import HostOffer, Supply, launchable
from gpuplan.planning.strategies import multi_host, single_gpu, single_host
from gpuplan.planning.strategies.outcome import result, skipped

MOST_FACTS = 8
Evaluate = Callable[[Judge, Supply], StrategyResult]


def wanted(judge: Judge) -> int:
    """Copies asked for by --replicas or --data-parallel-size."""
    workload = judge.request.workload
    return workload.replicas * max(workload.engine.data_parallel_size, 1)


def evaluate(judge: Judge, supply: Supply) -> StrategyResult:
    """As many disjoint placements as replicas were asked for, spread over hosts or packed into few."""
    copies = wanted(judge)
    if copies == 1:
        return skipped(StrategyName.DATA_PARALLEL, "one replica is asked for (--replicas N asks for more)")
    ready = launchable(supply)
    placed: list[Candidate] = []
    facts: list[Fact] = []
    if ready is not None:
        placed, _ = _place(judge, ready, copies)
    if len(placed) < copies:
        placed, facts = _place(judge, supply, copies)
    if len(placed) < copies:
        facts.insert(0, _too_few(judge, copies, len(placed), supply))
        return result(StrategyName.DATA_PARALLEL, (), facts, judge)
    return result(StrategyName.DATA_PARALLEL, (joined(judge, placed),), (), judge)


def _place(judge: Judge, supply: Supply, copies: int) -> tuple[list[Candidate], list[Fact]]:
    """All replicas in one shape, on one GPU each if that can be, else on one host, else over several.

    The most there is room for, and why not more.
    """
    best: list[Candidate] = []
    facts: list[Fact] = []
    for strategy in (single_gpu, single_host, multi_host):
        outcome = strategy.evaluate(judge, supply)
        fitting = [item for item in outcome.candidates if item.verdict is Verdict.FITS]
        facts.extend(outcome.facts[:MOST_FACTS])
        for shape in dict.fromkeys(item.parallelism for item in fitting):
            placed = _place_shape(judge, supply, copies, strategy.evaluate, shape)
            if len(placed) == copies:
                return placed, []
            best = max(best, placed, key=len)
    return best, facts


def _place_shape(
    judge: Judge, supply: Supply, copies: int, evaluate: Evaluate, shape: Parallelism
) -> list[Candidate]:
    """Replica by replica on what the earlier ones left; one pass over the strategy's ranked candidates."""
    placed: list[Candidate] = []
    taken: set[tuple[str, int]] = set()
    on_host: dict[str, int] = {}
    while len(placed) < copies:
        outcome = evaluate(judge, _without(supply, taken))
        fitting = [
            item for item in outcome.candidates if item.verdict is Verdict.FITS and item.parallelism == shape
        ]
        if not fitting:
            break
        for item in _round(fitting, judge.request.workload.placement, on_host, copies - len(placed)):
            placed.append(item)
            taken |= _gpus(item)
            for host in item.placement:
                on_host[host.host] = on_host.get(host.host, 0) + 1
    return placed


def _round(
    fitting: Sequence[Candidate], placement: Placement, on_host: dict[str, int], most: int
) -> list[Candidate]:
    """Disjoint candidates for one round: spread takes one per host, emptiest of replicas first; binpack fills hosts."""
    chosen: list[Candidate] = []
    used: set[tuple[str, int]] = set()
    hosts: set[str] = set()
    ordered = list(fitting)
    if placement is Placement.SPREAD:
        ordered.sort(key=lambda item: on_host.get(item.placement[0].host, 0))
        fewest = on_host.get(ordered[0].placement[0].host, 0)
        ordered = [item for item in ordered if on_host.get(item.placement[0].host, 0) == fewest]
    else:
        ordered.sort(key=lambda item: item.placement[0].host)
    for item in ordered:
        gpus, names = _gpus(item), {host.host for host in item.placement}
        if gpus & used or (placement is Placement.SPREAD and names & hosts):
            continue
        chosen.append(item)
        used |= gpus
        hosts |= names
        if len(chosen) == most:
            break
    return chosen


def _gpus(item: Candidate) -> set[tuple[str, int]]:
    return {(host.host, gpu.index) for host in item.placement for gpu in host.gpus}


def _without(supply: Supply, taken: set[tuple[str, int]]) -> Supply:
    if not taken:
        return supply
    hosts: list[HostOffer] = []
    for host in supply.hosts:
        offers = tuple(offer for offer in host.offers if (offer.host, offer.index) not in taken)
        if offers:
            hosts.append(replace(host, offers=offers))
    return replace(supply, hosts=tuple(hosts))


def joined(judge: Judge, placed: list[Candidate]) -> Candidate:
    """All replicas as one candidate; memory and arguments are those of the one with least room, named first: what it can
    serve, the others can."""
    first = min(placed, key=_room)
    placed = [first, *(item for item in placed if item is not first)]
    hosts = tuple(
        replace(h, role=Role.REPLICA if len(item.placement) == 1 else h.role)
        for item in placed
        for h in item.placement
    )
    facts = first.facts
    if shares_experts(judge):
        facts = (*facts, _spread(judge, first.parallelism))
    elif judge.request.workload.engine.data_parallel_size > 1:
        facts = (
            *facts,
            Fact(
                code="GP306",
                severity=Severity.INFO,
                subject={"flag": "--data-parallel-size"},
                figures={"replicas": len(placed)},
            ),
        )
    return replace(
        first,
        parallelism=replace(first.parallelism, data=len(placed)),
        placement=hosts,
        facts=facts,
        score=Score(
            ray=any(item.score.ray for item in placed),
            unready_hosts=len(_unready(placed)),
            gpus=sum(item.score.gpus for item in placed),
            hosts=len({host.host for host in hosts}),
            stages=max(item.score.stages for item in placed),
            total_bytes=sum(item.score.total_bytes for item in placed),
            free_bytes=sum(item.score.free_bytes for item in placed),
        ),
    )


def shares_experts(judge: Judge) -> bool:
    """Whether replicas are ranks of one server that hold its experts together."""
    request = judge.request
    return request.profile.expert_count > 0 and request.workload.engine.data_parallel_size > 1


def _spread(judge: Judge, shape: Parallelism) -> Fact:
    """GP309: which share of the experts a rank holds."""
    profile, engine = judge.request.profile, judge.request.workload.engine
    split = split_of(grouped(shape, profile, engine))
    total = profile.expert_count + engine.num_redundant_experts
    return Fact(
        code="GP309",
        severity=Severity.INFO,
        subject={"flag": "--data-parallel-size"},
        figures={
            "replicas": engine.data_parallel_size,
            "ranks": max(split.expert_ranks, split.expert_tensor),
            "experts": profile.expert_count,
            "redundant": engine.num_redundant_experts,
            "held": experts_on_rank(total, split.expert_ranks, 0),
            "width_divided_by": split.expert_tensor,
        },
    )


def _unready(placed: Sequence[Candidate]) -> set[str]:
    """Hosts that cannot start a container; of a replica over several hosts all count where one cannot."""
    return {host.host for item in placed if item.score.unready_hosts for host in item.placement}


def _room(item: Candidate) -> tuple[int, int]:
    """Context and KV cache of a replica."""
    memory = item.memory
    return (0, 0) if memory is None else (memory.max_model_len, memory.kv_cache_tokens)


def _too_few(judge: Judge, copies: int, placed: int, supply: Supply) -> Fact:
    return Fact(
        code="GP304",
        severity=Severity.ERROR,
        subject={"replicas": copies},
        figures={
            "wanted": copies,
            "placed": placed,
            "gpus": len(supply.offers),
            "together": judge.request.workload.engine.data_parallel_size if shares_experts(judge) else 1,
        },
    )
