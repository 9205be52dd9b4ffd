"""What runs on a fleet, for people: a row for each deployment, or all there is to say of one of them.

A host that did not answer is told every time: what runs there is not known, which is not the same as nothing.
"""

from collections.abc import Callable, Iterator, Sequence

from gpuplan.domain.deployment import Actual, Deployment, Load, Member, Prediction, State
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Host
from gpuplan.present.document import EMPTY, Line, Lines, Role, Span, line, padded, visible, wrapped
from gpuplan.present.findings import word
from gpuplan.present.fleet_text import LABELS, ROLES
from gpuplan.present.numbers import count, gib, gpu_range, percent, times
from gpuplan.present.unreached import way_back
from gpuplan.units import plural

STATES = {
    State.PREPARING: Role.DIM,
    State.STARTING: Role.WARNING,
    State.RUNNING: Role.GOOD,
    State.UNHEALTHY: Role.BAD,
    State.STOPPED: Role.DIM,
    State.ERROR: Role.BAD,
}
_INDENT = "  "
_STATE = 10
_REQUESTS = 11
_CACHE = 6
_UP = 7

Seen = tuple[Deployment, Sequence[Fact]]
Shown = Callable[[float], str]


def status_text(seen: Sequence[Seen], silent: Sequence[Host], hosts: int, width: int) -> Lines:
    """Every deployment in at most `width` columns; `hosts`: how many answered."""
    return tuple(_table(seen, silent, hosts, width))


def deployment_text(
    deployment: Deployment, facts: Sequence[Fact], silent: Sequence[Host], width: int
) -> Lines:
    """All of one deployment: members, load, and what was predicted against what it takes."""
    return tuple(_whole(deployment, facts, silent, width))


def duration(seconds: int | None) -> str:
    """`12 s`, `4 min`, `3.5 h`, `12 d`."""
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 100 * 3600 else f"{seconds / 86400:.0f} d"


def _table(seen: Sequence[Seen], silent: Sequence[Host], hosts: int, width: int) -> Iterator[Line]:
    if seen:
        name = min(max(len("deployment"), *(len(visible(deployment.name)) for deployment, _ in seen)), 20)
        endpoint = width - name - _STATE - _REQUESTS - _CACHE - _UP - 10
        yield line(
            Span(
                f"{padded('deployment', name)}  {padded('state', _STATE)}  {padded('endpoint', endpoint)}  "
                f"{padded('requests', _REQUESTS)}  {padded('cache', _CACHE)}  {'up':>{_UP}}",
                Role.DIM,
            )
        )
        for deployment, facts in seen:
            yield from _row(deployment, facts, name, endpoint, width)
        yield EMPTY
    yield from unreached(silent, width)
    text = told_of_hosts(len(seen), len(silent), hosts)
    yield from wrapped(text, width, role=Role.BAD if silent else Role.DIM)


def _row(
    deployment: Deployment, facts: Sequence[Fact], name: int, endpoint: int, width: int
) -> Iterator[Line]:
    load = deployment.load
    cache = percent(round(load.kv_cache_share, 2)) if load and load.kv_cache_share is not None else "–"
    yield line(
        Span(padded(visible(deployment.name), name) + _INDENT, Role.TITLE),
        Span(padded(deployment.state.value, _STATE) + _INDENT, STATES[deployment.state]),
        padded(visible(deployment.endpoint or "–"), endpoint) + _INDENT,
        padded(requests(load), _REQUESTS) + _INDENT,
        padded(cache, _CACHE) + _INDENT,
        padded(duration(deployment.uptime_seconds), _UP, right=True),
    )
    more = (
        f" and {plural(len(deployment.endpoints) - 1, 'endpoint')} more"
        if len(deployment.endpoints) > 1
        else ""
    )
    yield from wrapped(
        f"{deployment.model or 'unknown model'} on {places(deployment.members) or 'no host'}{more}",
        width,
        first=_INDENT,
        role=Role.DIM,
    )
    yield from told(deployment, facts, width)


def requests(load: Load | None) -> str:
    """Running and waiting: `3 + 2 wait`."""
    if load is None or load.running is None:
        return "–"
    return f"{count(load.running)} + {count(load.waiting)} wait" if load.waiting else count(load.running)


