"""The order of operations of a deploy, as values: what a dry run prints is what is done.

Locks first and in one order on every machine, so that two deploys on overlapping hosts cannot hold each other up;
nothing that runs is stopped before image and weights are there; all containers are made before one is started.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuplan.domain.deployment import ContainerRole, ContainerSpec, DeploymentSpec, Launch, Member, Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The host is as the plan saw it, and ready."""

    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PullImage:
    """The host has the image, with the digest all hosts have."""

    host: str
    image: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HaveWeights:
    """The model's files are on the host, the same as everywhere."""

    host: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopOld:
    """What runs under the name is stopped and set aside until the new one serves."""

    host: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    container: ContainerSpec

    @property
    def host(self) -> str:
        return self.container.host


@dataclass(frozen=True, slots=True, kw_only=True)
class PutSecrets:
    """Files with secrets are put into the container before it starts."""

    host: str
    container: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    host: str
    container: str
    role: ContainerRole


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitRegistered:
    """Every host of a Ray server has registered with its GPUs."""

    server: Server
    hosts: tuple[str, ...]
    gpus: int

    @property
    def host(self) -> str:
        return self.server.host


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitServing:
    """`/health` answers and `/v1/models` lists the name."""

    server: Server
    served_name: str

    @property
    def host(self) -> str:
        return self.server.host


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOnce:
    """One real completion."""

    server: Server

    @property
    def host(self) -> str:
        return self.server.host


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOld:
    host: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlock:
    host: str


Step = (
    Lock
    | Check
    | PullImage
    | HaveWeights
    | StopOld
    | Create
    | PutSecrets
    | Start
    | AwaitRegistered
    | AwaitServing
    | AskOnce
    | RemoveOld
    | Unlock
)


def steps(spec: DeploymentSpec, replaced: Sequence[Member] = ()) -> tuple[Step, ...]:
    """All that a deploy does, in order; `replaced` are the containers that run under the name now."""
    hosts = tuple(dict.fromkeys([*spec.hosts, *(member.host for member in replaced)]))
    locked = sorted(hosts)
    images = dict.fromkeys((container.host, container.image) for container in spec.containers)
    return (
        *(Lock(host=host) for host in locked),
        *(Check(host=host) for host in spec.hosts),
        *(PullImage(host=host, image=image) for host, image in images),
        *(HaveWeights(host=host, model=spec.model) for host in spec.hosts),
        *(StopOld(host=member.host, container=member.container) for member in replaced),
        *_created(spec),
        *_started(spec),
        *(AwaitServing(server=server, served_name=spec.served_name) for server in spec.servers),
        *(AskOnce(server=server) for server in spec.servers),
        *(RemoveOld(host=member.host, container=member.container) for member in replaced),
        *(Unlock(host=host) for host in locked),
    )


def _created(spec: DeploymentSpec) -> Iterator[Step]:
    """In starting order: Docker wants a container whose process ids or volumes are shared to be there already."""
    for container in spec.containers:
        yield Create(container=container)
        if container.secrets:
            yield PutSecrets(host=container.host, container=container.name, names=container.secrets)


def _started(spec: DeploymentSpec) -> Iterator[Step]:
    """Leaders, then their followers at once; of a Ray server the head, followers and, all nodes joined, the server (S1.13)."""
    direct = [server for server in spec.servers if server.launch is not Launch.RAY]
    clusters = [server for server in spec.servers if server.launch is Launch.RAY]
    members = [one for server in clusters for one in spec.of_server(server.number)]
    yield from map(_start, (one for server in direct for one in spec.of_server(server.number)[:1]))
    yield from map(_start, (one for server in direct for one in spec.of_server(server.number)[1:]))
    yield from map(_start, _of(members, ContainerRole.RAY_HEAD))
    yield from map(_start, _of(members, ContainerRole.FOLLOWER))
    for server in clusters:
        hosts = tuple(host for host, _, _ in server.ray_addresses)
        gpus = sum(number for _, _, number in server.ray_addresses)
        yield AwaitRegistered(server=server, hosts=hosts, gpus=gpus)
    yield from map(_start, _of(members, ContainerRole.LEADER))


def _of(containers: Sequence[ContainerSpec], role: ContainerRole) -> list[ContainerSpec]:
    return [container for container in containers if container.role is role]


def _start(container: ContainerSpec) -> Start:
    return Start(host=container.host, container=container.name, role=container.role)
