"""The only estimator: memory of every rank, term by term, and what the engine makes of the rest.

Everything that shows a size (plan, estimate, deploy, the app) calls `estimate`.
"""

from dataclasses import dataclass, replace

from gpuplan.domain.fleet import Basis
from gpuplan.domain.memory import EngineAnswer, MemoryEstimate, RankMemory, StartCheck, Term
from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine import activation, kv_cache, kv_pages, weights
from gpuplan.engine.allocator import rounding_bytes
from gpuplan.engine.divisibility import split_of
from gpuplan.engine.encoder_profile import towers_left_out
from gpuplan.engine.startup import OUT_OF_MEMORY, budget_bytes, no_room_line, too_long_line
from gpuplan.engine.versions import EngineVersion, batch_defaults, pooling_in_chunks
from gpuplan.engine.weights_extra import extra_bytes
from gpuplan.planning.offers import Device
from gpuplan.units import GIB

SHORTEST_USEFUL_CONTEXT = 2048
"""Tokens: a placement that cannot hold this much for one request is not offered unless a length was asked for."""
SHOWN_CONTEXTS = (8192, 32768)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One estimate: a model, an engine configuration, and the device of every rank."""

    profile: ModelProfile
    engine: EngineArguments
    version: EngineVersion
    parallelism: Parallelism
    devices: tuple[Device, ...]
    """One per rank of a replica (pipeline stage × TP + TP rank)."""
    utilization: float | None
    context: int | None
    """Tokens per request; None: the longest that fits at this concurrency."""
    concurrency: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Scheduler limits: tokens and sequences of one step."""

    tokens: int
    sequences: int


def estimate(question: Question) -> MemoryEstimate:
    """Memory of every rank and the KV pool of the replica.

    The model must be divisible by the sizes (`engine.divisibility.violations` is empty). The start-up check on free
    memory is not part of it: it depends on what is free now, not on the model.
    """
    profile, parallelism = question.profile, question.parallelism
    stages, ranks_per_stage = parallelism.pipeline, parallelism.tensor * parallelism.prefill_context
    longest = profile.longest_context or kv_cache.UNBOUNDED
    length = question.context or _asked_length(question.engine) or longest
    batch = _batch(question, length)
    settings = _cache_settings(question, batch)
    geometries = kv_cache.geometry(
        profile, settings, stages=stages, layer_partition=parallelism.layer_partition
    )
    ranks = []
    memo: dict[tuple[int, Device, int], tuple[Term, ...]] = {}
    for rank, device in enumerate(question.devices):
        stage, tensor_rank = divmod(rank, ranks_per_stage)
        key = (stage, device, _expert_share(question, tensor_rank))
        if key not in memo:
            memo[key] = _terms(question, stage, device, tensor_rank, batch)
        ranks.append((rank, stage, device, memo[key]))
    available = [
        _available(question, device, terms, cached=geometries[stage].block_bytes > 0)
        for _, stage, device, terms in ranks
    ]
    likely = [(geometries[stage], available[rank][0]) for rank, stage, _, _ in ranks]
    safe = [(geometries[stage], available[rank][1]) for rank, stage, _, _ in ranks]
    largest = kv_cache.largest_context(likely, settings, longest, 1)
    context = question.context or _asked_length(question.engine)
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
        engine=_answer(question, memories, geometries, settings, shown, largest),
        kv_needed_bytes=max(memory.kv_needed_bytes for memory in memories),
        max_num_batched_tokens=batch.tokens,
        max_num_seqs=batch.sequences,
        assumptions=profile.assumptions,
    )


def _asked_length(engine: EngineArguments) -> int | None:
    """`--max-model-len` where it is a number."""
    return engine.max_model_len if isinstance(engine.max_model_len, int) else None


