"""The draft model that `--speculative-config` names, read as the target is: its config and headers, nothing is executed."""

from collections.abc import Callable

from gpuplan.domain.model import Draft, ModelProfile
from gpuplan.domain.repository import Repository
from gpuplan.domain.workload import EngineArguments
from gpuplan.engine.architectures import describe
from gpuplan.engine.architectures.unknown import size_from_name
from gpuplan.engine.draft import (
    assumed_draft,
    draft_named,
    held_tables,
    method_of,
    settled_config,
    states_read,
)
from gpuplan.errors import ModelError

Opener = Callable[[str, EngineArguments], Repository]


def draft_of(
    target: ModelProfile, reference: str, engine: EngineArguments, open_repository: Opener
) -> Draft | None:
    """The draft with a checkpoint of its own for a target read from `reference`; None where none is asked for.

    A draft that cannot be read, or makes no sense, is taken to be as large as others of its method, and says why.
    """
    named = draft_named(engine)
    speculative = engine.speculative_config or {}
    if named is None or (
        target.draft_order and (engine.speculative_method.endswith("mtp") or named == reference)
    ):
        return None
    revision = speculative.get("revision")
    pinned = f"{named}@{revision}" if isinstance(revision, str) and revision and "@" not in named else named
    try:
        return _read(target, named, open_repository(pinned, NO_REVISION), engine)
    except ModelError as error:
        return _unread(target, named, method_of(speculative, {}), error.message)


NO_REVISION = EngineArguments()
"""A draft is opened at a revision of its own, not at the target's."""


def _read(target: ModelProfile, named: str, repository: Repository, engine: EngineArguments) -> Draft:
    speculative = engine.speculative_config or {}
    method = method_of(speculative, repository.config)
    config = settled_config(repository.config, method)
    quantization = speculative.get("quantization")
    size = repository.index_total_bytes if repository.tensors is None else repository.tensors.total_bytes
    profile = describe(
        named,
        config,
        hf_quant_config=repository.quantization,
        dtype=target.dtype,
        quantization=quantization if isinstance(quantization, str) else None,
        evidence=repository.evidence,
        checkpoint_bytes=size,
    )
    return Draft(
        name=named,
        method=method,
        profile=profile,
        states=states_read(config, method),
        holds=None if repository.tensors is None else held_tables(repository.tensors.names),
    )


def _unread(target: ModelProfile, named: str, method: str, reason: str) -> Draft:
    profile = assumed_draft(target, method)
    if profile is None and size_from_name(named) is not None:
        profile = describe(named, {}, dtype=target.dtype)
    return Draft(
        name=named,
        method=method,
        profile=profile,
        states=states_read({}, method),
        missing=reason or "unreadable",
    )
