"""Words about measurements of earlier starts: in a plan that rests on them, and after a deploy that made one."""

from collections.abc import Mapping

from gpuplan.present.document import visible
from gpuplan.present.numbers import gib
from gpuplan.present.page import page
from gpuplan.present.words import Given, Worder, Words, told
from gpuplan.units import plural

LEARNED = "GP880"
NOT_KEPT = "GP881"


def _corrected(_subject: Given, figures: Given) -> Words:
    terms = list(figures["terms"])
    starts = int(figures["starts"])
    last = f"the last on {figures['last']} ({visible(str(figures['origin']))})"
    return told(
        f"{plural(len(terms), 'term')} of the estimate {'is' if len(terms) == 1 else 'are'} corrected by "
        f"{plural(starts, 'start')} that {'was' if starts == 1 else 'were'} measured, {last}",
        (f"corrected: {'; '.join(map(str, terms))}",),
        "--no-calibration ignores them; gpuplan learn --list shows them",
    )


def _learned(_subject: Given, figures: Given) -> Words:
    predicted, printed = figures.get("predicted_bytes"), figures.get("printed_bytes")
    what = str(figures["what"])
    if predicted is None or printed is None:
        return told("learned from this start; nothing of it can be compared", (), None)
    difference = printed - predicted
    by = (
        f"{gib(abs(difference))} {'more' if difference > 0 else 'less'} than predicted"
        if difference
        else "as predicted"
    )
    return told(
        f"learned: {what} {by}",
        (
            f"predicted {gib(predicted)}, printed {gib(printed)}; the next plan of the same start uses what was measured",
        ),
        None,
    )


def _not_kept(_subject: Given, figures: Given) -> Words:
    return told(
        f"what this start taught is not kept: {visible(str(figures['why']))}",
        ("plans are made without it; nothing that runs depends on it",),
        "make the directory writable, or set XDG_STATE_HOME to another",
    )


WORDS: Mapping[str, Worder] = {"GP505": _corrected, LEARNED: _learned, NOT_KEPT: _not_kept}

PAGES = (
    page(
        "GP505",
        "Measured on earlier starts",
        "Terms of the estimate were corrected by what vLLM printed on earlier, like starts.",
        "After each deploy, and with `gpuplan learn LOG`, what the engine printed is kept beside what was predicted. The same "
        "start on the same kind of card takes over every term; the same model with another batch or on another card what "
        "loading takes; other models on the same card the memory outside the allocator, once two of them agree. The safe end of "
        "a range moves to the safe side only, unless it was the very same start that was measured.",
        "Nothing. `--no-calibration` plans without them, `gpuplan learn --list` shows them, `--forget` takes one away.",
        "logs of repeated starts, which differ by about 0.01 GiB",
    ),
    page(
        LEARNED,
        "Learned from a start",
        "The engine has started, and what it printed of its memory was compared with the prediction and kept.",
        "The next plan for like hardware uses it and says so.",
        "Nothing. `gpuplan learn --list` shows what is kept.",
        "vLLM v1/worker/gpu_worker.py, determine_available_memory",
    ),
    page(
        NOT_KEPT,
        "What was learned is not kept",
        "The file with what earlier starts taught could not be written.",
        "It lies under $XDG_STATE_HOME/gpuplan/calibration; plans work without it.",
        "Make the directory writable, or set XDG_STATE_HOME to another one.",
        "",
    ),
)
