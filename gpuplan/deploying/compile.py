"""From a candidate to containers: image, words, variables, devices, mounts, ports and labels of each, in starting order.

Pure: the same request gives the same deployment, byte for byte. What cannot be started is refused here, before a host is
touched.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpuplan.deploying import container_labels, notes, ray, secrets
from gpuplan.deploying.addresses import address_with_port, member_address, place_of
from gpuplan.deploying.contradictions import check_words
from gpuplan.deploying.devices import (
    RDMA_ULIMITS,
    ULIMITS,
    Access,
    access_of,
    identity,
    rdma_devices,
    vendor_of,
)
from gpuplan.deploying.entrypoint import PACKAGES, started
from gpuplan.deploying.environment import environment
from gpuplan.deploying.grouping import Group, Node, groups_of
from gpuplan.deploying.health import health_check
from gpuplan.deploying.image_probe import UNKNOWN
from gpuplan.deploying.mounts import mounts_of
from gpuplan.deploying.ports import allot
from gpuplan.deploying.request import CompileRequest
from gpuplan.deploying.verify_spec import trial_of, unheard
from gpuplan.deploying.vllm_arguments import model_word, node_words, planned_values, served_name
from gpuplan.domain import labels
from gpuplan.domain.deployment import (
    ContainerRole,
    ContainerSpec,
    DeploymentSpec,
    DirectoryModel,
    Launch,
    Server,
)
from gpuplan.engine.arguments import engine_words, parse
from gpuplan.engine.parallel_config import Circumstances, check
from gpuplan.errors import UsageError

__all__ = ["CompileRequest", "compile_deployment", "default_name"]

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,46}[a-z0-9])?")
_NOT_NAME = re.compile(r"[^a-z0-9]+")
_MOST = 40


def default_name(model: str) -> str:
    """A name for a deployment of a model: `qwen3-32b` of `Qwen/Qwen3-32B` or `/models/Qwen3-32B`."""
    last = model.rstrip("/").rpartition("/")[2].lower()
    return _NOT_NAME.sub("-", last)[:_MOST].strip("-") or "model"


def compile_deployment(request: CompileRequest) -> DeploymentSpec:
    """Every container of the deployment.

    Raises UsageError, with the way out, for a name that is none, words that contradict the placement, an image without
    what it needs, an address that is unknown and a range without a free port.
    """
    spec = _Compiler(request).deployment()
    return trial_of(spec, shell=request.image_facts != UNKNOWN) if request.trial else spec


class _Compiler:
    """What the containers of one request have in common."""

    def __init__(self, request: CompileRequest) -> None:
        _check_name(request.name)
        self.request = request
        self.settings = request.inventory.vllm
        words = engine_words(request.workload.engine)
        self.values = secrets.secrets_of(words, self.settings.env)
        self.secret_names = tuple(sorted({*request.secrets, *self.values}))
        self.groups = groups_of(request)
        names = dict.fromkeys(node.host for group in self.groups for node in group.nodes)
        self.places = {name: place_of(request, name) for name in names}
        if request.trial and not any(group.several for group in self.groups):
            self.places = {name: unheard(place) for name, place in self.places.items()}
        check_words(request, self.groups, self.places)
        _check_directory(request, names)
        self.ports = allot(
            self.groups, self.settings, request.taken, request.preferred, request.workload.engine
        )

    def deployment(self) -> DeploymentSpec:
        request = self.request
        containers = [one for group in self.groups for one in self._containers(group)]
        first = self.groups[0]
        planned = request.candidate
        predicted = container_labels.prediction_of(planned, self._utilization())
        asked = secrets.without_values(dict(request.asked), self.values)
        common = container_labels.deployment_labels(
            name=request.name,
            model=model_word(request),
            served_name=served_name(request),
            image=request.image,
            vllm_version=str(request.version),
            request=asked,
            predicted=predicted,
            keep_alive_seconds=request.keep_alive_seconds,
        )
        common[labels.MEMBERS] = container_labels.members(containers)
        return DeploymentSpec(
            name=request.name,
            model=model_word(request),
            served_name=served_name(request),
            vllm_version=str(request.version),
            image=request.image,
            servers=tuple(self._server(group) for group in self.groups),
            containers=tuple(
                replace(one, labels=tuple(sorted({**common, **dict(one.labels)}.items())))
                for one in containers
            ),
            predicted=predicted,
            injected=node_words(request, first, 0, self.places, self.ports[0]).ours,
            notes=notes.notes_of(request, self.groups, self.places, self.secret_names),
            request=asked,
        )

    def _utilization(self) -> float | None:
        given = self.request.workload.engine.gpu_memory_utilization
        planned = planned_values(self.request).get("gpu_memory_utilization")
        return given if given is not None else planned

    def _server(self, group: Group) -> Server:
        place, ports = self.places[group.leader.host], self.ports[group.number]
        addresses: tuple[tuple[str, str, int], ...] = ()
        if group.launch is Launch.RAY:
            addresses = tuple(
                (node.host, member_address(self.places[node.host]), len(node.gpus)) for node in group.nodes
            )
        return Server(
            number=group.number,
            launch=group.launch,
            host=group.leader.host,
            address=place.bind,
            port=ports.http,
            endpoint=self._endpoint(group),
            ray_addresses=addresses,
        )

    def _endpoint(self, group: Group) -> str:
        place = self.places[group.leader.host]
        return f"http://{address_with_port(place.reach, self.ports[group.number].http)}"

    def _containers(self, group: Group) -> list[ContainerSpec]:
        """Of one server, in the order they are started: with Ray the head, the followers, the server."""
        places = [self.places[node.host] for node in group.nodes]
        rdma = rdma_devices(places) if group.several else {}
        access = {
            node.host: access_of(
                self.places[node.host], node, user=self.settings.user, rdma=rdma.get(node.host, ())
            )
            for node in group.nodes
        }
        if group.launch is Launch.RAY:
            return self._cluster(group, access)
        return [self._serving(group, rank, access[node.host]) for rank, node in enumerate(group.nodes)]

    def _cluster(self, group: Group, access: dict[str, Access]) -> list[ContainerSpec]:
        head = self._ray_node(group, 0, access[group.leader.host])
        followers = [
            self._ray_node(group, rank, access[node.host])
            for rank, node in enumerate(group.nodes)
            if rank > 0
        ]
        server = self._serving(group, 0, access[group.leader.host])
        beside = replace(server, volumes_from=head.name, pid_from=head.name, stop_seconds=ray.STOP_SECONDS)
        return [head, *followers, beside]

    def _ray_node(self, group: Group, rank: int, access: Access) -> ContainerSpec:
        node, base = group.nodes[rank], self.ports[group.number].ray
        assert base is not None, "a Ray server has a block of ports"
        address = member_address(self.places[node.host])
        brings = ray.resources(vendor_of(self.places[node.host], node), len(node.gpus))
        shm = self.settings.shm_size_bytes
        if rank == 0:
            words = ray.head_words(base=base, address=address, resources=brings, shm_bytes=shm)
        else:
            leader = member_address(self.places[group.leader.host])
            words = ray.follower_words(
                base=base, head=leader, address=address, resources=brings, shm_bytes=shm
            )
        role = ContainerRole.RAY_HEAD if rank == 0 else ContainerRole.FOLLOWER
        made = self._container(group, rank, role, access, words)
        return replace(
            made,
            volumes=("/tmp",) if rank == 0 else (),
            stop_seconds=ray.STOP_SECONDS,  # the container's own
        )

    def _serving(self, group: Group, rank: int, access: Access) -> ContainerSpec:
        if rank > 0:
            role = ContainerRole.FOLLOWER
        elif group.several:
            role = ContainerRole.LEADER
        else:
            role = ContainerRole.REPLICA if len(self.groups) > 1 else ContainerRole.SINGLE
        return self._container(group, rank, role, access, self._command(group, rank))

    def _command(self, group: Group, rank: int) -> tuple[str, ...]:
        words = node_words(self.request, group, rank, self.places, self.ports[group.number])
        self._check(group, rank, words.all)
        if self.request.run_command is None:
            return (*self._program(), *words.all)
        place, port = self.places[group.leader.host], self.ports[group.number].http
        values = {
            **dict(self.settings.env),
            "model_path": words.model,
            "model_name": served_name(self.request),
            "port": str(port),
            "host_ip": self.places[group.nodes[rank].host].data_address or place.reach,
            "worker_ip": self.places[group.nodes[rank].host].data_address or place.reach,
        }
        own = {name: value for name, value in values.items() if not secrets.is_secret(name, value)}
        return (*filled(self.request.run_command, own), *words.ours, *words.user)

    def _program(self) -> tuple[str, ...]:
        """`vllm serve`, by way of Python in an image that has the package and not the command."""
        if self.request.image_facts.vllm_command is False and self.request.image_facts.vllm_version:
            return ("python3", "-m", "vllm.entrypoints.cli.main", "serve")
        return ("vllm", "serve")

    def _check(self, group: Group, rank: int, words: tuple[str, ...]) -> None:
        """What vLLM would refuse is refused first."""
        read = parse([word for word in words if word != "--omni"], version=self.request.version)
        vendor = vendor_of(self.places[group.nodes[rank].host], group.nodes[rank])
        around = Circumstances(
            gpus=len(group.nodes[rank].gpus),
            ray=True if group.launch is Launch.RAY else self.request.image_facts.ray,
            backend={"amd": "rocm", "ascend": "cann"}.get(vendor, "cuda"),
            moe=bool(self.request.profile.expert_count),
        )
        for violation in check(read, around):
            raise UsageError(f"vLLM would refuse its arguments: {violation.message}", hint=violation.hint)

    def _container(
        self, group: Group, rank: int, role: ContainerRole, access: Access, words: tuple[str, ...]
    ) -> ContainerSpec:
        request, node = self.request, group.nodes[rank]
        place, ports = self.places[node.host], self.ports[group.number]
        names = self._secrets(group, role)
        vendor = vendor_of(place, node)
        entrypoint, command = started(
            words,
            exported=secrets.exported(names),
            packages=any(name == PACKAGES for name, _ in self.settings.env),
            ascend=vendor == "ascend",
        )
        end = "-ray" if role is ContainerRole.RAY_HEAD else ""
        leader = self.places[group.leader.host]
        return ContainerSpec(
            host=node.host,
            name=f"gpuplan-{request.name}-s{group.number}n{rank}{end}",
            role=role,
            server=group.number,
            rank=rank,
            image=request.image,
            entrypoint=entrypoint,
            command=command,
            env=environment(request, group, node, self.places, access, ports, role, names),
            secrets=names,
            gpus=access.gpus,
            gpu_indexes=tuple(gpu.index for gpu in node.gpus),
            devices=access.devices,
            mounts=tuple(
                sorted((*mounts_of(request, place), *access.mounts), key=lambda mount: mount.target)
            ),
            shm_bytes=self.settings.shm_size_bytes,
            user=self.settings.user,
            groups=access.groups,
            capabilities=access.capabilities,
            security=access.security,
            ulimits=RDMA_ULIMITS if access.rdma else ULIMITS,
            health=health_check(leader.peer, ports.http),
            labels=tuple(sorted(self._labels(group, node, rank, role).items())),
        )

    def _secrets(self, group: Group, role: ContainerRole) -> tuple[str, ...]:
        """The API key where requests are answered, the cluster's token where Ray is, others everywhere."""
        answers = role not in {ContainerRole.FOLLOWER, ContainerRole.RAY_HEAD}
        names = {name for name in self.secret_names if name not in {secrets.API_KEY, secrets.RAY_TOKEN}}
        if answers and secrets.API_KEY in self.secret_names:
            names.add(secrets.API_KEY)
        if group.launch is Launch.RAY:
            names.add(secrets.RAY_TOKEN)
        return tuple(sorted(names))

    def _labels(self, group: Group, node: Node, rank: int, role: ContainerRole) -> dict[str, str]:
        ports = self.ports[group.number]
        answers = rank == 0 and role is not ContainerRole.RAY_HEAD
        own = {
            labels.ROLE: role.value,
            labels.RANK: str(rank),
            labels.SERVER: str(group.number),
            labels.NNODES: str(len(group.nodes)),
            labels.PORTS: container_labels.as_json(ports.label(leader=rank == 0)),
        }
        if answers:
            own[labels.ENDPOINT] = self._endpoint(group)
        if not (group.launch is Launch.RAY and role is ContainerRole.LEADER):
            place = self.places[node.host]
            own |= container_labels.claims(node, [identity(place, gpu) for gpu in node.gpus])
        return own


def filled(template: str, values: dict[str, str]) -> Sequence[str]:
    """The words of a run command with `{{name}}` replaced; a name nobody knows stays (S2.5)."""
    words = shlex.split(template)
    for name, value in values.items():
        words = [word.replace("{{" + name + "}}", value) for word in words]
    return words


def _check_directory(request: CompileRequest, hosts: Iterable[str]) -> None:
    if not isinstance(request.model, DirectoryModel) or request.model.carried:
        return
    without = [host for host in hosts if host not in request.model.paths]
    if without:
        raise UsageError(
            f"{', '.join(without)}: the model's directory there is not known",
            hint="set model_dir of the host in the inventory, or name the model by its id on the hub",
        )


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name):
        return
    raise UsageError(
        f"--name {name[:60]!r}: not a name for a deployment",
        hint="--name takes 1 to 48 of a-z, 0-9, dot, dash and underscore, letters or digits at both ends",
    )