def places(members: Sequence[Member]) -> str:
    """`h100-a:0-3, h100-b:0-3`."""
    found: dict[str, set[int]] = {}
    for member in members:
        found.setdefault(member.host, set()).update(member.gpu_indexes)
    return ", ".join(
        f"{visible(host)}:{gpu_range(tuple(indexes))}" if indexes else visible(host)
        for host, indexes in found.items()
    )


def told(deployment: Deployment, facts: Sequence[Fact], width: int) -> Iterator[Line]:
    """Why it is not as it should be, and what helps; the message where no finding says it better."""
    if deployment.message is not None and not any(fact.severity is Severity.ERROR for fact in facts):
        role = STATES[deployment.state]
        yield from wrapped(deployment.message, width, first=_INDENT, role=role)
    for fact in facts:
        finding = word(fact)
        yield from wrapped(
            f"{finding.headline} [{finding.code}]",
            width,
            first=f"{_INDENT}{LABELS[fact.severity]}: ",
            rest=_INDENT * 2,
            role=ROLES[fact.severity],
        )
        for reason in finding.because:
            yield from wrapped(reason, width, first=_INDENT * 2, role=Role.DIM)
        if finding.hint is not None:
            yield from wrapped(
                finding.hint, width, first=f"{_INDENT * 2}hint: ", rest=_INDENT * 3, role=Role.HINT
            )


def told_of_hosts(deployments: int, silent: int, hosts: int) -> str:
    """`2 deployments on 3 hosts; 1 host did not answer: what runs there is not known`."""
    named = plural(deployments, "deployment") if deployments else "nothing is deployed"
    text = f"{named} on {plural(hosts, 'host')}"
    if silent:
        text += f"; {plural(silent, 'host')} did not answer: what runs there is not known"
    return text


def unreached(silent: Sequence[Host], width: int) -> Iterator[Line]:
    """Hosts that did not answer: at which stage, why, and what mends it."""
    for host in silent:
        failure = host.failure
        if failure is None:
            continue
        yield from wrapped(
            f"{failure.stage}: {failure.detail}", width, first=f"{visible(host.name)} – ", role=Role.BAD
        )
        if failure.stage == "docker":
            fix = f"`gpuplan check --host {host.name}` says what to mend"
        else:
            _, fix = way_back(failure.stage, host.address or host.name)
        yield from wrapped(fix, width, first=f"{_INDENT}hint: ", role=Role.HINT)


def _whole(
    deployment: Deployment, facts: Sequence[Fact], silent: Sequence[Host], width: int
) -> Iterator[Line]:
    yield line(
        Span(visible(deployment.name), Role.TITLE),
        _INDENT,
        Span(deployment.state.value, STATES[deployment.state]),
    )
    for text in _about(deployment):
        yield from wrapped(text, width, first=_INDENT)
    yield from told(deployment, facts, width)
    yield EMPTY
    yield from _members(deployment.members, width)
    rows = tuple(_compared(deployment.predicted, deployment.actual))
    if rows:
        yield EMPTY
        yield line(
            Span(f"{padded('fullest rank', 22)}{'predicted':>14}{'actual':>14}{'difference':>24}", Role.DIM)
        )
        yield from rows
    yield from _devices(deployment.predicted, deployment.actual, width)
    yield EMPTY
    yield from unreached(silent, width)
    name = visible(deployment.name)
    yield from wrapped(f"gpuplan logs {name} -f · gpuplan stop {name}", width, role=Role.COMMAND)


def _about(deployment: Deployment) -> Iterator[str]:
    served = f" as {deployment.served_name}" if deployment.served_name else ""
    version = f", vLLM {deployment.vllm_version}" if deployment.vllm_version else ""
    yield f"{deployment.model or 'unknown model'}{served}{version}"
    if deployment.image:
        yield f"image {deployment.image}"
    for endpoint in deployment.endpoints:
        yield f"endpoint {endpoint}"
    words = []
    if deployment.uptime_seconds is not None:
        words.append(f"up {duration(deployment.uptime_seconds)}")
    load = deployment.load
    if load is not None and load.running is not None:
        words.append(f"{plural(load.running, 'request')} running, {count(load.waiting or 0)} waiting")
    if load is not None and load.kv_cache_share is not None:
        words.append(f"KV cache {percent(round(load.kv_cache_share, 3))} in use")
    if load is not None and load.requests is not None:
        words.append(f"{count(load.requests)} served")
    if words:
        yield ", ".join(words)
    if deployment.keep_alive_seconds is not None and deployment.keep_alive_seconds >= 0:
        yield f"stopped by gpuplan sweep after {duration(deployment.keep_alive_seconds)} without requests"


