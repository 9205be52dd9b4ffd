"""From a placement to servers: which replicas answer at one address, on which hosts, and how their ranks find each other.

A server is one address. Replicas of a dense model are servers of their own (S3.2); the data-parallel ranks of a mixture
of experts share one. A host has one container per server.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuplan.deploying.request import CompileRequest
from gpuplan.domain.deployment import Launch
from gpuplan.domain.plan import PlacedGpu, PlacedHost, Role
from gpuplan.domain.workload import ExecutorChoice
from gpuplan.engine.flags import flags_by_destination
from gpuplan.engine.versions import EngineVersion, ray_in_image
from gpuplan.errors import UsageError

Replica = tuple[PlacedHost, ...]
NATIVE_FLAGS = ("nnodes", "node_rank", "master_addr", "master_port", "headless")
DATA_PARALLEL_FLAGS = (
    "data_parallel_start_rank",
    "data_parallel_size_local",
    "data_parallel_address",
    "headless",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The part of one server on one host: one container (with Ray two on the leader)."""

    host: str
    gpus: tuple[PlacedGpu, ...]
    replicas: int = 1
    """Data-parallel ranks that run here; with `nested` and Ray those that start here."""
    first_replica: int = 0
    ram_claim_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One server and its hosts, the leader first."""

    number: int
    launch: Launch
    nodes: tuple[Node, ...]
    replicas: int = 1
    """Data-parallel ranks behind its address."""

    @property
    def leader(self) -> Node:
        return self.nodes[0]

    @property
    def several(self) -> bool:
        """Whether it runs on more than one host."""
        return len(self.nodes) > 1


_FROM = {"disable_access_log_for_endpoints": EngineVersion(0, 16)}
"""Known more exactly than from the releases that were read (S1.6)."""


def exists(version: EngineVersion, destination: str) -> bool:
    """Whether a release is known to have an argument."""
    flag = flags_by_destination().get(destination)
    if flag is None:
        return False
    since = _FROM.get(destination, flag.added_in)
    added = since is None or version >= since
    return added and (flag.removed_in is None or version < flag.removed_in)


def data_parallel_size(request: CompileRequest) -> int:
    """Data-parallel ranks of one server: what the user gave for a mixture of experts, 1 for a dense model."""
    return max(request.workload.engine.data_parallel_size, 1) if request.profile.expert_count else 1


def replicas_of(placement: Sequence[PlacedHost]) -> tuple[Replica, ...]:
    """The placement cut into replicas: a leader has the followers behind it, any other role stands alone."""
    replicas: list[list[PlacedHost]] = []
    for host in placement:
        if host.role is Role.FOLLOWER and replicas:
            replicas[-1].append(host)
        else:
            replicas.append([host])
    return tuple(tuple(replica) for replica in replicas)


def groups_of(request: CompileRequest) -> tuple[Group, ...]:
    """The servers of a candidate, in the order of its placement.

    Raises UsageError where the layout cannot be started with this vLLM, image or executor.
    """
    replicas = list(replicas_of(request.candidate.placement))
    size = data_parallel_size(request)
    if len(replicas) % size:
        raise UsageError(
            f"--data-parallel-size {size} does not divide the {len(replicas)} replicas of the plan",
            hint="plan again: gpuplan plan shows what is placed",
        )
    if 1 < size < len(replicas):
        order = {host.host: place for place, host in reversed(list(enumerate(request.candidate.placement)))}
        replicas.sort(key=lambda replica: order[replica[0].host])
    return tuple(
        _group(request, number, replicas[start : start + size])
        for number, start in enumerate(range(0, len(replicas), size))
    )


def _group(request: CompileRequest, number: int, replicas: Sequence[Replica]) -> Group:
    nodes = _nodes(replicas)
    launch = _launch(request, replicas, nodes)
    return Group(number=number, launch=launch, nodes=nodes, replicas=len(replicas))


def _nodes(replicas: Sequence[Replica]) -> tuple[Node, ...]:
    """One node per host in order of appearance; ranks of replicas inside hosts are numbered host by host."""
    gpus: dict[str, list[PlacedGpu]] = {}
    starting: dict[str, int] = {}
    memory: dict[str, int] = {}
    for replica in replicas:
        for place, host in enumerate(replica):
            gpus.setdefault(host.host, []).extend(host.gpus)
            starting[host.host] = starting.get(host.host, 0) + (place == 0)
            memory[host.host] = memory.get(host.host, 0) + host.ram_claim_bytes
    nodes, first = [], 0
    for name, cards in gpus.items():
        node = Node(
            host=name,
            gpus=tuple(cards),
            replicas=starting[name],
            first_replica=first,
            ram_claim_bytes=memory[name],
        )
        nodes.append(node)
        first += node.replicas
    return tuple(nodes)


def _launch(request: CompileRequest, replicas: Sequence[Replica], nodes: Sequence[Node]) -> Launch:
    if len(nodes) == 1:
        return Launch.SINGLE
    wished = _wished(request)
    if wished == "ray":
        return _ray(request, "the executor asked for")
    native, why = _native(replicas)
    if native is None and wished == "mp":
        raise UsageError(
            f"vLLM's own multi-host mode cannot run this placement: {why}",
            hint="leave --executor out, or choose as many GPUs on every host",
        )
    if native is None:
        return _ray(request, why)
    flags = DATA_PARALLEL_FLAGS if native is Launch.NATIVE_DP else NATIVE_FLAGS
    if all(exists(request.version, flag) for flag in flags):
        return native
    missing = f"vLLM {request.version} has no multi-host mode of its own yet"
    if wished == "mp" or native is Launch.NATIVE_DP:
        raise UsageError(missing, hint="use a newer image, or leave --executor and --data-parallel-size out")
    return _ray(request, missing)


def _wished(request: CompileRequest) -> str | None:
    written = request.workload.engine.distributed_executor_backend
    if written is not None:
        return written
    choice = request.workload.executor
    return None if choice is ExecutorChoice.AUTO else choice.value


def _native(replicas: Sequence[Replica]) -> tuple[Launch | None, str]:
    """vLLM's own way to run these replicas, else why there is none (`deploy-facts` section 3)."""
    hosts = [host.host for replica in replicas for host in replica]
    counts = {len(host.gpus) for replica in replicas for host in replica}
    if len(replicas) == 1:
        return (Launch.NATIVE_MP, "") if len(counts) == 1 else (None, _UNEVEN)
    if all(len(replica) == 1 for replica in replicas):
        return Launch.NATIVE_DP, ""
    if len(counts) > 1 or len({len(replica) for replica in replicas}) > 1:
        return None, _UNEVEN
    if len(set(hosts)) < len(hosts):
        return None, "replicas that span hosts share one"
    return Launch.NATIVE_NESTED, ""


_UNEVEN = "every host must have as many GPUs"


def _ray(request: CompileRequest, why: str) -> Launch:
    """Ray, where the image has it."""
    if request.image_facts.ray is False:
        raise UsageError(
            f"{request.image} has no Ray, which this placement needs: {why}",
            hint="use an image with Ray (--image), or as many GPUs on every host without --executor ray",
        )
    return Launch.RAY


def ray_is_unknown(request: CompileRequest) -> bool:
    """Whether nobody looked into the image, and the release is one whose official image has no Ray."""
    return request.image_facts.ray is None and not ray_in_image(request.version)
