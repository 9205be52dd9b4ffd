"""Words about arguments that contradict each other, and about how many requests are planned for at once."""

from collections.abc import Mapping

from gpuplan.present.page import page
from gpuplan.present.subjects import place, shape
from gpuplan.present.words import Given, Worder, Words, told
from gpuplan.units import plural


def _contradiction(subject: Given, figures: Given) -> Words:
    return told(
        f"{place(subject)}: vLLM would refuse its arguments: {figures['line']}",
        (f"they were judged as {shape(figures)}",),
        figures.get("hint"),
    )


def _one_slot(_subject: Given, figures: Given) -> Words:
    return told(
        f"planned for one request at once, not {figures['asked']}: the model answers each in one pass",
        (
            "a pooling model keeps nothing of a request once it has answered; the others wait their turn",
            f"room for {plural(figures['asked'], 'request')} of the whole context would stay empty",
        ),
        None,
    )


WORDS: Mapping[str, Worder] = {"GP330": _contradiction, "GP331": _one_slot}

PAGES = (
    page(
        "GP330",
        "Arguments contradict each other",
        "The engine arguments cannot be given together with the parallel sizes of this placement.",
        "The engine checks them after it has read the model, a minute into its start. The same rules are applied to every "
        "placement before it is offered.",
        "Change the flag the finding names. gpuplan lint -- vllm serve … judges a whole command line.",
        "vLLM config/parallel.py; S3.3, S3.4, S3.6",
    ),
    page(
        "GP331",
        "One parallel slot",
        "Embedding and other pooling models are planned for one request of the whole context at once, whatever "
        "--concurrency says.",
        "They compute a request in one pass and keep no cache of it for a next token, so room for many whole contexts would "
        "never be used.",
        "Nothing to do. Short requests are still batched, up to --max-num-seqs.",
        "S4.11",
    ),
)
