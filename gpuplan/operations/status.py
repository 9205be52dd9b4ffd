"""`gpuplan status`: every deployment on the hosts that can be reached, and which hosts cannot."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from gpuplan.deploying.host_lock import Holder
from gpuplan.deploying.observed import Group
from gpuplan.deploying.state_rules import deployment_of
from gpuplan.deploying.timestamps import seconds
from gpuplan.domain.deployment import Actual, ContainerRole, Deployment, Member, Prediction, State
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.fleet import Host, HostStatus
from gpuplan.engine.startup_log import LogLine, actual_of
from gpuplan.errors import NoDeployment
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.causes import causes, since_start
from gpuplan.operations.fleet import THIS_MACHINE, FleetOptions, load_inventory, meant_hosts
from gpuplan.operations.host_locks import described
from gpuplan.operations.observation import Observation, ask_servers, observe, uptime, used_now
from gpuplan.operations.reached import ReachedFleet, reach_fleet
from gpuplan.sources.documents import did_you_mean, shown

FIRST_LINES = 2000
"""Of a log: an engine has measured and told its memory by then."""
READ_SECONDS = 30.0
LEFTOVER, INTERRUPTED, AT_WORK = "GP851", "GP852", "GP853"
_UP = frozenset({State.RUNNING, State.UNHEALTHY})
CausesOf = Callable[[ReachedFleet, Group, Prediction], tuple[Fact, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentSeen:
    """One deployment, and what is worth telling of it."""

    deployment: Deployment
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport:
    """What runs on a fleet."""

    deployments: tuple[DeploymentSeen, ...]
    silent: tuple[Host, ...] = ()
    """That did not, or whose engine did not: what runs there is not known."""
    hosts: int = 0
    """That answered."""


@contextmanager
def reached(options: FleetOptions) -> Iterator[ReachedFleet]:
    """The hosts the options mean, connected. Raises InventoryError, UsageError."""
    assert options.reach is not None, "a fleet that is not reached runs nothing that could be seen"
    inventory = load_inventory(options) or THIS_MACHINE
    names = meant_hosts(inventory, options)
    reach = options.reach()
    with ExitStack() as stack:
        if options.watch is None:
            fleet = stack.enter_context(reach_fleet(inventory, reach, only=names))
        else:
            with options.watch(len(names)) as progress:
                fleet = stack.enter_context(reach_fleet(inventory, reach, progress, only=names))
        yield fleet


def read_status(options: FleetOptions, name: str | None = None, *, actual: bool = True) -> StatusReport:
    """What runs; with a `name` that deployment alone. `actual`: members' logs are read for what the engine measured.

    Raises UsageError for a name that no host knows.
    """
    with reached(options) as fleet:
        return report_of(fleet, name, actual=actual)


def report_of(
    fleet: ReachedFleet, name: str | None = None, *, actual: bool = True, causes_of: CausesOf = causes
) -> StatusReport:
    """The same over connections that are open. `causes_of`: why a deployment failed. Raises UsageError."""
    seen = observe(fleet)
    groups = seen.groups if name is None else (find(seen, name),)
    outcomes = on_each(
        {
            group.name: partial(_seen, fleet, seen, group, actual=actual, causes_of=causes_of)
            for group in groups
        },
        4 * READ_SECONDS,
    )
    deployments = tuple(
        DeploymentSeen(deployment=deployment_of(group, silent=seen.why))
        if isinstance(outcome := outcomes[group.name], Outcome)
        else outcome
        for group in groups
    )
    return StatusReport(
        deployments=deployments, silent=silent_hosts(fleet, seen), hosts=len(fleet.connections)
    )


def find(seen: Observation, name: str) -> Group:
    """The deployment of that name. Raises NoDeployment, with near misses and the hosts that were not asked."""
    group = seen.group(name)
    if group is not None:
        return group
    known = [one.name for one in seen.groups]
    unasked = f"; not reached: {', '.join(sorted(seen.silent))}" if seen.silent else ""
    listed = f"deployments: {', '.join(shown(one) for one in known)}" if known else "nothing is deployed"
    raise NoDeployment(
        f"there is no deployment {shown(name)}{did_you_mean(name, known)}{unasked}",
        hint=f"{listed}; `gpuplan status` shows what runs where",
    )


def silent_hosts(fleet: ReachedFleet, seen: Observation) -> tuple[Host, ...]:
    """Hosts that did not answer, in the inventory's order."""
    return tuple(
        Host(name=name, address=entry.address, status=HostStatus.UNREACHABLE, failure=seen.silent[name])
        for name, entry in fleet.entries.items()
        if name in seen.silent
    )


