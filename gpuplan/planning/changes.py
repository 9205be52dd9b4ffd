"""What differs between a plan and the fleet as it is now (GP801 to GP808): errors are what the plan does not survive.

Free memory moves all the time: it is told where it fell by `NOTICEABLE` at least, and an error where the plan no longer
fits. Secrets are left out of the comparison of arguments.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Host, HostStatus
from gpuplan.domain.plan import Candidate, Holding, PlacedGpu, PlacedHost, Verdict
from gpuplan.domain.saved_plan import SavedCandidate
from gpuplan.domain.secret_text import masked_words
from gpuplan.engine.argument_tokens import flag_of, grouped
from gpuplan.planning.allocatable import account, ours_by_gpu, ours_on
from gpuplan.planning.request import PlanRequest
from gpuplan.planning.same_place import candidate_at, gpu_now
from gpuplan.planning.usable import LeftOut, hindrances
from gpuplan.units import MIB

NOTICEABLE = 256 * MIB
"""Free memory that went since the plan; less than that is told nowhere."""
MOST_REASONS = 8
_WORTH = (Verdict.FITS, Verdict.OVERCOMMIT, Verdict.NO_FIT, Verdict.SKIPPED)


def changes(before: Candidate | SavedCandidate, request: PlanRequest) -> tuple[Fact, ...]:
    """What differs between a planned candidate and the fleet of `request`; the request is the plan's own."""
    hosts = {host.name: host for host in request.fleet.hosts}
    facts: list[Fact] = []
    for placed in _each(before.placement):
        host = hosts.get(placed.host)
        facts += [_no_host(placed)] if host is None else _on_host(placed, host)
    if breaks(facts):
        return tuple(facts)
    after = candidate_at(request, before.placement, before.parallelism)
    if after is None:
        return (*facts, _no_fit(before, None))
    if _WORTH.index(after.verdict) > _WORTH.index(before.verdict):
        return (*map(_grave, facts), _no_fit(before, after), *_reasons(after))
    return (*facts, *_arguments(before, after), *_environment(before, after))


def breaks(facts: Iterable[Fact]) -> bool:
    """Whether a plan cannot be launched as it stands after these changes (exit code 6)."""
    return any(fact.severity is Severity.ERROR for fact in facts)


def _each(placement: Sequence[PlacedHost]) -> Iterator[PlacedHost]:
    """Every host of a placement once, with the GPUs of all replicas on it."""
    gpus: dict[str, tuple[PlacedGpu, ...]] = {}
    for placed in placement:
        gpus[placed.host] = (*gpus.get(placed.host, ()), *placed.gpus)
    first = {placed.host: placed for placed in reversed(placement)}
    for name, own in gpus.items():
        yield PlacedHost(
            host=name, role=first[name].role, gpus=own, driver_version=first[name].driver_version
        )


def _fact(code: str, severity: Severity, subject: dict[str, Any], **figures: Any) -> Fact:
    return Fact(code=code, severity=severity, subject=subject, figures=figures)


def _no_host(placed: PlacedHost) -> Fact:
    return _fact("GP802", Severity.ERROR, {"host": placed.host})


