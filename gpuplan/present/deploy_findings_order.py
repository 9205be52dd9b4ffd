"""Words about the course of a deploy (GP809 to GP828): what stopped it, what it took back, what it noticed."""

from gpuplan.present.numbers import count
from gpuplan.present.words import Given, Worder, Words, told
from gpuplan.units import plural

STATUS = "gpuplan status"


def _host(subject: Given) -> str:
    return str(subject.get("host") or "the host")


def _list(value: object) -> str:
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(str(item) for item in value)
    return "" if value is None else str(value)


def _seconds(value: object) -> str:
    """`45 s`, `12 min`."""
    if not isinstance(value, (int, float)):
        return "some time"
    return f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min"


def _unready(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)} cannot start a container with GPUs now [{_list(figures.get('codes'))}]",
        ("nothing was touched: the containers would have been left half started",),
        "gpuplan check says what to mend on it; --host NAME plans without it",
    )


def _port_moved(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: port {figures.get('before')} was taken meanwhile, port {figures.get('after')} is used",
        ("somebody listens on it since the plan was shown",),
        None,
    )


def _nothing_to_do(subject: Given, figures: Given) -> Words:
    return told(
        f"{subject.get('deployment')} runs already as asked, at {_list(figures.get('endpoint'))}",
        ("the same containers would be made again: nothing was touched",),
        "gpuplan status shows it; gpuplan stop ends it",
    )


def _resumed(subject: Given, figures: Given) -> Words:
    return told(
        f"{subject.get('deployment')} is starting already as asked: it is watched from here on",
        ("another deploy of the same began it and did not stay",),
        None,
    )


def _host_lost(subject: Given, figures: Given) -> Words:
    phase = figures.get("during")
    since = f" for {_seconds(figures['seconds'])}" if figures.get("seconds") is not None else ""
    return told(
        f"{_host(subject)} did not answer{since}" + (f" in the phase {phase}" if phase else ""),
        (str(figures.get("why") or "no reason was heard"),),
        f"see whether the host is up: gpuplan check --host {_host(subject)}; then deploy again",
    )


def _overdue(subject: Given, figures: Given) -> Words:
    members = figures.get("members")
    lines = tuple(str(item) for item in members) if isinstance(members, (list, tuple)) else ()
    return told(
        f"waited {_seconds(figures.get('seconds'))} for {figures.get('awaits')}",
        (*lines[:6], *((f"and {len(lines) - 6} more members",) if len(lines) > 6 else ())),
        "the saved logs show its last words; --timeout SECONDS waits longer for slow disks",
    )


def _other_version(subject: Given, figures: Given) -> Words:
    return told(
        f"{subject.get('host')}: {figures.get('what') or 'the image'} is vLLM {figures.get('found')}, the plan is for {figures.get('planned')}",
        ("memory and flags differ between releases: the prediction would not hold",),
        f"deploy with --vllm-version {figures.get('found')}, or name an image of {figures.get('planned')}",
    )


def _no_ray(subject: Given, figures: Given) -> Words:
    return told(
        f"the image {figures.get('image')} has no Ray, which this placement needs",
        ("vLLM's own images carry none since 0.18; only Ray serves hosts with unlike numbers of GPUs",),
        "name an image with Ray (--image), or --executor mp with as many GPUs on every host",
    )


def _nodes_missing(subject: Given, figures: Given) -> Words:
    missing = _list(figures.get("missing"))
    return told(
        f"{_list(subject.get('hosts'))} did not join the Ray cluster within {_seconds(figures.get('seconds'))}",
        (
            f"{plural(int(figures.get('wanted') or 0), 'node')} wanted; missing or without their GPUs: {missing}",
            f"registered: {_list(figures.get('seen')) or 'none'}",
            *((f"the head said: {figures['said']}",) if figures.get("said") else ()),
        ),
        "gpuplan check shows whether the hosts reach each other; the saved logs say what the missing node tried",
    )


def _lock_lost(subject: Given, figures: Given) -> Words:
    return told(
        f"the lock of {_list(subject.get('hosts'))} was lost with its connection",
        ("another deploy could begin there; what is started already is watched on",),
        None,
    )


def _no_completion(subject: Given, figures: Given) -> Words:
    status = figures.get("status")
    said = str(figures.get("said") or "")
    return told(
        f"{subject.get('endpoint')} is healthy but did not answer a request"
        + (f": HTTP {status}" if status is not None else f" within {_seconds(figures.get('seconds'))}"),
        (
            f"POST {figures.get('path')} said: {said}"
            if said
            else f"POST {figures.get('path')} got no answer",
        ),
        "the saved logs show what the engine made of it",
    )


