"""safetensors headers: eight bytes of length, then JSON. Only they are read, nothing is believed unchecked.

The rules are those of the safetensors library (0.8, `SafeTensors::read_metadata` and `Metadata::validate`): a
header of at most 100 MB, tensors end to end without gap or overlap, sizes that follow from type and shape.
"""

import json
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuplan.domain.repository import TensorIndex, TensorKind
from gpuplan.errors import ModelError
from gpuplan.units import ceil_div

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
_MAX_RANK = 64
_LFS_POINTER = b"version https://git-lfs"

DTYPE_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
"""Bits per element of the types safetensors 0.8 knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The tensors of one file."""

    file: str
    tensors: TensorIndex
    unknown_dtypes: tuple[str, ...] = ()
    """Types not in `DTYPE_BITS`; their sizes come from the offsets alone."""


class LfsPointer(Exception):
    """The file is a git-lfs pointer: the weights were never fetched."""


def header_length(prefix: bytes, *, file: str, file_bytes: int | None) -> int:
    """Length of the JSON part in bytes, from the first eight bytes of the file.

    Raises ModelError when the file is too short, claims more than 100 MB or more than the file holds.
    """
    if len(prefix) < LENGTH_BYTES:
        raise _broken(file, f"it has {len(prefix)} bytes, fewer than the 8 of a safetensors header's length")
    length = int.from_bytes(prefix[:LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES:
        raise _broken(file, f"its header claims {length} bytes; safetensors allows {MAX_HEADER_BYTES}")
    if file_bytes is not None and length > file_bytes - LENGTH_BYTES:
        raise _broken(file, f"its header claims {length} bytes, but the file ends after {file_bytes}")
    return length


def parse_header(text: bytes, *, file: str, file_bytes: int | None) -> Header:
    """Read the JSON part of a header; `file_bytes` is the size of the whole file, None when unknown.

    Raises ModelError naming the file, and the tensor where one is at fault.
    """
    known: dict[tuple[str, tuple[int, ...], int], TensorKind] = {}
    spans: list[tuple[int, int, str]] = []
    names: list[str] = []
    columns: list[TensorKind] = []
    for name, entry in _decode(text, file):
        if name == "__metadata__":
            continue
        dtype, shape, begin, end = _fields(name, entry, file)
        key = (dtype, shape, end - begin)
        kind = known.get(key)
        if kind is None:
            kind = known[key] = _kind(name, *key, file)
        spans.append((begin, end, name))
        names.append(name)
        columns.append(kind)
    data_bytes = None if file_bytes is None else file_bytes - LENGTH_BYTES - len(text)
    _check_layout(spans, data_bytes, file)
    return Header(
        file=file,
        tensors=TensorIndex(names=tuple(names), kinds=tuple(columns)),
        unknown_dtypes=tuple(sorted({kind.dtype for kind in known.values()} - DTYPE_BITS.keys())),
    )


def read_header(path: Path) -> Header:
    """Read the header of a local file, and not one byte of its weights.

    Raises ModelError for a broken file and LfsPointer where git-lfs left a pointer instead of the weights.
    """
    file = str(path)
    try:
        with open(path, "rb", opener=_open_without_waiting) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _broken(file, "it is not a regular file")
            prefix = stream.read(LENGTH_BYTES)
            if prefix and _LFS_POINTER.startswith(prefix) and status.st_size < 1024:
                raise LfsPointer(file)
            length = header_length(prefix, file=file, file_bytes=status.st_size)
            text = stream.read(length)
    except OSError as error:
        raise ModelError(f"{file}: cannot be read: {error.strerror or error}") from error
    return parse_header(text, file=file, file_bytes=status.st_size)


def combine(headers: Iterable[Header]) -> tuple[TensorIndex, tuple[str, ...]]:
    """All tensors of several files as one index, and notes on what is odd about them.

    A name that two files hold counts once, as it loads once.
    """
    kinds: dict[TensorKind, TensorKind] = {}
    columns: dict[str, TensorKind] = {}
    repeated: list[str] = []
    unknown: set[str] = set()
    for header in headers:
        unknown.update(header.unknown_dtypes)
        for name, kind in zip(header.tensors.names, header.tensors.kinds, strict=True):
            if name in columns:
                repeated.append(name)
            else:
                columns[name] = kinds.setdefault(kind, kind)
    notes: list[str] = []
    if repeated:
        notes.append(
            f"{len(repeated)} tensors are in more than one file, {repeated[0]} first; each is counted once"
        )
    if unknown:
        notes.append(
            f"tensor types unknown to this version, sized by their offsets: {', '.join(sorted(unknown))}"
        )
    return TensorIndex(names=tuple(columns), kinds=tuple(columns.values())), tuple(notes)


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _decode(text: bytes, file: str) -> Iterable[tuple[str, Any]]:
    def pairs(items: list[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
        # Each object is packed as it is met, so that a large header never exists as nested dictionaries.
        return tuple(items)

    parse: Callable[..., Any] = json.loads
    try:
        document = parse(text.decode("utf-8"), object_pairs_hook=pairs)
    except UnicodeDecodeError as error:
        raise _broken(file, f"its header is not UTF-8 (byte {error.start})") from error
    except RecursionError as error:
        raise _broken(file, "its header is nested too deeply") from error
    except ValueError as error:
        raise _broken(file, f"its header is not JSON: {str(error)[:200]}") from error
    if not isinstance(document, tuple):
        raise _broken(file, "its header is not a JSON object")
    if len({name for name, _ in document}) != len(document):
        raise _broken(file, "its header names a tensor twice")
    return document


def _fields(name: str, entry: Any, file: str) -> tuple[str, tuple[int, ...], int, int]:
    """Type, shape, and where the tensor's bytes begin and end."""
    fields = dict(entry) if isinstance(entry, tuple) else {}
    dtype = fields.get("dtype")
    shape, offsets = _sizes(fields.get("shape")), _sizes(fields.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:
        raise _broken(file, f"tensor {name[:100]!r} lacks a valid dtype, shape or data_offsets")
    begin, end = offsets
    if end < begin:
        raise _broken(file, f"tensor {name[:100]!r} ends before it begins ({begin} to {end})")
    return dtype, shape, begin, end


def _kind(name: str, dtype: str, shape: tuple[int, ...], size: int, file: str) -> TensorKind:
    """The kind of these facts, once they are known to agree."""
    if len(shape) > _MAX_RANK:
        raise _broken(file, f"tensor {name[:100]!r} has {len(shape)} dimensions")
    kind = TensorKind(dtype=dtype, shape=shape, bytes=size)
    bits = DTYPE_BITS.get(dtype)
    needed = size if bits is None else ceil_div(kind.elements * bits, 8)
    if size != needed:
        raise _broken(
            file, f"tensor {name[:100]!r} ({dtype}, shape {list(shape)}) needs {needed} bytes but has {size}"
        )
    return kind


def _sizes(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    for item in value:
        if type(item) is not int or not 0 <= item < 2**63:
            return None
    return tuple(value)


def _check_layout(spans: list[tuple[int, int, str]], data_bytes: int | None, file: str) -> None:
    expected = 0
    for begin, end, name in sorted(spans):
        if begin != expected:
            fault = "overlaps the tensor before it" if begin < expected else "leaves a gap before it"
            raise _broken(file, f"tensor {name[:100]!r} {fault}: it begins at {begin}, not at {expected}")
        expected = end
    if data_bytes is not None and expected != data_bytes:
        if expected > data_bytes:
            raise _broken(file, f"it is truncated: its tensors need {expected} bytes, {data_bytes} are there")
        raise _broken(file, f"its tensors need {expected} bytes, but {data_bytes} follow the header")


def _broken(file: str, what: str) -> ModelError:
    return ModelError(
        f"{file}: not a valid safetensors file: {what}",
        hint="download the file again, or plan from its config.json alone: gpuplan plan PATH/config.json",
    )
