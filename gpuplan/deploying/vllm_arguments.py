"""The words of `vllm serve` in each container: ours first, the user's own last, so that they win (S1.10).

What the plan assumed (context, batch limits, share of memory) is written out; flags a release does not have are left
out. Layouts over hosts follow vLLM 0.33 (`entrypoints/cli/serve.py`, `engine/arg_utils.py:create_engine_config`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuplan.deploying import secrets
from gpuplan.deploying.addresses import Place, member_address
from gpuplan.deploying.devices import is_310p
from gpuplan.deploying.grouping import Group, Node, exists
from gpuplan.deploying.ports import ServerPorts
from gpuplan.deploying.request import CompileRequest
from gpuplan.deploying.user_words import taken_out
from gpuplan.domain.deployment import DirectoryModel, HubModel, Launch
from gpuplan.domain.workload import Category
from gpuplan.engine.arguments import compact_json, engine_words, injected, parse, serving_flags, written

TIMEOUT_SECONDS = 1800
"""Of torch's rendezvous, 600 by default: members of a large model do not load alike fast."""
QUIET_ENDPOINTS = "/health,/metrics"
"""Asked every few seconds by Docker, by `status` and by monitoring."""
_DATA_PARALLEL = (
    "data_parallel_size",
    "data_parallel_size_local",
    "data_parallel_rpc_port",
    "data_parallel_backend",
)
_PLACED = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "enable_expert_parallel",
    "distributed_executor_backend",
)
"""Written from the placement, not copied from the plan's command."""
_WITHOUT_LENGTH = (Category.OMNI, Category.TEXT_TO_SPEECH, Category.SPEECH_TO_TEXT)
"""No context length of ours (S1.2)."""
Pairs = Iterator[tuple[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWords:
    """What stands behind `vllm serve` on one node."""

    model: str
    ours: tuple[str, ...]
    user: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return (self.model, *self.ours, *self.user)


def model_word(request: CompileRequest) -> str:
    """The model as the engine in the container is told it."""
    match request.model:
        case HubModel():
            return request.model.id
        case DirectoryModel():
            return request.model.inside


def served_name(request: CompileRequest) -> str:
    """The user's first, else the hub's id, else the last part of the model's path on the leader."""
    given = request.workload.engine.served_model_name
    if given:
        return given[0]
    match request.model:
        case HubModel():
            return request.model.id
        case DirectoryModel():
            leader = request.candidate.placement[0].host
            path = request.model.paths.get(leader, request.model.inside)
            return path.rstrip("/").rpartition("/")[2] or request.model.inside


def node_words(
    request: CompileRequest, group: Group, rank: int, places: dict[str, Place], ports: ServerPorts
) -> NodeWords:
    """The words of one node of a server; rank 0 answers requests, the others are headless."""
    user = request.workload.engine
    node = group.nodes[rank]
    ours: list[str] = ["--omni"] if request.category is Category.OMNI else []
    for destination, value in _ours(request, group, rank, places, ports):
        if destination not in user.user_set and exists(request.version, destination):
            ours += written(destination, value)
    if is_310p(places[node.host], node):
        for destination, value in (("enforce_eager", True), ("dtype", "float16")):
            ours += written(destination, value) if destination not in user.user_set else ()
    return NodeWords(model=model_word(request), ours=tuple(ours), user=_user(request, headless=rank > 0))


def _ours(
    request: CompileRequest, group: Group, rank: int, places: dict[str, Place], ports: ServerPorts
) -> Pairs:
    if isinstance(request.model, HubModel) and request.model.revision is not None:
        yield "revision", request.model.revision
    yield from _runner(request)
    yield from _layout(request, group)
    node = group.nodes[rank]
    match group.launch:
        case Launch.SINGLE:
            pass
        case Launch.NATIVE_MP | Launch.NATIVE_NESTED:
            yield from _nodes(group, rank, places, ports)
        case Launch.NATIVE_DP:
            yield from _data_parallel(group, node, rank, places, ports)
        case Launch.RAY:
            yield "distributed_executor_backend", "ray"
            if group.replicas > 1:
                yield from _data_parallel_ray(group, places, ports)
    if group.several:
        yield "distributed_timeout_seconds", TIMEOUT_SECONDS
    for destination, value in planned_values(request).items():
        if destination not in _PLACED:
            yield destination, value
    if rank == 0:
        yield from _serving(request, places[node.host], ports)


def _runner(request: CompileRequest) -> Pairs:
    """The pooling runner where the plan left head and sampler out; the engine's own guess needs files of the model."""
    engine = request.workload.engine
    if not request.profile.pooling or {"runner", "convert", "task"} & engine.user_set:
        return
    if exists(request.version, "runner"):
        yield "runner", "pooling"
    elif request.category is Category.EMBEDDING:
        yield "task", "embed"


def _layout(request: CompileRequest, group: Group) -> Pairs:
    """Sizes of one replica, as placed: the plan has followed those the user gave (S1.4)."""
    shape = request.candidate.parallelism
    if shape.tensor > 1 or group.several:
        yield "tensor_parallel_size", shape.tensor
    if shape.pipeline > 1:
        yield "pipeline_parallel_size", shape.pipeline
    if shape.expert:
        yield "enable_expert_parallel", True


def _nodes(group: Group, rank: int, places: dict[str, Place], ports: ServerPorts) -> Pairs:
    """One or more replicas over hosts: the engine derives the data-parallel rank from the node's."""
    leader = member_address(places[group.leader.host])
    yield "distributed_executor_backend", "mp"
    yield "nnodes", len(group.nodes)
    yield "node_rank", rank
    yield "master_addr", leader
    yield "master_port", ports.master
    if group.replicas > 1:
        yield "data_parallel_address", leader
        yield "data_parallel_rpc_port", ports.rpc
    if rank > 0:
        yield "headless", True


def _data_parallel(
    group: Group, node: Node, rank: int, places: dict[str, Place], ports: ServerPorts
) -> Pairs:
    """Replicas inside hosts. The leader gets no start rank: one would make it balance on its own (hybrid)."""
    yield "data_parallel_size_local", node.replicas
    yield "data_parallel_address", member_address(places[group.leader.host])
    yield "data_parallel_rpc_port", ports.rpc
    if rank > 0:
        yield "data_parallel_start_rank", node.first_replica
        yield "headless", True


def _data_parallel_ray(group: Group, places: dict[str, Place], ports: ServerPorts) -> Pairs:
    """Ranks placed by Ray, one command for all (S1.7)."""
    yield "data_parallel_backend", "ray"
    yield "data_parallel_size_local", max(group.leader.replicas, 1)
    yield "data_parallel_address", member_address(places[group.leader.host])
    yield "data_parallel_rpc_port", ports.rpc


def _serving(request: CompileRequest, place: Place, ports: ServerPorts) -> Pairs:
    for destination, value in serving_flags(request.version, request.workload.engine):
        quiet = destination == "disable_access_log_for_endpoints"
        yield destination, QUIET_ENDPOINTS if quiet else value
    yield "host", place.bind
    yield "port", ports.http
    yield "served_model_name", (served_name(request),)


def planned_values(request: CompileRequest) -> dict[str, Any]:
    """What the plan's own command adds, by destination: context, batch limits, share of memory."""
    words = request.candidate.vllm_args
    if len(words) < 2:
        return {}
    added = injected(words, words[:2], engine_words(request.workload.engine))
    values = dict(parse(added, version=request.version, model_given=True).values)
    if request.category in _WITHOUT_LENGTH:
        values.pop("max_model_len", None)
    return values


def _user(request: CompileRequest, *, headless: bool) -> tuple[str, ...]:
    """The user's words as the container gets them: without secrets, one speculative configuration (S1.5), no
    data-parallel size for a dense model (S3.2), no API servers on a headless node."""
    engine = request.workload.engine
    words, _ = secrets.split(engine_words(engine))
    dropped: tuple[str, ...] = () if request.profile.expert_count else _DATA_PARALLEL
    dropped += ("api_server_count",) if headless else ()
    words, _ = taken_out(words, dropped)
    if engine.speculative_config:
        words, _ = taken_out(words, ("speculative_config", "spec_method", "spec_model", "spec_tokens"))
        words = ("--speculative-config", compact_json(engine.speculative_config), *words)
    return words
