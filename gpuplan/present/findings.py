"""Facts put into words: a headline with the numbers, the evidence, and the way out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.present import (
    argument_findings,
    deploy_findings_changes,
    deploy_findings_order,
    deploy_findings_room,
    division_findings,
    host_findings,
    last_resort_findings,
    layout_words,
    learn_findings,
    memory_findings,
    packing_findings,
    shared_findings,
    split_findings,
)
from gpuplan.present.deploy_findings_bringing import WORDS as BRINGING_WORDS
from gpuplan.present.deploy_findings_diagnosis import WORDS as DIAGNOSIS_WORDS
from gpuplan.present.deploy_findings_lifecycle import WORDS as LIFECYCLE_WORDS
from gpuplan.present.numbers import gib, listed, percent, tokens
from gpuplan.present.subjects import engine_says, place, shape
from gpuplan.present.unreached import way_back
from gpuplan.present.verify_findings import WORDS as VERIFY_WORDS
from gpuplan.present.words import Worder, Words
from gpuplan.units import plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fact with its sentences."""

    code: str
    severity: Severity
    subject: Mapping[str, Any]
    headline: str
    because: tuple[str, ...]
    hint: str | None
    figures: Mapping[str, Any]


def word(fact: Fact) -> Finding:
    """The finding for a fact; a code without words was seen by another version and saved in a snapshot."""
    headline, because, hint = _WORDS.get(fact.code, _unknown)(fact.subject, fact.figures)
    return Finding(
        code=fact.code,
        severity=fact.severity,
        subject=fact.subject,
        headline=headline,
        because=because,
        hint=hint,
        figures=fact.figures,
    )


def brief(fact: Fact) -> str:
    """A refusal in a few words, for a table row: what is short and by how much."""
    gap = fact.figures.get("gap_bytes")
    what = _BRIEF.get(fact.code)
    if what is None or gap is None:
        return f"{word(fact).headline} [{fact.code}]"
    return f"short by {gib(gap)} {what} [{fact.code}]"


_BRIEF = {
    "GP201": "of free memory at start",
    "GP202": "for the claim",
    "GP203": "for weights and activation",
    "GP212": "to load the weights",
    "GP204": "of KV cache for one request",
    "GP205": "of KV cache for that many requests",
    "GP206": "of KV cache for a useful context",
    "GP207": "at the safe end of the estimate",
    "GP302": "of host RAM",
    "GP221": "of host RAM",
    "GP222": "even with all layers in host memory",
    "GP234": "even with all stopped",
}


def _claim(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{place(subject)}: each rank needs {gib(figures['need_bytes'])}, {figures['device']} gives {gib(figures['have_bytes'])}, short by {gib(figures['gap_bytes'])}",
        (f"the claim is divided equally over {shape(figures)}",),
        "use more GPUs or larger cards, or a smaller --vram-claim",
    )


def _weights(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{place(subject)}: {shape(figures)} needs {gib(figures['need_bytes'])} on {figures['device']} before any KV cache, the budget is {gib(figures['have_bytes'])}, short by {gib(figures['gap_bytes'])}",
        (
            f"weights take {gib(figures.get('weights_bytes'))} and activation {gib(figures.get('activation_bytes'))} on rank {figures['rank']}",
            *engine_says(figures),
        ),
        "use more GPUs, larger cards or a quantized variant",
    )