def _members(members: Sequence[Member], width: int) -> Iterator[Line]:
    host = min(max((len(visible(member.host)) for member in members), default=4), 24)
    container = width - host - 12 - 12 - 12 - 8
    yield line(
        Span(
            f"{padded('host', host)}  {padded('role', 12)}  {padded('container', container)}  "
            f"{padded('state', 12)}  {padded('GPUs', 12).rstrip()}",
            Role.DIM,
        )
    )
    for member in members:
        role = f"{member.role.value} {member.rank}" if member.rank else member.role.value
        gpus = gpu_range(member.gpu_indexes) if member.gpu_indexes else str(len(member.gpus) or "–")
        yield line(
            f"{padded(visible(member.host), host)}  {padded(role, 12)}  "
            f"{padded(visible(member.container), container)}  ",
            Span(f"{padded(_state(member), 12)}  ", _state_role(member)),
            padded(gpus, 12).rstrip(),
        )
        if member.message:
            yield from wrapped(member.message, width, first=_INDENT * 2, role=_state_role(member))


def _state(member: Member) -> str:
    """`running`, `unhealthy`, `exited 137`."""
    if member.state == "running" and member.health in {"unhealthy", "starting"}:
        return member.health
    if member.state == "exited" and member.exit_code is not None:
        return f"exited {member.exit_code}"
    return visible(member.state)


def _state_role(member: Member) -> Role:
    match _state(member):
        case "running":
            return Role.GOOD
        case "starting" | "created" | "restarting":
            return Role.WARNING
        case "exited 0" | "exited 143":
            return Role.DIM
        case _:
            return Role.BAD


def _compared(predicted: Prediction, actual: Actual | None) -> Iterator[Line]:
    """Side by side, with the difference in the unit and in per cent of what was predicted; unknown stays a dash."""
    if actual is None:
        return
    sizes = (
        ("weights", predicted.weights_bytes, actual.weights_bytes),
        ("KV cache (least)", predicted.kv_cache_bytes, actual.kv_cache_bytes),
        ("CUDA graphs", predicted.cuda_graph_bytes, actual.cuda_graph_bytes),
    )
    for name, expected, found in sizes:
        if expected is not None or found is not None:
            yield _comparison(name, expected, found, gib, signed=_signed_gib)
    if predicted.kv_cache_tokens is not None or actual.kv_cache_tokens is not None:
        yield _comparison(
            "KV cache tokens", predicted.kv_cache_tokens, actual.kv_cache_tokens, count, signed=_signed_count
        )
    if predicted.max_concurrency is not None or actual.max_concurrency is not None:
        yield _comparison(
            "requests at once", predicted.max_concurrency, actual.max_concurrency, times, signed=_signed_times
        )


def _comparison(
    name: str, expected: float | None, found: float | None, shown: Shown, *, signed: Shown
) -> Line:
    left = shown(expected) if expected is not None else "–"
    right = shown(found) if found is not None else "–"
    difference = ""
    if expected is not None and found is not None:
        share = f" ({(found - expected) / expected * 100:+z.1f} %)" if expected else ""
        difference = f"{signed(found - expected)}{share}"
    return line(padded(name, 22), f"{left:>14}{right:>14}{difference:>24}".rstrip())


def _signed_gib(size: float) -> str:
    return f"{size / 1024**3:+z.2f} GiB"


def _signed_count(number: float) -> str:
    return f"{number:+z,.0f}"


def _signed_times(number: float) -> str:
    return f"{number:+z,.1f}"


def _devices(predicted: Prediction, actual: Actual | None, width: int) -> Iterator[Line]:
    """What the devices report now, against what was booked on each."""
    if actual is None or not actual.used_bytes:
        return
    yield EMPTY
    for host, index, used in actual.used_bytes:
        booked = f" of {gib(predicted.per_gpu_bytes)} booked" if predicted.per_gpu_bytes is not None else ""
        yield from wrapped(f"{visible(host)} GPU {index}: {gib(used)} in use now{booked}", width)
