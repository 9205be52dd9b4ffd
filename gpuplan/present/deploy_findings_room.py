"""Words about making room for a deploy and waiting for it (GP885 to GP893)."""

from collections.abc import Mapping

from gpuplan.domain.fact import Fact, Severity
from gpuplan.present.eviction_text import keep_alive_words, load_words
from gpuplan.present.numbers import listed, span
from gpuplan.present.words import Given, Worder, Words, told


def _name(subject: Given) -> str:
    return str(subject.get("deployment") or "NAME")


def _items(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, (list, tuple)) else []


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _makes_room(subject: Given, figures: Given) -> Words:
    load = load_words(_number(figures.get("running")))
    keep = keep_alive_words(_number(figures.get("keep_alive_seconds")))
    return told(
        f"{_name(subject)} is stopped to make room for {figures.get('makes_room_for')}: {load}, {keep}",
        (
            f"both do not fit on {listed(_items(figures.get('gpus')), most=4) or 'its GPUs'}",
            "it runs again if the new one does not serve; once that serves it is removed",
        ),
        None,
    )


def _not_as_agreed(subject: Given, figures: Given) -> Words:
    name = _name(subject)
    running = _number(figures.get("running"))
    headlines = {
        "busy": f"{name} was idle and is at work now ({load_words(running)})",
        "pinned": f"{name} is pinned: its keep-alive is negative",
        "others": f"{name} is not the same any more: its containers are others than those shown",
        "silent": f"{name} cannot be stopped whole: {figures.get('host')} does not answer",
    }
    because = {
        "busy": "its requests would be cut off, which nobody agreed to",
        "pinned": "whoever deployed it said that it is never to make room",
        "others": "whoever deployed it anew means it to run",
        "silent": str(figures.get("why") or "nothing was heard"),
    }
    reason = str(figures.get("reason"))
    return told(
        headlines.get(reason, f"{name} is not as it was agreed to be stopped"),
        (because.get(reason, ""), "nothing was stopped"),
        "plan again: it is named with the requests it has then, or another way is found",
    )


def _gone(subject: Given, figures: Given) -> Words:
    del figures
    return told(
        f"{_name(subject)} runs no more, so nothing has to be stopped",
        ("the plan wanted its memory; it is free already, or the plan is refused",),
        None,
    )


def _refused(subject: Given, figures: Given) -> Words:
    return told(
        f"{figures.get('names')} did not stop on {subject.get('host')}: {figures.get('why')}",
        ("its memory cannot be had while it runs; what was stopped for it is started again",),
        f"gpuplan check --host {subject.get('host')}; a process that cannot be killed hangs in the driver",
    )


def _no_room(subject: Given, figures: Given) -> Words:
    hosts = listed(_items(subject.get("hosts")), most=4)
    why = (
        "the memory of its GPUs did not come back in time"
        if figures.get("short")
        else "somebody else took what came free, or less came back than was estimated"
    )
    return told(
        f"{figures.get('names')} was stopped, and there is no room on {hosts} all the same",
        (why, "what was stopped is started again"),
        "gpuplan status shows whether it serves again, gpuplan probe who holds memory; then plan again",
    )


def _waits(subject: Given, figures: Given) -> Words:
    lacks, held = _lacks(figures)
    place, waiting = _number(figures.get("place")), _number(figures.get("waiting"))
    queue = f"place {place} of {waiting} in the queue" if waiting and waiting > 1 else "nobody else waits"
    return told(
        f"waiting for room for {_name(subject)}: {lacks}",
        (*held, queue, "it would fit if less ran: it is tried again and again"),
        "gpuplan status shows what runs; gpuplan stop NAME makes room",
    )


def _turn(subject: Given, figures: Given) -> Words:
    return told(
        f"{_name(subject)} fits now, and {figures.get('ahead')} waits for longer and may fit, too",
        ("of those that wait, the first that fits goes first",),
        None,
    )


def _taken(subject: Given, figures: Given) -> Words:
    return told(
        f"the room for {_name(subject)} was taken before it had its lock: {_lacks(figures)[0]}",
        ("it keeps its place in the queue",),
        None,
    )


def _over(subject: Given, figures: Given) -> Words:
    lacks, held = _lacks(figures)
    seconds = figures.get("seconds")
    within = f" within {span(seconds)}" if isinstance(seconds, (int, float)) else ""
    return told(
        f"no room for {_name(subject)}{within}: {lacks}",
        held,
        "wait longer, or make room: gpuplan status shows what runs, gpuplan stop NAME ends it",
    )


def _lacks(figures: Given) -> tuple[str, tuple[str, ...]]:
    """Why it did not fit, and who holds what it lacks."""
    from gpuplan.present.findings import word  # noqa: PLC0415 - it imports this module

    missing = figures.get("missing")
    if isinstance(missing, Mapping):
        known = {name: missing.get(name) or {} for name in ("subject", "figures")}
        missing = Fact(code=str(missing.get("code")), severity=Severity.ERROR, **known)
    if not isinstance(missing, Fact):
        return str(figures.get("words") or "nothing fits"), ()
    finding = word(missing)
    return f"{finding.headline} [{finding.code}]", finding.because[:1]


WORDS: dict[str, Worder] = {
    "GP885": _makes_room,
    "GP886": _not_as_agreed,
    "GP887": _gone,
    "GP888": _refused,
    "GP889": _no_room,
    "GP890": _waits,
    "GP891": _turn,
    "GP892": _taken,
    "GP893": _over,
}
