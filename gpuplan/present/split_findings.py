"""Words about how layers and ranks were divided: uneven pipeline stages."""

from collections.abc import Mapping

from gpuplan.present.document import visible
from gpuplan.present.numbers import gib, percent, tokens
from gpuplan.present.page import page
from gpuplan.present.words import Given, Worder, Words, told


def _uneven(_subject: Given, figures: Given) -> Words:
    layers, even = _plus(figures["layers"]), _plus(figures["even_layers"])
    before, after = figures["even_tokens"], figures["tokens"]
    if before is None:
        gain = "make it fit"
    elif before > 0:
        gain = (
            f"give {percent(after / before - 1)} more KV cache ({tokens(after)} instead of {tokens(before)})"
        )
    else:
        gain = f"give {tokens(after)} of KV cache instead of none"
    alike = "unlike cards" if figures["unlike_cards"] else "what stands beside its layers"
    card = visible(str(figures["device"]))
    weights = f"weights take {gib(figures['weights_bytes'])} of its {gib(figures['budget_bytes'])} budget"
    return told(
        f"stages of {layers} layers instead of {even} {gain}",
        (
            f"as the engine splits them, stage {figures['stage']} ({card}) is the poorest, because of {alike}: {weights}",
            "every rank gets as many KV blocks as the poorest has room for",
        ),
        f"VLLM_PP_LAYER_PARTITION={','.join(str(count) for count in figures['layers'])} is part of the launch command",
    )


def _plus(counts: list[int]) -> str:
    return "+".join(str(count) for count in counts)


WORDS: Mapping[str, Worder] = {"GP311": _uneven}

PAGES = (
    page(
        "GP311",
        "Pipeline stages of unequal length",
        "The layers are divided over the pipeline stages otherwise than the engine would do it.",
        "Every rank gets as many KV blocks as the poorest one has room for. Embedding, head and vision tower weigh on single "
        "stages, layers of a model can be unlike, and so can cards; of all splits the one is taken whose poorest stage has "
        "most room. The engine's own split stays unless that is at least 1 % more, or it does not fit.",
        "Nothing to do: VLLM_PP_LAYER_PARTITION carries the split. Set it likewise when you start the engine by hand.",
        "vLLM distributed/utils.py get_pp_indices",
    ),
)