def _expert_share(question: Question, tensor_rank: int) -> int:
    """Which share of uneven experts a rank holds: 0 the larger, 1 the smaller."""
    count = question.profile.expert_count
    split = split_of(question.parallelism)
    if not count or split.expert_ranks == 1:
        return 0
    return int(tensor_rank >= (count + question.engine.num_redundant_experts) % split.expert_ranks)


def _batch(question: Question, length: int) -> _Batch:
    """Scheduler limits as the engine settles them (`EngineArgs.get_batch_defaults` and the checks after it)."""
    device, engine = question.devices[0], question.engine
    tokens, sequences = batch_defaults(
        question.version, device.total_bytes, device.name, device.compute_capability
    )
    if engine.max_num_seqs is not None:
        sequences = engine.max_num_seqs
    if engine.max_num_batched_tokens is not None:
        tokens = engine.max_num_batched_tokens
    else:
        if engine.enable_chunked_prefill is False:
            tokens = max(tokens, length)
        elif _takes_prompts_whole(question):
            tokens = max(tokens, _asked_length(engine) or question.profile.longest_context)
        for encoder in question.profile.encoders:
            tokens = max(tokens, encoder.least_batched_tokens)
        tokens = min(tokens, sequences * length)
    if engine.max_num_seqs is None:
        sequences = min(sequences, tokens)
    return _Batch(tokens=tokens, sequences=sequences)


def _takes_prompts_whole(question: Question) -> bool:
    """Pooling models that attend in both directions, which therefore cache nothing; causal ones of old releases."""
    profile = question.profile
    if not profile.pooling:
        return False
    cached = any(layer.caches for layer in profile.layer_kinds)
    return not cached or not pooling_in_chunks(question.version)


def _cache_settings(question: Question, batch: _Batch) -> kv_cache.CacheSettings:
    engine, device = question.engine, question.devices[0]
    return kv_cache.CacheSettings(
        version=question.version,
        engine=engine,
        tensor=question.parallelism.tensor,
        pipeline=question.parallelism.pipeline,
        decode_context=question.parallelism.decode_context,
        compute_capability=device.compute_capability,
        backend=device.backend,
        max_num_batched_tokens=batch.tokens,
        max_num_seqs=batch.sequences,
        draft_layers=draft_layers(question.profile, engine),
    )


def draft_layers(profile: ModelProfile, engine: EngineArguments) -> int:
    """MTP layers that speculative decoding loads (0 without `--speculative-config` of an MTP method)."""
    speculative = engine.speculative_config
    if not speculative or not profile.draft_order:
        return 0
    method = str(speculative.get("method", ""))
    return len(profile.draft_order) if method.endswith("mtp") or method == "deepseek_mtp" else 0


def _terms(
    question: Question, stage: int, device: Device, tensor_rank: int, batch: _Batch
) -> tuple[Term, Term, Term, Term, Term]:
    """Weights, what loading adds, activation peak, non-torch and CUDA graphs of one rank, in that order."""
    profile, engine, parallelism = question.profile, question.engine, question.parallelism
    split = split_of(
        parallelism,
        compute_capability=device.compute_capability,
        language_model_only=engine.language_model_only or towers_left_out(profile, engine, question.version),
        towers_data_parallel=engine.mm_encoder_tp_mode == "data",
    )
    split = replace(
        split,
        expert_rank=tensor_rank if split.expert_ranks > 1 else 0,
        redundant_experts=engine.num_redundant_experts,
    )
    loaded = weights.rank_weights(
        profile,
        split,
        stage=stage,
        stages=parallelism.pipeline,
        layer_partition=parallelism.layer_partition,
        draft_layers=draft_layers(profile, engine),
    )
    setting = activation.RankSetting(
        version=question.version,
        engine=engine,
        parallelism=parallelism,
        stage=stage,
        total_bytes=device.total_bytes,
        device_name=device.name,
        compute_capability=device.compute_capability,
        backend=device.backend,
        unified=device.unified,
        max_num_batched_tokens=batch.tokens,
        max_num_seqs=batch.sequences,
    )
    return (
        _weights_term(loaded, profile, parallelism, stage),
        _extra_term(question, split, loaded, stage, batch),
        activation.activation_term(profile, setting),
        activation.non_torch_term(profile, setting),
        activation.cuda_graph_term(profile, setting),
    )


