"""What would have made a failed deployment fit, planned again before it is offered (GP829)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuplan.deploying.diagnosis import Diagnosis
from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Candidate, Verdict
from gpuplan.domain.workload import ExecutorChoice
from gpuplan.engine.arguments import parse, written
from gpuplan.errors import GpuplanError
from gpuplan.operations.plan import request_for
from gpuplan.operations.replan import candidate_at
from gpuplan.planning.planner import candidate_of, plan

if TYPE_CHECKING:
    from gpuplan.operations.deploy_prepare import Prepared


def replanned(prepared: "Prepared", found: Diagnosis) -> Fact | None:
    """The diagnosis's change as a fact, with what the plan says of it; None where it is no matter of fit."""
    change = found.change
    if not change:
        return None
    words = flags_of(change)
    candidate = _under(prepared, change, words)
    fits = candidate is not None and candidate.verdict is Verdict.FITS
    memory = candidate.memory if candidate is not None and fits else None
    return Fact(
        code="GP829",
        severity=Severity.INFO,
        subject={"deployment": prepared.name},
        figures={
            "flags": words,
            "executor": change.get("executor"),
            "fits": fits,
            "model": prepared.wanted.asked.reference or prepared.wanted.model.path,
            "max_model_len": memory.max_model_len if memory is not None else None,
            "kv_cache_tokens": memory.kv_cache_tokens if memory is not None else None,
        },
    )


def flags_of(change: Mapping[str, Any]) -> tuple[str, ...]:
    """The change in vLLM's own syntax; `executor` is an option of ours."""
    return tuple(
        word for name, value in change.items() if name != "executor" for word in written(name, value)
    )


def _under(prepared: "Prepared", change: Mapping[str, Any], words: tuple[str, ...]) -> Candidate | None:
    """The same GPUs with the change; where the sizes change with it, the best placement there is."""
    wanted = prepared.wanted
    try:
        engine = parse((*wanted.workload.engine.user_args, *words), version=wanted.version, model_given=True)
        workload = replace(wanted.workload, engine=engine)
        if "executor" in change:
            workload = replace(workload, executor=ExecutorChoice(change["executor"]))
        question = request_for(wanted.model, prepared.request.fleet, workload, wanted.version, wanted.asked)
        if {"executor", "tensor_parallel_size"} & set(change):
            return candidate_of(plan(question))
        return candidate_at(question, prepared.candidate.placement, prepared.candidate.parallelism)
    except GpuplanError:
        return None
