"""Rungs about several hosts: do they reach each other, and are they alike where a deployment needs them to be."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from gpuplan.domain.fleet import Host, HostStatus
from gpuplan.planning.preflight_host import data_address, of_facts, states, unjudged
from gpuplan.planning.preflight_images import image_on, same_build
from gpuplan.planning.preflight_measures import (
    Measured,
    ModelFiles,
    Reachability,
    ReachOutcome,
    Wanted,
)
from gpuplan.planning.preflight_report import Rung, RungName, Status
from gpuplan.planning.preflight_resources import WEIGHT_SUFFIXES

Value = TypeVar("Value", int, str)

CLOCK_LIMIT_SECONDS = 5.0
_IDENTITY = frozenset({"GP632"})
_UNTOLD = frozenset({ReachOutcome.NO_LISTENER, ReachOutcome.NO_ANSWER})


def across(hosts: Sequence[Host], wanted: Wanted, measured: Measured) -> tuple[Rung, ...]:
    """The rungs about hosts together; with one host only its clock is compared, with ours."""
    seen = [host for host in hosts if host.status is HostStatus.OK]
    if not seen:
        return ()
    if len(hosts) == 1:
        return (clocks(seen),)
    if len(seen) == 1:
        alone = (RungName.REACHABILITY, RungName.MTU, RungName.SAME_DRIVER, RungName.SAME_IMAGE)
        return (clocks(seen), *(unjudged(name, "one_host") for name in alone))
    return (
        identity(seen),
        reachability(measured.reachability),
        mtu(seen, wanted),
        clocks(seen),
        same_driver(seen),
        same_image(seen, wanted),
        same_model(seen, wanted, measured),
    )


def identity(hosts: Sequence[Host]) -> Rung:
    """Two names of one machine would be given its GPUs twice."""
    facts = tuple(fact for host in hosts for fact in states(host, lambda fact: fact.code in _IDENTITY))
    told = of_facts(RungName.IDENTITY, facts)
    if told is not None:
        return told
    known = [host for host in hosts if host.facts.machine_id]
    groups: dict[str, list[str]] = {}
    for host in known:
        groups.setdefault(str(host.facts.machine_id), []).append(host.name)
    twice = tuple(tuple(names) for names in groups.values() if len(names) > 1)
    figures = {"machines": len(groups), "hosts": len(known), "twice": twice}
    if twice:
        return Rung(name=RungName.IDENTITY, status=Status.RED, reason="machine_twice", figures=figures)
    if len(known) < len(hosts):
        return unjudged(RungName.IDENTITY, "machine_unknown", figures)
    return Rung(name=RungName.IDENTITY, status=Status.GREEN, reason="machines_differ", figures=figures)


def reachability(measured: Reachability | None) -> Rung:
    """Every direction that was tried between the data addresses."""
    name = RungName.REACHABILITY
    if measured is None or not (measured.tries or measured.unaddressed):
        return unjudged(name, "not_measured")
    outcomes = Counter(item.outcome for item in measured.tries)
    failed = tuple(
        item
        for item in measured.tries
        if item.outcome is not ReachOutcome.REACHED and item.outcome not in _UNTOLD
    )
    untold = tuple(item for item in measured.tries if item.outcome in _UNTOLD)
    slowest = max((item.milliseconds or 0 for item in measured.tries), default=0.0)
    figures = {
        "tried": len(measured.tries),
        "directions": measured.pairs,
        "reached": outcomes[ReachOutcome.REACHED],
        "failed": failed,
        "untold": untold,
        "unaddressed": measured.unaddressed,
        "slowest_milliseconds": slowest,
        "addresses": {item.target: item.address for item in measured.tries},
    }
    if failed:
        return Rung(name=name, status=Status.RED, reason="not_all_reached", figures=figures)
    if measured.tries and outcomes[ReachOutcome.REACHED] == 0:
        return unjudged(name, "nothing_listened", figures)
    if untold or measured.unaddressed:
        status = Status.AMBER if measured.tries else Status.GREY
        return Rung(name=name, status=status, reason="not_all_tried", figures=figures)
    return Rung(name=name, status=Status.GREEN, reason="all_reached", figures=figures)


def mtu(hosts: Sequence[Host], wanted: Wanted) -> Rung:
    """The data interfaces carry frames of one size."""
    sizes: dict[int, list[str]] = {}
    for host in hosts:
        if data_address(host, wanted) is None:
            continue
        for item in host.facts.interfaces:
            if item.name == host.facts.data_interface and item.mtu is not None:
                sizes.setdefault(item.mtu, []).append(host.name)
    figures = {
        "sizes": _grouped(sizes),
        "hosts": sum(map(len, sizes.values())),
        "untold": _untold(hosts, sizes),
    }
    if figures["hosts"] in {0, 1}:
        return unjudged(RungName.MTU, "mtu_unknown", figures)
    return _alike(RungName.MTU, len(sizes) == 1, "mtu_same", "mtu_differs", figures)


def clocks(hosts: Sequence[Host]) -> Rung:
    """Clocks within five seconds of each other; this machine's counts where there is one host only."""
    offsets = {
        host.name: host.facts.clock_offset_seconds
        for host in hosts
        if host.facts.clock_offset_seconds is not None
    }
    if not offsets:
        return unjudged(RungName.CLOCKS, "clock_unknown")
    compared = {"this machine": 0.0, **offsets} if len(offsets) == 1 else offsets
    fastest = max(compared, key=lambda name: compared[name])
    slowest = min(compared, key=lambda name: compared[name])
    skew = compared[fastest] - compared[slowest]
    figures = {
        "seconds": skew,
        "fastest": fastest,
        "slowest": slowest,
        "limit": CLOCK_LIMIT_SECONDS,
        "untold": tuple(host.name for host in hosts if host.name not in offsets),
    }
    return _alike(RungName.CLOCKS, skew < CLOCK_LIMIT_SECONDS, "clocks_agree", "clocks_differ", figures)


