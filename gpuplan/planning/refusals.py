"""Refusals as facts: which host and GPUs, what was needed, what there is, and the gap."""

from collections.abc import Sequence
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.engine.divisibility import Rule
from gpuplan.planning.judge import Assessment, Judge, Lack
from gpuplan.planning.offers import Device, HostOffer, Offer

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
}
LACK_CODES = {
    Lack.CLAIM: "GP202",
    Lack.WEIGHTS: "GP203",
    Lack.KV_FOR_CONTEXT: "GP204",
    Lack.KV_FOR_CONCURRENCY: "GP205",
    Lack.USEFUL_CONTEXT: "GP206",
    Lack.CERTAINTY: "GP207",
}


def shape_of(assessment: Assessment) -> dict[str, Any]:
    """The parallel sizes a refusal is about."""
    parallelism = assessment.parallelism
    return {
        "tensor": parallelism.tensor,
        "pipeline": parallelism.pipeline,
        "data": parallelism.data,
        "expert": parallelism.expert,
    }


def busy(
    judge: Judge, host: str, offers: Sequence[Offer], *, tensor: int = 1, assessment: Assessment | None = None
) -> Fact:
    """GP201: the budget (or, without gmu, the need) is not free on these GPUs of a host; figures of the one with least free."""
    worst = min(offers, key=lambda offer: (offer.allocatable_bytes - judge.budget(offer.device), offer.index))
    overhead = judge.start_overhead(worst.device, tensor)
    own = 0 if assessment is None or judge.request.utilization is not None else assessment.need_bytes or 0
    need = judge.budget(worst.device) + overhead + own
    share = judge.request.utilization
    passing = (worst.allocatable_bytes - overhead) / worst.total_bytes if worst.total_bytes else 0.0
    if passing * worst.total_bytes < judge.least_bytes(tensor):
        passing = 0.0  # the weights alone would not fit into such a share
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
            "passing_utilization": max(0.0, int(passing * 100) / 100),
            "line": judge.free_line(worst, tensor),
        },
    )


def shortfall(assessment: Assessment, devices: Sequence[Device], subject: dict[str, Any]) -> Fact:
    """GP202–GP207: need against have on the rank that is furthest short."""
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
            "activation_bytes": rank.activation.bytes,
            "kv_cache_bytes": rank.kv_cache_bytes,
            "kv_cache_low_bytes": rank.kv_cache_low,
            "line": assessment.memory.engine.error,
        }
    return Fact(code=LACK_CODES[short.lack], severity=Severity.ERROR, subject=subject, figures=figures)


def broken_rule(assessment: Assessment, subject: dict[str, Any]) -> Fact:
    """GP101–GP110: the model cannot be built with these sizes."""
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


def too_little_ram(host: HostOffer, need: int) -> Fact:
    """GP302: host memory for offload or the extended KV cache."""
    have = host.ram_available_bytes or 0
    return Fact(
        code="GP302",
        severity=Severity.ERROR,
        subject={"host": host.host},
        figures={"need_bytes": need, "have_bytes": have, "gap_bytes": need - have},
    )


def too_few_hosts(backend: str, hosts: int, usable: int) -> Fact:
    """GP303: fewer than two hosts have a free GPU of one backend."""
    return Fact(
        code="GP303",
        severity=Severity.ERROR,
        subject={"backend": backend},
        figures={"hosts": hosts, "usable": usable},
    )
