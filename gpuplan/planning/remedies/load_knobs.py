"""Knobs that ask for less: a shorter context, fewer requests at once, fewer replicas."""

import math
from collections.abc import Iterator
from dataclasses import replace

from gpuplan.planning.question import asked_length
from gpuplan.planning.remedies.case import Case
from gpuplan.planning.remedies.ladder import Ladder, Step, ladder_of, with_arguments, with_workload
from gpuplan.planning.request import PlanRequest
from gpuplan.units import ceil_div

GRAIN = 16
"""Tokens by which contexts are tried: the engine's usual block."""
PARTS = (7 / 8, 3 / 4, 5 / 8, 1 / 2, 3 / 8, 1 / 4, 3 / 16, 1 / 8, 1 / 16, 1 / 32)
"""Of what was asked, tried together with another knob."""


def context(case: Case) -> Iterator[Ladder]:
    """Every multiple of GRAIN below the asked length, `--context` or `--max-model-len` as the user wrote it."""
    asked = asked_context(case.request)
    if asked is None or case.claim_only or asked <= GRAIN:
        return
    ours = case.request.workload.context is not None
    count = ceil_div(asked, GRAIN) - 1

    def length(at: int) -> int:
        return (count - at) * GRAIN

    def step(at: int) -> Step:
        tokens = length(at)

        def apply(request: PlanRequest) -> PlanRequest:
            if not ours:
                return with_arguments(request, max_model_len=tokens)
            engine = replace(request.workload.engine, max_model_len=None)
            return with_workload(request, context=tokens, engine=engine)

        return Step(
            change={"--context" if ours else "--max-model-len": tokens},
            figures={"context": tokens, "asked": asked},
            size=math.log2(asked / tokens),
            apply=apply,
        )

    parts = {count - max(1, int(asked * part) // GRAIN) for part in PARTS}
    coarse = sorted(at for at in {*parts, count - 1} if 0 <= at < count)
    yield Ladder(kind="context", count=count, step=step, coarse=tuple(coarse))


def asked_context(request: PlanRequest) -> int | None:
    """Tokens of a request as they were asked for; None where the longest that fits was."""
    length = request.workload.context
    if length == "max":
        return request.profile.longest_context or None
    return length if isinstance(length, int) else asked_length(request.workload.engine)


def concurrency(case: Case) -> Iterator[Ladder]:
    """Every number of requests below the asked one."""
    asked = case.request.workload.concurrency or 1
    if asked < 2 or case.claim_only:
        return

    def step(at: int) -> Step:
        number = asked - 1 - at
        return Step(
            change={"--concurrency": number},
            figures={"concurrency": number, "asked": asked},
            size=math.log2(asked / number),
            apply=lambda request: with_workload(request, concurrency=number),
        )

    coarse = sorted({asked - 1 - max(1, min(asked - 1, int(asked * part))) for part in (*PARTS, 0.0)})
    yield Ladder(kind="concurrency", count=asked - 1, step=step, coarse=tuple(coarse))


def replicas(case: Case) -> Iterator[Ladder]:
    """Every number of replicas below the asked one that GPUs could hold, two at least: for one there are other
    strategies.
    """
    engine, asked = case.arguments, case.request.workload.replicas
    ours = engine.data_parallel_size <= 1
    if not ours and (case.request.workload.replicas > 1 or engine.data_parallel_size_local is not None):
        return
    asked = asked if ours else engine.data_parallel_size
    most = min(asked - 1, len(case.supply.offers))
    yield ladder_of("replicas", tuple(_copies(number, asked, ours=ours) for number in range(most, 1, -1)))


def _copies(number: int, asked: int, *, ours: bool) -> Step:
    def apply(request: PlanRequest) -> PlanRequest:
        if ours:
            return with_workload(request, replicas=number)
        return with_arguments(request, data_parallel_size=number)

    return Step(
        change={"--replicas" if ours else "--data-parallel-size": number},
        figures={"replicas": number, "asked": asked},
        size=0.5 + math.log2(asked / number),
        apply=apply,
    )