def same_driver(hosts: Sequence[Host]) -> Rung:
    """One driver version on all hosts with NVIDIA GPUs."""
    versions: dict[str, list[str]] = {}
    with_cuda = [host for host in hosts if any(gpu.backend == "cuda" for gpu in host.gpus)]
    for host in with_cuda:
        if host.facts.driver_version:
            versions.setdefault(host.facts.driver_version, []).append(host.name)
    figures = {
        "versions": _grouped(versions),
        "hosts": sum(map(len, versions.values())),
        "untold": _untold(with_cuda, versions),
    }
    if figures["hosts"] in {0, 1}:
        return unjudged(RungName.SAME_DRIVER, "few_drivers", figures)
    return _alike(RungName.SAME_DRIVER, len(versions) == 1, "driver_same", "driver_differs", figures)


def same_image(hosts: Sequence[Host], wanted: Wanted) -> Rung:
    """The tag stands for one image on all hosts that have it."""
    found = [(host, image) for host in hosts if (image := image_on(host, wanted.image)) is not None]
    absent = tuple(
        host.name for host in hosts if host.facts.docker is not None and image_on(host, wanted.image) is None
    )
    builds: dict[str, list[str]] = {}
    for host, image in found:
        builds.setdefault(image.id, []).append(host.name)
    figures = {"image": wanted.image, "builds": _grouped(builds), "hosts": len(found), "absent": absent}
    if not found:
        return unjudged(RungName.SAME_IMAGE, "image_nowhere", figures)
    if not same_build(image for _, image in found):
        return Rung(name=RungName.SAME_IMAGE, status=Status.AMBER, reason="image_differs", figures=figures)
    if absent:
        return Rung(name=RungName.SAME_IMAGE, status=Status.AMBER, reason="image_missing_on", figures=figures)
    return Rung(name=RungName.SAME_IMAGE, status=Status.GREEN, reason="image_same", figures=figures)


