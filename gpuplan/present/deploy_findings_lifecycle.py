"""Words about what runs, its stop and restart (GP850 to GP859): who is at work, what was left, what did not end well."""

from gpuplan.present.numbers import gib, listed
from gpuplan.present.words import Given, Worder, Words, told
from gpuplan.units import plural


def _name(subject: Given) -> str:
    return str(subject.get("deployment") or "NAME")


def _host(subject: Given) -> str:
    return str(subject.get("host") or "the host")


def _containers(figures: Given) -> str:
    given = figures.get("containers") or ()
    return listed([str(one) for one in given], most=4) if isinstance(given, (list, tuple)) else str(given)


def _many(figures: Given) -> int:
    given = figures.get("containers") or ()
    return len(given) if isinstance(given, (list, tuple)) else 1


def _waits(subject: Given, figures: Given) -> Words:
    return told(
        f"waiting for the lock of {_host(subject)}: {figures.get('holder')}",
        ("two runs on one host would take each other's GPUs and ports",),
        f"if that run is gone for good: gpuplan unlock --host {_host(subject)}",
    )


def _leftover(subject: Given, figures: Given) -> Words:
    return told(
        f"{plural(_many(figures), 'container')} of another deploy of {_name(subject)}: {_containers(figures)}",
        ("a deploy that was interrupted left it, and nobody works on it now",),
        f"the next gpuplan deploy of {_name(subject)} removes it; gpuplan stop {_name(subject)} removes everything",
    )


def _interrupted(subject: Given, figures: Given) -> Words:
    return told(
        f"{_name(subject)} was begun and nobody works on it now: {_containers(figures)}",
        ("the gpuplan that deployed it was killed, or lost its network",),
        f"deploy it again, which goes on from there; or gpuplan stop {_name(subject)}",
    )


def _at_work(subject: Given, figures: Given) -> Words:
    del subject
    return told(f"under way: {figures.get('holder')}", (), None)


def _memory_short(subject: Given, figures: Given) -> Words:
    free, claimed = figures.get("free_bytes"), figures.get("claimed_bytes")
    seconds = figures.get("seconds")
    return told(
        f"{_host(subject)} GPU {subject.get('gpu')}: {gib(free)} free, {gib(claimed)} were to come back",
        (f"{seconds} s after the containers ended somebody still holds it",),
        f"gpuplan probe --host {_host(subject)} shows who holds memory",
    )


def _still_running(subject: Given, figures: Given) -> Words:
    running = figures.get("running")
    number = plural(running, "request") if isinstance(running, int) else "requests"
    return told(
        f"{number} of {_name(subject)} still ran after {figures.get('seconds')} s, and end unanswered",
        ("gpuplan does not turn new requests away while it waits for the others",),
        "take it out of your router first, or give --drain more seconds",
    )


def _left(subject: Given, figures: Given) -> Words:
    container = subject.get("container")
    what = f"{container} on {_host(subject)}" if container else f"what is on {_host(subject)}"
    return told(
        f"{what} was not stopped: {figures.get('why')}",
        ("it may still run and hold its GPUs",),
        f"gpuplan status shows it; gpuplan stop {_name(subject)} again, once the host answers",
    )


def _lock_lost(subject: Given, figures: Given) -> Words:
    del figures
    return told(
        f"the lock of {_host(subject)} was lost: it is not touched any more",
        ("the connection was silent for too long, or somebody broke the lock with gpuplan unlock",),
        "gpuplan status shows what is there now",
    )


def _not_whole(subject: Given, figures: Given) -> Words:
    name = _name(subject)
    if figures.get("silent"):
        mend = "once its host answers again"
    elif figures.get("changed"):
        mend = f"gpuplan restart {name}, if these are meant, too"
    else:
        mend = f"gpuplan deploy with --name {name} makes it anew"
    return told(
        f"{name} cannot be restarted as it is: {figures.get('why')}",
        ("a restart starts the containers that are there; nothing was touched",),
        f"gpuplan status {name} shows what is there; {mend}",
    )


def _not_back(subject: Given, figures: Given) -> Words:
    name = _name(subject)
    members = figures.get("members") or ()
    known = [str(one) for one in members] if isinstance(members, (list, tuple)) else []
    return told(
        f"{name} did not come back: {figures.get('why')}",
        (
            f"it is left as it is, {figures.get('state')}: {listed(known, most=8) or 'no container of it was seen'}",
            "nothing was removed",
        ),
        f"gpuplan logs {name} says why; then gpuplan restart {name}, or gpuplan deploy with --name {name}, which makes it anew",
    )


WORDS: dict[str, Worder] = {
    "GP850": _waits,
    "GP851": _leftover,
    "GP852": _interrupted,
    "GP853": _at_work,
    "GP854": _memory_short,
    "GP855": _still_running,
    "GP856": _left,
    "GP857": _lock_lost,
    "GP858": _not_whole,
    "GP859": _not_back,
}
