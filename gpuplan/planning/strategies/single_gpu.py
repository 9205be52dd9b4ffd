"""S0.8: every GPU that can hold the model alone."""

from gpuplan.domain.fact import Fact
from gpuplan.domain.plan import Candidate, Parallelism, StrategyName, StrategyResult
from gpuplan.planning import refusals
from gpuplan.planning.judge import Judge
from gpuplan.planning.offers import Device, HostOffer, Offer, Supply
from gpuplan.planning.placing import candidate, ram_claim, ram_fits
from gpuplan.planning.shapes import base, user_world
from gpuplan.planning.strategies.outcome import result, skipped


def evaluate(judge: Judge, supply: Supply) -> StrategyResult:
    """All GPUs that qualify, each refused one with its numbers; skipped when more than one GPU is asked for."""
    world = user_world(judge.request.workload.engine)
    if world is not None and world > 1:
        return skipped(StrategyName.SINGLE_GPU, f"the given parallel sizes take {world} GPUs")
    shape = base(judge.request.workload.engine)
    candidates: list[Candidate] = []
    facts: list[Fact] = []
    for host in supply.hosts:
        if not ram_fits(judge, host, 1):
            facts.append(refusals.too_little_ram(host, ram_claim(judge, 1)))
            continue
        chosen, refused = _judge_host(judge, host, shape)
        candidates.extend(chosen)
        facts.extend(refused)
    return result(StrategyName.SINGLE_GPU, candidates, facts, judge)


def _judge_host(judge: Judge, host: HostOffer, shape: Parallelism) -> tuple[list[Candidate], list[Fact]]:
    chosen: list[Candidate] = []
    too_small: dict[Device, list[int]] = {}
    busy: list[Offer] = []
    for offer in host.offers:
        assessment = judge.assess(shape, (offer.device,))
        if not assessment.fits:
            too_small.setdefault(offer.device, []).append(offer.index)
        elif not judge.free_enough(offer, assessment):
            busy.append(offer)
        else:
            chosen.append(candidate(judge, assessment, [(host.host, (offer,))]))
    refused = [
        refusals.refusal(
            judge.assess(shape, (device,)), (device,), {"host": host.host, "gpus": sorted(indexes)}
        )
        for device, indexes in too_small.items()
    ]
    if busy:
        least = refusals.least_free(judge, busy)
        refused.append(
            refusals.busy(
                judge,
                host.host,
                busy,
                assessment=judge.assess(shape, (least.device,)),
                trial=refusals.Trial(shape=shape, offers=(least,)),
            )
        )
    return chosen, refused