def same_model(hosts: Sequence[Host], wanted: Wanted, measured: Measured) -> Rung:
    """One path, one revision, the same files on every host that has the model."""
    name = RungName.SAME_MODEL
    if wanted.model is None:
        return unjudged(name, "no_model")
    found = {
        host.name: files
        for host in hosts
        if host.name in measured.hosts and (files := measured.hosts[host.name].model) is not None
    }
    absent = tuple(host.name for host in hosts if host.name not in found)
    figures: dict[str, object] = {"model": wanted.model.name, "hosts": tuple(found), "absent": absent}
    if not found:
        return unjudged(name, "model_nowhere", figures)
    if len(found) == 1:
        only = "model_one_host" if absent else "one_host"
        return Rung(name=name, status=Status.AMBER, reason=only, figures=figures)
    difference = _difference(found)
    if difference is not None:
        reason, detail = difference
        status = Status.AMBER if reason == "model_paths_differ" else Status.RED
        return Rung(name=name, status=status, reason=reason, figures=figures | detail)
    if absent:
        return Rung(name=name, status=Status.AMBER, reason="model_missing_on", figures=figures)
    first = next(iter(found.values()))
    figures |= {"path": first.path, "revision": first.revision, "files": len(first.files)}
    return Rung(name=name, status=Status.GREEN, reason="model_same", figures=figures)


def _difference(found: Mapping[str, ModelFiles]) -> tuple[str, dict[str, object]] | None:
    """The first thing in which two hosts' copies differ; what was not recorded on one of them does not count."""
    names = list(found)
    base = found[names[0]]
    for name in names[1:]:
        files = found[name]
        who: dict[str, object] = {"a": names[0], "b": name}
        if base.revision and files.revision and base.revision != files.revision:
            return "model_revisions_differ", who | {"a_is": base.revision, "b_is": files.revision}
        unlike = _unlike(dict(base.files), dict(files.files)) + _unlike_digests(base, files)
        if unlike:
            return "model_files_differ", who | {"files": tuple(dict.fromkeys(unlike))}
    paths: dict[str, list[str]] = {}
    for name, files in found.items():
        paths.setdefault(files.path, []).append(name)
    return ("model_paths_differ", {"paths": _grouped(paths)}) if len(paths) > 1 else None


def _unlike(ours: Mapping[str, int], theirs: Mapping[str, int]) -> list[str]:
    """Files the engine reads that differ in size or are on one host only."""
    read = (".json", ".model", ".txt", ".tiktoken", ".jinja", ".py", *WEIGHT_SUFFIXES)
    names = sorted(name for name in ours.keys() | theirs.keys() if name.endswith(read))
    return [name for name in names if ours.get(name) != theirs.get(name)]


def _unlike_digests(ours: ModelFiles, theirs: ModelFiles) -> list[str]:
    mine, other = dict(ours.digests), dict(theirs.digests)
    return [name for name in sorted(mine.keys() & other.keys()) if mine[name] != other[name]]


def _untold(hosts: Sequence[Host], groups: Mapping[Value, list[str]]) -> tuple[str, ...]:
    """Hosts of which the value is not known."""
    told = {name for names in groups.values() for name in names}
    return tuple(host.name for host in hosts if host.name not in told)


def _alike(name: RungName, alike: bool, same: str, differs: str, figures: Mapping[str, object]) -> Rung:
    """Green only where the value is known of every host: `untold` names the others."""
    if alike and figures["untold"]:
        return unjudged(name, "alike_where_known", figures)
    return Rung(
        name=name,
        status=Status.GREEN if alike else Status.AMBER,
        reason=same if alike else differs,
        figures=figures,
    )


def _grouped(groups: Mapping[Value, list[str]]) -> tuple[tuple[Value, tuple[str, ...]], ...]:
    """Value and the hosts that have it, the commonest first."""
    return tuple(
        (value, tuple(names)) for value, names in sorted(groups.items(), key=lambda item: -len(item[1]))
    )