def _clock(subject: Given, figures: Given) -> Words:
    return told(
        f"{_host(subject)}: its clock is {figures.get('seconds')} s off",
        ("the order of log lines over hosts is corrected by it; certificates and tokens may not be",),
        "timedatectl set-ntp true on that host",
    )


def _no_way(subject: Given, figures: Given) -> Words:
    return told(
        f"{figures.get('source')} cannot connect to {figures.get('target')} ({figures.get('address')}): {figures.get('detail')}",
        ("the members of a placement over several hosts open connections to each other on many ports",),
        "open TCP between the hosts' data addresses; gpuplan check shows every pair",
    )


def _interrupted(subject: Given, figures: Given) -> Words:
    return told(
        f"{subject.get('deployment')} was interrupted",
        ("what it had created was taken back",),
        "deploy again when you are ready",
    )


def _other_name(subject: Given, figures: Given) -> Words:
    return told(
        f"{subject.get('endpoint')} is healthy but does not list {figures.get('wanted')}",
        (f"it says: {figures.get('why')}",),
        "another server may answer on that port; gpuplan status shows ours",
    )


def _nowhere(subject: Given, figures: Given) -> Words:
    return told(
        f"the hosts could not be looked at before the start: {_list(figures.get('silent'))}",
        ("a container of ours there would go unseen",),
        f"{STATUS} lists what answers",
    )


def _no_secret(subject: Given, figures: Given) -> Words:
    names = _list(figures.get("names"))
    return told(
        f"the containers need {names}, which is not known here",
        (
            "secrets are taken from the arguments, from vllm.env of the inventory, or from this machine's environment",
        ),
        f"export {names.split(', ')[0] or 'NAME'}=… and deploy again",
    )


def _replanned(subject: Given, figures: Given) -> Words:
    flags = figures.get("flags")
    words = " ".join(str(flag) for flag in flags) if isinstance(flags, (list, tuple)) else ""
    executor = figures.get("executor")
    option = f"--executor {executor}" if executor else ""
    change = " ".join(part for part in (option, words) if part)
    command = f"gpuplan deploy {figures.get('model')} {option}".rstrip() + (f" -- {words}" if words else "")
    length = figures.get("max_model_len")
    if figures.get("fits"):
        room = f": {count(int(length))} tokens of context" if isinstance(length, int) else ""
        return told(
            f"with {change} it fits on the same GPUs{room}",
            ("planned again with that change",),
            f"{command}   (with your other options)",
        )
    return told(
        f"{change} is what the failure asks for, and even so the plan does not fit",
        ("planned again with that change",),
        f"gpuplan plan {figures.get('model')} shows every other way",
    )


def _name_taken(subject: Given, figures: Given) -> Words:
    image = f" (image {figures['image']})" if figures.get("image") else ""
    return told(
        f"{_host(subject)} has a container {subject.get('container')} that is not of this deployment{image}",
        ("gpuplan touches only containers with its own labels, and this one's name is needed",),
        f"--name OTHER deploys under another name; or, on {_host(subject)}: docker rename {subject.get('container')} …",
    )


def _name_contended(subject: Given, figures: Given) -> Words:
    hosts = _list(figures.get("hosts"))
    where = f" on {hosts}" if hosts else ""
    return told(
        f"another deploy has taken the name {subject.get('deployment')}{where} meanwhile",
        ("locks are of hosts: two deploys of one name at once would each replace the other",),
        "deploy again once it is done, or give another --name",
    )


WORDS: dict[str, Worder] = {
    "GP809": _unready,
    "GP810": _port_moved,
    "GP811": _nothing_to_do,
    "GP812": _resumed,
    "GP813": _host_lost,
    "GP814": _overdue,
    "GP815": _nowhere,
    "GP816": _other_version,
    "GP817": _no_ray,
    "GP818": _interrupted,
    "GP819": _nodes_missing,
    "GP820": _name_taken,
    "GP821": _name_contended,
    "GP822": _lock_lost,
    "GP823": _no_completion,
    "GP824": _clock,
    "GP825": _no_way,
    "GP826": _other_name,
    "GP828": _no_secret,
    "GP829": _replanned,
}
