"""Turning an assessed shape on chosen GPUs into a candidate."""

from collections.abc import Sequence
from operator import attrgetter

from gpuplan.domain.fact import Fact
from gpuplan.domain.plan import Candidate, Parallelism, PlacedGpu, PlacedHost, Role, Score, Verdict
from gpuplan.engine.versions import ray_in_image
from gpuplan.planning import partition
from gpuplan.planning.judge import Assessment, Command, Judge
from gpuplan.planning.launch import executor, launch_arguments, launch_environment
from gpuplan.planning.offers import HostOffer, Offer
from gpuplan.units import GIB

BY_INDEX = attrgetter("index")


def placed_host(
    judge: Judge, assessment: Assessment, host: str, role: Role, offers: Sequence[Offer]
) -> PlacedHost:
    """The chosen GPUs of one host with what is booked on each, by index."""
    return PlacedHost(
        host=host,
        role=role,
        gpus=tuple(
            PlacedGpu(
                index=offer.index,
                claim_bytes=judge.claim(offer.device, assessment),
                allocatable_bytes=offer.allocatable_bytes,
                total_bytes=offer.total_bytes,
                held=offer.held,
                uuid=offer.uuid,
            )
            for offer in (sorted(offers, key=BY_INDEX) if len(offers) > 1 else offers)
        ),
        ram_claim_bytes=ram_claim(judge, len(offers), assessment.parallelism),
        driver_version=judge.driver_of(host),
        cpu_offload_gib=judge.planned_offload_gib,
    )


def ram_claim(judge: Judge, gpus: int, shape: Parallelism | None = None) -> int:
    """Host memory a placement of `gpus` ranks on one host needs (S0.5): the claim, plus offloaded weights.

    Where the plan decided what is offloaded, all that is pinned for it, ranks of all stages of `shape` being on the host.
    """
    workload = judge.request.workload
    offloaded = int(workload.engine.cpu_offload_gb * GIB) * gpus
    if shape is not None and judge.planned_offload_gib:
        offloaded = max(offloaded, judge.pinned_bytes(shape))
    cache = int((workload.engine.kv_offloading_size or 0) * GIB)
    return (workload.ram_claim_bytes or 0) + offloaded + cache


def ram_fits(judge: Judge, host: HostOffer, gpus: int, shape: Parallelism | None = None) -> bool:
    """Whether the host has the RAM; unknown RAM passes only when none is needed."""
    need = ram_claim(judge, gpus, shape)
    return need == 0 or (host.ram_available_bytes is not None and host.ram_available_bytes >= need)


def candidate(
    judge: Judge,
    assessment: Assessment,
    groups: Sequence[tuple[str, Sequence[Offer]]],
    *,
    verdict: Verdict = Verdict.FITS,
    facts: tuple[Fact, ...] = (),
) -> Candidate:
    """A candidate on the given hosts, the first being the leader when there are several."""
    several = len(groups) > 1
    roles = (
        [Role.LEADER if index == 0 else Role.FOLLOWER for index in range(len(groups))]
        if several
        else [Role.SINGLE]
    )
    placement = tuple(
        placed_host(judge, assessment, host, role, offers)
        for (host, offers), role in zip(groups, roles, strict=True)
    )
    chosen = tuple(offer for _, offers in groups for offer in offers)
    command = _command(judge, assessment, placement)
    return Candidate(
        verdict=verdict,
        parallelism=assessment.parallelism,
        placement=placement,
        memory=assessment.memory,
        engine=judge.engine_answer(assessment, chosen),
        score=score_of(judge, assessment, groups),
        vllm_args=command[0],
        env=command[1],
        facts=(*facts, *_split_notes(assessment, chosen)) if assessment.instead_of else facts,
    )


def _split_notes(assessment: Assessment, chosen: Sequence[Offer]) -> tuple[Fact, ...]:
    return partition.notes(assessment, tuple(offer.device for offer in chosen))


def _command(judge: Judge, assessment: Assessment, placement: tuple[PlacedHost, ...]) -> Command:
    """Arguments and environment, which equal placements share: large fleets have many."""
    key = (id(assessment), tuple(len(host.gpus) for host in placement))
    known = judge.commands.get(key)
    if known is None:
        command = (
            launch_arguments(judge.request, assessment, placement),
            launch_environment(judge.request, assessment),
        )
        known = judge.commands[key] = (assessment, command)
    return known[1]


def score_of(judge: Judge, assessment: Assessment, groups: Sequence[tuple[str, Sequence[Offer]]]) -> Score:
    """What the placement costs."""
    offers = [offer for _, chosen in groups for offer in chosen]
    several = len(groups) > 1
    with_ray = several and executor(judge.request, [len(chosen) for _, chosen in groups]) == "ray"
    return Score(
        ray=with_ray and not ray_in_image(judge.request.version),
        unready_hosts=sum(1 for _, chosen in groups if not chosen[0].launchable),
        gpus=len(offers),
        hosts=len(groups),
        stages=assessment.parallelism.pipeline,
        total_bytes=sum(offer.total_bytes for offer in offers),
        free_bytes=sum(offer.allocatable_bytes for offer in offers),
    )
