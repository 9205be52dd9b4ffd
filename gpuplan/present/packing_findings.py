"""Words about several models placed together: who blocks whom, what would let it in, the gap, and moves that cost."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuplan.present.document import visible
from gpuplan.present.numbers import listed, percent
from gpuplan.present.page import page
from gpuplan.present.words import Given, Worder, Words, told
from gpuplan.units import plural


def _name(subject: Given) -> str:
    return visible(str(subject["model"]))


def _blocked(subject: Given, figures: Given) -> Words:
    blockers = list(figures["blockers"])
    held = [
        f"{visible(str(one['model']))} is on {one['gpus']} of the GPUs it could have (priority {one['priority']})"
        for one in blockers[:3]
    ]
    more = [f"so are {plural(len(blockers) - 3, 'more model')}"] if len(blockers) > 3 else []
    named = listed([visible(str(one["model"])) for one in blockers])
    return told(
        f"{_name(subject)} is not placed: its GPUs go to {named or 'other models of the file'}",
        (f"it has priority {figures['priority']} and {_copies(figures)}", *held, *more),
        _way_in(subject, figures),
    )


def _copies(figures: Given) -> str:
    asked = int(figures["replicas"])
    if asked == 1:
        return "there is no room for it beside the others"
    return f"there is room for {figures['room_for']} of its {asked} replicas"


def _never(subject: Given, figures: Given) -> Words:
    return told(
        f"{_name(subject)} is not placed: no GPUs of this fleet would hold it, not even empty ones",
        (),
        f"`gpuplan plan` with the same words names what would make it fit{_or_pins(figures)}",
    )


def _or_pins(figures: Given) -> str:
    return "; without its pins it has room" if figures["unpinned"] else ""


def _full(subject: Given, figures: Given) -> Words:
    return told(
        f"{_name(subject)} is not placed: what the file does not name leaves it no room",
        ("it fits on none of its GPUs as they are, even with no other model of the file there",),
        _way_in(subject, figures),
    )


def _pinned(subject: Given, figures: Given) -> Words:
    return told(
        f"{_name(subject)} is not placed: where its hosts, gpus or labels pin it to, it does not fit",
        ("other GPUs of the fleet would hold it",),
        _way_in(subject, figures),
    )


def _apart(subject: Given, figures: Given) -> Words:
    return told(
        f"{_name(subject)} is not placed: anti_affinity leaves it no host",
        ("there are GPUs with room, on hosts that it must not share",),
        _way_in(subject, figures),
    )


def _way_in(subject: Given, figures: Given) -> str | None:
    ways = list(_ways(figures))
    if not ways:
        return None
    return f"to let {_name(subject)} in: {'; or '.join(ways)}"


def _ways(figures: Given) -> Iterator[str]:
    """Each was tried; the smallest first."""
    if figures["room_for"]:
        yield f"ask for replicas: {figures['room_for']}"
    if figures["unpinned"]:
        yield "take its pins away"
    if figures["together"]:
        yield "let it share hosts (anti_affinity)"
    if figures["without"]:
        names = [visible(str(name)) for name in figures["without"]]
        yield f"leave out {_any(names)}, or give it a higher priority"
    elif figures["without_all"]:
        names = [visible(str(name)) for name in figures["without_all"]]
        yield f"leave out {' and '.join(names)}, or give it a higher priority than those together"
    if figures["stopping"]:
        names = [visible(str(name)) for name in figures["stopping"]]
        yield f"stop {_any(names)}, which the file does not name (gpuplan stop {names[0]})"
    more: Mapping[str, Any] | None = figures["more"]
    if more is not None:
        yield f"add a host with {plural(int(more['count']), 'GPU')} of kind {visible(str(more['kind']))}"


def _any(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"one of {listed(names)}"


def _gap(_subject: Given, figures: Given) -> Words:
    if figures["least_gpus"] is None:
        return told(
            f"not proved the best: models of priority {figures['left_out']} in all are left out, and "
            f"{figures['least_left_out']} at least must be",
            ("the fleet is too large for looking at every packing; this one was found by improving several",),
            None,
        )
    gpus, least = int(figures["gpus"]), int(figures["least_gpus"])
    if gpus == least:
        return told(
            f"no packing takes fewer than {plural(least, 'GPU')}; that none has smaller GPUs or fewer moves is not proved",
            (),
            None,
        )
    return told(
        f"{plural(gpus, 'GPU')} are taken, and no packing takes fewer than {least}: at most "
        f"{percent(figures['gpu_gap'])} too many",
        ("the fleet is too large for looking at every packing; the bound is by counting",),
        None,
    )


def _detour(subject: Given, figures: Given) -> Words:
    return told(
        f"{_name(subject)} makes a detour over {listed(figures['gpus'])}",
        ("models wait for each other's GPUs in a circle: one of them steps aside, so that none is down",),
        None,
    )


def _downtime(subject: Given, figures: Given) -> Words:
    return told(
        f"{_name(subject)} is down while it moves: {visible(str(subject['deployment']))} stops before its new place starts",
        (
            "models wait for each other's GPUs in a circle, and no free GPUs would hold one of them meanwhile",
            f"it holds {listed(figures['gpus'])}; of those in the circle it has the lowest priority",
        ),
        "free GPUs for the time of the move, or pin the models to where they run (gpus: in the file)",
    )


def _dropped(subject: Given, figures: Given) -> Words:
    return told(
        f"{visible(str(subject['deployment']))} is stopped for good: {_name(subject)} runs and has no place in this packing",
        (f"its GPUs ({listed(figures['gpus'])}) go to models worth more",),
        "give it a higher priority to keep it",
    )


WORDS: Mapping[str, Worder] = {
    "GP260": _blocked,
    "GP261": _never,
    "GP262": _full,
    "GP263": _pinned,
    "GP264": _apart,
    "GP265": _gap,
    "GP266": _detour,
    "GP267": _downtime,
    "GP268": _dropped,
}

PAGES = (
    page(
        "GP260",
        "Other models have its GPUs",
        "Of the models planned together this one is not placed: others take the GPUs that could hold it.",
        "The packing places as much priority as it can. A model left out has less priority than what it would displace.",
        "Each way in that is named was tried: leave another model out, ask for fewer replicas, add GPUs, or raise its priority.",
        "S4, several models at once",
    ),
    page(
        "GP261",
        "No GPUs of the fleet would hold it",
        "No number and no kind of GPU of this fleet holds the model as it is asked for, whatever else is planned.",
        "The finding after it is the nearest miss, with its figures.",
        "Plan the model alone: `gpuplan plan MODEL` tells what would make it fit.",
        "S0",
    ),
    page(
        "GP262",
        "What is not in the file leaves no room",
        "The model does not fit beside what runs already, even with no other model of the file there.",
        "Deployments that the file does not name are never moved or stopped; nor are processes of others.",
        "Stop a deployment that is no longer needed, name it in the file so that it may move, or add GPUs.",
        "S4",
    ),
    page(
        "GP263",
        "It does not fit where it is pinned to",
        "`hosts`, `labels` or `gpus` of the model leave GPUs that do not hold it; others of the fleet would.",
        "A pin is never broken.",
        "Widen the pins.",
        "",
    ),
    page(
        "GP264",
        "Anti-affinity leaves no host",
        "There is room for the model, but only on hosts with a model, or a replica of its own, that it must not share one with.",
        "`anti_affinity` holds both ways, whoever of the two names the other.",
        "Take the name off the list, or add a host.",
        "",
    ),
    page(
        "GP265",
        "The packing is not proved the best",
        "The search did not look at every packing. A bound tells how much better another one could be at most.",
        "Small fleets are searched to the end. In large ones several packings are improved until nothing tried helps; the "
        "bound counts the least every model takes of the cards that can hold it.",
        "Nothing. With --host or --label a part of the fleet can be planned to the end.",
        "Martello and Toth 1990, lower bounds for bin packing",
    ),
    page(
        "GP266",
        "A detour while models move",
        "Two or more models are to go where the other is. One of them starts on free GPUs first and moves on from there.",
        "Every model has a home all the time, at the price of one start more.",
        "Nothing.",
        "",
    ),
    page(
        "GP267",
        "A model is down while it moves",
        "Models are to go where others are, and there are no free GPUs for a detour: one stops before its new place starts.",
        "From the stop until the new place serves nobody answers for that model.",
        "Do the moves at a quiet time, free GPUs for the detour, or pin the models where they run.",
        "",
    ),
    page(
        "GP268",
        "A running model is dropped",
        "A deployment of a model of the file is stopped, and no other place is planned for it.",
        "Its GPUs are needed by models that are worth more priority together.",
        "Raise its priority, or free GPUs for it.",
        "",
    ),
)
