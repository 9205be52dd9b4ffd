"""S0.9: several GPUs of one host, the fewest that do, and the fewest that do without pipeline stages."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpuplan.domain.fact import Fact
from gpuplan.domain.plan import Candidate, Parallelism, StrategyName, StrategyResult
from gpuplan.planning import partition, refusals
from gpuplan.planning.judge import Assessment, Judge
from gpuplan.planning.offers import Device, HostOffer, Offer, Supply, whole_cards
from gpuplan.planning.placing import candidate, ram_claim, ram_fits
from gpuplan.planning.shapes import shapes, user_world
from gpuplan.planning.strategies.outcome import result, skipped

Kind = tuple[object, ...]


@dataclass(slots=True)
class _Choice:
    """What fits on a kind of host, by positions among its offers, or the assessment that came closest."""

    fitting: list[tuple[Assessment, tuple[int, ...]]] = field(default_factory=list)
    closest: Assessment | None = None
    closest_devices: tuple[Device, ...] = ()
    busy: tuple[int, ...] = ()
    """Positions that hold the closest shape in total, but not in what is free."""


def evaluate(judge: Judge, supply: Supply) -> StrategyResult:
    """Per host the smallest sets of GPUs that hold the model; equal hosts are judged once."""
    world = user_world(judge.request.workload.engine)
    if world == 1:
        return skipped(StrategyName.SINGLE_HOST, "the given parallel sizes take one GPU")
    candidates: list[Candidate] = []
    facts: list[Fact] = []
    known: dict[Kind, _Choice] = {}
    for offered in supply.hosts:
        host, slices = whole_cards(offered)
        if slices and len(host.offers) < 2:
            count = world or max(2, len(offered.offers))
            shape = next(shapes(judge, count), Parallelism(tensor=count))
            facts.append(refusals.only_slices(judge, host.host, slices, shape))
            continue
        if len(host.offers) < 2:
            facts.append(refusals.too_few_gpus(host.host, len(host.offers), world or 2, len(host.offers)))
            continue
        kind = _kind(judge, host)
        if kind not in known:
            known[kind] = _choose(judge, host, world)
        choice = known[kind]
        placed = list(_placed(judge, host, choice))
        candidates.extend(placed)
        if choice.fitting and not placed:
            facts.append(refusals.too_little_ram(host, ram_claim(judge, len(choice.fitting[0][1]))))
        elif not choice.fitting:
            facts.extend(_refusals(judge, host, choice, world))
    return result(StrategyName.SINGLE_HOST, candidates, facts, judge)


def _kind(judge: Judge, host: HostOffer) -> Kind:
    """All that a choice depends on: cards and which of them are free, alone and in a group (their own context is larger).

    Without a share of the card to claim, how much is free decides. Of unlike cards their order on the host, too: ranks
    follow it.
    """
    devices: list[object] = [offer.device for offer in host.offers]
    if len(set(devices)) > 1:
        devices += [offer.index for offer in host.offers]
    if judge.request.utilization is None:
        return (*devices, *[offer.allocatable_bytes for offer in host.offers])
    alone = [judge.free_enough(offer) for offer in host.offers]
    return (*devices, *alone, *[judge.free_enough(offer, tensor=2) for offer in host.offers])


def _placed(judge: Judge, host: HostOffer, choice: _Choice) -> Iterator[Candidate]:
    for assessment, positions in choice.fitting:
        if ram_fits(judge, host, len(positions)):
            offers = tuple(host.offers[position] for position in positions)
            yield candidate(judge, assessment, [(host.host, offers)])


def _choose(judge: Judge, host: HostOffer, world: int | None) -> _Choice:
    """The sets of the smallest number of GPUs that fits; where that takes pipeline stages, also of the smallest that does not."""
    choice = _Choice()
    for count in range(2, len(host.offers) + 1) if world is None else (world,):
        found = list(_fitting(judge, host, count, choice))
        if choice.fitting:
            found = [item for item in found if item[0].parallelism.pipeline == 1]
        choice.fitting += found
        if any(assessment.parallelism.pipeline == 1 for assessment, _ in found):
            break
    return choice


def _fitting(
    judge: Judge, host: HostOffer, count: int, choice: _Choice
) -> Iterator[tuple[Assessment, tuple[int, ...]]]:
    """Of each set of `count` GPUs the first shape that fits; what does not is compared with the closest so far."""
    for chosen in _sets(judge, host.offers, count):
        positions = tuple(sorted(chosen, key=lambda position: host.offers[position].index))
        devices = tuple(host.offers[position].device for position in positions)
        for shape in shapes(judge, count):
            assessment = partition.assess(judge, shape, devices)
            if not assessment.fits:
                if _closer(assessment, choice.closest):
                    choice.closest, choice.closest_devices = assessment, devices
            elif _free(judge, host, positions, assessment):
                yield assessment, positions
                break
            else:
                choice.busy = choice.busy or positions


def _free(judge: Judge, host: HostOffer, positions: tuple[int, ...], assessment: Assessment) -> bool:
    tensor = assessment.parallelism.speaking
    return all(judge.free_enough(host.offers[position], assessment, tensor=tensor) for position in positions)


def _closer(assessment: Assessment, best: Assessment | None) -> bool:
    if best is None:
        return True
    if assessment.shortfall is None or best.shortfall is None:
        return best.shortfall is None and assessment.shortfall is not None
    return assessment.shortfall.gap_bytes < best.shortfall.gap_bytes


def _sets(judge: Judge, offers: tuple[Offer, ...], count: int) -> Iterator[tuple[int, ...]]:
    """Sets of `count` free GPUs to try: equal cards first, kind by kind from the smallest, then the emptiest mix."""
    free = [position for position, offer in enumerate(offers) if judge.free_enough(offer)]
    kinds: dict[Device, list[int]] = {}
    for position in free:
        kinds.setdefault(offers[position].device, []).append(position)
    seen = set()
    for _, positions in sorted(kinds.items(), key=lambda item: (item[0].total_bytes, item[0].name)):
        if len(positions) >= count:
            seen.add(tuple(positions[:count]))
            yield tuple(positions[:count])
    if len(free) >= count and tuple(free[:count]) not in seen:
        yield tuple(free[:count])


def _refusals(judge: Judge, host: HostOffer, choice: _Choice, world: int | None) -> Iterator[Fact]:
    busy = [offer for offer in host.offers if not judge.free_enough(offer)]
    free = len(host.offers) - len(busy)
    if busy:
        yield refusals.busy(judge, host.host, busy, trial=_trial(judge, host, world))
    if choice.busy:
        yield from _busy_together(judge, host, choice.busy)
    elif choice.closest is not None:
        chosen = choice.closest_devices
        yield refusals.refusal(choice.closest, chosen, {"host": host.host, "gpus": len(chosen)})
    elif free < (world or 2):
        yield refusals.too_few_gpus(host.host, len(host.offers), world or 2, free)
    else:
        yield from _unbuildable(judge, host, world or free)


def _trial(judge: Judge, host: HostOffer, world: int | None) -> refusals.Trial | None:
    """The first shape on all GPUs of the host, or on as many of the emptiest as the user's sizes take."""
    count = len(host.offers) if world is None else world
    if count > len(host.offers):
        return None
    chosen = tuple(sorted(host.offers[:count], key=lambda offer: offer.index))
    shape = next(shapes(judge, count), None)
    return None if shape is None else refusals.Trial(shape=shape, offers=chosen)


