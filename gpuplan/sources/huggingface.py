"""A model on a Hugging Face hub: configuration, index and safetensors headers. Weights are never downloaded.

Token, cache, endpoint, offline mode and timeouts are those of the huggingface_hub client (HF_TOKEN, HF_HOME,
HF_ENDPOINT, HF_HUB_OFFLINE, HF_HUB_ETAG_TIMEOUT, HF_HUB_DOWNLOAD_TIMEOUT); what was read is kept per commit.
"""

import logging
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuplan.domain.repository import Origin, Repository
from gpuplan.errors import ModelError, UsageError
from gpuplan.sources.checkpoint import (
    CONFIG_FILE,
    INDEX_FILE,
    MAX_INDEX_BYTES,
    QUANTIZATION_FILE,
    no_config,
    parse_weight_index,
    weigh,
    weight_files,
)
from gpuplan.sources.config_json import parse_config
from gpuplan.sources.deadline import Deadline, DeadlineExceeded, gather
from gpuplan.sources.hub_cache import HubCache, default_directory
from gpuplan.sources.hub_client import HubClient, client_errors
from gpuplan.sources.hub_errors import explain, is_passing, status_of
from gpuplan.sources.local_files import read_directory
from gpuplan.sources.safetensors import Header

_HEADERS_SHARE = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAccess:
    """How to reach the hub; None means as the huggingface_hub client has it."""

    endpoint: str | None = None
    cache_dir: Path | None = None
    """The client's cache of files."""
    summaries: Path | None = None
    """Where what was read is kept; None is `$XDG_CACHE_HOME/gpuplan/hub`."""
    token: str | None = None
    offline: bool | None = None
    request_seconds: float | None = None
    """Longest silence in one request; None is 10 s, or HF_HUB_ETAG_TIMEOUT and HF_HUB_DOWNLOAD_TIMEOUT."""
    total_seconds: float = 60.0
    workers: int = 16


def read_hub_repository(
    name: str, *, revision: str | None = None, access: HubAccess | None = None
) -> Repository:
    """Read `org/name` at a branch, tag or commit (default `main`).

    A hub that cannot be reached is answered for by the copy read last, with a note. Raises ModelError.
    """
    access = access or HubAccess()
    constants = _client_constants()
    endpoint = _checked_endpoint(access.endpoint or constants.ENDPOINT)
    reference = revision or "main"
    cache = HubCache(access.summaries or default_directory(), endpoint, name)
    if constants.is_offline_mode() if access.offline is None else access.offline:
        return _offline(name, reference, access, cache)
    client = HubClient(
        name,
        revision=reference,
        endpoint=endpoint,
        cache_dir=access.cache_dir,
        token=access.token,
        request_seconds=access.request_seconds,
        deadline=Deadline(access.total_seconds),
    )
    try:
        return gather([partial(_online, client, cache, access.workers)], deadline=client.deadline, workers=1)[
            0
        ]
    except _failures() as error:
        problem = explain(error, repository=name, revision=reference, endpoint=endpoint)
        copy = _copy(name, reference, access, cache) if is_passing(error) else None
        if copy is None:
            raise problem from error
        note = (
            f"{problem.message}; this is the copy read earlier (commit {(copy.revision or 'unknown')[:12]})"
        )
        return replace(copy, notes=(*copy.notes, note))


def _client_constants() -> Any:
    """The client's settings. Raises UsageError for a setting that stops it from being imported."""
    if endpoint := os.environ.get("HF_ENDPOINT"):
        _checked_endpoint(endpoint)
    try:
        from huggingface_hub import constants
    except ValueError as error:
        raise UsageError(
            f"HF_HUB_ETAG_TIMEOUT or HF_HUB_DOWNLOAD_TIMEOUT is not a whole number of seconds: {error}",
            hint="set both to a number such as 10, or unset them",
        ) from error
    if not os.environ.get("HF_HUB_VERBOSITY") and not constants.HF_DEBUG:
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    return constants


