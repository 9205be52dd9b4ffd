"""Words about hosts together: who does not reach whom, and in what they differ."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuplan.planning.preflight_measures import Reach, ReachOutcome
from gpuplan.present.numbers import listed
from gpuplan.present.words import Words
from gpuplan.units import plural

Figures = Mapping[str, Any]

_MOST = 6
_OUTCOMES = {
    ReachOutcome.REFUSED: "refused",
    ReachOutcome.TIMED_OUT: "no answer",
    ReachOutcome.UNROUTABLE: "no way there",
    ReachOutcome.STRANGER: "another program answered",
    ReachOutcome.NO_LISTENER: "nothing listened",
    ReachOutcome.NO_ANSWER: "not tried",
}


def _plain(headline: str, fix: str | None = None) -> Callable[[Figures], Words]:
    return lambda _: (headline, (), fix)


def _groups(groups: Sequence[tuple[object, Sequence[str]]]) -> tuple[str, ...]:
    """`580.65.06: h1, h2`, one line a group."""
    return tuple(f"{value}: {listed(list(hosts), 4)}" for value, hosts in groups)


def _machine_twice(figures: Figures) -> Words:
    twice = tuple(f"{' and '.join(names)} are one machine" for names in figures["twice"])
    return (
        "two names stand for one machine",
        (*twice, "its GPUs would be given away twice"),
        "keep one of them in the inventory",
    )


def _machines_differ(figures: Figures) -> Words:
    return (f"{plural(figures['hosts'], 'host')}, {figures['machines']} machines", (), None)


def _reach_line(item: Reach) -> str:
    where = f"{item.address} port {item.port}" if item.port is not None else item.address
    said = _OUTCOMES.get(item.outcome, item.outcome.value)
    detail = f" ({item.detail})" if item.detail and item.detail.lower() != said else ""
    return f"{item.source} → {item.target} ({where}): {said}{detail}"


def _reach_lines(items: Sequence[Reach]) -> tuple[str, ...]:
    lines = tuple(_reach_line(item) for item in items[:_MOST])
    more = len(items) - _MOST
    return (*lines, f"and {more} more") if more > 0 else lines


def _tried(figures: Figures) -> str:
    tried, all_ = figures["tried"], figures["directions"]
    return f"{tried} of {all_} directions" if tried < all_ else f"all {all_} directions"


def _all_reached(figures: Figures) -> Words:
    part = (
        ("a ring and a star: every host to and from its neighbours and the first host",)
        if figures["tried"] < figures["directions"]
        else ()
    )
    return (
        f"{_tried(figures)} connect, the slowest in {figures['slowest_milliseconds']:.1f} ms",
        part,
        None,
    )


def _not_all_reached(figures: Figures) -> Words:
    failed: Sequence[Reach] = figures["failed"]
    one = failed[0]
    return (
        f"{len(failed)} of {plural(figures['tried'], 'direction')} tried: no connection",
        (*_reach_lines(failed), "ranks on several hosts talk over ports of their own choosing, both ways"),
        (
            f"let TCP pass between the hosts (on {one.target}, for example: sudo ufw allow from {_source(one, figures)}); "
            "or name the right one: `interface:` or `data_address:` in the inventory"
        ),
    )


def _source(one: Reach, figures: Figures) -> str:
    """The address of the host that did not get through, where it is known."""
    return str(figures["addresses"].get(one.source, one.source))


def _not_all_tried(figures: Figures) -> Words:
    because = list(_reach_lines(figures["untold"]))
    if figures["unaddressed"]:
        because.append(f"no data address: {listed(list(figures['unaddressed']), 4)}")
    return (
        f"{figures['reached']} of {plural(figures['directions'], 'direction')} connect, the others were not tried",
        tuple(because),
        "name the address: `data_address:` in the inventory"
        if figures["unaddressed"]
        else "install python3 on those hosts, or try by hand: nc -l 40000 there, nc -v ADDRESS 40000 from another",
    )


def _nothing_listened(figures: Figures) -> Words:
    return (
        "no host could listen for the others",
        _reach_lines(figures["untold"]),
        "install python3 or perl on the hosts; or try by hand: nc -l 40000 there, nc -v ADDRESS 40000 from another",
    )


def _mtu_same(figures: Figures) -> Words:
    (size, hosts), *_ = figures["sizes"]
    return (f"{size} bytes on {plural(len(hosts), 'host')}", (), None)


def _mtu_differs(figures: Figures) -> Words:
    return (
        "the data interfaces carry frames of unlike size",
        _groups(figures["sizes"]),
        "sudo ip link set INTERFACE mtu SIZE, the same on every host and switch port",
    )


def _clocks_agree(figures: Figures) -> Words:
    return (
        f"{figures['slowest']} and {figures['fastest']}, the farthest apart, differ by {figures['seconds']:.1f} s",
        (),
        None,
    )


def _clocks_differ(figures: Figures) -> Words:
    return (
        (
            f"{figures['fastest']} is {figures['seconds']:.0f} s ahead of {figures['slowest']} (limit "
            f"{figures['limit']:.0f} s)"
        ),
        ("time-outs, certificates and the order of logs go wrong",),
        "sudo timedatectl set-ntp true on every host",
    )


def _alike_where_known(figures: Figures) -> Words:
    return (f"alike where it is known; not known of {listed(figures['untold'], 5)}", (), None)


def _driver_same(figures: Figures) -> Words:
    (version, hosts), *_ = figures["versions"]
    return (f"{version} on {plural(len(hosts), 'host')}", (), None)


def _driver_differs(figures: Figures) -> Words:
    return (
        f"{plural(len(figures['versions']), 'driver version')}",
        _groups(figures["versions"]),
        "one version on all hosts of a deployment keeps NCCL and CUDA alike: upgrade the older ones",
    )


def _image_same(figures: Figures) -> Words:
    return (f"one build of {figures['image']} on {plural(figures['hosts'], 'host')}", (), None)


def _image_differs(figures: Figures) -> Words:
    builds = tuple((str(build).removeprefix("sha256:")[:12], hosts) for build, hosts in figures["builds"])
    return (
        f"{figures['image']} is not the same image on all hosts",
        _groups(builds),
        f"docker pull {figures['image']} on each, or pin one by digest (image: NAME@sha256:…)",
    )


def _image_missing_on(figures: Figures) -> Words:
    absent = list(figures["absent"])
    return (
        f"{figures['image']} is on {plural(figures['hosts'], 'host')}, not on {listed(absent, 4)}",
        (),
        f"docker pull {figures['image']} there before a deployment waits for it",
    )


def _image_nowhere(figures: Figures) -> Words:
    return (f"{figures['image']} is on no host yet", (), None)


def _model_one_host(figures: Figures) -> Words:
    return (
        f"{figures['model']} is on {figures['hosts'][0]} alone",
        (),
        "a deployment over several hosts needs it on each: copy it (rsync -a) or share the directory",
    )


def _model_missing_on(figures: Figures) -> Words:
    return (
        f"{figures['model']} is not on {listed(list(figures['absent']), 4)}",
        (),
        "a deployment over several hosts needs it on each: copy it (rsync -a) or share the directory",
    )


def _model_revisions(figures: Figures) -> Words:
    return (
        f"{figures['model']} differs: {figures['a']} and {figures['b']} have two revisions",
        (f"{figures['a']}: {figures['a_is']}", f"{figures['b']}: {figures['b_is']}"),
        f"take one on both: hf download {figures['model']} --revision {figures['a_is']}",
    )


def _model_files(figures: Figures) -> Words:
    return (
        (
            f"{figures['model']} differs between {figures['a']} and {figures['b']} in "
            f"{plural(len(figures['files']), 'file')}"
        ),
        (listed(list(figures["files"]), 5),),
        f"copy one over the other (rsync -a --checksum), or download {figures['model']} anew on both",
    )


def _model_paths(figures: Figures) -> Words:
    return (
        f"{figures['model']} lies at unlike paths",
        _groups(figures["paths"]),
        "one path on all hosts: set the same `model_dir:` or link the directories",
    )


def _model_same(figures: Figures) -> Words:
    revision = f", revision {str(figures['revision'])[:12]}" if figures.get("revision") else ""
    return (
        (
            f"{figures['path']} is the same on {plural(len(figures['hosts']), 'host')} "
            f"({plural(figures['files'], 'file')}{revision})"
        ),
        (),
        None,
    )


WORDS: Mapping[str, Callable[[Figures], Words]] = {
    "one_host": _plain("only one host answered"),
    "machine_twice": _machine_twice,
    "machine_unknown": _plain("not every host has a machine id"),
    "machines_differ": _machines_differ,
    "not_measured": _plain("fewer than two hosts answered"),
    "all_reached": _all_reached,
    "not_all_reached": _not_all_reached,
    "not_all_tried": _not_all_tried,
    "nothing_listened": _nothing_listened,
    "alike_where_known": _alike_where_known,
    "mtu_same": _mtu_same,
    "mtu_differs": _mtu_differs,
    "mtu_unknown": _plain("the MTU is known of fewer than two hosts"),
    "clocks_agree": _clocks_agree,
    "clocks_differ": _clocks_differ,
    "clock_unknown": _plain("no host told its time"),
    "driver_same": _driver_same,
    "driver_differs": _driver_differs,
    "few_drivers": _plain("an NVIDIA driver is known of fewer than two hosts"),
    "image_same": _image_same,
    "image_differs": _image_differs,
    "image_missing_on": _image_missing_on,
    "image_nowhere": _image_nowhere,
    "model_nowhere": _plain("the model is on no host yet"),
    "model_one_host": _model_one_host,
    "model_missing_on": _model_missing_on,
    "model_revisions_differ": _model_revisions,
    "model_files_differ": _model_files,
    "model_paths_differ": _model_paths,
    "model_same": _model_same,
}
