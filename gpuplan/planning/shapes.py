"""Which parallel sizes to try on n GPUs of one host, in the order they are preferred (S0 correction 1)."""

from collections.abc import Iterator
from dataclasses import replace

from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import EngineArguments
from gpuplan.planning.judge import Judge

MOST_TENSOR = 64


def base(engine: EngineArguments) -> Parallelism:
    """Everything the user fixed besides tensor and pipeline sizes."""
    return Parallelism(
        expert=engine.enable_expert_parallel,
        decode_context=engine.decode_context_parallel_size,
        prefill_context=engine.prefill_context_parallel_size,
    )


def user_world(engine: EngineArguments) -> int | None:
    """GPUs of one replica the user asked for by tensor, pipeline or prefill-context sizes; None when left open."""
    if (
        not {"tensor_parallel_size", "pipeline_parallel_size", "prefill_context_parallel_size"}
        & engine.user_set
    ):
        return None
    return engine.tensor_parallel_size * engine.pipeline_parallel_size * engine.prefill_context_parallel_size


def shapes(judge: Judge, gpus: int) -> Iterator[Parallelism]:
    """Buildable shapes that use exactly `gpus` GPUs: most tensor parallel first, then more pipeline stages.

    A mixture-of-experts model whose expert width does not divide is tried with whole experts per rank. The user's own
    sizes are the only ones tried where they were given.
    """
    engine = judge.request.workload.engine
    fixed = base(engine)
    if user_world(engine) is not None:
        yield replace(fixed, tensor=engine.tensor_parallel_size, pipeline=engine.pipeline_parallel_size)
        return
    if gpus % fixed.prefill_context:
        return
    places = gpus // fixed.prefill_context
    for tensor in range(min(places, MOST_TENSOR), 0, -1):
        if places % tensor:
            continue
        shape = buildable(judge, replace(fixed, tensor=tensor, pipeline=places // tensor))
        if shape is not None:
            yield shape


def buildable(judge: Judge, shape: Parallelism) -> Parallelism | None:
    """The shape, or its expert-parallel form, if the model can be built so."""
    if not judge.broken_rules(shape):
        return shape
    if judge.request.profile.expert_count and not shape.expert:
        whole = replace(shape, expert=True)
        if not judge.broken_rules(whole):
            return whole
    return None