def _checked_endpoint(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid or not endpoint.isprintable() or " " in endpoint:
        raise ModelError(
            f"HF_ENDPOINT is {endpoint[:200]!r}, not the address of a hub",
            hint="for example https://huggingface.co",
        )
    return endpoint.rstrip("/")


def _online(client: HubClient, cache: HubCache, workers: int) -> Repository:
    try:
        commit = client.head(CONFIG_FILE).commit
    except client_errors() as error:
        names = client.file_names(client.revision) if _is_missing_file(error) else None
        if names is None:
            raise
        raise no_config(client.repository, names) from error
    stored = cache.load(commit)
    if stored is not None:
        cache.refer(client.revision, commit)
        return stored
    where = f"{client.repository}/{CONFIG_FILE}"
    config = parse_config(client.small_file(CONFIG_FILE), where=where)
    names = client.file_names(commit)
    quantization = None
    if (content := _optional(client, QUANTIZATION_FILE, names)) is not None:
        quantization = parse_config(content, where=f"{client.repository}/{QUANTIZATION_FILE}")
    index = None
    if (content := _optional(client, INDEX_FILE, names, limit=MAX_INDEX_BYTES)) is not None:
        index = parse_weight_index(content, where=f"{client.repository}/{INDEX_FILE}")
    files, notes = weight_files(("model.safetensors",) if names is None else names, index)
    headers, missing = _headers(client, commit, files, workers)
    if names is None and index is None and not headers:
        files = ()
    weights = weigh(headers, expected=files, index=index, missing=missing or "are not in the repository")
    repository = Repository(
        name=client.repository,
        origin=Origin.HUB,
        location=client.repository,
        config=config,
        quantization=quantization,
        tensors=weights.tensors,
        index_total_bytes=weights.index_total_bytes,
        evidence=weights.evidence,
        revision=commit,
        notes=(*notes, *weights.notes),
    )
    if missing is None:
        cache.store(repository, client.revision)
    return repository


def _headers(
    client: HubClient, commit: str, files: tuple[str, ...], workers: int
) -> tuple[list[Header], str | None]:
    """The headers that could be read, and why not all could when the reason may pass."""
    try:
        deadline = client.deadline.portion(_HEADERS_SHARE)
        found = gather(
            [partial(client.header, file, commit) for file in files], deadline=deadline, workers=workers
        )
    except _failures() as error:
        problem = explain(error, repository=client.repository, revision=commit, endpoint=client.endpoint)
        return [], f"could not be read ({problem.message})"
    return [header for header in found if header is not None], None


def _optional(
    client: HubClient, file: str, names: tuple[str, ...] | None, *, limit: int | None = None
) -> bytes | None:
    """A file's content; None when the repository has none."""
    if names is not None and file not in names:
        return None
    try:
        return client.small_file(file) if limit is None else client.small_file(file, limit=limit)
    except client_errors() as error:
        if status_of(error) == 404:
            return None
        raise


def _failures() -> tuple[type[Exception], ...]:
    return (DeadlineExceeded, UnicodeError, *client_errors())


def _is_missing_file(error: BaseException) -> bool:
    named = {kind.__name__ for kind in type(error).__mro__}
    return "EntryNotFoundError" in named or (status_of(error) == 404 and named.isdisjoint(_MISSING_MORE))


_MISSING_MORE = {"RepositoryNotFoundError", "RevisionNotFoundError"}


def _offline(name: str, revision: str, access: HubAccess, cache: HubCache) -> Repository:
    if (copy := _copy(name, revision, access, cache)) is not None:
        return copy
    at = "" if revision == "main" else f" at revision {revision!r}"
    raise ModelError(
        f"{name}: HF_HUB_OFFLINE is set and no copy{at} is in the cache",
        hint="set HF_HUB_OFFLINE=0, or give a directory, config.json or catalogue name (gpuplan models)",
    )


def _copy(name: str, revision: str, access: HubAccess, cache: HubCache) -> Repository | None:
    """What was read earlier, else what the client's cache holds of the repository; None without either."""
    commit = cache.commit_of(revision)
    if commit is not None and (stored := cache.load(commit)) is not None:
        return stored
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, CONFIG_FILE, cache_dir=access.cache_dir, revision=revision)
    if not isinstance(config, str):
        return None
    snapshot = Path(config).parent
    read = read_directory(snapshot, location=f"the cache of {name}")
    return replace(read, name=name, origin=Origin.HUB, location=name, revision=snapshot.name)
