"""Lessons of earlier starts, and which of them are like what is asked about.

How alike decides how much is taken over (`planning.calibrate`).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from gpuplan.domain.calibration import Lesson, Start
from gpuplan.domain.model import ModelProfile
from gpuplan.domain.plan import Parallelism
from gpuplan.domain.secret_text import masked
from gpuplan.domain.workload import NO_ARGUMENTS, EngineArguments
from gpuplan.engine.start_arguments import OTHERS
from gpuplan.engine.versions import EngineVersion
from gpuplan.engine.weights import Split, rank_weights
from gpuplan.planning.offers import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Lessons:
    """Everything learned so far, found by version."""

    all: tuple[Lesson, ...] = ()
    """Newest first."""
    _by_version: Mapping[str, tuple[Lesson, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found: dict[str, list[Lesson]] = {}
        for lesson in sorted(self.all, key=lambda lesson: (-lesson.at, lesson.id)):
            found.setdefault(lesson.start.version, []).append(lesson)
        object.__setattr__(self, "_by_version", {key: tuple(value) for key, value in found.items()})

    def of_version(self, version: EngineVersion) -> tuple[Lesson, ...]:
        """Newest first."""
        return self._by_version.get(str(version), ())

    def named(self, ids: frozenset[str]) -> tuple[Lesson, ...]:
        """Those with these ids, newest first."""
        return tuple(sorted((one for one in self.all if one.id in ids), key=lambda one: one.at, reverse=True))


NO_LESSONS = Lessons()


@lru_cache(maxsize=64)
def digest_of(profile: ModelProfile) -> str:
    """Of all in a model's description that decides its memory; the same for a copy under another name."""
    parameters = rank_weights(profile, Split()).parameters if profile.layer_order or profile.parts else 0
    said = (
        profile.architecture,
        profile.dtype,
        profile.hidden,
        profile.vocabulary,
        profile.attention_heads,
        profile.kv_heads,
        profile.head_size,
        profile.layer_count,
        profile.expert_count,
        profile.quantization,
        profile.kv_cache_dtype,
        profile.pooling,
        tuple((one.kind, one.layers, one.hidden, one.tokens_per_item) for one in profile.encoders),
        parameters,
    )
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


def start_of(
    profile: ModelProfile,
    engine: EngineArguments,
    version: EngineVersion,
    parallelism: Parallelism,
    device: Device,
    *,
    tokens: int,
    sequences: int,
    length: int,
    utilization: float | None,
) -> Start:
    """What is asked about, as lessons are kept: `tokens` and `sequences` of a batch, `length` of a request."""
    cache = engine.kv_cache_dtype if engine.kv_cache_dtype != "auto" else profile.kv_cache_dtype or "auto"
    return Start(
        model=_nameless(profile.name),
        digest=digest_of(profile),
        architecture=profile.architecture,
        quantization=profile.quantization,
        dtype=profile.dtype,
        version=str(version),
        gpu=device.name,
        total_bytes=device.total_bytes or None,
        compute_capability=device.compute_capability,
        unified=device.unified,
        tensor=parallelism.tensor,
        pipeline=parallelism.pipeline,
        data=max(parallelism.data, engine.data_parallel_size, 1) if profile.expert_count else 1,
        expert=parallelism.expert,
        decode_context=parallelism.decode_context,
        prefill_context=parallelism.prefill_context,
        layer_partition=parallelism.layer_partition,
        max_num_batched_tokens=tokens,
        max_num_seqs=sequences,
        max_model_len=length,
        kv_cache_dtype="fp8" if cache == "fp8_e4m3" else cache,
        enforce_eager=engine.enforce_eager,
        utilization=utilization,
        arguments=_others(profile, engine),
    )


def _others(profile: ModelProfile, engine: EngineArguments) -> tuple[tuple[str, str], ...]:
    """Arguments that bear on memory besides those a start has fields for; what states the default is left out."""
    recurrent = any(cache.states for layer in profile.layer_kinds for cache in layer.caches)
    found = []
    for name in OTHERS:
        value = engine.values.get(name)
        default = getattr(NO_ARGUMENTS, name, None)
        if value is None or value in (default, {}):
            continue
        if name == "enable_chunked_prefill" and value is True:
            continue
        if name == "enable_prefix_caching" and not recurrent:
            continue
        found.append((name, masked(json.dumps(_nameless(value), sort_keys=True, default=str))[:1000]))
    return tuple(found)


def _nameless(value: Any) -> Any:
    """Directories of paths taken away."""
    if isinstance(value, Mapping):
        return {str(key): _nameless(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_nameless(item) for item in value]
    if isinstance(value, str) and value.startswith(("/", "~", ".")):
        return value.rstrip("/").rpartition("/")[2]
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Like:
    """Lessons by how alike they are to what is asked, newest first in each."""

    start: Start
    same: tuple[Lesson, ...] = ()
    """The same model, card, sizes, arguments and batch."""
    limits: tuple[Lesson, ...] = ()
    """The same with another batch."""
    built: tuple[Lesson, ...] = ()
    """The same parameters on a rank, on another kind of card."""
    hardware: tuple[Lesson, ...] = ()
    """Other models on the same kind of card, divided over as many."""

    @property
    def empty(self) -> bool:
        return not (self.same or self.limits or self.built or self.hardware)


def like(lessons: Sequence[Lesson], start: Start) -> Like:
    """Sort the lessons of one version by their likeness to a start."""
    same: list[Lesson] = []
    limits: list[Lesson] = []
    built: list[Lesson] = []
    hardware: list[Lesson] = []
    divided = (start.tensor, start.pipeline)
    for lesson in lessons:
        other = lesson.start
        here = other.on_card_of(start)
        if other.built == start.built:
            if here and other.runs == start.runs:
                (same if other.batch == start.batch else limits).append(lesson)
            elif start.quantization is None or other.compute_capability == start.compute_capability:
                # kernels repack quantized weights by the card's generation
                built.append(lesson)
        elif here and other.digest != start.digest and divided == (other.tensor, other.pipeline):
            hardware.append(lesson)
    return Like(
        start=start,
        same=tuple(same),
        limits=tuple(limits),
        built=tuple(built),
        hardware=tuple(hardware),
    )


def day(at: float) -> str:
    """`2026-11-22`, UTC."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"