def _on_host(placed: PlacedHost, host: Host) -> Iterator[Fact]:
    failure = host.failure
    if host.status is not HostStatus.OK:
        stage, detail = ("", "") if failure is None else (failure.stage, failure.detail)
        yield _fact(
            "GP801",
            Severity.ERROR,
            {"host": host.name},
            stage=stage,
            detail=detail,
            address=host.address,
        )
        return
    then, now = placed.driver_version, host.facts.driver_version
    if then is not None and now is not None and then != now:
        yield _fact("GP806", Severity.WARNING, {"host": host.name}, then=then, now=now)
    ours = ours_by_gpu(host)
    left_out = {left.index: left for left in hindrances(host, host.gpus, ours)}
    for planned in placed.gpus:
        gpu = gpu_now(host, planned)
        subject = {"host": host.name, "gpu": planned.index}
        if gpu is None:
            other = next((one.uuid for one in host.gpus if one.index == planned.index), None)
            yield _fact("GP803", Severity.ERROR, subject, then=planned.uuid, now=other)
            continue
        left = left_out.get(gpu.index)
        if left is not None or gpu.excluded or not gpu.total_bytes:
            yield _barred(subject, left, excluded=gpu.excluded)
            continue
        counted = account(gpu, ours_on(gpu, ours), host)
        if planned.allocatable_bytes - counted.allocatable_bytes >= NOTICEABLE:
            yield _fact(
                "GP805",
                Severity.WARNING,
                subject,
                then_bytes=planned.allocatable_bytes,
                now_bytes=counted.allocatable_bytes,
                claim_bytes=planned.claim_bytes,
                held=newcomers(planned.held, counted.held),
            )


def _barred(subject: dict[str, Any], left: LeftOut | None, *, excluded: bool) -> Fact:
    reason = "excluded" if excluded else "memory" if left is None else left.hindrance.name.lower()
    deployments, state = ((), None) if left is None else (left.deployments, left.code)
    return _fact("GP804", Severity.ERROR, subject, reason=reason, deployments=list(deployments), state=state)


def newcomers(then: Iterable[Holding], now: Iterable[Holding]) -> tuple[Holding, ...]:
    """Those who hold more than they did, by how much, the most first."""
    before: Counter[object] = Counter()
    for one in then:
        before[_holder(one)] += one.bytes or 0
    grown = []
    for one in now:
        more = (one.bytes or 0) - before.pop(_holder(one), 0)
        if more > 0 or one.bytes is None:
            grown.append((more, one))
    grown.sort(key=lambda pair: -pair[0])
    return tuple(one for _, one in grown)


def _holder(one: Holding) -> object:
    return one.owner, one.name, one.container, one.pid


def _no_fit(before: Candidate | SavedCandidate, after: Candidate | None) -> Fact:
    return _fact(
        "GP807",
        Severity.ERROR,
        {"hosts": list(dict.fromkeys(placed.host for placed in before.placement))},
        then=before.verdict.value,
        now=Verdict.NO_FIT.value if after is None else after.verdict.value,
        error=None if after is None else after.engine.error,
    )


def _grave(fact: Fact) -> Fact:
    """Memory that was taken, where the plan no longer fits."""
    if fact.code != "GP805" or fact.figures["now_bytes"] >= fact.figures["claim_bytes"]:
        return fact
    return Fact(code=fact.code, severity=Severity.ERROR, subject=fact.subject, figures=fact.figures)


def _reasons(after: Candidate) -> tuple[Fact, ...]:
    found = {repr(fact): fact for fact in after.facts if fact.severity is Severity.ERROR}
    return tuple(found.values())[:MOST_REASONS]


def _arguments(before: Candidate | SavedCandidate, after: Candidate) -> Iterator[Fact]:
    then, now = _by_flag(before.vllm_args), _by_flag(after.vllm_args)
    yield from _differing("argument", then, now)


def _environment(before: Candidate | SavedCandidate, after: Candidate) -> Iterator[Fact]:
    yield from _differing("variable", dict(before.env), dict(after.env))


def _differing(kind: str, then: dict[str, str], now: dict[str, str]) -> Iterator[Fact]:
    for name in dict.fromkeys((*then, *now)):
        if then.get(name) != now.get(name):
            yield _fact("GP808", Severity.ERROR, {kind: name}, then=then.get(name), now=now.get(name))


def _by_flag(words: Sequence[str]) -> dict[str, str]:
    """Each flag with its values as written, all of its occurrences; those of secrets left out."""
    flags: dict[str, str] = {}
    for group in grouped(words):
        if masked_words(group) == group:
            flag = flag_of(group)
            flags[flag] = f"{flags[flag]} {' '.join(group)}" if flag in flags else " ".join(group)
    return flags
