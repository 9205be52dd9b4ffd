"""What a probe saw on the hosts that matters to a plan: GPUs left out for now, and states of the hosts it recommends."""

from collections.abc import Iterator, Mapping

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Fleet, Host
from gpuplan.domain.plan import Candidate
from gpuplan.planning.launchable import blocking
from gpuplan.planning.offers import Supply
from gpuplan.planning.usable import UNFIT, Hindrance, LeftOut

CODES = {Hindrance.LOADING: "GP404", Hindrance.FULL: "GP405"}


def about_hosts(fleet: Fleet, supply: Supply, candidate: Candidate | None) -> tuple[Fact, ...]:
    """Hosts of the candidate where nothing can be launched as they are, GPUs left out for a deployment of ours, GPUs left
    out as unfit, then the states of the candidate's hosts."""
    taken = {(left.host, left.index) for left in supply.left_out}
    used = {} if candidate is None else _used(candidate)
    facts: dict[str, Fact] = {}
    for host in sorted(fleet.hosts, key=lambda host: host.name):
        for fact in host.facts.conditions:
            unfit = fact.code in UNFIT and bool(_cards(fact, host) & taken)
            if unfit or (host.name in used and _matters(fact, host, used[host.name])):
                told = _on_host(fact, host)
                facts.setdefault(repr(told), told)
    return (*_not_launchable(fleet, used), *_deployments(supply.left_out), *facts.values())


def _cards(fact: Fact, host: Host) -> set[tuple[str, int]]:
    """The GPU a state is about, and the slices of it."""
    index = fact.subject.get("gpu")
    return {
        (host.name, gpu.index) for gpu in host.gpus if index is not None and index in (gpu.index, gpu.parent)
    }


def _not_launchable(fleet: Fleet, used: Mapping[str, set[int]]) -> Iterator[Fact]:
    """GP406 for each host of the placement on which a container with GPUs cannot be started as it is."""
    for host in sorted(fleet.hosts, key=lambda host: host.name):
        if host.name not in used:
            continue
        backends = {gpu.backend for gpu in host.gpus if gpu.index in used[host.name]}
        codes = sorted({code for backend in backends for code in blocking(host, backend)})
        if codes:
            yield Fact(
                code="GP406", severity=Severity.WARNING, subject={"host": host.name}, figures={"codes": codes}
            )


def _deployments(left_out: tuple[LeftOut, ...]) -> Iterator[Fact]:
    """GP404 and GP405, one for the GPUs of a host that share the reason."""
    groups: dict[tuple[str, Hindrance, tuple[str, ...]], list[int]] = {}
    for left in left_out:
        if left.hindrance in CODES:
            groups.setdefault((left.host, left.hindrance, left.deployments), []).append(left.index)
    for (host, hindrance, deployments), indexes in groups.items():
        yield Fact(
            code=CODES[hindrance],
            severity=Severity.WARNING,
            subject={"host": host, "gpus": sorted(indexes)},
            figures={"deployments": list(deployments)},
        )


def _used(candidate: Candidate) -> Mapping[str, set[int]]:
    used: dict[str, set[int]] = {}
    for place in candidate.placement:
        used.setdefault(place.host, set()).update(gpu.index for gpu in place.gpus)
    return used


def _matters(fact: Fact, host: Host, used: set[int]) -> bool:
    """Errors and warnings about the host, or about a GPU of the placement or the card it is a slice of."""
    if fact.severity is Severity.INFO:
        return False
    index = fact.subject.get("gpu")
    if index is None:
        return True
    return index in used or any(gpu.index in used and gpu.parent == index for gpu in host.gpus)


def _on_host(fact: Fact, host: Host) -> Fact:
    subject = {"host": host.name, **{key: value for key, value in fact.subject.items() if key != "host"}}
    return Fact(code=fact.code, severity=fact.severity, subject=subject, figures=fact.figures)
