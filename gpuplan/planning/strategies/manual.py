"""S0.7: the GPUs the user named, honoured even when they do not fit, with the figures that fail."""

from collections.abc import Sequence
from dataclasses import replace

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet, Gpu, Host, HostStatus
from gpuplan.domain.plan import Candidate, Parallelism, StrategyName, StrategyResult, Verdict
from gpuplan.domain.workload import GpuSelection
from gpuplan.errors import UsageError
from gpuplan.planning import partition, refusals
from gpuplan.planning.judge import Assessment, Judge
from gpuplan.planning.offers import HostOffer, Offer, Supply
from gpuplan.planning.placing import candidate, ram_claim, ram_fits
from gpuplan.planning.shapes import base, shapes, user_world
from gpuplan.planning.strategies.data_parallel import joined, wanted
from gpuplan.planning.strategies.outcome import result, skipped
from gpuplan.planning.usable import Hindrance, LeftOut

_WORST = (Verdict.FITS, Verdict.OVERCOMMIT, Verdict.NO_FIT)
Groups = list[tuple[HostOffer, tuple[Offer, ...]]]


def evaluate(judge: Judge, supply: Supply) -> StrategyResult:
    """The selection as one placement, or as one per replica on disjoint GPUs (S0 correction 9)."""
    workload = judge.request.workload
    if not workload.selection:
        return skipped(StrategyName.MANUAL, "no GPUs were selected (--gpus HOST:IDX,IDX)")
    groups = selected(judge.request.fleet, supply, workload.selection)
    count, copies = sum(len(offers) for _, offers in groups), wanted(judge)
    _check_count(judge, count, copies)
    facts: list[Fact] = []
    placed: list[Candidate] = []
    for share in _shares(groups, count // copies):
        made, found = _placed(judge, share)
        facts += found
        placed += made
    if len(placed) < copies:
        return result(StrategyName.MANUAL, (), facts, judge)
    chosen = placed[0] if copies == 1 else together(judge, placed, facts)
    return result(StrategyName.MANUAL, (chosen,), facts, judge)


def together(judge: Judge, placed: list[Candidate], facts: list[Fact]) -> Candidate:
    """Replicas as one candidate, which is worth what the worst of them is."""
    verdict = max((item.verdict for item in placed), key=_WORST.index)
    return replace(joined(judge, placed), verdict=verdict, facts=tuple(facts))


def _placed(judge: Judge, groups: Groups) -> tuple[list[Candidate], list[Fact]]:
    """One replica on all the GPUs given, with every check that fails; rules that forbid it make it no fit."""
    count = sum(len(offers) for _, offers in groups)
    made, facts = judged(judge, groups, _best(judge, count, groups))
    return [made], facts


def judged(judge: Judge, groups: Groups, assessment: Assessment) -> tuple[Candidate, list[Fact]]:
    """An assessed replica on these very GPUs, and every check that fails there."""
    count = sum(len(offers) for _, offers in groups)
    devices = tuple(offer.device for _, offers in groups for offer in offers)
    facts = list(_failures(judge, groups, assessment))
    fits = assessment.fits and not facts
    if not assessment.fits:
        subject = _subject(groups, count)
        facts.insert(0, refusals.refusal(assessment, devices, subject))
    mixed = mixed_cards(groups)
    if mixed is not None:
        facts.append(mixed)
    verdict = Verdict.FITS if fits else Verdict.NO_FIT if assessment.violations else Verdict.OVERCOMMIT
    named = [(host.host, offers) for host, offers in groups]
    return candidate(judge, assessment, named, verdict=verdict, facts=tuple(facts)), facts


def _shares(groups: Groups, size: int) -> list[Groups]:
    """The selection cut into replicas of `size` GPUs, on one host each as long as that is possible."""
    shares: list[Groups] = []
    rest: list[tuple[HostOffer, Offer]] = []
    for host, offers in groups:
        whole = len(offers) // size * size
        shares += [[(host, offers[start : start + size])] for start in range(0, whole, size)]
        rest += [(host, offer) for offer in offers[whole:]]
    for start in range(0, len(rest), size):
        part: dict[str, tuple[HostOffer, tuple[Offer, ...]]] = {}
        for host, offer in rest[start : start + size]:
            part[host.host] = (host, (*part.get(host.host, (host, ()))[1], offer))
        shares.append(list(part.values()))
    return shares


def _subject(groups: Groups, count: int) -> dict[str, object]:
    if len(groups) == 1:
        host, offers = groups[0]
        return {"host": host.host, "gpus": sorted(offer.index for offer in offers)}
    return {"hosts": [host.host for host, _ in groups], "count": count}


def selected(fleet: Fleet, supply: Supply, selection: Sequence[GpuSelection]) -> Groups:
    """The named GPUs by host, in the order the hosts were named and of the GPUs' indexes: ranks follow it.

    Raises UsageError for a host or GPU that does not exist, is named twice, cannot be used, or mixes backends.
    """
    hosts = {host.name: host for host in fleet.hosts}
    left_out = {(left.host, left.index): left for left in supply.left_out}
    offers = {(offer.host, offer.index): (host, offer) for host in supply.hosts for offer in host.offers}
    chosen: dict[str, tuple[HostOffer, list[Offer]]] = {}
    for item in selection:
        host = _host(hosts, item.host)
        for written in item.devices:
            gpu = _gpu(host, written)
            if (host.name, gpu.index) not in offers:
                raise UsageError(
                    f"--gpus {host.name}:{written}: {_unusable(host, gpu, left_out.get((host.name, gpu.index)))}",
                    hint="choose another GPU; `gpuplan plan` without --gpus lists what is usable",
                )
            offered_by, offer = offers[host.name, gpu.index]
            group = chosen.setdefault(host.name, (offered_by, []))[1]
            if offer in group:
                raise UsageError(
                    f"--gpus {host.name}:{written}: GPU {gpu.index} is named twice", hint="name each GPU once"
                )
            group.append(offer)
    backends = {offer.device.backend for _, group in chosen.values() for offer in group}
    if len(backends) > 1:
        raise UsageError(
            f"--gpus mixes {' and '.join(sorted(backends))} GPUs in one placement (S0.11)",
            hint="select GPUs of one vendor",
        )
    return [(host, tuple(sorted(group, key=lambda offer: offer.index))) for host, group in chosen.values()]


def _host(hosts: dict[str, Host], name: str) -> Host:
    host = hosts.get(name)
    if host is None:
        known = ", ".join(sorted(hosts)[:8])
        raise UsageError(f"--gpus {name}: there is no host {name!r} in the fleet", hint=f"hosts: {known}")
    if host.status is not HostStatus.OK:
        detail = f" ({host.failure.stage}: {host.failure.detail})" if host.failure else ""
        raise UsageError(
            f"--gpus {name}: host {name!r} cannot be used{detail}", hint="choose GPUs of another host"
        )
    return host


def _gpu(host: Host, written: str) -> Gpu:
    for gpu in host.gpus:
        if written in (str(gpu.index), gpu.uuid):
            return gpu
    known = ", ".join(str(gpu.index) for gpu in host.gpus) or "none"
    raise UsageError(
        f"--gpus {host.name}:{written}: host {host.name!r} has no such GPU", hint=f"its GPUs: {known}"
    )


def _unusable(host: Host, gpu: Gpu, left: LeftOut | None) -> str:
    card = next((card for card in host.gpus if card.index == gpu.parent), gpu)
    if gpu.excluded or card.excluded:
        return f"GPU {gpu.index if gpu.excluded else card.index} is excluded by the inventory (exclude_gpus)"
    match None if left is None else left.hindrance:
        case Hindrance.LOST:
            return f"GPU {card.index} does not answer or needs a reset (gpuplan explain GP608)"
        case Hindrance.BARRED:
            return f"CUDA cannot start on GPU {card.index} (gpuplan explain {left.code if left else None})"
        case Hindrance.DIVIDED:
            slices = ", ".join(str(one.index) for one in host.gpus if one.parent == gpu.index)
            named = (
                f"name them instead: {slices}"
                if slices
                else "of which there are none (gpuplan explain GP615)"
            )
            return f"GPU {gpu.index} can be used in MIG slices only; {named}"
        case Hindrance.LOADING:
            return f"deployment {' and '.join(left.deployments) if left else ''} is still loading on GPU {gpu.index}"
        case Hindrance.FULL:
            names = ", ".join(left.deployments) if left else ""
            return f"GPU {gpu.index} has as many deployments as it may hold ({names})"
        case None:
            pass
    return f"the memory of GPU {gpu.index} ({gpu.name}) is unknown, so nothing can be said about it"


def _check_count(judge: Judge, count: int, copies: int) -> None:
    """Every GPU that was named is used: fewer are never taken silently (S0 correction 7)."""
    world = user_world(judge.request.workload.engine)
    if world is not None and world * copies != count:
        times = f" for each of {copies} replicas" if copies > 1 else ""
        raise UsageError(
            f"--gpus names {count} GPUs, but the given parallel sizes take {world}{times}",
            hint=f"select {world * copies} GPUs, or leave the sizes out and let the plan choose them",
        )
    if count % copies:
        near = max(copies, count // copies * copies)
        raise UsageError(
            f"--gpus names {count} GPUs, which {copies} replicas cannot share evenly",
            hint=f"select {near} or {near + copies} GPUs, or ask for another number of replicas",
        )


def _best(judge: Judge, count: int, groups: Groups) -> Assessment:
    """The first buildable shape that fits, else the first buildable one, else plain tensor parallel with its refusal."""
    devices = tuple(offer.device for _, offers in groups for offer in offers)
    first: Assessment | None = None
    for shape in _manual_shapes(judge, count, groups):
        assessment = partition.assess(judge, shape, devices)
        if assessment.fits:
            return assessment
        if first is None or (first.violations and not assessment.violations):
            first = assessment
    if first is not None:
        return first
    return judge.assess(replace(base(judge.request.workload.engine), tensor=count), devices)


def _manual_shapes(judge: Judge, count: int, groups: Groups) -> list[Parallelism]:
    """TP inside hosts first when several are selected (S2.8: unequal counts are stages of one GPU)."""
    tried = list(shapes(judge, count))
    if len(groups) == 1 or user_world(judge.request.workload.engine) is not None:
        return tried
    sizes = {len(offers) for _, offers in groups}
    inside = [shape for shape in tried if all(size % shape.tensor == 0 for size in sizes)]
    return inside or tried


def _failures(judge: Judge, groups: Groups, assessment: Assessment) -> list[Fact]:
    facts = []
    tensor = assessment.parallelism.speaking
    trial = refusals.Trial(
        shape=assessment.parallelism, offers=tuple(offer for _, offers in groups for offer in offers)
    )
    for host, offers in groups:
        busy = [offer for offer in offers if not judge.free_enough(offer, assessment, tensor=tensor)]
        if busy:
            facts.append(
                refusals.busy(judge, host.host, busy, tensor=tensor, assessment=assessment, trial=trial)
            )
        if not ram_fits(judge, host, len(offers), assessment.parallelism):
            need = ram_claim(judge, len(offers), assessment.parallelism)
            facts.append(refusals.too_little_ram(host, need))
    return facts


def mixed_cards(groups: Groups) -> Fact | None:
    """GP305: unlike cards in one placement; the smallest of a tensor-parallel group limits it (S0.11)."""
    names = sorted({offer.device.name for _, offers in groups for offer in offers})
    if len(names) < 2:
        return None
    smallest = min((offer for _, offers in groups for offer in offers), key=lambda offer: offer.total_bytes)
    return Fact(
        code="GP305",
        severity=Severity.INFO,
        subject={"devices": names},
        figures={"smallest": smallest.device.name, "total_bytes": smallest.total_bytes},
    )
