"""One request, one plan: every strategy evaluated, the cheapest correct answer recommended."""

from dataclasses import replace
from itertools import islice

from gpuplan.domain.fact import Fact, Severity
from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import Candidate, FunnelStep, Plan, StrategyName, StrategyResult, Verdict
from gpuplan.domain.workload import Workload
from gpuplan.engine.weights import Split, rank_weights
from gpuplan.errors import NoHostError, UsageError
from gpuplan.planning import layouts
from gpuplan.planning.argument_rules import always_broken
from gpuplan.planning.costs import Costs
from gpuplan.planning.draft_notes import about_draft, draft_summary
from gpuplan.planning.host_notes import about_hosts
from gpuplan.planning.judge import Judge
from gpuplan.planning.lesson_notes import about_lessons
from gpuplan.planning.notes import annotated, with_reasons
from gpuplan.planning.offers import Supply, supply_of
from gpuplan.planning.ranking import sort_key
from gpuplan.planning.remedies import find_remedies
from gpuplan.planning.request import PlanRequest
from gpuplan.planning.shapes import base
from gpuplan.planning.slots import about_slots
from gpuplan.planning.speeds import Speeds
from gpuplan.planning.strategies import (
    data_parallel,
    evict,
    manual,
    multi_host,
    offload,
    single_gpu,
    single_host,
)
from gpuplan.planning.strategies.evaluating import Evaluate
from gpuplan.planning.strategies.outcome import skipped
from gpuplan.planning.usable import Hindrance


def _of_one_replica(name: StrategyName, evaluate: Evaluate) -> Evaluate:
    """A strategy that places one replica; skipped where one is only a share of its server."""

    def evaluated(judge: Judge, supply: Supply) -> StrategyResult:
        if data_parallel.shares_experts(judge):
            copies = judge.request.workload.engine.data_parallel_size
            return skipped(
                name, f"one server of {copies} replicas holds the experts: they are placed together"
            )
        return evaluate(judge, supply)

    return evaluated


STRATEGIES: dict[StrategyName, Evaluate] = {
    StrategyName.MANUAL: manual.evaluate,
    StrategyName.SINGLE_GPU: _of_one_replica(StrategyName.SINGLE_GPU, single_gpu.evaluate),
    StrategyName.SINGLE_HOST: _of_one_replica(StrategyName.SINGLE_HOST, single_host.evaluate),
    StrategyName.MULTI_HOST: _of_one_replica(StrategyName.MULTI_HOST, multi_host.evaluate),
    StrategyName.DATA_PARALLEL: data_parallel.evaluate,
}
"""Those that place the model whole on what is free now; offload and eviction come after them."""


def plan(request: PlanRequest) -> Plan:
    """Evaluate every strategy on the fleet.

    Raises UsageError for sizes the model can never be built with (S0.13) and for a selection that does not exist, and
    NoHostError when the fleet has no usable GPU, not even once deployments are stopped where that was asked for.
    """
    supply = supply_of(request.fleet)
    if not supply.offers and not _may_make_room(request, supply):
        raise NoHostError(_no_gpu(supply), hint=_way_out(supply))
    judge = Judge(request)
    check_user_sizes(judge)
    evaluated = tuple(evaluate(judge, supply) for evaluate in STRATEGIES.values())
    results = tuple(
        replace(
            result, remedies=find_remedies(request, supply, result, STRATEGIES[result.strategy], evaluated)
        )
        for result in evaluated
    )
    speeds, costs = Speeds(request=request), Costs(request=request)
    results = (*results, *_last_resorts(judge, supply, evaluated))
    results = tuple(offload.priced(annotated(request, costs.told(speeds.told(one)))) for one in results)
    recommended = recommend(request, results)
    results = layouts.told(request, results, recommended)
    made = Plan(
        request=request.echo,
        model=model_summary(request.profile),
        strategies=results,
        recommended=recommended,
        recommended_because=(),
        funnel=(*supply.funnel, *_gates(judge, supply)),
        facts=tuple(_about_fleet(request, supply)),
        fleet_basis=request.fleet.basis.value,
        taken_at=request.fleet.taken_at,
    )
    about = (*about_hosts(request.fleet, supply, candidate_of(made)), *about_lessons(request, made))
    return with_reasons(request, replace(made, facts=(*made.facts, *about)))


