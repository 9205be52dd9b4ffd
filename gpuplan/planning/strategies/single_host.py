"""S0.9: several GPUs of one host, the fewest that do."""

from collections.abc import Iterator

from gpuplan.domain.plan import Candidate, Fact, Parallelism, StrategyName, StrategyResult
from gpuplan.planning import refusals
from gpuplan.planning.judge import Assessment, Judge
from gpuplan.planning.offers import Device, HostOffer, Offer, Supply
from gpuplan.planning.placing import candidate, ram_claim, ram_fits
from gpuplan.planning.shapes import shapes, user_world
from gpuplan.planning.strategies.outcome import result, skipped

Shape = tuple[tuple[Device, bool], ...]


def evaluate(judge: Judge, supply: Supply) -> StrategyResult:
    """Per host the smallest set of GPUs that holds the model; equal hosts are judged once."""
    world = user_world(judge.request.workload.engine)
    if world == 1:
        return skipped(StrategyName.SINGLE_HOST, "the given parallel sizes take one GPU")
    candidates: list[Candidate] = []
    facts: list[Fact] = []
    known: dict[Shape, _Choice] = {}
    for host in supply.hosts:
        if len(host.offers) < 2:
            facts.append(refusals.too_few_gpus(host.host, len(host.offers), world or 2, len(host.offers)))
            continue
        signature = tuple((offer.device, judge.free_enough(offer)) for offer in host.offers)
        if signature not in known:
            known[signature] = _choose(judge, host, world)
        choice = known[signature]
        if choice.assessment is not None and choice.positions:
            offers = tuple(host.offers[position] for position in choice.positions)
            if ram_fits(judge, host, len(offers)):
                candidates.append(candidate(judge, choice.assessment, [(host.host, offers)]))
            else:
                facts.append(refusals.too_little_ram(host, ram_claim(judge, len(offers))))
            continue
        facts.extend(_refusals(judge, host, choice, world))
    return result(StrategyName.SINGLE_HOST, candidates, facts, judge)


class _Choice:
    """The best set of positions on a kind of host, or the assessment that came closest."""

    __slots__ = ("assessment", "closest", "closest_devices", "positions")

    def __init__(self) -> None:
        self.assessment: Assessment | None = None
        self.positions: tuple[int, ...] = ()
        self.closest: Assessment | None = None
        self.closest_devices: tuple[Device, ...] = ()


def _choose(judge: Judge, host: HostOffer, world: int | None) -> _Choice:
    choice = _Choice()
    counts = range(2, len(host.offers) + 1) if world is None else (world,)
    for count in counts:
        for positions in _sets(judge, host.offers, count):
            devices = tuple(host.offers[position].device for position in positions)
            for shape in shapes(judge, count):
                assessment = judge.assess(shape, devices)
                if assessment.fits and all(
                    judge.free_enough(host.offers[position], assessment, tensor=shape.tensor)
                    for position in positions
                ):
                    choice.assessment, choice.positions = assessment, positions
                    return choice
                if _closer(assessment, choice.closest):
                    choice.closest, choice.closest_devices = assessment, devices
    return choice


def _closer(assessment: Assessment, best: Assessment | None) -> bool:
    if best is None:
        return True
    if assessment.shortfall is None or best.shortfall is None:
        return best.shortfall is None and not best.fits and assessment.shortfall is not None
    return assessment.shortfall.gap_bytes < best.shortfall.gap_bytes


def _sets(judge: Judge, offers: tuple[Offer, ...], count: int) -> Iterator[tuple[int, ...]]:
    """Sets of `count` free GPUs to try: equal cards first (the smallest kind that has enough), then the emptiest mix."""
    free = [position for position, offer in enumerate(offers) if judge.free_enough(offer)]
    kinds: dict[Device, list[int]] = {}
    for position in free:
        kinds.setdefault(offers[position].device, []).append(position)
    for _, positions in sorted(kinds.items(), key=lambda item: (item[0].total_bytes, item[0].name)):
        if len(positions) >= count:
            yield tuple(positions[:count])
    if len(kinds) > 1 and len(free) >= count:
        yield tuple(free[:count])


def _refusals(judge: Judge, host: HostOffer, choice: _Choice, world: int | None) -> Iterator[Fact]:
    busy = [offer for offer in host.offers if not judge.free_enough(offer)]
    free = len(host.offers) - len(busy)
    if busy:
        yield refusals.busy(judge, host.host, busy)
    if choice.closest is not None and not choice.closest.fits:
        chosen = choice.closest_devices
        yield refusals.refusal(choice.closest, chosen, {"host": host.host, "gpus": len(chosen)})
    elif free < (world or 2):
        yield refusals.too_few_gpus(host.host, len(host.offers), world or 2, free)
    else:
        yield from _unbuildable(judge, host, world or free)


def _unbuildable(judge: Judge, host: HostOffer, gpus: int) -> Iterator[Fact]:
    """No shape on that many GPUs can be built: say which rule the plain tensor-parallel one breaks."""
    engine = judge.request.workload.engine
    shape = Parallelism(tensor=engine.tensor_parallel_size if user_world(engine) else gpus)
    assessment = Assessment(parallelism=shape, violations=judge.broken_rules(shape))
    if assessment.violations:
        yield refusals.broken_rule(assessment, {"host": host.host, "gpus": gpus})
    else:
        yield refusals.too_few_gpus(host.host, len(host.offers), gpus, gpus)
