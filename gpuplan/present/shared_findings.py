"""Words about what ranks and models share: experts over replicas, a draft beside its target."""

from collections.abc import Mapping

from gpuplan.present.document import visible
from gpuplan.present.numbers import gib
from gpuplan.present.page import page
from gpuplan.present.words import Given, Worder, Words, told
from gpuplan.units import plural


def _spread_experts(_subject: Given, figures: Given) -> Words:
    experts, ranks = figures["experts"], figures["ranks"]
    if figures["width_divided_by"] > 1:
        held = f"every rank holds 1/{ranks} of the width of all {experts} experts"
        hint = "--enable-expert-parallel gives each rank whole experts instead"
    else:
        redundant = f" (with {figures['redundant']} redundant)" if figures["redundant"] else ""
        held = f"every rank holds {figures['held']} of {experts} experts{redundant}"
        hint = None
    return told(
        f"{held}: {figures['replicas']} replicas are one server",
        (
            "attention and its KV cache stand whole in each replica, and each replica serves its own requests",
            "all replicas start together or none does",
        ),
        hint,
    )


def _draft(subject: Given, figures: Given) -> Words:
    missing, assumed = figures.get("missing"), figures.get("assumed_bytes")
    why = (visible(str(missing)),) if missing else ()
    if assumed is None:
        return told(
            f"the draft model {visible(str(subject['model']))} is not counted",
            (*why, "its weights and its KV cache come on top of every figure here"),
            f"gpuplan estimate {visible(str(subject['model']))} says what it weighs; leave that much room",
        )
    return told(
        f"the draft model {visible(str(subject['model']))} could not be read: {gib(assumed)} of weights are set aside for it",
        (
            *why,
            "drafts of its kind are as large for a model of this size; the ranges reach from none of it to all",
        ),
        "give the draft's directory or config.json as its model to have it counted",
    )


def _counted_draft(subject: Given, figures: Given) -> Words:
    layers, named = figures["cached_layers"], visible(str(subject["model"]))
    cached = f"and {plural(layers, 'layer')} in the KV cache" if layers else "and nothing in the KV cache"
    return told(
        f"the draft model {named} ({figures['method']}) is counted: {gib(figures['weights_bytes'])} of weights {cached}",
        ("what it shares with the model is left out; with pipeline stages it is on the last one",),
        None,
    )


WORDS: Mapping[str, Worder] = {"GP309": _spread_experts, "GP504": _draft, "GP506": _counted_draft}

PAGES = (
    page(
        "GP309",
        "Experts spread over all replicas",
        "The replicas of a mixture-of-experts server divide the routed experts among the ranks of all of them.",
        "A rank is judged with its share of the whole server's experts, so no replica would fit or start without the others. "
        "Attention is not divided: each replica has a KV cache and requests of its own.",
        "Read the figures as those of one rank of the whole server. To have replicas that stand alone, use --replicas.",
        "vLLM FusedMoEParallelConfig.make",
    ),
    page(
        "GP504",
        "Draft model not read",
        "Speculative decoding loads a second model whose files could not be read, so its size is a guess or not counted.",
        "The engine takes its weights and cache from the same budget. Where drafts of its method are alike, one as large as "
        "published ones is set aside and the ranges reach from none of it to all.",
        "Give the draft as a directory, a config.json or a hub id that can be reached.",
        "vLLM v1/spec_decode",
    ),
    page(
        "GP506",
        "Draft model counted",
        "Speculative decoding loads a second model; its weights, cache layers and buffers are part of the estimate.",
        "It stands on the last pipeline stage, divided over the same tensor-parallel ranks. EAGLE-like drafts use the "
        "target's input embedding, and its head where they have none of their own.",
        "Nothing to do. Without --speculative-config the room is free for the KV cache.",
        "vLLM v1/spec_decode",
    ),
)
