"""Refusals as facts: which host and GPUs, what was needed, what there is, and the gap."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Parallelism
from gpuplan.engine.divisibility import Rule
from gpuplan.engine.startup import budget_bytes, passing_utilization
from gpuplan.planning.judge import Assessment, Judge, Lack
from gpuplan.planning.offers import Device, HostOffer, Offer
from gpuplan.planning.slots import reached

RULE_CODES = {
    Rule.ATTENTION_HEADS: "GP101",
    Rule.KV_HEADS: "GP102",
    Rule.VISION_HEADS: "GP103",
    Rule.VOCABULARY: "GP104",
    Rule.WIDTH: "GP105",
    Rule.QUANTIZATION_BLOCK: "GP106",
    Rule.LAYERS: "GP107",
    Rule.NO_PIPELINE: "GP108",
    Rule.NO_EXPERTS: "GP109",
    Rule.CONTEXT_PARALLEL: "GP110",
    Rule.DTYPE: "GP111",
    Rule.QUANTIZATION: "GP112",
    Rule.TOO_OLD: "GP113",
    Rule.SLICES: "GP308",
    Rule.ARGUMENTS: "GP330",
}
LACK_CODES = {
    Lack.CLAIM: "GP202",
    Lack.LOADING: "GP212",
    Lack.WEIGHTS: "GP203",
    Lack.KV_FOR_CONTEXT: "GP204",
    Lack.KV_FOR_CONCURRENCY: "GP205",
    Lack.USEFUL_CONTEXT: "GP206",
    Lack.CERTAINTY: "GP207",
}


BY_REQUESTS = (Lack.KV_FOR_CONCURRENCY, Lack.CERTAINTY)
"""What fewer requests at once may mend."""


def shape_of(assessment: Assessment) -> dict[str, Any]:
    """The parallel sizes a refusal is about."""
    parallelism = assessment.parallelism
    return {
        "tensor": parallelism.tensor,
        "pipeline": parallelism.pipeline,
        "data": parallelism.data,
        "expert": parallelism.expert,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A placement to try at the share of memory that would pass the start-up check."""

    shape: Parallelism
    offers: tuple[Offer, ...]
    """In the order of ranks."""


def least_free(judge: Judge, offers: Sequence[Offer]) -> Offer:
    """The GPU that is furthest short of its budget."""
    return min(offers, key=lambda offer: (offer.allocatable_bytes - judge.budget(offer.device), offer.index))


def busy(
    judge: Judge,
    host: str,
    offers: Sequence[Offer],
    *,
    tensor: int = 1,
    assessment: Assessment | None = None,
    trial: Trial | None = None,
) -> Fact:
    """GP201: the budget (or, without gmu, the need) is not free on these GPUs of a host; figures of the one with least free.

    `passing_utilization` is the largest share of two digits whose budget is free on all GPUs of the trial (without one:
    on all of these); `passing_fits` whether the trial fits at that share (None: not tried), `passing_lack` what it lacks.
    """
    worst = least_free(judge, offers)
    overhead = judge.start_overhead(worst.device, tensor)
    share = judge.request.utilization
    need = judge.budget(worst.device) + overhead
    if share is None and assessment is not None:
        need = judge.need_free(worst, assessment, tensor)
    if trial is None:
        passing, fits, lack = _passing(judge, offers, tensor), None, None
    else:
        passing = _passing(judge, trial.offers, trial.shape.speaking)
        fits, lack = _tried(judge, trial, passing)
    return Fact(
        code="GP201",
        severity=Severity.ERROR,
        subject={"host": host, "gpus": sorted(offer.index for offer in offers), "gpu": worst.index},
        figures={
            "device": worst.device.name,
            "need_bytes": need,
            "have_bytes": worst.allocatable_bytes,
            "gap_bytes": need - worst.allocatable_bytes,
            "total_bytes": worst.total_bytes,
            "overhead_bytes": overhead,
            "utilization": share,
            "passing_utilization": passing,
            "passing_fits": fits,
            "passing_lack": lack,
            "held": worst.held,
            "line": judge.free_line(worst, tensor, assessment),
        },
    )


def _passing(judge: Judge, offers: Sequence[Offer], tensor: int) -> float:
    least: dict[int, Offer] = {}
    for offer in offers:
        known = least.setdefault(id(offer.device), offer)
        if offer.allocatable_bytes < known.allocatable_bytes:
            least[id(offer.device)] = offer
    return min(
        passing_utilization(
            offer.allocatable_bytes - judge.start_overhead(offer.device, tensor), offer.total_bytes
        )
        for offer in least.values()
    )


