"""A deployment as JSON: the shape scripts depend on (`schema_version` 1), in `status` and as the last line of `deploy`.

The dataclasses here are what `gpuplan schema deployment` is generated from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuplan.deploying.create_body import body
from gpuplan.deploying.docker_run import docker_commands
from gpuplan.deploying.steps import (
    AskOnce,
    AwaitRegistered,
    AwaitServing,
    Check,
    Create,
    HaveWeights,
    Lock,
    PullImage,
    PutSecrets,
    RemoveOld,
    Start,
    Step,
    StopOld,
    Unlock,
    steps,
)
from gpuplan.domain.deployment import (
    Actual,
    ContainerSpec,
    Deployment,
    DeploymentSpec,
    Load,
    Member,
    Prediction,
)
from gpuplan.domain.fact import Fact
from gpuplan.domain.plan import Eviction
from gpuplan.domain.secret_text import masked, masked_words
from gpuplan.present.plan_document import FindingDocument, finding_document, plain

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MemberDocument:
    """One container of a deployment."""

    host: str
    role: str
    rank: int
    server: int
    container: str
    id: str
    state: str
    """As Docker prints it; `missing`: it should be there; `unknown`: its host does not answer."""
    health: str | None
    gpus: tuple[str, ...]
    gpu_indexes: tuple[int, ...]
    exit_code: int | None
    oom_killed: bool
    started_at: str | None
    finished_at: str | None
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class PredictedDocument:
    """What the plan said; null where only a claim is known. Of the fullest rank, the cache of the rank with the least."""

    weights_bytes: int | None
    kv_cache_bytes: int | None
    kv_cache_tokens: int | None
    max_concurrency: float | None
    max_model_len: int | None
    cuda_graph_bytes: int | None
    kv_needed_bytes: int | None
    per_gpu_bytes: int | None
    gpu_memory_utilization: float | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class UsedDocument:
    """What a device reports for our processes on it."""

    host: str
    index: int
    used_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ActualDocument:
    """What the engine printed of itself while it started, and what the devices report now."""

    weights_bytes: int | None
    kv_cache_bytes: int | None
    kv_cache_tokens: int | None
    max_concurrency: float | None
    cuda_graph_bytes: int | None
    load_seconds: float | None
    start_seconds: float | None
    used: tuple[UsedDocument, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LoadDocument:
    """What the engine's metrics say now."""

    running: int | None
    waiting: int | None
    kv_cache_share: float | None
    requests: int | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class DeploymentDocument:
    """One deployment."""

    name: str
    state: str
    endpoint: str | None
    endpoints: tuple[str, ...]
    model: str
    served_name: str
    image: str
    vllm_version: str
    members: tuple[MemberDocument, ...]
    predicted: PredictedDocument
    actual: ActualDocument | None
    load: LoadDocument | None
    uptime_seconds: int | None
    keep_alive_seconds: int | None
    message: str | None
    findings: tuple[FindingDocument, ...]
    """Why it is not as it should be, the root cause first."""


def deployment_document(deployment: Deployment, facts: Sequence[Fact] = ()) -> dict[str, Any]:
    """One deployment as `json.dumps` takes it: the last line of `deploy -o json`."""
    rest: dict[str, Any] = plain(document_of(deployment, facts))
    return {"schema_version": SCHEMA_VERSION, "event": "deployment", **rest}


def document_of(deployment: Deployment, facts: Sequence[Fact] = ()) -> DeploymentDocument:
    """One deployment. The headline of its first finding is its message."""
    findings = tuple(finding_document(fact) for fact in facts)
    message = findings[0].headline if findings else deployment.message
    return DeploymentDocument(
        name=deployment.name,
        state=deployment.state.value,
        endpoint=deployment.endpoint,
        endpoints=deployment.endpoints,
        model=deployment.model,
        served_name=deployment.served_name,
        image=deployment.image,
        vllm_version=deployment.vllm_version,
        members=tuple(member_document(member) for member in deployment.members),
        predicted=predicted_document(deployment.predicted),
        actual=None if deployment.actual is None else actual_document(deployment.actual),
        load=None if deployment.load is None else load_document(deployment.load),
        uptime_seconds=deployment.uptime_seconds,
        keep_alive_seconds=deployment.keep_alive_seconds,
        message=None if message is None else masked(message),
        findings=findings,
    )


