"""What a trial teaches later predictions, and the terms that only the log as a whole tells apart."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuplan.domain.calibration import PRINTED, Quantity
from gpuplan.domain.fact import Fact
from gpuplan.domain.memory import RankMemory
from gpuplan.domain.verification import ComparedFigure, Rank
from gpuplan.engine.startup_log import LogLine
from gpuplan.operations.deploy_learn import not_kept, question_of_plan
from gpuplan.operations.deploy_prepare import Prepared
from gpuplan.operations.learn import learn_from_lines

_PARTS = {
    Quantity.ACTIVATION: "activation",
    Quantity.NON_TORCH: "non_torch",
    Quantity.GRAPHS: "cuda_graph",
}
"""Quantity to the term of the plan: what a release prints of them differs, and is made alike where it is learned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taught:
    """What came of it."""

    kept: bool = False
    rows: tuple[ComparedFigure, ...] = ()
    facts: tuple[Fact, ...] = ()


def learn_from_trial(
    prepared: Prepared, printed: Mapping[str, Sequence[LogLine]], environ: Mapping[str, str]
) -> Taught:
    """Keep the start as a lesson; beside it the terms of each pipeline stage as the plan had them."""
    question, memory = question_of_plan(prepared), prepared.candidate.memory
    if question is None or memory is None:
        return Taught()
    learned = learn_from_lines(
        printed,
        origin=f"verify on {', '.join(prepared.spec.hosts)}",
        at=time.time(),
        environ=environ,
        question=question,
    )
    rows = []
    for stage, told in learned.compared:
        ranks = [rank for rank in memory.ranks if rank.stage == stage]
        if told.quantity in _PARTS and told.actual is not None and ranks:
            several = prepared.candidate.parallelism.pipeline > 1
            rows.append(_row(_PARTS[told.quantity], ranks, told.actual, stage if several else None))
    facts = () if learned.unwritten is None else (not_kept(prepared.name, learned.unwritten),)
    return Taught(
        kept=learned.lesson is not None and learned.unwritten is None, rows=tuple(rows), facts=facts
    )


def _row(term: str, ranks: Sequence[RankMemory], actual: int, stage: int | None) -> ComparedFigure:
    """Of the rank with the least cache, which is the one whose parts are told."""
    poorest = min(ranks, key=lambda rank: rank.kv_cache_bytes)
    predicted = getattr(poorest, term)
    return ComparedFigure(
        term=term,
        rank=Rank(stage=stage) if stage is not None else None,
        predicted=predicted.bytes,
        low=predicted.least,
        high=predicted.most,
        actual=actual,
        slack=2 * PRINTED,
    )