def _busy_together(judge: Judge, host: HostOffer, positions: tuple[int, ...]) -> Iterator[Fact]:
    """GPUs that would do by their size, but not by what is free once they work together (or hold the need)."""
    chosen = tuple(host.offers[position] for position in positions)
    for shape in shapes(judge, len(chosen)):
        assessment = judge.assess(shape, tuple(offer.device for offer in chosen))
        held = [o for o in chosen if not judge.free_enough(o, assessment, tensor=shape.speaking)]
        if assessment.fits and held:
            yield refusals.busy(
                judge,
                host.host,
                held,
                tensor=shape.speaking,
                assessment=assessment,
                trial=refusals.Trial(shape=shape, offers=chosen),
            )
            return


def _unbuildable(judge: Judge, host: HostOffer, gpus: int) -> Iterator[Fact]:
    """No shape on that many GPUs can be built: say which rule the plain tensor-parallel one breaks."""
    engine = judge.request.workload.engine
    shape = Parallelism(tensor=engine.tensor_parallel_size if user_world(engine) else gpus)
    assessment = Assessment(parallelism=shape, violations=judge.broken_rules(shape))
    if assessment.violations:
        yield refusals.broken_rule(assessment, {"host": host.host, "gpus": gpus})
    else:
        yield refusals.too_few_gpus(host.host, len(host.offers), gpus, gpus)
