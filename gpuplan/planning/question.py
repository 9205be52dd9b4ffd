"""What the estimator is asked."""

from dataclasses import dataclass

from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.versions import EngineVersion
from gpuplan.planning.likeness import NO_LESSONS, Lessons
from gpuplan.planning.offers import Device

SHORTEST_USEFUL_CONTEXT = 2048
"""Tokens: a placement that cannot hold this much for one request is not offered unless a length was asked for."""


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
    lessons: Lessons = NO_LESSONS
    """What earlier starts measured; corrects the terms of like ones."""


def asked_length(engine: EngineArguments) -> int | None:
    """`--max-model-len` where it is a number."""
    return engine.max_model_len if isinstance(engine.max_model_len, int) else None


def draft_layers(profile: ModelProfile, engine: EngineArguments) -> int:
    """Layers that speculative decoding loads: those of a draft (`engine.draft.with_draft`), else MTP layers by an MTP method."""
    if profile.draft is not None and profile.draft.profile is not None:
        return len(profile.draft_order)
    return len(profile.draft_order) if engine.speculative_method.endswith("mtp") else 0
