"""The only estimator: memory of every rank, term by term, and what the engine makes of the rest.

Everything that shows a size (plan, estimate, deploy, the app) calls `estimate`.
"""

from dataclasses import replace

from gpuplan.domain.calibration import Start
from gpuplan.domain.fleet import Basis
from gpuplan.domain.memory import MemoryEstimate, RankMemory, Term
from gpuplan.engine import kv_cache
from gpuplan.engine.draft import with_draft
from gpuplan.engine.loading_peak import loading_peak
from gpuplan.engine.startup import budget_bytes
from gpuplan.planning.batch import Batch, batch_of
from gpuplan.planning.calibrate import FiveTerms, corrected
from gpuplan.planning.engine_answer import engine_answer
from gpuplan.planning.likeness import like, start_of
from gpuplan.planning.offers import Device
from gpuplan.planning.question import Question, asked_length, draft_layers
from gpuplan.planning.rank_terms import expert_share, rank_terms, spanning, split_seen

SHOWN_CONTEXTS = (8192, 32768)


def estimate(question: Question) -> MemoryEstimate:
    """Memory of every rank and the KV pool of the replica.

    The model must be divisible by the sizes (`engine.divisibility.violations` is empty). The start-up check on free
    memory is not part of it: it depends on what is free now, not on the model.
    """
    question = replace(
        question, profile=with_draft(question.profile, question.version, question.parallelism.pipeline)
    )
    profile, parallelism = question.profile, question.parallelism
    stages, ranks_per_stage = parallelism.pipeline, parallelism.tensor * parallelism.prefill_context
    longest = profile.longest_context or kv_cache.UNBOUNDED
    length = question.context or asked_length(question.engine) or longest
    likeliest = question.devices[0].readings[0]
    batch = batch_of(question, length, likeliest)
    settings = cache_settings(question, batch, likeliest)
    geometries = kv_cache.geometry(
        profile, settings, stages=stages, layer_partition=parallelism.layer_partition
    )
    ranks = []
    memo: dict[tuple[int, Device, int], FiveTerms] = {}
    for rank, device in enumerate(question.devices):
        stage, tensor_rank = divmod(rank, ranks_per_stage)
        key = (stage, device, expert_share(question, tensor_rank))
        if key not in memo:
            memo[key] = measured_terms(question, stage, device, tensor_rank, batch, length)
        ranks.append((rank, stage, device, memo[key]))
    available = [
        available_bytes(question, device, terms, cached=geometries[stage].block_bytes > 0)
        for _, stage, device, terms in ranks
    ]
    likely = [(geometries[stage], available[rank][0]) for rank, stage, _, _ in ranks]
    safe = [(geometries[stage], available[rank][1]) for rank, stage, _, _ in ranks]
    largest = kv_cache.largest_context(likely, settings, longest, 1)
    context = question.context or asked_length(question.engine)
    if context is None:
        context = kv_cache.largest_context(safe, settings, longest, question.concurrency)
    shown = max(context, 1)
    pool = kv_cache.pool(likely, settings, shown)
    at_once = kv_cache.concurrency_curve(likely, settings, longest, SHOWN_CONTEXTS)
    memories = tuple(
        _rank_memory(
            question,
            rank,
            stage,
            device,
            terms,
            available[rank],
            geometries[stage].blocks_for(shown) * question.concurrency * geometries[stage].block_bytes,
        )
        for rank, stage, device, terms in ranks
    )
    first = geometries[0]
    return MemoryEstimate(
        ranks=memories,
        blocks=pool.blocks,
        block_bytes=first.block_bytes,
        block_size=first.block_size,
        kv_cache_tokens=pool.tokens,
        max_concurrency=pool.concurrency,
        max_model_len=context,
        largest_max_model_len=largest,
        concurrency_at=tuple(
            (length, number) for length, number in at_once if length in {*SHOWN_CONTEXTS, longest}
        ),
        concurrency_curve=at_once,
        engine=engine_answer(question, memories, geometries, settings, shown, largest),
        kv_needed_bytes=max(memory.kv_needed_bytes for memory in memories),
        max_num_batched_tokens=batch.tokens,
        max_num_seqs=batch.sequences,
        assumptions=profile.assumptions,
    )