def _weights_term(
    loaded: weights.RankWeights, profile: ModelProfile, parallelism: Parallelism, stage: int
) -> Term:
    basis = Basis.EXACT if profile.recognised else Basis.ASSUMED
    return Term(
        name="weights",
        bytes=loaded.parameters,
        basis=basis,
        formula="embedding and head + decoder layers + towers + other parameters of this rank",
        inputs=(
            ("tensor parallel", parallelism.tensor),
            ("pipeline stage", stage),
            ("embedding and head", loaded.embedding),
            ("decoder layers", loaded.layers),
            ("of which experts", loaded.experts),
            ("towers", loaded.towers),
            ("other", loaded.other),
        ),
        source="parameters as the engine's model class creates them",
    )


def _extra_term(
    question: Question, split: weights.Split, loaded: weights.RankWeights, stage: int, batch: _Batch
) -> Term:
    profile, parallelism, engine = question.profile, question.parallelism, question.engine
    added = extra_bytes(
        profile,
        split,
        stage=stage,
        stages=parallelism.pipeline,
        layer_partition=parallelism.layer_partition,
        draft_layers=draft_layers(profile, engine),
        batched_tokens=batch.tokens,
        sequences=batch.sequences,
        decode_tokens=1 + kv_pages.speculative_tokens(engine),
        version=question.version,
    )
    rounding = rounding_bytes(
        profile, split, stage=stage, stages=parallelism.pipeline, layer_partition=parallelism.layer_partition
    )
    parts = [("rotary and other buffers", loaded.buffers), *added, ("rounding of the allocator", rounding)]
    offloaded = min(int(engine.cpu_offload_gb * GIB), loaded.parameters)
    if offloaded:
        parts.append(("moved to host memory by --cpu-offload-gb", -offloaded))
    return Term(
        name="weights, extra",
        bytes=sum(size for _, size in parts),
        basis=Basis.COMPUTED,
        formula="buffers + copies and padding made after loading",
        inputs=tuple(parts),
        source="process_weights_after_loading of the engine's layers",
    )


def _available(
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
    )


def _answer(
    question: Question,
    memories: tuple[RankMemory, ...],
    geometries: tuple[kv_cache.StageGeometry, ...],
    settings: kv_cache.CacheSettings,
    context: int,
    largest: int,
) -> EngineAnswer:
    """The engine's verdict on one request of `context` tokens, judged on the likely figures."""
    fixed = question.engine.kv_cache_memory_bytes
    for memory in memories:
        wanted = (fixed or 0) + sum(term.bytes for term in memory.terms)
        if fixed is not None and wanted > memory.total_bytes:
            return EngineAnswer(starts=False, check=StartCheck.LOADING, error=OUT_OF_MEMORY)
    for memory in memories:
        geometry = geometries[memory.stage]
        usable = kv_cache.usable_bytes(geometry, memory.kv_cache_bytes, settings)
        # Without a cache there is no such check in the engine, but the weights have to fit all the same.
        if usable <= 0 if geometry.block_bytes else memory.kv_cache_bytes < 0:
            return EngineAnswer(
                starts=False, check=StartCheck.NO_KV_ROOM, error=no_room_line(question.version)
            )
    for memory in memories:
        geometry = geometries[memory.stage]
        usable = kv_cache.usable_bytes(geometry, memory.kv_cache_bytes, settings)
        needed = geometry.blocks_for(context) * geometry.block_bytes
        if needed > usable:
            return EngineAnswer(
                starts=False,
                check=StartCheck.CONTEXT,
                error=too_long_line(context, needed, usable, min(largest, context)),
            )
    return EngineAnswer(starts=True)
