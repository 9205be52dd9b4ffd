"""Models on this machine's disk: a directory with its safetensors headers, or a configuration alone."""

from pathlib import Path
from typing import Any

from gpuplan.domain.repository import Evidence, Origin, Repository
from gpuplan.errors import ModelError
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
from gpuplan.sources.config_json import read_bounded, read_config
from gpuplan.sources.safetensors import Header, LfsPointer, read_header


def read_directory(directory: Path, *, location: str) -> Repository:
    """Read a model's directory: config.json, hf_quant_config.json, the headers of its safetensors files."""
    names = _names_in(directory)
    if CONFIG_FILE not in names:
        raise no_config(location, names)
    config = read_config(directory / CONFIG_FILE)
    quantization = read_config(directory / QUANTIZATION_FILE) if QUANTIZATION_FILE in names else None
    index = None
    if INDEX_FILE in names:
        where = directory / INDEX_FILE
        index = parse_weight_index(read_bounded(where, limit=MAX_INDEX_BYTES), where=str(where))
    files, notes = weight_files(names, index)
    headers = [header for file in files if (header := _header_of(directory / file)) is not None]
    weights = weigh(headers, expected=files, index=index, missing=f"are not in {location}")
    return Repository(
        name=directory.resolve().name or location,
        origin=Origin.DIRECTORY,
        location=location,
        config=config,
        quantization=quantization,
        tensors=weights.tensors,
        index_total_bytes=weights.index_total_bytes,
        evidence=weights.evidence,
        notes=(*notes, *weights.notes),
    )


def read_config_file(path: Path, *, location: str) -> Repository:
    """Read a configuration and the `hf_quant_config.json` or `STEM.hf_quant_config.json` beside it."""
    siblings = [path.with_name(f"{path.stem}.{QUANTIZATION_FILE}")]
    if path.name == CONFIG_FILE:
        siblings.append(path.with_name(QUANTIZATION_FILE))
    quantization: dict[str, Any] | None = None
    for sibling in siblings:
        if exists(sibling):
            quantization = read_config(sibling)
            break
    return Repository(
        name=(path.resolve().parent.name if path.name == CONFIG_FILE else path.stem) or path.stem,
        origin=Origin.FILE,
        location=location,
        config=read_config(path),
        quantization=quantization,
        evidence=Evidence.CONFIG,
    )


def exists(path: Path) -> bool:
    """Whether the path names something; a name no file system accepts names nothing."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _header_of(path: Path) -> Header | None:
    """The header; None where the file is missing or git-lfs left a pointer."""
    if not exists(path):
        return None
    try:
        return read_header(path)
    except LfsPointer:
        return None


def _names_in(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir())
    except OSError as error:
        raise ModelError(f"{directory}: cannot be read: {error.strerror or error}") from error