def measured_terms(
    question: Question, stage: int, device: Device, tensor_rank: int, batch: Batch, length: int
) -> FiveTerms:
    """The terms of one rank over all kinds its card may be, as like starts measured them. Raises Indivisible."""
    terms = spanning(
        tuple(
            rank_terms(
                question,
                stage,
                reading,
                tensor_rank,
                batch_of(question, length, reading) if device.kinds else batch,
            )
            for reading in device.readings
        )
    )
    return _calibrated(question, terms, stage, device, batch, length)


def _calibrated(
    question: Question, terms: FiveTerms, stage: int, device: Device, batch: Batch, length: int
) -> FiveTerms:
    """The terms as like starts measured them."""
    lessons = question.lessons.of_version(question.version)
    if not lessons:
        return terms
    found = like(lessons, _start(question, device, batch, length))
    return terms if found.empty else corrected(terms, found, stage)


def start_asked(question: Question) -> Start:
    """What the question would start, as lessons are kept: on the device of its first rank."""
    question = replace(
        question, profile=with_draft(question.profile, question.version, question.parallelism.pipeline)
    )
    longest = question.profile.longest_context or kv_cache.UNBOUNDED
    length = question.context or asked_length(question.engine) or longest
    device = question.devices[0]
    return _start(question, device, batch_of(question, length, device.readings[0]), length)


def _start(question: Question, device: Device, batch: Batch, length: int) -> Start:
    return start_of(
        question.profile,
        question.engine,
        question.version,
        question.parallelism,
        device,
        tokens=batch.tokens,
        sequences=batch.sequences,
        length=length,
        utilization=question.utilization,
    )


def cache_settings(question: Question, batch: Batch, device: Device) -> kv_cache.CacheSettings:
    """What the cache's geometry depends on beside the model."""
    engine = question.engine
    return kv_cache.CacheSettings(
        version=question.version,
        engine=engine,
        tensor=question.parallelism.tensor,
        pipeline=question.parallelism.pipeline,
        decode_context=question.parallelism.decode_context,
        prefill_context=question.parallelism.prefill_context,
        compute_capability=device.compute_capability,
        backend=device.backend,
        max_num_batched_tokens=batch.tokens,
        max_num_seqs=batch.sequences,
        draft_layers=draft_layers(question.profile, engine),
    )


def available_bytes(
    question: Question, device: Device, terms: tuple[Term, ...], *, cached: bool
) -> tuple[int, int, int]:
    """(likely, smallest, largest) bytes the KV cache gets on a rank; of a model that caches nothing, what is missing."""
    fixed = question.engine.kv_cache_memory_bytes
    if fixed is not None and cached:
        return fixed, fixed, fixed
    share = 1.0 if question.utilization is None else question.utilization
    budget = budget_bytes(device.total_bytes, share)
    left = (
        budget - sum(term.bytes for term in terms),
        budget - sum(term.most for term in terms),
        budget - sum(term.least for term in terms),
    )
    return left if cached else (min(0, left[0]), min(0, left[1]), min(0, left[2]))


def _budget_term(question: Question, device: Device) -> Term:
    share = question.utilization
    if share is None:
        return Term(
            name="budget",
            bytes=device.total_bytes,
            basis=Basis.MEASURED,
            formula="total memory (this category claims only what it needs)",
            inputs=(("total", device.total_bytes),),
        )
    return Term(
        name="budget",
        bytes=budget_bytes(device.total_bytes, share),
        basis=Basis.COMPUTED,
        formula="ceil(total × gpu_memory_utilization)",
        inputs=(("total", device.total_bytes), ("gpu_memory_utilization", share)),
        source=f"vLLM {question.version} request_memory",
    )


def _rank_memory(
    question: Question,
    rank: int,
    stage: int,
    device: Device,
    terms: tuple[Term, ...],
    available: tuple[int, int, int],
    needed: int,
) -> RankMemory:
    loaded, extra, peak, other, graphs = terms
    parallelism = question.parallelism
    return RankMemory(
        rank=rank,
        stage=stage,
        total_bytes=device.total_bytes,
        budget=_budget_term(question, device),
        weights=loaded,
        weights_extra=extra,
        activation=peak,
        non_torch=other,
        cuda_graph=graphs,
        kv_cache_bytes=available[0],
        kv_cache_low=available[1],
        kv_cache_high=available[2],
        kv_needed_bytes=needed,
        loading_peak_bytes=loading_peak(
            question.profile,
            split_seen(
                question, device.readings[0], rank % (parallelism.tensor * parallelism.prefill_context)
            ),
            question.version,
            stage=stage,
            stages=parallelism.pipeline,
            layer_partition=parallelism.layer_partition,
        ),
    )
