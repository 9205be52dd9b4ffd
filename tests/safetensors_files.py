"""Small, valid safetensors files, written by hand."""

import json
from collections.abc import Mapping

_BITS = {"F4": 4, "U8": 8, "F8_E4M3": 8, "BF16": 16, "I32": 32, "F32": 32}


def safetensors_file(tensors: Mapping[str, tuple[str, tuple[int, ...]]], *, fill: bytes = b"\x5a") -> bytes:
    """A file with these tensors (name to dtype and shape), every byte of weights being `fill`."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        count = 1
        for extent in shape:
            count *= extent
        size = count * _BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    return with_header(json.dumps(header).encode(), fill * offset)


def with_header(header: bytes, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A file with this header, which may claim another length than it has."""
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data
