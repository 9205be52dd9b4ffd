"""plan.json → `ToldPlan`: what `gpuplan plan -o json` wrote, whether or not anything fits, to be compared with another."""

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuplan.domain.cost import Cost, Money
from gpuplan.domain.memory import EngineAnswer, MemoryEstimate, RankMemory, Term
from gpuplan.domain.plan import Candidate, FunnelStep, Plan, Score, StrategyName, StrategyResult
from gpuplan.domain.told_plan import ToldFinding, ToldPlan
from gpuplan.sources.documents import read_bytes
from gpuplan.sources.plan_json import AGAIN, MAX_BYTES, parallelism, placed_host, validated

if TYPE_CHECKING:
    from gpuplan.sources.told_plan_schema import (
        CostKeys,
        FindingKeys,
        GpuMemoryKeys,
        TermKeys,
        ToldCandidateKeys,
        ToldPlanKeys,
        ToldStrategyKeys,
    )

_TERMS = 6


def load(path: Path | str) -> ToldPlan:
    """Read a plan. Raises InventoryError naming file, line or key."""
    return parse(read_bytes(path, limit=MAX_BYTES, missing_hint=AGAIN), str(path))


def parse(content: bytes, path: str) -> ToldPlan:
    """Read a plan from its bytes; `path` is what faults name."""
    from gpuplan.sources.told_plan_schema import TOLD_PLAN

    keys = validated(content, path, TOLD_PLAN)
    recommended = keys["recommended"]
    plan = Plan(
        request={name: _plain(value) for name, value in keys["request"].items()},
        model={"name": "", **keys["model"]},
        strategies=tuple(_strategy(one) for one in keys["strategies"]),
        recommended=_recommended(keys) if recommended is not None else None,
        recommended_because=(),
        funnel=tuple(
            FunnelStep(
                name=one["name"], hosts=one["hosts"], gpus=one["gpus"], taken=tuple(one.get("taken", ()))
            )
            for one in keys["funnel"]
        ),
        facts=(),
        fleet_basis=keys["fleet"]["basis"].value,
        taken_at=None,
    )
    return ToldPlan(
        path=path,
        plan=plan,
        findings=tuple(_finding(one) for one in keys["findings"]),
        refusals={
            one["strategy"]: tuple(_finding(finding) for finding in one["findings"])
            for one in keys["strategies"]
        },
    )


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _recommended(keys: "ToldPlanKeys") -> tuple[StrategyName, int] | None:
    """None too where the candidate it names is not there."""
    chosen = keys["recommended"]
    if chosen is None:
        return None
    name, index = chosen["strategy"], chosen["candidate"]
    there = any(one["strategy"] is name and index < len(one["candidates"]) for one in keys["strategies"])
    return (name, index) if there else None


def _finding(keys: "FindingKeys") -> ToldFinding:
    return ToldFinding(
        code=keys["code"],
        severity=keys["severity"],
        headline=keys["headline"],
        subject=keys.get("subject", {}),
        figures=keys.get("figures", {}),
    )


def _strategy(keys: "ToldStrategyKeys") -> StrategyResult:
    return StrategyResult(
        strategy=keys["strategy"],
        verdict=keys["verdict"],
        reason=keys["reason"],
        candidates=tuple(_candidate(one) for one in keys["candidates"]),
        facts=(),
        remedies=(),
    )


def _candidate(keys: "ToldCandidateKeys") -> Candidate:
    placement = tuple(placed_host(host) for host in keys["placement"])
    shape, cost = parallelism(keys), keys.get("cost")
    gpus = [gpu for host in placement for gpu in host.gpus]
    engine = EngineAnswer(starts=keys["engine"]["starts"], error=keys["engine"]["error"])
    return Candidate(
        verdict=keys["verdict"],
        parallelism=shape,
        placement=placement,
        memory=_memory(keys, engine),
        engine=engine,
        score=Score(
            ray=False,
            gpus=len(gpus),
            hosts=len(placement),
            stages=shape.pipeline,
            total_bytes=sum(gpu.total_bytes for gpu in gpus),
            free_bytes=sum(gpu.allocatable_bytes for gpu in gpus),
        ),
        vllm_args=tuple(keys["vllm_args"]),
        env=tuple(keys["env"].items()),
        cost=None if cost is None else _cost(cost),
    )


def _memory(keys: "ToldCandidateKeys", engine: EngineAnswer) -> MemoryEstimate | None:
    """The first replica's; None of a claim."""
    ranks = [
        rank for gpu in keys["memory"]["per_gpu"] if gpu["replica"] == 0 and (rank := _rank(gpu)) is not None
    ]
    if not ranks:
        return None
    return MemoryEstimate(
        ranks=tuple(ranks),
        blocks=0,
        block_bytes=0,
        block_size=keys["block_size"] or 0,
        kv_cache_tokens=keys["kv_cache_tokens"] or 0,
        max_concurrency=keys["max_concurrency"] or 0.0,
        max_model_len=keys["max_model_len"] or 0,
        largest_max_model_len=keys["largest_max_model_len"] or 0,
        concurrency_at=(),
        engine=engine,
        kv_needed_bytes=0,
        max_num_batched_tokens=0,
        max_num_seqs=0,
    )


def _rank(keys: "GpuMemoryKeys") -> RankMemory | None:
    cache, needed = keys["kv_cache_bytes"], keys["kv_needed_bytes"]
    if len(keys["terms"]) != _TERMS or cache is None or needed is None:
        return None
    budget, weights, extra, activation, non_torch, graphs = map(_term, keys["terms"])
    return RankMemory(
        rank=keys["rank"],
        stage=0,
        total_bytes=keys["total_bytes"],
        budget=budget,
        weights=weights,
        weights_extra=extra,
        activation=activation,
        non_torch=non_torch,
        cuda_graph=graphs,
        kv_cache_bytes=cache,
        kv_cache_low=cache,
        kv_cache_high=cache,
        kv_needed_bytes=needed,
    )


def _term(keys: "TermKeys") -> Term:
    inputs = tuple((name, value) for name, value in keys["inputs"].items() if value is not None)
    return Term(
        name=keys["name"],
        bytes=keys["bytes"],
        basis=keys["basis"],
        formula=keys["formula"],
        inputs=inputs,
    )


def _cost(keys: "CostKeys") -> Cost:
    currency = keys["currency"]
    money = (
        None
        if currency is None
        else Money(
            currency=currency,
            gpus=keys["gpus_per_hour"],
            hosts=keys["hosts_per_hour"],
            energy=keys["energy_per_hour"],
        )
    )
    return Cost(gpus=keys["gpus"], money=money, energy=None, tokens=(), inputs=())
