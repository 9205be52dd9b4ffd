"""A saved plan asked again: on the fleet as it is now, for the same GPUs and sizes."""

from gpuplan.domain.fleet import Fleet
from gpuplan.domain.saved_plan import SavedPlan
from gpuplan.operations.plan import Asked, ServingOptions, engine_version, model_for, request_for, workload_of
from gpuplan.planning.changes import breaks, changes
from gpuplan.planning.request import PlanRequest
from gpuplan.planning.same_place import candidate_at

__all__ = ["breaks", "candidate_at", "changes", "request_again", "serving_options"]


def serving_options(saved: SavedPlan) -> ServingOptions:
    """What was asked of the model, as the command line would give it."""
    return ServingOptions(**saved.serving)


def request_again(saved: SavedPlan, fleet: Fleet) -> PlanRequest:
    """The question behind a saved plan, on another fleet; the model is read once, here.

    Raises GpuplanError subclasses for a model that can no longer be read.
    """
    options = serving_options(saved)
    version = engine_version(options, None)
    workload = workload_of(options, version)
    asked = Asked(reference=saved.reference, hosts=saved.hosts, labels=saved.labels)
    return request_for(model_for(saved.reference, workload), fleet, workload, version, asked)