def _seen(
    fleet: ReachedFleet, seen: Observation, group: Group, *, actual: bool, causes_of: CausesOf
) -> DeploymentSeen:
    answers = ask_servers(fleet, group)
    deployment = deployment_of(
        group,
        health={server: answer.health for server, answer in answers.items()},
        silent=seen.why,
        loads=[answer.load for answer in answers.values() if answer.load is not None],
    )
    facts = tuple(_facts(seen, group, deployment.state))
    if deployment.state in _UP:
        deployment = replace(deployment, uptime_seconds=uptime(fleet, group))
    if actual and deployment.state in _UP | {State.STARTING}:
        deployment = replace(deployment, actual=actual_now(fleet, group))
    if deployment.state is State.ERROR:
        facts = (*causes_of(fleet, group, deployment.predicted), *facts)
    return DeploymentSeen(deployment=deployment, facts=facts)


def _facts(seen: Observation, group: Group, state: State) -> Iterator[Fact]:
    """Who is at work on it; what nobody works on any more."""
    about = {"deployment": group.name}
    working = _worker(seen, group)
    if working is not None:
        figures = {"holder": described(working)}
        yield Fact(code=AT_WORK, severity=Severity.INFO, subject=about, figures=figures)
        return
    begun = state is State.PREPARING or any(one.member.state == "created" for one in group.current)
    if begun and state is not State.ERROR:
        places = [f"{one.member.container} on {one.member.host}" for one in group.current]
        yield Fact(code=INTERRUPTED, severity=Severity.WARNING, subject=about, figures={"containers": places})
    if group.leftover:
        left = [f"{one.member.container} on {one.member.host}" for one in group.leftover]
        yield Fact(code=LEFTOVER, severity=Severity.WARNING, subject=about, figures={"containers": left})


def _worker(seen: Observation, group: Group) -> Holder | None:
    holders = [seen.holders[host] for host in group.hosts if host in seen.holders]
    return next((holder for holder in holders if holder.deployment == group.name), None)


def actual_now(fleet: ReachedFleet, group: Group) -> Actual:
    """What the engine printed of itself when it started, and what the devices report now."""
    members = [one.member for one in group.current if one.member.role is not ContainerRole.HELPER]
    outcomes = on_each({member.id: partial(_first_lines, fleet, member) for member in members}, READ_SECONDS)
    lines = {identity: found for identity, found in outcomes.items() if not isinstance(found, Outcome)}
    used = {entry for member in members for entry in used_now(member, fleet.seen(member.host).gpus)}
    return replace(actual_of(lines), used_bytes=tuple(sorted(used)))


def _first_lines(fleet: ReachedFleet, member: Member) -> Sequence[LogLine]:
    """Of its last start: a container that was started again keeps what it printed before."""
    from gpuplan.remote.containers import logs

    offset = fleet.seen(member.host).clock_offset_seconds
    found: list[LogLine] = []
    with logs(fleet.engine_of(member.host), member.id, since=since_start(member), follow=False) as stream:
        for line in stream:
            at = seconds(line.at)
            found.append((at - offset if at is not None else None, line.text))
            if len(found) >= FIRST_LINES:
                break
    return found