def _last_resorts(
    judge: Judge, supply: Supply, whole: tuple[StrategyResult, ...]
) -> tuple[StrategyResult, ...]:
    """Weights in host memory (S4.3), and deployments that could make room (S4.6): where nothing fits whole."""
    workload = judge.request.workload
    deciding = _that_decide(workload)
    fitting = tuple(one.strategy for one in whole if one.verdict is Verdict.FITS)
    fitting = tuple(name for name in fitting if name in deciding)
    only_offload = set(workload.strategies) == {StrategyName.OFFLOAD}
    return (
        offload.evaluate(judge, supply, () if only_offload else fitting),
        evict.evaluate(judge, fitting, {name: STRATEGIES[name] for name in deciding}),
    )


def _that_decide(workload: Workload) -> tuple[StrategyName, ...]:
    """The strategies of whole models that the request leaves: the selection alone, or replicas alone, decide.

    Of the others those that were asked for; where only offload or eviction was, all.
    """
    if workload.selection:
        return (StrategyName.MANUAL,)
    if workload.replicas * max(workload.engine.data_parallel_size, 1) > 1:
        return (StrategyName.DATA_PARALLEL,)
    asked = tuple(name for name in STRATEGIES if name in workload.strategies)
    return asked or tuple(name for name in STRATEGIES if name is not StrategyName.MANUAL)


def check_user_sizes(judge: Judge) -> None:
    """Refuse the user's own sizes at once when the model cannot be built with them (S0.13), and arguments that the
    engine refuses at every size (S3)."""
    engine = judge.request.workload.engine
    _check_arguments(judge)
    if not engine.parallel_sizes_set:
        return
    shape = replace(base(engine), tensor=engine.tensor_parallel_size, pipeline=engine.pipeline_parallel_size)
    broken = judge.broken_rules(shape)
    if not broken:
        return
    first = broken[0]
    legal = [
        size for size in (1, 2, 3, 4, 5, 6, 7, 8, 16) if not judge.broken_rules(replace(shape, tensor=size))
    ]
    asked = f"--tensor-parallel-size {shape.tensor}"
    if shape.pipeline > 1:
        asked += f" --pipeline-parallel-size {shape.pipeline}"
    name = judge.request.profile.name
    raise UsageError(
        f"{asked}: {first.part}: {first.line}",
        hint=f"tensor-parallel sizes that work for {name}: {', '.join(map(str, legal))}"
        if legal
        else f"no tensor-parallel size makes {shape.pipeline} pipeline stages work for {name}: ask for fewer stages",
    )


def _check_arguments(judge: Judge) -> None:
    engine = judge.request.workload.engine
    shape = replace(base(engine), tensor=engine.tensor_parallel_size, pipeline=engine.pipeline_parallel_size)
    broken = always_broken(judge.request, shape)
    if broken is not None:
        raise UsageError(f"vLLM would refuse these arguments: {broken.line}", hint=broken.hint)


def recommend(request: PlanRequest, results: tuple[StrategyResult, ...]) -> tuple[StrategyName, int] | None:
    """The best candidate of the strategies that may decide: the selection when there is one, else the cheapest.

    Replicas are placed by the data-parallel strategy alone. An overcommitted candidate only with --allow-overcommit.
    Weights stay in host memory where nothing fits whole; deployments are stopped only where that was asked for.
    """
    workload = request.workload
    asked = {StrategyName(name) for name in workload.strategies}
    allowed = asked or {*STRATEGIES, StrategyName.OFFLOAD}
    if workload.selection:
        allowed &= {StrategyName.MANUAL, StrategyName.EVICT}
    elif workload.replicas * max(workload.engine.data_parallel_size, 1) > 1:
        allowed &= {StrategyName.DATA_PARALLEL, StrategyName.EVICT}
    verdicts = {Verdict.FITS, Verdict.OVERCOMMIT} if workload.allow_overcommit else {Verdict.FITS}
    best: tuple[tuple[object, ...], StrategyName] | None = None
    for outcome in results:
        if outcome.strategy not in allowed or not outcome.candidates:
            continue
        first = outcome.candidates[0]
        if first.verdict not in verdicts:
            continue
        key = (sort_key(first, workload.placement), tuple(StrategyName).index(outcome.strategy))
        if best is None or key < best[0]:
            best = (key, outcome.strategy)
    return None if best is None else (best[1], 0)


