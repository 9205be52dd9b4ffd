"""Words about a trial of a deployment (GP870 to GP877): whether the prediction held, and what could not be asked."""

from collections.abc import Mapping

from gpuplan.present.numbers import count, gib, times
from gpuplan.present.words import Given, Worder, Words, told
from gpuplan.units import plural

TERMS = {
    "weights": "weights",
    "weights_extra": "weights, extra",
    "loading": "weights",
    "activation": "activation peak",
    "non_torch": "outside of torch",
    "cuda_graph": "CUDA graphs",
    "kv_cache": "KV cache",
    "tokens": "tokens in it",
    "concurrency": "full requests at once",
}
"""How a term of a comparison is called."""
CHECKS = {
    "free_memory": "that enough memory is free",
    "out_of_memory": "loading the model and running it once",
    "no_kv_room": "that anything is left for the KV cache",
    "too_long": "that one request of the whole context fits the KV cache",
}
"""The engine's checks at start, as what each asks for."""


def figure(term: str, value: float | None) -> str:
    """A value of a term in its unit."""
    if value is None:
        return "unknown"
    return count(value) if term == "tokens" else times(value) if term == "concurrency" else gib(value)


def name(term: str) -> str:
    """A term as people call it."""
    return TERMS.get(term, term.replace("_", " "))


def _held(subject: Given, figures: Given) -> Words:
    del subject
    predicted, actual = figures.get("predicted_bytes"), figures.get("actual_bytes")
    because = (
        (f"KV cache: {gib(predicted)} predicted, {gib(actual)} printed",)
        if isinstance(predicted, int | float) and isinstance(actual, int | float)
        else ()
    )
    return told("the prediction held: every printed figure is within its range", because, None)


def _missed(subject: Given, figures: Given) -> Words:
    del subject
    rows = [one for one in figures.get("terms") or () if isinstance(one, Mapping)]
    names = ", ".join(name(str(row.get("term"))) for row in rows) or "a figure"
    because = tuple(_row(row) for row in rows)
    return told(
        f"the prediction missed: {names} outside of the range that was predicted",
        because,
        None,
    )


def _row(row: Given) -> str:
    term = str(row.get("term"))
    low, high = figure(term, row.get("low")), figure(term, row.get("high"))
    between = low if low == high else f"{low} to {high}"
    who = f" ({row['rank']})" if row.get("rank") else ""
    return f"{name(term)}{who}: {figure(term, row.get('actual'))} came, predicted was {between}"


def _failed(subject: Given, figures: Given) -> Words:
    del subject
    check, predicted = figures.get("check"), figures.get("predicted_check")
    if check is None:
        return told(
            "the engine did not start, and not for want of memory",
            ("the prediction is of memory alone and says nothing of this cause",),
            "the finding after this one names the cause",
        )
    at = f"its check {CHECKS.get(str(check), str(check))}"
    if not figures.get("foreseen"):
        return told(
            "the engine did not start although the prediction said it would",
            (f"it ended at {at}",),
            "take the cause below seriously: a deployment would end the same way",
        )
    if figures.get("same_check"):
        return told("the engine did not start, as predicted", (f"it ended at {at}",), None)
    return told(
        "the engine did not start, as predicted, but at another check",
        (f"it ended at {at}; predicted was {CHECKS.get(str(predicted), str(predicted))}",),
        None,
    )


def _against(subject: Given, figures: Given) -> Words:
    del subject
    check = figures.get("check")
    because = (
        (f"predicted was that it ends at its check {CHECKS.get(str(check), str(check))}",) if check else ()
    )
    return told("the engine started although the prediction said it would not", because, None)


def _silent(subject: Given, figures: Given) -> Words:
    del subject, figures
    return told(
        "the engine started and printed nothing that could be compared",
        (
            "a build for the CPU, VLLM_CONFIGURE_LOGGING=0 and a higher VLLM_LOGGING_LEVEL leave its figures out",
        ),
        "set VLLM_LOGGING_LEVEL=INFO under vllm.env of the inventory",
    )


def _parameters(subject: Given, figures: Given) -> Words:
    del subject
    predicted, actual = figures.get("predicted_bytes"), figures.get("actual_bytes")
    ranks = figures.get("ranks")
    of = f" on {plural(ranks, 'rank')}" if isinstance(ranks, int) and ranks > 1 else ""
    if predicted == actual:
        return told(
            f"the parameters are those of the image's own model class, to the byte{of}",
            (f"{count(int(actual or 0))} bytes",),
            None,
        )
    off = (int(actual or 0)) - (int(predicted or 0))
    return told(
        f"the parameters differ from those of the image's own model class by {gib(abs(off))}",
        (
            f"rank {figures.get('rank')}: {count(int(predicted or 0))} bytes predicted, {count(int(actual or 0))} made",
        ),
        None,
    )


def _no_parameters(subject: Given, figures: Given) -> Words:
    host = subject.get("host")
    where = f" on {host}" if host else ""
    return told(
        f"the parameters could not be counted in the image{where}: {figures.get('why')}",
        ("the model was to be built without memory (torch's meta device), in a container without a GPU",),
        None,
    )


def _no_image(subject: Given, figures: Given) -> Words:
    return told(
        f"{subject.get('host')} does not have {figures.get('image')}",
        ("--parameters-only asks an image that is there, and brings none",),
        f"docker pull {figures.get('image')} on {subject.get('host')}, or leave --parameters-only out",
    )


WORDS: dict[str, Worder] = {
    "GP870": _held,
    "GP871": _missed,
    "GP872": _failed,
    "GP873": _against,
    "GP874": _silent,
    "GP875": _parameters,
    "GP876": _no_parameters,
    "GP877": _no_image,
}
