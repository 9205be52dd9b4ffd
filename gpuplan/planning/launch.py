"""The exact `vllm serve` arguments and environment of a candidate, as far as planning knows them (S1.4, S1.7, S1.10)."""

from collections.abc import Sequence
from typing import Any

from gpuplan.domain.plan import PlacedHost
from gpuplan.domain.workload import ExecutorChoice
from gpuplan.engine.arguments import render
from gpuplan.planning.judge import Assessment
from gpuplan.planning.request import PlanRequest


def launch_arguments(
    request: PlanRequest, assessment: Assessment, placement: Sequence[PlacedHost]
) -> tuple[str, ...]:
    """`serve MODEL` with what the placement adds, then the user's own words.

    The context and batch limits the estimate assumed are written out, so that the prediction holds whatever the
    engine's defaults on that card are.
    """
    parallelism, engine = assessment.parallelism, request.workload.engine
    ours: list[tuple[str, Any]] = []
    if parallelism.tensor > 1 or len(placement) > 1:
        ours.append(("tensor_parallel_size", parallelism.tensor))
    if parallelism.pipeline > 1:
        ours.append(("pipeline_parallel_size", parallelism.pipeline))
    if parallelism.expert:
        ours.append(("enable_expert_parallel", True))
    if len(placement) > 1:
        ours.append(
            ("distributed_executor_backend", executor(request, [len(host.gpus) for host in placement]))
        )
    if request.utilization is not None:
        ours.append(("gpu_memory_utilization", request.utilization))
    elif assessment.own_share is not None:
        ours.append(("gpu_memory_utilization", assessment.own_share))
    if request.workload.engine.cpu_offload_gb:
        ours.append(("cpu_offload_gb", int(request.workload.engine.cpu_offload_gb)))
    memory = assessment.memory
    if memory is not None:
        if memory.max_model_len > 0 and not request.profile.pooling:
            ours.append(("max_model_len", memory.max_model_len))
        ours += [
            ("max_num_batched_tokens", memory.max_num_batched_tokens),
            ("max_num_seqs", memory.max_num_seqs),
        ]
    return render(request.model_path or request.profile.name, ours, engine)


def launch_environment(request: PlanRequest, assessment: Assessment) -> tuple[tuple[str, str], ...]:
    """Variables the shape and the asked length need."""
    variables = []
    partition = assessment.parallelism.layer_partition
    if partition is not None:
        variables.append(("VLLM_PP_LAYER_PARTITION", ",".join(str(count) for count in partition)))
    longest = request.profile.longest_context
    if assessment.memory is not None and longest and assessment.memory.max_model_len > longest:
        variables.append(("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1"))
    return tuple(variables)


def executor(request: PlanRequest, ranks_per_host: Sequence[int]) -> str:
    """`mp` (vLLM's own multi-node) where every host has as many ranks, else `ray` (S1.7, S2.8)."""
    choice = request.workload.executor
    if choice is not ExecutorChoice.AUTO:
        return choice.value
    return "mp" if len(set(ranks_per_host)) == 1 else "ray"