def _tried(judge: Judge, trial: Trial, passing: float) -> tuple[bool | None, dict[str, Any] | None]:
    """Whether the trial fits at the share that passes, and the code and figures of what it lacks where it does not."""
    if judge.request.utilization is None or passing <= 0:
        return None, None
    devices = tuple(offer.device for offer in trial.offers)
    gpus = len(devices)
    budget = min(budget_bytes(device.total_bytes, passing) for device in devices)
    weights = judge.least_bytes(gpus)
    if weights > budget:
        return False, {"code": None, "gpus": gpus, "need_bytes": weights, "have_bytes": budget}
    assessment = judge.at_share(passing).assess(trial.shape, devices)
    if assessment.fits:
        return True, None
    found = refusal(assessment, devices, {})
    told = {key: value for key, value in found.figures.items() if key != "line"}
    return False, {"code": found.code, "gpus": gpus, **told}


def shortfall(assessment: Assessment, devices: Sequence[Device], subject: dict[str, Any]) -> Fact:
    """GP202–GP207, GP212: need against have on the rank that is furthest short."""
    short = assessment.shortfall
    if short is None:
        raise ValueError("an assessment that fits has no shortfall")
    figures: dict[str, Any] = {
        **shape_of(assessment),
        "rank": short.rank,
        "device": devices[short.rank].name,
        "total_bytes": devices[short.rank].total_bytes,
        "need_bytes": short.need_bytes,
        "have_bytes": short.have_bytes,
        "gap_bytes": short.gap_bytes,
        "context": short.context,
        "largest_context": short.largest_context,
        "concurrency": short.concurrency,
    }
    if assessment.memory is not None:
        rank = assessment.memory.ranks[short.rank]
        figures |= {
            "budget_bytes": rank.budget.bytes,
            "weights_bytes": rank.weights.bytes + rank.weights_extra.bytes,
            "loading_peak_bytes": rank.loading_peak_bytes,
            "activation_bytes": rank.activation.bytes,
            "kv_cache_bytes": rank.kv_cache_bytes,
            "kv_cache_low_bytes": rank.kv_cache_low,
            "line": assessment.memory.engine.error,
        }
        if short.lack in BY_REQUESTS:
            figures["reached"] = reached(assessment.memory, short.concurrency)
    return Fact(code=LACK_CODES[short.lack], severity=Severity.ERROR, subject=subject, figures=figures)


def broken_rule(assessment: Assessment, subject: dict[str, Any]) -> Fact:
    """GP101–GP110, GP330: the model cannot be built with these sizes, or the arguments not be given with them."""
    violation = assessment.violations[0]
    return Fact(
        code=RULE_CODES[violation.rule],
        severity=Severity.ERROR,
        subject=subject,
        figures={
            **shape_of(assessment),
            "part": violation.part,
            "value": violation.value,
            "ranks": violation.ranks,
            "line": violation.line,
            **({} if violation.hint is None else {"hint": violation.hint}),
        },
    )


def refusal(assessment: Assessment, devices: Sequence[Device], subject: dict[str, Any]) -> Fact:
    """The refusal of an assessment that does not fit."""
    if assessment.violations:
        return broken_rule(assessment, subject)
    return shortfall(assessment, devices, subject)


def too_few_gpus(host: str, have: int, need: int, free: int) -> Fact:
    """GP301: fewer usable GPUs than the shape takes."""
    return Fact(
        code="GP301",
        severity=Severity.ERROR,
        subject={"host": host},
        figures={"need": need, "have": have, "free": free},
    )


def only_slices(judge: Judge, host: str, slices: Sequence[Offer], shape: Parallelism) -> Fact:
    """GP308: a host has too few whole cards beside its MIG slices; ranks that work together take whole cards."""
    assessment = judge.assess(shape, (slices[0].device,) * shape.world_size)
    return broken_rule(assessment, {"host": host, "gpus": sorted(offer.index for offer in slices)})


def too_little_ram(host: HostOffer, need: int) -> Fact:
    """GP302: host memory for offload or the extended KV cache; `have_bytes` is None where it is not known."""
    have = host.ram_available_bytes
    return Fact(
        code="GP302",
        severity=Severity.ERROR,
        subject={"host": host.host},
        figures={"need_bytes": need, "have_bytes": have, "gap_bytes": need - (have or 0)},
    )


def too_few_hosts(backend: str, hosts: int, usable: int) -> Fact:
    """GP303: fewer than two hosts have a free GPU of one backend."""
    return Fact(
        code="GP303",
        severity=Severity.ERROR,
        subject={"backend": backend},
        figures={"hosts": hosts, "usable": usable},
    )
