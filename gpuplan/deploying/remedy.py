"""What a second try would change, where that is mechanical; a change of fit is planned again before it is offered."""

import math
from collections.abc import Mapping
from typing import Any

from gpuplan.deploying.diagnosis import Cause, Remedy, RemoveFlag, Replan, RetryOtherPort
from gpuplan.domain.deployment import Prediction
from gpuplan.units import GIB

MOST_UTILIZATION = 0.95
LEAST_UTILIZATION = 0.1
FREE_CUSHION = GIB // 2
"""Left of what is free when the share is lowered to it (deploy-facts section 1)."""
GRAPH_STEP = 0.05
"""Share given back for CUDA graphs and the sampler."""

_PORTS = frozenset(("NET_PORT_IN_USE", "NET_HTTP_PORT", "NET_ZMQ_PORT", "RAY_PORT", "RAY_GCS_CONFLICT"))


def remedy_for(cause: Cause, predicted: Prediction) -> Remedy | None:
    """The change that may let the next start succeed; None where a person has to act first."""
    figures = cause.figures
    if cause.group in _PORTS:
        port = figures.get("port")
        return RetryOtherPort(port=port if isinstance(port, int) else None)
    if cause.group == "PLAN_ARG":
        flags = _flags(figures)
        return RemoveFlag(flags=flags) if flags else None
    change = _change(cause.group, figures, predicted)
    return Replan(change=change) if change else None


def _change(group: str, figures: Mapping[str, Any], predicted: Prediction) -> dict[str, Any] | None:
    share = predicted.gpu_memory_utilization
    match group:
        case "MEM_KV_SMALL":
            return {"max_model_len": figures["fitting"]} if figures.get("fitting") else _more(share)
        case "MEM_KV_NONE":
            return _more(share) or {"max_num_seqs": 64}
        case "MEM_FREE":
            return _what_is_free(figures)
        case "MEM_ACTIVATION":
            return {"max_num_batched_tokens": 2048}
        case "MEM_GRAPH":
            requests = figures.get("requests")
            if isinstance(requests, int) and requests > 1:
                return {"max_num_seqs": requests // 2}
            return (
                {"gpu_memory_utilization": round(share - GRAPH_STEP, 2)} if share else {"enforce_eager": True}
            )
        case "MEM_SERVING":
            return {"gpu_memory_utilization": round(share - GRAPH_STEP, 2)} if share else None
        case "PLAN_CTX":
            return {"max_model_len": figures["derived"]} if figures.get("derived") else None
        case "PLAN_HEADS":
            return _dividing(figures)
        case "GPU_DTYPE":
            return {"dtype": "half"}
        case "RAY_MISSING":
            return {"executor": "mp"}
        case "RUN_127":
            return {"executor": "mp"} if figures.get("program") == "ray" else None
        case "NCCL_P2P_HANG":
            return {"disable_custom_all_reduce": True}
        case _:
            return None


def _more(share: float | None) -> dict[str, Any] | None:
    if share is None or share >= MOST_UTILIZATION:
        return None
    return {"gpu_memory_utilization": MOST_UTILIZATION}


def _what_is_free(figures: Mapping[str, Any]) -> dict[str, Any] | None:
    free, total = figures.get("free_bytes"), figures.get("total_bytes")
    if not isinstance(free, int) or not isinstance(total, int) or total <= 0:
        return None
    share = math.floor((free - FREE_CUSHION) / total * 100) / 100
    return {"gpu_memory_utilization": share} if share >= LEAST_UTILIZATION else None


def _dividing(figures: Mapping[str, Any]) -> dict[str, Any] | None:
    """The largest smaller size that divides the heads."""
    heads, size = figures.get("heads"), figures.get("tensor")
    if not isinstance(heads, int) or not isinstance(size, int) or heads < 1:
        return None
    fitting = next((less for less in range(min(size, heads), 0, -1) if heads % less == 0), None)
    return {"tensor_parallel_size": fitting} if fitting is not None and fitting != size else None


def _flags(figures: Mapping[str, Any]) -> tuple[str, ...]:
    """The flags of an `unrecognized arguments` line, without their values."""
    if "reason" in figures:
        return ()
    words = str(figures.get("flags", "")).replace("=", " ").split()
    return tuple(dict.fromkeys(word for word in words if word.startswith("--")))
