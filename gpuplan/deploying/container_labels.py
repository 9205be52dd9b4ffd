"""The labels of every container: enough to show, stop and replace it from any machine; no label holds a secret.

The claims on a GPU are added up over our containers, so one container per host and server carries them: with Ray the one
the workers run in (the head, a follower), not the leader's server beside it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from gpuplan.deploying.grouping import Node
from gpuplan.domain import labels
from gpuplan.domain.deployment import ContainerSpec, Prediction
from gpuplan.domain.plan import Candidate
from gpuplan.version import __version__

Pairs = tuple[tuple[str, str], ...]


def as_json(document: object) -> str:
    """Compact and sorted: equal documents are equal texts."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), default=str, ensure_ascii=False)


def members(containers: Sequence[ContainerSpec]) -> str:
    """Every container of the deployment, for the label `MEMBERS`."""
    return as_json(
        [
            {
                "host": one.host,
                "container": one.name,
                "role": one.role.value,
                "rank": one.rank,
                "server": one.server,
            }
            for one in containers
        ]
    )


def deployment_labels(
    *,
    name: str,
    model: str,
    served_name: str,
    image: str,
    vllm_version: str,
    request: Mapping[str, object],
    predicted: Prediction,
    keep_alive_seconds: int | None,
) -> dict[str, str]:
    """What all containers of a deployment say alike."""
    common = {
        labels.MANAGED: "true",
        labels.DEPLOYMENT: name,
        labels.MODEL: model,
        labels.SERVED_NAME: served_name,
        labels.IMAGE_REFERENCE: image,
        labels.VLLM_VERSION: vllm_version,
        labels.REQUEST: as_json(request),
        labels.PREDICTED: as_json(
            {key: value for key, value in asdict(predicted).items() if value is not None}
        ),
        labels.CREATED_BY: __version__,
    }
    if keep_alive_seconds is not None:
        common[labels.KEEP_ALIVE] = str(keep_alive_seconds)
    return common


def claims(node: Node, identities: Sequence[str]) -> dict[str, str]:
    """The GPUs given to a container and what is booked on each."""
    booked = {uuid: gpu.claim_bytes for uuid, gpu in zip(identities, node.gpus, strict=True)}
    return {labels.GPUS: as_json(list(identities)), labels.CLAIMS: as_json(booked)}


def prediction_of(candidate: Candidate, utilization: float | None) -> Prediction:
    """What the plan expects the engine to print: of the fullest rank, of the rank with the least cache."""
    memory = candidate.memory
    booked = max((gpu.claim_bytes for host in candidate.placement for gpu in host.gpus), default=None)
    if memory is None or not memory.ranks:
        return Prediction(per_gpu_bytes=booked, gpu_memory_utilization=utilization)
    return Prediction(
        weights_bytes=max(rank.weights.bytes + rank.weights_extra.bytes for rank in memory.ranks),
        kv_cache_bytes=min(rank.kv_cache_bytes for rank in memory.ranks),
        kv_cache_tokens=memory.kv_cache_tokens,
        max_concurrency=memory.max_concurrency,
        max_model_len=memory.max_model_len,
        cuda_graph_bytes=max(rank.cuda_graph.bytes for rank in memory.ranks),
        kv_needed_bytes=max(rank.kv_needed_bytes for rank in memory.ranks),
        per_gpu_bytes=booked,
        gpu_memory_utilization=utilization,
    )
