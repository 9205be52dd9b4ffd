"""Variables of a container, none of them secret: what the inventory says overrides what is only a default."""

from collections.abc import Mapping

from gpuplan.deploying import secrets
from gpuplan.deploying.addresses import Place, address_with_port, member_address
from gpuplan.deploying.devices import Access, is_310p, shares_memory, vendor_of
from gpuplan.deploying.grouping import Group, Node
from gpuplan.deploying.mounts import CACHE_INSIDE, HUB_INSIDE, uses_hub
from gpuplan.deploying.ports import ServerPorts
from gpuplan.deploying.request import CompileRequest
from gpuplan.domain.deployment import ContainerRole, DirectoryModel, Launch
from gpuplan.units import GIB

PER_HOST = frozenset(("VLLM_HOST_IP", "VLLM_PORT", "VLLM_DP_MASTER_PORT", "RAY_ADDRESS"))
"""One value for all hosts is wrong: those of the inventory are left out."""
_DEFAULTS = {
    "OMP_NUM_THREADS": "1",
    "SAFETENSORS_FAST_GPU": "1",
    "RUNAI_STREAMER_MEMORY_LIMIT": "0",
    "RUNAI_STREAMER_LOG_TO_STDERR": "1",
    "RUNAI_STREAMER_LOG_LEVEL": "INFO",
    "VLLM_CACHE_ROOT": f"{CACHE_INSIDE}/vllm",
    "TRITON_CACHE_DIR": f"{CACHE_INSIDE}/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{CACHE_INSIDE}/inductor",
    "FLASHINFER_WORKSPACE_BASE": f"{CACHE_INSIDE}/flashinfer",
    "VLLM_ENGINE_READY_TIMEOUT_S": "3600",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_COLOR": "0",
    "NO_COLOR": "1",
    "PYTHONUNBUFFERED": "1",
}
"""S1.11, and `deploy-facts` section 4."""
_ASCEND = {
    "TASK_QUEUE_ENABLE": "1",
    "CPU_AFFINITY_CONF": "1",
    "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
    "HCCL_CONNECT_TIMEOUT": "7200",
    "HCCL_RDMA_PCIE_DIRECT_POST_NOSTRICT": "TRUE",
}
_ASCEND_NOT_310P = {"HCCL_EXEC_TIMEOUT": "0", "HCCL_OP_EXPANSION_MODE": "AIV"}


def environment(
    request: CompileRequest,
    group: Group,
    node: Node,
    places: Mapping[str, Place],
    access: Access,
    ports: ServerPorts,
    role: ContainerRole,
    secret_names: tuple[str, ...],
) -> tuple[tuple[str, str], ...]:
    """Every variable of one container, sorted by name."""
    place = places[node.host]
    variables = dict(_DEFAULTS)
    if request.inventory.vllm.user is not None:
        variables |= {"HOME": "/tmp", "USER": "gpuplan", "LOGNAME": "gpuplan"}
    variables |= _hub(request)
    variables |= _lmcache(request, node, vendor_of(place, node))
    if vendor_of(place, node) == "ascend":
        variables |= _ASCEND | ({} if is_310p(place, node) else _ASCEND_NOT_310P)
    if group.several:
        variables |= _network(place, vendor_of(place, node), access)
    if group.launch is Launch.RAY:
        variables |= _ray(node, place, role)
    variables |= dict(request.candidate.env)
    if group.launch is Launch.RAY and len(group.nodes) > 2:
        variables |= _stages_by_ray(request, group, places)
    seen, _ = secrets.split_environment(request.inventory.vllm.env)
    variables |= {name: value for name, value in seen if name not in PER_HOST}
    variables |= dict(access.env)
    variables |= _own(group, place, ports, role)
    variables |= secrets.file_variables(secret_names)
    return tuple(sorted(variables.items()))


def _hub(request: CompileRequest) -> dict[str, str]:
    variables = {"HF_HOME": HUB_INSIDE} if uses_hub(request) else {}
    if isinstance(request.model, DirectoryModel) and not uses_hub(request):
        variables |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    return variables


def uses_lmcache(request: CompileRequest) -> bool:
    """Whether the user asked for the extended KV cache (S1.8)."""
    engine = request.workload.engine
    connector = str(engine.kv_transfer_config.get("kv_connector", ""))
    backend = engine.values.get("kv_offloading_backend")
    return connector.startswith("LMCache") or (engine.kv_offloading_size is not None and backend == "lmcache")