def member_document(member: Member) -> MemberDocument:
    """One container; its message may quote Docker, secrets in it are masked."""
    return MemberDocument(
        host=member.host,
        role=member.role.value,
        rank=member.rank,
        server=member.server,
        container=member.container,
        id=member.id,
        state=member.state,
        health=member.health,
        gpus=member.gpus,
        gpu_indexes=member.gpu_indexes,
        exit_code=member.exit_code,
        oom_killed=member.oom_killed,
        started_at=member.started_at,
        finished_at=member.finished_at,
        message=None if member.message is None else masked(member.message),
    )


def predicted_document(predicted: Prediction) -> PredictedDocument:
    """The plan's figures, in bytes and tokens."""
    return PredictedDocument(
        weights_bytes=predicted.weights_bytes,
        kv_cache_bytes=predicted.kv_cache_bytes,
        kv_cache_tokens=predicted.kv_cache_tokens,
        max_concurrency=_rounded(predicted.max_concurrency),
        max_model_len=predicted.max_model_len,
        cuda_graph_bytes=predicted.cuda_graph_bytes,
        kv_needed_bytes=predicted.kv_needed_bytes,
        per_gpu_bytes=predicted.per_gpu_bytes,
        gpu_memory_utilization=predicted.gpu_memory_utilization,
    )


def actual_document(actual: Actual) -> ActualDocument:
    """The engine's own figures."""
    return ActualDocument(
        weights_bytes=actual.weights_bytes,
        kv_cache_bytes=actual.kv_cache_bytes,
        kv_cache_tokens=actual.kv_cache_tokens,
        max_concurrency=_rounded(actual.max_concurrency),
        cuda_graph_bytes=actual.cuda_graph_bytes,
        load_seconds=_rounded(actual.load_seconds),
        start_seconds=_rounded(actual.start_seconds),
        used=tuple(
            UsedDocument(host=host, index=index, used_bytes=size) for host, index, size in actual.used_bytes
        ),
    )


def load_document(load: Load) -> LoadDocument:
    """Requests and cache now; the share is 0 to 1."""
    return LoadDocument(
        running=load.running,
        waiting=load.waiting,
        kv_cache_share=_rounded(load.kv_cache_share),
        requests=load.requests,
    )


def dry_run_document(
    spec: DeploymentSpec, replaced: Sequence[Member] = (), evicts: Sequence[Eviction] = ()
) -> dict[str, Any]:
    """`deploy --dry-run -o json`: what would be done in which order, what Docker would be told, and the same by hand."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": spec.name,
        "model": spec.model,
        "served_name": spec.served_name,
        "image": spec.image,
        "vllm_version": spec.vllm_version,
        "endpoints": [server.endpoint for server in spec.servers],
        "predicted": plain(predicted_document(spec.predicted)),
        **({"evicts": [_eviction(one) for one in evicts]} if evicts else {}),
        "steps": [_step(step) for step in steps(spec, replaced)],
        "containers": [_container(container) for container in spec.containers],
        "injected": list(masked_words(spec.injected)),
        "notes": list(spec.notes),
        "request": plain(spec.request),
    }


def _eviction(eviction: Eviction) -> dict[str, Any]:
    return {
        "deployment": eviction.deployment,
        "gpus": [{"host": host, "index": index, "bytes": size} for host, index, size in eviction.gpus],
        "running_requests": eviction.running_requests,
        "keep_alive_seconds": eviction.keep_alive_seconds,
    }


def _step(step: Step) -> dict[str, Any]:
    """Its name, its host, and the container or the image it is about."""
    name = type(step).__name__
    document = {
        "step": "".join(f"_{char.lower()}" if char.isupper() else char for char in name)[1:],
        "host": step.host,
    }
    match step:
        case Create():
            document["container"] = step.container.name
        case PutSecrets() | Start() | StopOld() | RemoveOld():
            document["container"] = step.container
        case PullImage():
            document["image"] = step.image
        case AwaitRegistered() | AwaitServing() | AskOnce():
            document["endpoint"] = step.server.endpoint
        case Lock() | Check() | HaveWeights() | Unlock():
            pass
    return document


def _container(container: ContainerSpec) -> dict[str, Any]:
    """The engine is told the image's id and two labels more, which are known when it is created."""
    return {
        "host": container.host,
        "container": container.name,
        "role": container.role.value,
        "rank": container.rank,
        "server": container.server,
        "gpus": list(container.gpus),
        "gpu_indexes": list(container.gpu_indexes),
        "secrets": list(container.secrets),
        "create": body(container, image=container.image, labels=dict(container.labels)),
        "commands": [list(words) for words in docker_commands(container)],
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)
