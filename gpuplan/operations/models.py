"""From MODEL to a ModelProfile: files, overrides, class defaults, description."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from gpuplan.domain.model import ModelProfile
from gpuplan.domain.repository import Evidence, Repository
from gpuplan.domain.workload import Category, EngineArguments
from gpuplan.engine.architectures import describe
from gpuplan.errors import ConfigError, ModelError
from gpuplan.operations.drafts import Opener, draft_of
from gpuplan.sources import model_files
from gpuplan.sources.catalogue import models as catalogue
from gpuplan.sources.config_json import apply_overrides
from gpuplan.sources.config_place import located

ESSENTIAL = (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
)
"""Fields a config rarely leaves to class defaults; when one is missing, transformers is asked (it takes a second)."""

POOLING = frozenset({Category.EMBEDDING, Category.RERANKER})
POOLING_ARCHITECTURES = (
    "ForSequenceClassification",
    "ForTokenClassification",
    "EmbeddingModel",
    "RewardModel",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model as the planner takes it."""

    profile: ModelProfile
    category: Category
    path: str
    """What stands behind `vllm serve`."""
    siblings: Callable[[], tuple[ModelProfile, ...]] = tuple
    """Quantized variants, read when a remedy asks for them."""
    notes: tuple[str, ...] = ()


def read_model(reference: str, engine: EngineArguments, category: Category | None = None) -> Model:
    """Read and describe the model a user named.

    Raises ModelError when it cannot be read or makes no sense.
    """
    return model_of(open_repository(reference, engine), engine, category)


def open_repository(reference: str, engine: EngineArguments) -> Repository:
    """The files of the model a user named, at the revision the engine is given. Raises ModelError."""
    return model_files.open_model(
        with_revision(reference, engine), catalogue_lookup=catalogue.lookup, near_names=catalogue.near
    )


def model_of(
    repository: Repository,
    engine: EngineArguments,
    category: Category | None = None,
    *,
    opener: Opener = open_repository,
) -> Model:
    """Describe a repository that was opened, and the draft it is served with, which `opener` opens.

    Raises ModelError when the model makes no sense; a draft that cannot be read says so itself (`Draft.missing`).
    """
    try:
        profile, notes = profile_of(repository, engine, category)
    except ConfigError as error:
        raise located(error, repository, frozenset(engine.hf_overrides or ())) from error
    draft = draft_of(profile, repository.location, engine, opener)
    profile = profile if draft is None else replace(profile, draft=draft)
    return Model(
        profile=profile,
        category=category or category_of(profile, repository.config),
        path=repository.location,
        siblings=cache(lambda: _siblings(repository.name, engine, category, profile)),
        notes=notes,
    )


def claimed_model(reference: str, engine: EngineArguments, category: Category | None) -> Model:
    """A model of which only the claim matters: what can be read without the network, else nothing but its name."""
    try:
        return read_model(reference, engine, category)
    except ModelError as error:
        return unreadable_model(reference, category, error)


def unreadable_model(reference: str, category: Category | None, error: ModelError) -> Model:
    """A model of which nothing but the name is known, and why."""
    return Model(
        profile=nothing_known(reference),
        category=category or Category.LLM,
        path=reference,
        notes=(f"{error.message}: divisibility by heads and layers is not checked",),
    )


def nothing_known(name: str) -> ModelProfile:
    """A profile without facts, for plans that rest on --vram-claim alone."""
    return ModelProfile(
        name=name,
        architecture="",
        model_type="",
        dtype="bfloat16",
        itemsize=2,
        hidden=0,
        vocabulary=0,
        attention_heads=0,
        kv_heads=0,
        head_size=0,
        layer_kinds=(),
        layer_order=(),
        parts=(),
        evidence=Evidence.NAME,
        recognised=False,
    )


def with_revision(reference: str, engine: EngineArguments) -> str:
    """MODEL with the revision of `--revision`, unless it names one itself."""
    if engine.revision and "@" not in reference:
        return f"{reference}@{engine.revision}"
    return reference


def profile_of(
    repository: Repository, engine: EngineArguments, category: Category | None = None
) -> tuple[ModelProfile, tuple[str, ...]]:
    """Describe a repository under the engine's arguments; the notes say what was filled in or is missing."""
    config: Mapping[str, Any] = repository.config
    notes = list(repository.notes)
    if engine.hf_overrides:
        config = apply_overrides(config, engine.hf_overrides)
    config, filled = _complete(config)
    notes += filled
    profile = describe(
        repository.name,
        config,
        hf_quant_config=repository.quantization,
        dtype=engine.dtype,
        quantization=engine.quantization,
        pooling=_pools(config, engine, category),
        evidence=repository.evidence,
        checkpoint_bytes=checkpoint_bytes(repository),
    )
    return profile, tuple(notes)


def checkpoint_bytes(repository: Repository) -> int | None:
    """Bytes of the checkpoint by the best evidence: headers, then the index."""
    if repository.tensors is not None:
        return repository.tensors.total_bytes
    return repository.index_total_bytes


def _complete(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """The config with transformers' class defaults where essential fields are missing."""
    from gpuplan.sources.class_defaults import needs_class_defaults, with_class_defaults

    if not needs_class_defaults(config, ESSENTIAL):
        return config, []
    filled = with_class_defaults(config)
    if filled.note is not None:
        return config, []
    return filled.config, [
        f"taken from transformers' class defaults: {', '.join(filled.names)}"
    ] if filled.names else []


def _pools(config: Mapping[str, Any], engine: EngineArguments, category: Category | None) -> bool:
    """Whether the engine builds the model for its pooling runner."""
    if engine.runner != "auto":
        return engine.runner == "pooling"
    if engine.task in ("embed", "embedding", "score", "classify", "reward"):
        return True
    if category in POOLING:
        return True
    names = config.get("architectures")
    first = str(names[0]) if isinstance(names, Sequence) and not isinstance(names, str) and names else ""
    return category is None and first.endswith(POOLING_ARCHITECTURES)


def category_of(profile: ModelProfile, config: Mapping[str, Any]) -> Category:
    """What the model is for, read from its architecture and name."""
    name = profile.name.lower()
    if profile.pooling:
        return (
            Category.RERANKER
            if "rerank" in name or "SequenceClassification" in profile.architecture
            else Category.EMBEDDING
        )
    if profile.architecture.startswith(("Whisper", "Voxtral")):
        return Category.SPEECH_TO_TEXT
    if "Omni" in profile.architecture:
        return Category.OMNI
    del config
    return Category.LLM


def _siblings(
    name: str, engine: EngineArguments, category: Category | None, profile: ModelProfile
) -> tuple[ModelProfile, ...]:
    """Quantized variants of the model from the catalogue, for remedies."""
    if profile.quantization is not None or engine.quantization is not None or engine.hf_overrides:
        return ()
    found = []
    for sibling in catalogue.siblings(name):
        repository = catalogue.lookup(sibling)
        if repository is not None:
            found.append(replace(profile_of(repository, engine, category)[0], draft=profile.draft))
    return tuple(found)