def _lmcache(request: CompileRequest, node: Node, vendor: str) -> Mapping[str, str]:
    """Chunk size, and host memory of each rank as far as a claim says (S1.8)."""
    if not uses_lmcache(request) or vendor not in {"nvidia", "amd"}:
        return {}
    variables = {"LMCACHE_CHUNK_SIZE": "256", "LMCACHE_LOCAL_CPU": "True", "LMCACHE_USE_EXPERIMENTAL": "True"}
    claim = request.workload.ram_claim_bytes
    size = request.workload.engine.kv_offloading_size
    if claim:
        variables["LMCACHE_MAX_LOCAL_CPU_SIZE"] = f"{claim / GIB / len(node.gpus):.2f}"
    elif size is not None:
        variables["LMCACHE_MAX_LOCAL_CPU_SIZE"] = f"{size / request.candidate.parallelism.world_size:.2f}"
    return variables


def _network(place: Place, vendor: str, access: Access) -> dict[str, str]:
    """Which interface carries the traffic between members (S1.12): NCCL matches prefixes unless `=` stands before the
    name, Gloo takes the bare name."""
    variables: dict[str, str] = {}
    if place.interface is not None:
        variables |= {"GLOO_SOCKET_IFNAME": place.interface, "TP_SOCKET_IFNAME": place.interface}
    if vendor == "ascend":
        if place.interface is not None:
            variables["HCCL_SOCKET_IFNAME"] = f"={place.interface}"
        return variables | {"HCCL_IF_IP": member_address(place)}
    if place.interface is not None:
        variables["NCCL_SOCKET_IFNAME"] = f"={place.interface}"
    if access.rdma:
        variables["NCCL_IB_HCA"] = "=" + ",".join(access.rdma)
    else:
        variables["NCCL_IB_DISABLE"] = "1"
    return variables | {"NCCL_DEBUG": "WARN"}


def _ray(node: Node, place: Place, role: ContainerRole) -> dict[str, str]:
    """Quiet in the server's log, loud where the workers run; every call carries the cluster's token (Ray 2.52)."""
    variables = {
        "RAY_AUTH_MODE": "token",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_BACKEND_LOG_LEVEL": "warning",
        "RAY_LOG_TO_STDERR": "0" if role is ContainerRole.LEADER else "1",
    }
    if shares_memory(place, node):
        variables["RAY_memory_monitor_refresh_ms"] = "0"
    return variables


def _stages_by_ray(request: CompileRequest, group: Group, places: Mapping[str, Place]) -> dict[str, str]:
    """The layer partition in the order Ray's executor ranks hosts: the leader's, then fewer GPUs first, then by address.

    vLLM 0.33, `v1/executor/ray_executor.py:sort_by_driver_then_worker_ip`; its second executor orders followers by
    their random node ids, so it is not used where stages differ.
    """
    partition, tensor = request.candidate.parallelism.layer_partition, request.candidate.parallelism.tensor
    if partition is None:
        return {}
    stages: dict[str, tuple[int, ...]] = {}
    start = 0
    for node in group.nodes:
        held = len(node.gpus) // tensor
        stages[node.host] = partition[start : start + held]
        start += held
    followers = sorted(group.nodes[1:], key=lambda node: (len(node.gpus), member_address(places[node.host])))
    ordered = [layers for node in (group.leader, *followers) for layers in stages[node.host]]
    return {
        "VLLM_PP_LAYER_PARTITION": ",".join(map(str, ordered)),
        "VLLM_USE_RAY_V2_EXECUTOR_BACKEND": "0",
    }


def _own(group: Group, place: Place, ports: ServerPorts, role: ContainerRole) -> dict[str, str]:
    """What differs from host to host, and no inventory can say."""
    variables: dict[str, str] = {}
    if group.several:
        variables["VLLM_HOST_IP"] = member_address(place)
    elif place.data_address is not None:
        variables["VLLM_HOST_IP"] = place.data_address
    if ports.data_parallel is not None:
        variables["VLLM_DP_MASTER_PORT"] = str(ports.data_parallel)
    if group.launch is Launch.RAY and role is ContainerRole.LEADER:
        variables["RAY_ADDRESS"] = address_with_port(member_address(place), ports.ray or 0)
        if group.replicas > 1:
            variables["VLLM_RAY_DP_PACK_STRATEGY"] = pack_strategy(group)
    return variables


def pack_strategy(group: Group) -> str:
    """How Ray spreads data-parallel ranks: `strict` as many on every host, `fill` unlike numbers, `span` ranks over
    several hosts (vLLM 0.33, `v1/engine/utils.py`)."""
    starting = [node.replicas for node in group.nodes]
    if not all(starting):
        return "span"
    return "strict" if len(set(starting)) == 1 else "fill"
