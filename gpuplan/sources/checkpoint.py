"""Which safetensors files make up a checkpoint, and what is known of its size when some cannot be read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuplan.domain.repository import Evidence, TensorIndex
from gpuplan.errors import ModelError
from gpuplan.sources.config_json import parse_config
from gpuplan.sources.safetensors import Header, combine

CONFIG_FILE = "config.json"
QUANTIZATION_FILE = "hf_quant_config.json"
INDEX_FILE = "model.safetensors.index.json"
MAX_INDEX_BYTES = 64 * 1024**2
_SINGLE_FILE = "model.safetensors"
_MAX_FILES = 10_000
_FETCH_AGAIN = "fetch the index again, or plan from the config.json alone: gpuplan plan PATH/config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightIndex:
    """model.safetensors.index.json: the files that hold the weights."""

    files: tuple[str, ...]
    """Sorted, without repeats."""
    total_bytes: int | None
    """`metadata.total_size`; None when absent or not a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The best evidence for the size of the weights."""

    tensors: TensorIndex | None
    index_total_bytes: int | None
    evidence: Evidence
    notes: tuple[str, ...]


def parse_weight_index(content: bytes, *, where: str) -> WeightIndex:
    """Read the index of a sharded checkpoint. Raises ModelError, also for a file outside the directory."""
    document = parse_config(content, where=where, limit=MAX_INDEX_BYTES)
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise ModelError(
            f"{where}: weight_map is missing or does not map tensor names to files", hint=_FETCH_AGAIN
        )
    files = sorted(set(weight_map.values()))
    if len(files) > _MAX_FILES:
        raise ModelError(
            f"{where}: names {len(files)} files; at most {_MAX_FILES} are read", hint=_FETCH_AGAIN
        )
    for file in files:
        if not file or file.startswith("/") or "\\" in file or "\0" in file or ".." in file.split("/"):
            raise ModelError(
                f"{where}: weight_map names a file outside the model: {file[:100]!r}", hint=_FETCH_AGAIN
            )
    metadata = document.get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    total = None
    if isinstance(size, (int, float)) and not isinstance(size, bool) and 0 < size < 2**60:
        total = int(size)
    return WeightIndex(files=tuple(files), total_bytes=total)


def weight_files(names: Iterable[str], index: WeightIndex | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files vLLM would load, out of the names at the top of a repository, and notes.

    The index decides where there is one; else every `*.safetensors`, without `consolidated*` copies of the
    same weights and without adapters (vLLM 0.33, `filter_duplicate_safetensors_files`).
    """
    if index is not None:
        return index.files, ()
    found = sorted(name for name in names if name.endswith(".safetensors") and "/" not in name)
    weights = [name for name in found if not name.startswith(("consolidated", "adapter_", "training_args"))]
    if _SINGLE_FILE in weights:
        extra = [name for name in weights if name != _SINGLE_FILE]
        note = f"{_SINGLE_FILE} has no index; {len(extra)} other safetensors files beside it are loaded too"
        return tuple(weights), (note,) if extra else ()
    if weights:
        return tuple(weights), ()
    return tuple(name for name in found if name.startswith("consolidated")), ()


def weigh(
    headers: Sequence[Header], *, expected: Sequence[str], index: WeightIndex | None, missing: str
) -> Weights:
    """The best evidence from the headers that could be read.

    `expected` names all files of the checkpoint; when `headers` does not cover them, no tensor is reported
    and `missing` says why in the note.
    """
    total = index.total_bytes if index is not None else None
    if headers and len(headers) == len(expected):
        tensors, notes = combine(headers)
        return Weights(
            tensors=tensors, index_total_bytes=total, evidence=Evidence.SAFETENSORS_HEADERS, notes=notes
        )
    fallback = Evidence.SAFETENSORS_INDEX if total is not None else Evidence.CONFIG
    source = INDEX_FILE if total is not None else CONFIG_FILE
    reason = f"{len(expected) - len(headers)} of {len(expected)} safetensors files {missing}"
    if not expected:
        reason = "there are no safetensors files"
    return Weights(
        tensors=None,
        index_total_bytes=total,
        evidence=fallback,
        notes=(f"{reason}: the size of the weights comes from {source}",),
    )


def no_config(where: str, names: Sequence[str]) -> ModelError:
    """The error for a repository without config.json, by what it holds instead."""
    if "params.json" in names:
        return ModelError(
            f"{where}: has params.json (Mistral's own format) but no config.json",
            hint="give a repository of the same model that has one, or a catalogue name (gpuplan models)",
        )
    if "adapter_config.json" in names:
        return ModelError(
            f"{where}: is a LoRA adapter (adapter_config.json), not a model",
            hint="plan the base model and add the adapter: -- --enable-lora --max-lora-rank N",
        )
    if "model_index.json" in names:
        return ModelError(f"{where}: is a diffusers pipeline (model_index.json); vLLM serves no such model")
    if any(name.endswith(".gguf") for name in names):
        return ModelError(
            f"{where}: holds GGUF files and no config.json",
            hint="give the repository the GGUF files were made from, or its config.json",
        )
    return ModelError(
        f"{where}: has no config.json", hint="give a model's directory, or the config.json itself"
    )