def candidate_of(plan: Plan) -> Candidate | None:
    """The recommended candidate."""
    if plan.recommended is None:
        return None
    name, index = plan.recommended
    return next(outcome.candidates[index] for outcome in plan.strategies if outcome.strategy is name)


def model_summary(profile: ModelProfile) -> dict[str, object]:
    """What a plan says about the model it is for."""
    described = profile.layer_order or profile.parts
    weights = rank_weights(profile, Split()).parameters if described else profile.checkpoint_bytes
    return {
        "name": profile.name,
        "architecture": profile.architecture,
        "weights_bytes": weights,
        "evidence": profile.evidence.label,
        "dtype": profile.dtype,
        "quantization": profile.quantization,
        "longest_context": profile.longest_context or None,
        "layers": profile.layer_count,
        "attention_heads": profile.attention_heads,
        "kv_heads": profile.kv_heads,
        "experts": profile.expert_count or None,
        "checkpoint_bytes": profile.checkpoint_bytes,
        **({} if profile.draft is None else {"draft": draft_summary(profile.draft)}),
    }


def _gates(judge: Judge, supply: Supply) -> list[FunnelStep]:
    """The last filters: the engine's budget is free on the GPU now."""
    offers = supply.offers
    enough = [judge.free_enough(offer) for offer in offers]
    return [
        FunnelStep(
            name="budget free",
            hosts=len({offer.host for offer, free in zip(offers, enough, strict=True) if free}),
            gpus=sum(enough),
            taken=tuple(
                islice((f"{o.host}:{o.index}" for o, free in zip(offers, enough, strict=True) if not free), 5)
            ),
        )
    ]


def _about_fleet(request: PlanRequest, supply: Supply) -> list[Fact]:
    facts = [
        Fact(
            code="GP401",
            severity=Severity.WARNING,
            subject={"host": host, "gpu": index},
            figures={},
        )
        for host, index in supply.unknown_memory
    ]
    facts.extend(
        Fact(
            code="GP402",
            severity=Severity.WARNING,
            subject={"host": host.name},
            figures={
                "stage": host.failure.stage,
                "detail": host.failure.detail,
                "address": host.address,
            },
        )
        for host in request.fleet.hosts
        if host.failure is not None
    )
    if not request.profile.recognised:
        facts.append(
            Fact(
                code="GP501",
                severity=Severity.WARNING,
                subject={"architecture": request.profile.architecture},
                figures={"evidence": request.profile.evidence.label},
            )
        )
    facts.extend(
        Fact(
            code="GP502",
            severity=Severity.INFO,
            subject={"model": request.profile.name},
            figures={"assumption": text},
        )
        for text in request.profile.assumptions
    )
    facts.extend(about_draft(request))
    facts.extend(about_slots(request))
    return facts


def _no_gpu(supply: Supply) -> str:
    steps = ", ".join(f"{step.name}: {step.hosts} hosts with {step.gpus} GPUs" for step in supply.funnel)
    return f"no usable GPU in the fleet ({steps})"


def _may_make_room(request: PlanRequest, supply: Supply) -> bool:
    """Whether GPUs are left out for the deployments on them alone, and those may be stopped."""
    full = any(left.hindrance is Hindrance.FULL for left in supply.left_out)
    return full and StrategyName.EVICT in request.workload.strategies and not request.workload.selection


def _way_out(supply: Supply) -> str:
    """What to do when there is no usable GPU: wait, where a deployment of ours is the reason."""
    loading = [left for left in supply.left_out if left.hindrance is Hindrance.LOADING]
    if loading:
        names = sorted({name for left in loading for name in left.deployments})
        places = ", ".join(f"{left.host}:{left.index}" for left in loading[:4])
        verb = "has" if len(names) == 1 else "have"
        return (
            f"plan again when {' and '.join(names)} {verb} loaded on {places} (gpuplan status {names[0]}), "
            "or deploy with --wait-for-capacity 30m, which waits for it"
        )
    full = sorted({name for left in supply.left_out for name in left.deployments})
    if full:
        return f"stop one of {', '.join(full[:4])} if it is no longer needed (gpuplan stop {full[0]}), or add GPUs"
    return "declare GPUs in the inventory, or check the hosts"
