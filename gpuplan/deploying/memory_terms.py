"""Failures for want of memory in the plan's terms: what was predicted, what was needed, what there was (bytes)."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuplan.domain.deployment import Actual, Prediction
from gpuplan.engine.startup_log import MilestoneKind

_FRAMES = (
    (
        "MEM_GRAPH",
        (
            "capture_model",
            "profile_cudagraph_memory",
            "_warmup_and_capture",
            "compile_or_warm_up_model",
            "capture_end",
        ),
    ),
    ("MEM_ACTIVATION", ("profile_run", "determine_available_memory", "determine_num_available_blocks")),
    ("MEM_WEIGHTS", ("in load_model", "load_weights", "process_weights_after_loading", "initialize_model")),
)
"""Functions of a traceback that tell what the engine was doing (vLLM v1/worker/gpu_worker.py)."""


def kind_of_exhaustion(before: Sequence[str], reached: MilestoneKind | None) -> str:
    """Which part ran out of device memory: by the traceback before the line, else by how far the start was."""
    if reached is MilestoneKind.SERVING:
        return "MEM_SERVING"
    trace = "\n".join(line[:400] for line in before)
    for group, frames in _FRAMES:
        if any(frame in trace for frame in frames):
            return group
    if reached is None or reached.place < MilestoneKind.LOADED.place:
        return "MEM_WEIGHTS"
    return "MEM_ACTIVATION" if reached.place < MilestoneKind.PROFILED.place else "MEM_GRAPH"


def in_terms_of_the_plan(
    group: str, figures: Mapping[str, Any], predicted: Prediction, actual: Actual
) -> dict[str, Any]:
    """The figures of a cause with `predicted_bytes`, `needed_bytes`, `available_bytes` and `short_bytes`, as far as known.

    What the log says itself is kept; weights are added where they explain a small cache.
    """
    told = dict(figures)
    match group:
        case "MEM_KV_SMALL" | "MEM_KV_NONE":
            told.setdefault("available_bytes", actual.kv_cache_bytes)
            told.setdefault("needed_bytes", predicted.kv_needed_bytes)
            told |= {
                "predicted_bytes": predicted.kv_cache_bytes,
                "weights_bytes": actual.weights_bytes,
                "predicted_weights_bytes": predicted.weights_bytes,
            }
        case "MEM_FREE":
            told["available_bytes"] = told.get("free_bytes")
            told["predicted_bytes"] = predicted.per_gpu_bytes
        case "MEM_WEIGHTS":
            told["predicted_bytes"] = predicted.weights_bytes
            told["available_bytes"] = told.get("free_bytes")
            told.setdefault("needed_bytes", told.get("wanted_bytes"))
        case "MEM_ACTIVATION":
            told["available_bytes"] = told.get("free_bytes")
            told.setdefault("needed_bytes", told.get("wanted_bytes"))
        case "MEM_GRAPH":
            told["predicted_bytes"] = predicted.cuda_graph_bytes
            told["available_bytes"] = told.get("free_bytes")
            told.setdefault("needed_bytes", told.get("wanted_bytes"))
        case _:
            pass
    needed, available = told.get("needed_bytes"), told.get("available_bytes")
    if isinstance(needed, int) and isinstance(available, int) and needed > available:
        told["short_bytes"] = needed - available
    return {name: value for name, value in told.items() if value is not None}
