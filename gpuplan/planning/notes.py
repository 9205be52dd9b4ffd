"""What is worth knowing about a candidate that fits, and why the recommended one was chosen."""

from dataclasses import replace

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.plan import Candidate, Plan, StrategyName, StrategyResult, Verdict
from gpuplan.engine.divisibility import misaligned
from gpuplan.planning.request import PlanRequest

HIGH_UTILIZATION = 0.95
MOST_ON_UNIFIED = 0.75
"""Where a GPU shares its memory with the host, more has made hosts unreachable (vLLM issue 46307)."""
NAMES = {
    StrategyName.SINGLE_GPU: "one GPU:",
    StrategyName.SINGLE_HOST: "one host:",
    StrategyName.MULTI_HOST: "several hosts:",
    StrategyName.DATA_PARALLEL: "replicas:",
    StrategyName.MANUAL: "the selection:",
    StrategyName.OFFLOAD: "with weights in host memory:",
    StrategyName.EVICT: "once others are stopped:",
}


def annotated(request: PlanRequest, result: StrategyResult) -> StrategyResult:
    """The result with notes on its best candidate."""
    if not result.candidates:
        return result
    first, *rest = result.candidates
    facts = (*first.facts, *_notes(request, first))
    return replace(result, candidates=(replace(first, facts=facts), *rest))


def _notes(request: PlanRequest, candidate: Candidate) -> list[Fact]:
    notes = []
    memory, longest = candidate.memory, request.profile.longest_context
    asked = request.workload.context is not None or isinstance(request.workload.engine.max_model_len, int)
    if memory is not None and not asked and 0 < memory.max_model_len < longest:
        notes.append(
            Fact(
                code="GP208",
                severity=Severity.INFO,
                subject={"model": request.profile.name},
                figures={"context": memory.max_model_len, "longest": longest},
            )
        )
    if memory is not None and longest and memory.max_model_len > longest:
        notes.append(
            Fact(
                code="GP210",
                severity=Severity.WARNING,
                subject={"model": request.profile.name},
                figures={"context": memory.max_model_len, "longest": longest},
            )
        )
    share = request.utilization
    if share is not None and share > HIGH_UTILIZATION:
        total = min(gpu.total_bytes for host in candidate.placement for gpu in host.gpus)
        notes.append(
            Fact(
                code="GP209",
                severity=Severity.WARNING,
                subject={"flag": "--gpu-memory-utilization"},
                figures={"utilization": share, "left_bytes": int(total * (1 - share))},
            )
        )
    if share is not None and _on_unified(request, candidate):
        notes.append(
            Fact(
                code="GP211",
                severity=Severity.WARNING if share > MOST_ON_UNIFIED else Severity.INFO,
                subject={"hosts": list(dict.fromkeys(host.host for host in candidate.placement))},
                figures={"utilization": share, "most": MOST_ON_UNIFIED},
            )
        )
    cut = misaligned(request.profile, candidate.parallelism)
    if cut and memory is not None:
        notes.append(
            Fact(
                code="GP114",
                severity=Severity.WARNING,
                subject={"part": cut[0].part},
                figures={
                    "part": cut[0].part,
                    "value": cut[0].value,
                    "ranks": cut[0].ranks,
                    "line": cut[0].line,
                },
            )
        )
    if candidate.score.ray:
        notes.append(
            Fact(
                code="GP307",
                severity=Severity.WARNING,
                subject={"hosts": [host.host for host in candidate.placement]},
                figures={"version": str(request.version)},
            )
        )
    return notes


def _on_unified(request: PlanRequest, candidate: Candidate) -> bool:
    """Whether some GPU of the placement shares its memory with its host."""
    used = {(host.host, gpu.index) for host in candidate.placement for gpu in host.gpus}
    names = {name for name, _ in used}
    return any(
        gpu.unified and (host.name, gpu.index) in used
        for host in request.fleet.hosts
        if host.name in names
        for gpu in host.gpus
    )


def reasons(
    request: PlanRequest, results: tuple[StrategyResult, ...], chosen: tuple[StrategyName, int]
) -> tuple[str, ...]:
    """Why this candidate: what it takes, and what the others that fit would take."""
    name, index = chosen
    best = next(result.candidates[index] for result in results if result.strategy is name)
    if request.workload.selection:
        return ("the selection decides; the other strategies are shown for comparison",)
    if name is StrategyName.DATA_PARALLEL:
        return (f"{best.parallelism.data} replicas on GPUs of their own take {_cost(best)}",)
    if best.evicts:
        stopped = " and ".join(one.deployment for one in best.evicts)
        return (f"once {stopped} is stopped it takes {_cost(best)}",)
    if name is StrategyName.OFFLOAD:
        gib = best.placement[0].cpu_offload_gib
        each = " for each" if best.score.gpus > 1 else ""
        rest = f"{gib} GiB of weights{each} stay in host memory"
        return (f"nothing fits whole: it takes {_cost(best)}, {rest}", *_beside(results, name))
    passed_over = any(
        item.score.unready_hosts > best.score.unready_hosts
        and (item.score.gpus, item.score.hosts) < (best.score.gpus, best.score.hosts)
        for result in results
        for item in result.candidates
        if item.verdict is Verdict.FITS
    )
    where = " on hosts where it can be started now" if passed_over else ""
    return (f"it takes {_cost(best)}, the least of what fits{where}", *_beside(results, name))


def _beside(results: tuple[StrategyResult, ...], chosen: StrategyName) -> tuple[str, ...]:
    """What the other strategies would take that have a placement."""
    others = [
        f"{NAMES[result.strategy]} {_cost(result.candidates[0])}"
        for result in results
        if result.strategy is not chosen and result.verdict is Verdict.FITS and result.candidates
    ]
    return ("what else fits: " + ", ".join(others),) if others else ()


def _cost(candidate: Candidate) -> str:
    score = candidate.score
    gpus = f"{score.gpus} GPU{'' if score.gpus == 1 else 's'}"
    hosts = "" if score.hosts == 1 else f" on {score.hosts} hosts"
    return gpus + hosts


def with_reasons(request: PlanRequest, plan: Plan) -> Plan:
    """The plan with the reasons of its recommendation, and what stands against starting it now."""
    if plan.recommended is None:
        return plan
    said = reasons(request, plan.strategies, plan.recommended)
    return replace(plan, recommended_because=(*said, *_against(plan)))


def _against(plan: Plan) -> list[str]:
    unready = [fact for fact in plan.facts if fact.code == "GP406"]
    if not unready:
        return []
    names = [str(fact.subject["host"]) for fact in unready]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    codes = ", ".join(sorted({code for fact in unready for code in fact.figures["codes"]}))
    return [f"it cannot be started on {shown} as things are: {codes} below"]
