"""What the engine says to a placement when it starts: the checks it makes, in its order, and the line it prints."""

from gpuplan.domain.memory import EngineAnswer, RankMemory, StartCheck
from gpuplan.engine import kv_cache, shared_memory
from gpuplan.engine.startup import OUT_OF_MEMORY, no_room_line, too_long_line
from gpuplan.planning.question import Question


def engine_answer(
    question: Question,
    memories: tuple[RankMemory, ...],
    geometries: tuple[kv_cache.StageGeometry, ...],
    settings: kv_cache.CacheSettings,
    context: int,
    largest: int,
) -> EngineAnswer:
    """The engine's verdict on one request of `context` tokens.

    Judged on the likely figures; on the safe ones where the host's processes share the memory: what they take while the
    engine measures is nothing a plan can know.
    """
    fixed = question.engine.kv_cache_memory_bytes
    for memory in memories:
        wanted = (fixed or 0) + sum(term.bytes for term in memory.terms)
        if memory.loading_bytes > memory.total_bytes or (fixed is not None and wanted > memory.total_bytes):
            return EngineAnswer(starts=False, check=StartCheck.LOADING, error=OUT_OF_MEMORY)
    for memory in memories:
        geometry = geometries[memory.stage]
        usable = kv_cache.usable_bytes(geometry, _judged(question, memory), settings)
        # Without a cache there is no such check in the engine, but the weights have to fit all the same.
        if usable <= 0 if geometry.block_bytes else _judged(question, memory) < 0:
            return EngineAnswer(
                starts=False, check=StartCheck.NO_KV_ROOM, error=no_room_line(question.version)
            )
    for memory in memories:
        geometry = geometries[memory.stage]
        usable = kv_cache.usable_bytes(geometry, _judged(question, memory), settings)
        needed = kv_cache.checked_bytes(geometry, settings, context)
        if needed > usable:
            return EngineAnswer(
                starts=False,
                check=StartCheck.CONTEXT,
                error=too_long_line(context, needed, usable, min(largest, context)),
            )
    return EngineAnswer(starts=True)


def _judged(question: Question, memory: RankMemory) -> int:
    """KV cache of a rank that the engine's checks are held against."""
    device = question.devices[memory.rank]
    shared = shared_memory.counts(unified=device.unified, backend=device.backend)
    return memory.kv_cache_low if shared else memory.kv_cache_bytes