def _kv_context(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    longest = figures["largest_context"]
    hint = f"--context {longest}" if longest else "use more GPUs or larger cards"
    return (
        f"{place(subject)}: one request of {tokens(figures['context'])} needs {gib(figures['need_bytes'])} of KV cache, there is {gib(figures['have_bytes'])}, short by {gib(figures['gap_bytes'])}",
        (
            f"{gib(figures.get('weights_bytes'))} of the {gib(figures.get('budget_bytes'))} budget are weights ({shape(figures)})",
            f"the longest context that fits is {tokens(longest)}" if longest else "not even one block fits",
            *engine_says(figures),
        ),
        hint,
    )


def _kv_concurrency(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{place(subject)}: {plural(figures['concurrency'], 'request')} of {tokens(figures['context'])} need {gib(figures['need_bytes'])} of KV cache, there is {gib(figures['have_bytes'])}, short by {gib(figures['gap_bytes'])}",
        (f"{_reached(figures)}: the engine would start, but queue or preempt the others",),
        "ask for fewer requests at once (--concurrency) or a shorter --context",
    )


def _reached(figures: Mapping[str, Any]) -> str:
    """How many of the requests the placement holds; plans saved before it was counted do not tell."""
    held = figures.get("reached")
    if held is None:
        return "some of these requests have no room"
    if not held:
        return f"counted down from {figures['concurrency']}, not even one of these requests fits for certain"
    return f"counted down from {figures['concurrency']}, {held} of these requests fit at once"


def _useful(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{place(subject)}: after the weights there is room for {tokens(figures['context'])} of context only",
        (
            f"KV cache {gib(figures['have_bytes'])} at {shape(figures)}; weights {gib(figures.get('weights_bytes'))} of a budget of {gib(figures.get('budget_bytes'))}",
        ),
        "use more GPUs, or ask for that length with --context",
    )


def _uncertain(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{place(subject)}: too close to call: {gib(figures['need_bytes'])} of KV cache are needed, between {gib(figures['have_bytes'])} and {gib(figures.get('kv_cache_bytes'))} is left",
        (
            "activation, CUDA graphs and driver memory are predicted as a range; the safe end does not fit",
            *((_reached(figures),) if figures["concurrency"] > 1 else ()),
        ),
        f"--context {max(1, int(figures['context'] * 0.95))} or a little less load makes it safe",
    )


def _fewer_gpus(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{place(subject)}: {plural(figures['need'], 'GPU')} needed on one host, {figures['free']} of {figures['have']} usable",
        (),
        None,
    )


def _ram(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    if figures["have_bytes"] is None:
        return (
            f"{place(subject)}: {gib(figures['need_bytes'])} of host RAM needed; how much the host has is not known",
            ("--cpu-offload-gb, --kv-offloading-size and --ram-claim are paid in host memory on every host",),
            "plan on the probed host, or offload nothing",
        )
    return (
        f"{place(subject)}: {gib(figures['need_bytes'])} of host RAM needed, {gib(figures['have_bytes'])} available, short by {gib(figures['gap_bytes'])}",
        ("--cpu-offload-gb, --kv-offloading-size and --ram-claim are paid in host memory on every host",),
        "offload less, or use a host with more RAM",
    )


def _few_hosts(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{figures['usable']} of {plural(figures['hosts'], 'host')} with {subject['backend']} GPUs have one free",
        ("a placement over several hosts needs two",),
        None,
    )


def _few_replicas(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    if figures.get("together", 1) > 1:
        return (
            f"room for {figures['placed']} of {plural(figures['wanted'], 'replica')} on {plural(figures['gpus'], 'GPU')}",
            ("the replicas of one server hold the experts together: all of them start or none",),
            "fewer replicas (-- --data-parallel-size N) leave more experts to each rank: plan that, or add GPUs",
        )
    return (
        f"room for {figures['placed']} of {plural(figures['wanted'], 'replica')} on {plural(figures['gpus'], 'GPU')}",
        ("every replica needs GPUs of its own",),
        f"--replicas {figures['placed']}" if figures["placed"] else "make one replica fit first",
    )


def _mixed(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"unlike cards in one placement: {listed(list(subject['devices']))}",
        (
            f"every rank is held against its own card; {figures['smallest']} ({gib(figures['total_bytes'])}) sets the number of KV blocks for all",
        ),
        None,
    )


def _dense_dp(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"data parallel of a dense model is {figures['replicas']} independent replicas",
        ("each has its own weights and KV cache; nothing is shared",),
        "start independent servers behind a router, or leave --data-parallel-size out and use --replicas",
    )


def _shortened(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"context is limited to {tokens(figures['context'])}; the model allows {tokens(figures['longest'])}",
        ("no length was asked for, so the longest that safely fits is planned",),
        "ask for more with --context N: the other placements are judged by it too",
    )


def _beyond(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{tokens(figures['context'])} is beyond the {tokens(figures['longest'])} the model's config allows",
        (
            "the engine refuses it unless VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 is set, and answers may be wrong beyond the trained length",
        ),
        f"use --context {figures['longest']} or less, or scale the positions with -- --hf-overrides",
    )


def _unknown_memory(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"{subject['host']} GPU {subject['gpu']}: memory unknown, not used",
        ("a size nobody reported is never guessed",),
        "give its size in the snapshot or the inventory",
    )


def _unreachable(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    stage = str(figures["stage"])
    _, fix = way_back(stage, figures.get("address") or str(subject["host"]))
    return f"{subject['host']}: not used ({stage}: {figures['detail']})", (), fix


def _declared(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        "the hardware is declared in the inventory, not probed: all of its memory is taken to be free",
        (),
        None,
    )


def _unknown_architecture(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        (
            f"architecture {subject['architecture']} is not known"
            if subject["architecture"]
            else "no architecture is named"
        )
        + f": figures rest on {figures['evidence'].replace('_', ' ')}",
        (
            "weights are taken from the best evidence there is, the KV cache from the config's ordinary fields",
        ),
        "treat the verdict as a guess; check that your vLLM version supports this architecture",
    )


def _assumption(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (f"assumed: {figures['assumption']}", (), None)


def _high_utilization(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"gpu-memory-utilization {percent(figures['utilization'])} leaves {gib(figures['left_bytes'])} for the driver and everything else",
        ("the CUDA context and communicators are not part of the budget",),
        "stay at or below 0.95 unless you measured it",
    )


def _refused_argument(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (str(figures["message"]), (), figures.get("hint"))


def _notice(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (str(figures["message"]), (), None)


def _ray_needed(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    return (
        f"this placement needs Ray, which vLLM {figures['version']} images do not carry",
        (
            "--executor ray asks for it, or the hosts take unequal numbers of GPUs, which vLLM's own multi-node mode cannot do",
        ),
        "use an image with Ray (--image), or --executor mp with equal GPUs per host",
    )


def _unknown(subject: Mapping[str, Any], figures: Mapping[str, Any]) -> Words:
    detail = figures.get("detail")
    because = (detail,) if isinstance(detail, str) and detail else ()
    return (
        f"{place(subject)}: a state this version has no words for",
        because,
        "upgrade gpuplan, or probe again",
    )


_WORDS: dict[str, Worder] = {
    "GP115": _refused_argument,
    "GP116": _refused_argument,
    "GP202": _claim,
    "GP203": _weights,
    "GP204": _kv_context,
    "GP205": _kv_concurrency,
    "GP206": _useful,
    "GP207": _uncertain,
    "GP208": _shortened,
    "GP209": _high_utilization,
    "GP210": _beyond,
    "GP301": _fewer_gpus,
    "GP302": _ram,
    "GP303": _few_hosts,
    "GP304": _few_replicas,
    "GP305": _mixed,
    "GP306": _dense_dp,
    "GP307": _ray_needed,
    "GP401": _unknown_memory,
    "GP402": _unreachable,
    "GP403": _declared,
    "GP501": _unknown_architecture,
    "GP502": _assumption,
    "GP503": _notice,
    **argument_findings.WORDS,
    **division_findings.WORDS,
    **last_resort_findings.WORDS,
    **learn_findings.WORDS,
    **memory_findings.WORDS,
    **packing_findings.WORDS,
    **shared_findings.WORDS,
    **split_findings.WORDS,
    **layout_words.WORDS,
    **host_findings.WORDS,
    **deploy_findings_changes.WORDS,
    **deploy_findings_order.WORDS,
    **deploy_findings_room.WORDS,
    **LIFECYCLE_WORDS,
    **BRINGING_WORDS,
    **DIAGNOSIS_WORDS,
    **VERIFY_WORDS,
}
CODES = tuple(sorted(_WORDS))
