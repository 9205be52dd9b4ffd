"""Containers made and started in the order their servers need: all made before any is started, leaders first."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gpuplan.domain.deployment import SECRETS_DIRECTORY, ContainerRole, ContainerSpec, Launch, Member, Server
from gpuplan.domain.events import MemberSeen, Phase
from gpuplan.operations.across import Outcome, on_each
from gpuplan.operations.deploy_run import Halted, Run, host_lost
from gpuplan.operations.evidence import refusal_facts
from gpuplan.units import plural

if TYPE_CHECKING:
    from gpuplan.domain.fact import Fact

CREATE_SECONDS = 120.0


def create_all(run: Run) -> None:
    """Every container of the spec exists afterwards, with its secrets inside, none started. Raises Halted."""
    run.tell.phase(
        Phase.CREATE, f"{plural(len(run.spec.containers), 'container')} to be created", CREATE_SECONDS
    )
    for host in run.lost_locks():
        raise host_lost(
            Phase.CREATE, host, "the lock that keeps other deploys away was lost with its connection"
        )
    by_host = {host: tuple(one for one in run.spec.containers if one.host == host) for host in run.spec.hosts}
    outcomes = on_each(
        {host: partial(_create, run, containers) for host, containers in by_host.items()}, CREATE_SECONDS
    )
    _refuse(run, Phase.CREATE, outcomes)


def start_all(run: Run, on_started: Callable[[ContainerSpec], None]) -> None:
    """Every container started: of a Ray server the head, then followers, then, all nodes registered, the server.

    `on_started` is told of each at once. Raises Halted.
    """
    start = partial(_start, run, on_started)
    run.tell.phase(
        Phase.START, f"{plural(len(run.spec.containers), 'container')} to start", run.patience.request
    )
    run.started = True
    direct = [server for server in run.spec.servers if server.launch is not Launch.RAY]
    leaders = [_first(run, server) for server in direct]
    followers = [one for server in direct for one in run.spec.of_server(server.number)[1:]]
    for wave in (leaders, followers):
        start(wave)
    clusters = [server for server in run.spec.servers if server.launch is Launch.RAY]
    if clusters:
        members = [one for server in clusters for one in run.spec.of_server(server.number)]
        start([one for one in members if one.role is ContainerRole.RAY_HEAD])
        start([one for one in members if one.role is ContainerRole.FOLLOWER])
        run.tell.phase(Phase.REGISTER, _awaited(clusters), run.patience.register)
        from gpuplan.operations.ray_nodes import await_nodes

        for server in clusters:
            await_nodes(run, server)
        start([one for one in members if one.role is ContainerRole.LEADER])


def _awaited(clusters: list[Server]) -> str:
    nodes = sum(len(server.ray_addresses) for server in clusters)
    gpus = sum(count for server in clusters for _, _, count in server.ray_addresses)
    return f"{nodes} Ray nodes with {gpus} GPUs to register"


def _first(run: Run, server: Server) -> ContainerSpec:
    return run.spec.of_server(server.number)[0]


def _create(run: Run, containers: tuple[ContainerSpec, ...]) -> None:
    """The containers of one host in their order: one that shares another's volumes comes after it."""
    from gpuplan.deploying.create_body import create_body
    from gpuplan.remote import containers as remote

    for spec in containers:
        engine = run.opened.engine_of(spec.host)
        body = create_body(
            spec, image_id=run.image_ids[spec.host], generation=run.generation, spec_hash=run.spec_hash
        )
        with run.at_work(spec.host):
            # named before it is asked for: a lost answer leaves no unknown container
            run.made[spec.host, spec.name] = ""
            identity = remote.create(engine, body, spec.name)
        run.made[spec.host, spec.name] = identity
        uid, _, gid = (spec.user or "0:0").partition(":")
        owner = {"uid": int(uid), "gid": int(gid or uid)}
        if spec.secrets:
            files = {name: run.secrets.reveal(name).encode() for name in spec.secrets}
            remote.put_files(engine, identity, files, directory=SECRETS_DIRECTORY, **owner)
        if run.files:
            remote.put_files(engine, identity, run.files, directory=run.files_at, **owner)
        run.tell(MemberSeen(member=member_of(spec, identity, "created", run)))


def _start(run: Run, on_started: Callable[[ContainerSpec], None], wave: list[ContainerSpec]) -> None:
    from gpuplan.remote import containers as remote

    def start(containers: list[ContainerSpec]) -> None:
        for spec in containers:
            identity = run.made[spec.host, spec.name]
            with run.at_work(spec.host):
                remote.start(run.opened.engine_of(spec.host), identity)
            on_started(spec)
            run.tell(MemberSeen(member=member_of(spec, identity, "running", run)))

    by_host: dict[str, list[ContainerSpec]] = {}
    for spec in wave:
        by_host.setdefault(spec.host, []).append(spec)
    outcomes = on_each(
        {host: partial(start, containers) for host, containers in by_host.items()}, CREATE_SECONDS
    )
    _refuse(run, Phase.START, outcomes)


def _refuse(run: Run, phase: Phase, outcomes: dict[str, Outcome | None]) -> None:
    failed = {host: outcome for host, outcome in outcomes.items() if isinstance(outcome, Outcome)}
    if not failed:
        return
    facts: list[Fact] = []
    for host, outcome in failed.items():
        if outcome.lost:
            facts.extend(host_lost(phase, host, outcome.why).facts)
        else:
            facts.extend(refusal_facts(run, host, outcome.why))
    raise Halted(phase, *facts)


def member_of(spec: ContainerSpec, identity: str, state: str, run: Run) -> Member:
    """A container of the spec as a member."""
    return Member(
        host=spec.host,
        container=spec.name,
        id=identity,
        role=spec.role,
        rank=spec.rank,
        server=spec.server,
        state=state,
        gpus=spec.gpus,
        gpu_indexes=spec.gpu_indexes,
        generation=run.generation,
        spec_hash=run.spec_hash,
    )
