"""Words of the user that gpuplan decides itself, or that leave a server nobody can ask for its health."""

from collections.abc import Sequence

from gpuplan.deploying.addresses import WILDCARDS, Place, is_loopback
from gpuplan.deploying.grouping import Group
from gpuplan.deploying.request import CompileRequest
from gpuplan.domain.deployment import Launch
from gpuplan.domain.workload import EngineArguments
from gpuplan.errors import UsageError

_DECIDED = (
    "nnodes",
    "node_rank",
    "master_addr",
    "headless",
    "data_parallel_rank",
    "data_parallel_start_rank",
    "data_parallel_address",
    "data_parallel_external_lb",
    "data_parallel_hybrid_lb",
    "data_parallel_multi_port_external_lb",
)
"""The layout over hosts follows from the plan."""
_NO_HTTP = ("uds", "grpc", "ssl_keyfile", "ssl_certfile")


def check_words(request: CompileRequest, groups: Sequence[Group], places: dict[str, Place]) -> None:
    """Raises UsageError, naming the flag, for the first word of the user that contradicts the launch."""
    engine = request.workload.engine
    for destination in _DECIDED:
        if destination in engine.user_set and engine.values.get(destination) is not False:
            raise UsageError(
                f"{_flag(destination)} is decided by gpuplan: it follows from the hosts of the plan",
                hint=f"leave {_flag(destination)} out; --gpus and --replicas choose where ranks run",
            )
    for destination in _NO_HTTP:
        if engine.values.get(destination):
            raise UsageError(
                f"{_flag(destination)}: gpuplan asks a server for its health over plain HTTP",
                hint=f"leave {_flag(destination)} out, and put TLS or a socket in a proxy before the endpoint",
            )
    if "device_ids" in engine.user_set:
        raise UsageError(
            "--device-ids: a container is given the GPUs of the plan, numbered from 0",
            hint="choose GPUs with --gpus HOST:IDX,IDX",
        )
    if engine.values.get("api_server_count") == 0:
        raise UsageError(
            "--api-server-count 0 starts no server that could answer", hint="leave --api-server-count out"
        )
    for group in groups:
        _check_group(engine, request, group, places[group.leader.host])
    _check_host(engine, groups)


def _check_group(engine: EngineArguments, request: CompileRequest, group: Group, leader: Place) -> None:
    backend = engine.distributed_executor_backend
    if group.several and backend not in {None, "mp", "ray"}:
        raise UsageError(
            f"--distributed-executor-backend {backend} does not reach other hosts",
            hint="leave it out, or write mp or ray",
        )
    wanted = "ray" if group.launch is Launch.RAY else "mp"
    given = engine.data_parallel_backend
    if (
        group.several
        and group.replicas > 1
        and "data_parallel_backend" in engine.user_set
        and given != wanted
    ):
        raise UsageError(
            f"--data-parallel-backend {given} does not go with --distributed-executor-backend {wanted}",
            hint="leave --data-parallel-backend out",
        )
    local = engine.data_parallel_size_local
    ranks = {node.replicas for node in group.nodes}
    if local is not None and request.profile.expert_count and ranks != {local}:
        raise UsageError(
            f"--data-parallel-size-local {local}: the plan has {', '.join(map(str, sorted(ranks)))} ranks on a host",
            hint="leave --data-parallel-size-local out",
        )
    if group.several and is_loopback(leader.bind):
        raise UsageError(
            f"--host {engine.host}: the other hosts of the server cannot ask {leader.name} for its health there",
            hint="leave --host out",
        )


def _check_host(engine: EngineArguments, groups: Sequence[Group]) -> None:
    host, hosts = engine.host, {group.leader.host for group in groups}
    if host is None or host in WILDCARDS or is_loopback(host) or len(hosts) == 1:
        return
    raise UsageError(
        f"--host {host}: {len(hosts)} servers on {len(hosts)} hosts cannot share an address",
        hint="leave --host out: each binds to the address of its host",
    )


def _flag(destination: str) -> str:
    return "--" + destination.replace("_", "-")
