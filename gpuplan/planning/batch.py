"""Scheduler limits as the engine settles them."""

from dataclasses import dataclass

from gpuplan.engine.expert_parallel import limited_batch
from gpuplan.engine.versions import EngineVersion, batch_defaults, pooling_in_chunks
from gpuplan.planning.offers import Device
from gpuplan.planning.question import Question, asked_length

ITEMS_IN_ONE_BATCH = EngineVersion(0, 22)
"""The batch of a prefix-LM is raised to its largest item from here (`EngineArgs._get_min_mm_batched_tokens`)."""
TEXT_ONLY_IS_NO_PREFIX_LM = EngineVersion(0, 27)
"""Not without images from here (`ModelArchConfigConvertorBase.is_mm_prefix_lm`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Scheduler limits: tokens and sequences of one step."""

    tokens: int
    sequences: int


def batch_of(question: Question, length: int, device: Device) -> Batch:
    """Scheduler limits as the engine settles them (`EngineArgs.get_batch_defaults` and the checks after it)."""
    engine = question.engine
    tokens, sequences = batch_defaults(
        question.version,
        device.total_bytes,
        device.name,
        device.compute_capability,
        sliced=device.slice,
    )
    tokens = limited_batch(question.profile, engine, question.version) or tokens
    if engine.max_num_seqs is not None:
        sequences = engine.max_num_seqs
    if engine.max_num_batched_tokens is not None:
        tokens = engine.max_num_batched_tokens
    else:
        if engine.enable_chunked_prefill is False:
            tokens = max(tokens, length)
        elif _takes_prompts_whole(question):
            tokens = max(tokens, asked_length(engine) or question.profile.longest_context)
        text_only = engine.language_model_only and question.version >= TEXT_ONLY_IS_NO_PREFIX_LM
        if question.version >= ITEMS_IN_ONE_BATCH and not text_only:
            for encoder in question.profile.encoders:
                tokens = max(tokens, encoder.least_batched_tokens)
        tokens = min(tokens, sequences * length)
    if engine.max_num_seqs is None:
        sequences = min(sequences, tokens)
    return Batch(tokens=tokens, sequences=sequences)


def _takes_prompts_whole(question: Question) -> bool:
    """Pooling models that attend in both directions, which therefore cache nothing; causal ones of old releases."""
    profile = question.profile
    if not profile.pooling:
        return False
    cached = any(layer.caches for layer in profile.layer_kinds)
    return not cached or not pooling_in_chunks(question.version)
